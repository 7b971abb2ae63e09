"""Mixing: which share of the training samples each component gets, and the file that says so."""
