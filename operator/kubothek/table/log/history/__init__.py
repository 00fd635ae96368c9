"""What there was: versions, and what lies between them."""
