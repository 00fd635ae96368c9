"""One module a kind, each a pure function from a resource and its world to an outcome."""
