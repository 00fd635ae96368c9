"""Index types that Xskipper does not have: how they describe files, and which filters that description answers.

Their entries have a directory next to Xskipper's, because its REFRESH fails on unknown types (Xskipper's Metadatastore
Spec, "Per-Index Columns").
"""
