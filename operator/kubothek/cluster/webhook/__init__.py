"""The validating webhook: it checks the rules of :mod:`kubothek.controller.validation` before a manifest is stored.

It is optional, and never the only check: the CRDs have the rules that CEL can express, and reconcilers check all again.
"""
