"""What a run will cost, and what it did: a measured sample, its extrapolation, and the comparison at the end."""
