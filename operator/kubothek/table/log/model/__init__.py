"""The objects of the protocol in the store, their keys, and the types of their content. Plain data."""
