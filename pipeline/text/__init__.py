"""Text shared by several rooms: what a character is, how words are cut, the adapter of tokenizers."""
