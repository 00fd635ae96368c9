"""Bloom filters, bit by bit as Spark's sketches make them and Xskipper stores them."""
