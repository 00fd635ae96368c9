"""What can be wrong with a resource among others, which neither its schema nor CEL can say.

One rule a module, each a pure function of a resource and of what else there is; ``rules`` says which hold for which
kind. Three ask them: the reconcilers, which put the answer into conditions; ``kubothek lint``, to which "what else
there is" are manifests in files; and the validating webhook.
"""
