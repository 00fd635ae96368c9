"""Kubothek beside its peers, in one run on one machine; README.md tells how to read the figures."""
