"""One module per kind, each with a pure function from a resource and its context to an outcome."""
