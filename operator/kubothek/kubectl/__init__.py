"""``kubectl kubothek``: the resources of a cluster, from a person's or a pipeline's own machine.

It reads and writes through the API server only, with the rights of whoever calls it; it holds no credentials of stores.
"""
