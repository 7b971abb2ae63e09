"""Shards: written once, then streamed in one global order on any number of ranks.

Reading needs numpy, pyarrow and xxhash alone; torch comes with `corpusmill.shards.torch`, tokenizers with the stages that write.
"""

from corpusmill.shards.cursor import Cursor
from corpusmill.shards.locate import locate
from corpusmill.shards.stream import Stream, stream
from corpusmill.shards.suspects import suspects
from corpusmill.shards.verify import verify
from corpusmill.shards.where import where

__all__ = ["Cursor", "Stream", "locate", "stream", "suspects", "verify", "where"]
