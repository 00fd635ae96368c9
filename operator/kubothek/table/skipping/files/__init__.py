"""Metadata files, Xskipper's and Kubothek's own: reading and writing."""
