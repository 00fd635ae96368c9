"""A fleet of resources in a real API server, its kubelet, and the books on who asked the API server for what."""
