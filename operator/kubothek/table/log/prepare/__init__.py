"""What goes into a commit: from the present head and a change to the next head and its record."""
