"""Jobs: when one may start, what its attempts tell, how often and how soon again, and what is kept of it."""
