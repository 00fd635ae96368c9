"""Every decision of the operator: ``reconcile(resource, context) -> Outcome``."""
