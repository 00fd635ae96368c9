"""Index types that Xskipper does not have: what files are described by, and what that says of filters.

Their entries lie in a directory beside Xskipper's, as its REFRESH fails on what it does not know (Xskipper's
Metadatastore Spec, "Per-Index Columns").
"""
