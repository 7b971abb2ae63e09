"""corpusmill: raw web crawls in; verified, deduplicated, weighted, tokenized, shuffled Arrow shards out.

The code lives in the folders beside this one; the links here give it its import name.
"""

__version__ = "0.1.0"
