"""Plain files: files that Kubothek does not own, with separate skipping metadata."""
