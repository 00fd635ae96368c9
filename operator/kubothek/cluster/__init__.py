"""The operator in a Kubernetes cluster: watches resources, runs reconcilers, launches jobs as pods."""
