"""Rules about several resources, which a schema or CEL cannot express.

Each rule is a pure function of a resource and the other existing resources; ``rules`` assigns them to kinds. They have
three callers: reconcilers, which put findings into conditions; ``kubothek lint``, for which the existing resources are
manifests in files; and the validating webhook.
"""
