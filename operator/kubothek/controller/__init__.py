"""Every decision of the operator: ``reconcile(resource, world) -> Outcome``."""
