"""Commands that exchange datasets with other parties: serve, pull, push and search."""
