"""Descriptions of data files, collected in the pass that writes them or from the files."""
