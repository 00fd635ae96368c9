"""What a Dataset has done for it as long as it stands, by itself: errands, one at a time."""
