"""Verification of chains, slices and rows."""
