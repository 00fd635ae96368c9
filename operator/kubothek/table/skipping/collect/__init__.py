"""What data files hold, learnt in the pass that writes them or from the files."""
