"""Whether chains, slices and rows are what they are said to be."""
