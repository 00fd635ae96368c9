"""Kartothek tables: partitions, writing and scanning. Nothing here decides which files are current."""
