"""The ``kubothek`` command. For clusters there is also ``kubectl kubothek``: :mod:`kubothek.kubectl`."""
