"""Metadata as files: Xskipper's and our own, read and written."""
