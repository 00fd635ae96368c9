"""Heads of other libraries, and stores without conditional writes."""
