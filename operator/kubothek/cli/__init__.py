"""The ``kubothek`` command, also installed as ``kubectl-kubothek``."""
