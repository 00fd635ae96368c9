"""Files that Kubothek does not own, with skipping metadata kept beside them."""
