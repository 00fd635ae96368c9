"""What the protocol keeps in the store and under which keys, and what these objects speak of. Plain data."""
