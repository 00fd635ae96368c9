"""``kubectl kubothek``: the resources of a cluster, from the machine of a user or pipeline.

It uses only the API server, with the rights of its caller, and holds no credentials of stores.
"""
