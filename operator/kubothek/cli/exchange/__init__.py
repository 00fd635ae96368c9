"""Commands that speak with other parties: datasets served, pulled, pushed and found."""
