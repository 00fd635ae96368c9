"""The world behind a cluster: watches resources, runs reconcilers, launches jobs as pods."""
