"""Heads that other libraries write, and stores that cannot write conditionally."""
