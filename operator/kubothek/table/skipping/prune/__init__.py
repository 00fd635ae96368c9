"""Which files a query needs, and what skipping achieved."""
