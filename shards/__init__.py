"""Shards: written once, then streamed in one global order on any number of ranks."""
