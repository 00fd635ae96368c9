"""The ``kubothek`` command. In a cluster there is ``kubectl kubothek`` beside it: :mod:`kubothek.kubectl`."""
