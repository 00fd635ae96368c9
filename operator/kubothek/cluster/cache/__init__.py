"""What the operator has seen of the cluster, and what follows from it for whom. All of it may be forgotten."""
