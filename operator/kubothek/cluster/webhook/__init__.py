"""The validating webhook: the rules of :mod:`kubothek.controller.validation`, asked before a manifest is stored.

Optional, and never the only one to ask: the CRDs hold what CEL can say, and reconcilers ask the same rules again.
"""
