"""Sources of root datasets: fetch what a polling source names, and read it into rows."""
