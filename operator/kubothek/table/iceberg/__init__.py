"""Iceberg metadata of a table, derived from its log: Iceberg specification, format version 2.

All modules but ``locations``, ``result`` and ``state`` import pyiceberg, the extra ``iceberg``; nothing else of the
package needs it.
"""
