"""Readers of foreign bytes: CSV, JSON lines and Parquet, in splits and in bounded memory."""
