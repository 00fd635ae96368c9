"""Kartothek tables: schema, partitions, writing, scanning."""
