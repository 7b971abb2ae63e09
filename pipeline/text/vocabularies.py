"""Vocabulary files as tokenizer.json, whatever they are: told by their content, converted once, the same bytes each time."""

from __future__ import annotations

from corpusmill.pipeline.errors import ModelError
from corpusmill.pipeline.text.rank_files import from_ranks, is_rank_file
from corpusmill.pipeline.text.sentencepieces import from_model


def as_tokenizer_json(
    content: bytes, where: str, pattern: str | None = None, special: dict[str, int] | None = None
) -> tuple[bytes, str]:
    """tokenizer.json, and what `content` is: tokenizer.json, tiktoken or sentencepiece. `pattern` and `special` are for tiktoken."""
    if is_rank_file(content):
        return from_ranks(content, where, pattern, special), "tiktoken"
    if pattern is not None or special is not None:
        raise ModelError(
            f"{where}: pattern and special are for tiktoken files, which this is not; leave them out"
        )
    if content.lstrip()[:1] == b"{":
        return content, "tokenizer.json"
    return from_model(content, where), "sentencepiece"
