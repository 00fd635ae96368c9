"""Readers of external bytes: CSV, JSON lines and Parquet, in splits and in bounded memory."""
