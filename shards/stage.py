"""The recipe's `shard` stage: kept text in, shards out.

shard.tokenizer   a given tokenizer.json, checked, or one trained on kept text      shards/vocabulary.py
shard.kinds       a column of the kind of each text, where `components.by` asks for it or does not list sources  shards/kinds.py
shard.edges, shard.bands  columns for `components.by`, where it asks for bands  shards/bands.py
shard.scatter     token ids by component and key range; goes when shard.write stands  shards/scatter.py
shard.scatter.merged  files of it joined where a corpus is so large that slices would be small  shards/merge.py
shard.write       one shard a unit, sorted by key, packed; manifests                  shards/write.py
shard.components  what is known of each component beside its tokens                   shards/about.py
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from corpusmill.pipeline.chain import Chain
from corpusmill.pipeline.engine import merge
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.registry import suggestion
from corpusmill.pipeline.text.tokenizer import BEGIN_OF_TEXT, END_OF_TEXT, SMALLEST_VOCAB
from corpusmill.shards.about import About
from corpusmill.shards.audit import AUDIT, Audit
from corpusmill.shards.bands import BandEdges, Bands
from corpusmill.shards.components import SYNTHETIC, Components
from corpusmill.shards.kinds import Kinds
from corpusmill.shards.layout import DOCS, MOST_BLOCK_BYTES, MOST_SEQUENCE, Boundary, Packing
from corpusmill.shards.merge import MergeTokens
from corpusmill.shards.scatter import Scatter
from corpusmill.shards.vocabulary import GivenTokenizer, TrainedTokenizer, read_tokenizer
from corpusmill.shards.write import Write

VOCAB = 32_768
SAMPLE_BYTES = 64 << 20


@dataclass(frozen=True)
class TokenizerSource:
    """An existing vocabulary (`file`: tokenizer.json, a tiktoken rank file or a SentencePiece model), or byte-level BPE with `vocab` entries trained on about `sample_bytes` of kept text
    (`train: bpe`). `eos` and `bos` name the tokens for the end and the begin of a text where a file has several that could be it. Of a rank file, `pattern` says how
    text is cut (gpt2, r50k, p50k, cl100k, o200k or a regular expression) and `special` what tokens stand beside the ranks."""

    file: str | None = None
    train: Literal["bpe"] | None = None
    vocab: int | None = None
    sample_bytes: int | None = None
    eos: str | None = None
    bos: str | None = None
    pattern: str | None = None
    special: dict[str, int] | None = None

    def operation(self, seed: int, name: str, boundary: Boundary) -> GivenTokenizer | TrainedTokenizer:
        if (self.file is None) == (self.train is None):
            raise RecipeError(
                f"{name}.tokenizer: give a file (file: tokenizer.json) or train one (train: bpe, vocab: {VOCAB})"
            )
        if self.file is not None:
            if self.vocab is not None or self.sample_bytes is not None:
                raise RecipeError(
                    f"{name}.tokenizer: vocab and sample_bytes are for training; {self.file} has a vocabulary already"
                )
            return GivenTokenizer(
                read_tokenizer(self.file)[1], self.eos, self.bos, self.pattern, self.special, self.file
            )
        if self.pattern is not None or self.special is not None:
            raise RecipeError(
                f"{name}.tokenizer: pattern and special are for a tiktoken file; leave them out"
            )
        vocab = VOCAB if self.vocab is None else self.vocab
        sample_bytes = SAMPLE_BYTES if self.sample_bytes is None else self.sample_bytes
        bos = self.bos
        if bos is None and boundary in ("bos", "both"):
            bos = BEGIN_OF_TEXT[0]
        least = SMALLEST_VOCAB + (bos is not None)
        if vocab < least or sample_bytes < 1:
            raise RecipeError(
                f"{name}.tokenizer: vocab is {vocab} (at least {least}), sample_bytes {sample_bytes} (at least 1)"
            )
        return TrainedTokenizer(seed, vocab, sample_bytes, self.eos or END_OF_TEXT[0], bos)


@dataclass(frozen=True)
class Shard:
    """Tokenize, shuffle and pack what is kept. `measures` go along into the docs sidecar (default: language and scores)."""

    tokenizer: TokenizerSource
    sequence_length: int = 2048
    block_bytes: int = 16 << 20
    shard_bytes: int = 256 << 20
    boundary: Boundary = "eos"  # what stands around each document: its end, its begin, both or nothing
    packing: Packing = "concat"  # how documents share rows (shards/pack.py)
    components: Components = field(default_factory=Components)
    measures: tuple[str, ...] | None = None
    audit: Audit = field(default_factory=Audit)
    holdout: float = 0.0  # this share of each component is kept for evaluation (shards/holdout.py)

    def extend(self, chain: Chain, name: str) -> None:
        self._check(name)
        measures = _scores(chain.columns) if self.measures is None else self.measures
        _known(f"{name}.measures", measures, chain.columns)
        self._bands(chain, name)
        by = self._by(chain, name)
        _known(f"{name}.components.by", by, [*chain.columns, "source", "date", "modality"])
        tokenizer = f"{name}.tokenizer"
        chain.set(tokenizer, self.tokenizer.operation(chain.seed, name, self.boundary), kept=True)
        written = self.lay(chain, name, tokenizer, by, measures, Write)
        chain.set(
            f"{name}.components",
            About(written, by, chain.seed, self.holdout, chain.clusters, dict(chain.kinds)),
            reads=(written, *([chain.clusters] if chain.clusters else [])),
            kept=True,
            measures=[column for column in by if column in chain.columns],
        )

    def lay(
        self,
        chain: Chain,
        name: str,
        tokenizer: str,
        by: tuple[str, ...],
        measures: tuple[str, ...],
        write: type[Write],
    ) -> str:
        """Append what makes shards by the vocabulary of the stage `tokenizer`; the name of the stage that holds them."""
        scatter = f"{name}.scatter"
        clusters = chain.clusters if self.holdout else None
        operation = Scatter(
            chain.seed,
            tokenizer,
            by,
            measures,
            self.shard_bytes,
            self.boundary,
            self.audit,
            self.holdout,
            clusters,
        )
        chain.set(
            scatter,
            operation,
            reads=(tokenizer, *([clusters] if clusters else [])),
            kept=True,
            measures=[column for column in (*by, *measures) if column in chain.columns],
        )
        merged = f"{scatter}.merged"
        chain.set(merged, MergeTokens(scatter, merge.BOUNDS), reads=(scatter,))
        made = write(
            tokenizer,
            scatter,
            merged,
            by,
            measures,
            self.sequence_length,
            self.block_bytes,
            self.shard_bytes,
            self.boundary,
            self.packing,
            bool(self.holdout),
        )
        chain.set(f"{name}.write", made, reads=(tokenizer, scatter, merged))
        return f"{name}.write"

    def _by(self, chain: Chain, name: str) -> tuple[str, ...]:
        """The columns that tell components. A source has one kind of text; where sources are together, kinds are kept apart."""
        by = self.components.columns
        if chain.kinds and "source" not in by and SYNTHETIC not in by:
            by = (*by, SYNTHETIC)
        if SYNTHETIC in by:
            chain.set(f"{name}.kinds", Kinds(dict(chain.kinds)), writes=(SYNTHETIC,))
        return by

    def _bands(self, chain: Chain, name: str) -> None:
        """The columns of the bands that `components.by` asks for; edges only where some are to be found."""
        bands = self.components.bands
        if not bands:
            return
        _known(f"{name}.components.by", (band.band for band in bands), chain.columns)
        measures = list(dict.fromkeys(band.band for band in bands))
        cut = tuple(band for band in bands if band.parts is not None)
        found = f"{name}.edges" if cut else None
        if found is not None:
            chain.set(found, BandEdges(chain.seed, cut), kept=True, measures=measures)
        reads = () if found is None else (found,)
        written = [band.column for band in bands]
        chain.set(f"{name}.bands", Bands(bands, found), reads, kept=True, measures=measures, writes=written)

    def _check(self, name: str) -> None:
        if not 1 <= self.sequence_length <= MOST_SEQUENCE:
            raise RecipeError(
                f"{name}: sequence_length is {self.sequence_length}; it has to be from 1 to {MOST_SEQUENCE}"
            )
        if not 1 <= self.block_bytes <= MOST_BLOCK_BYTES:
            raise RecipeError(
                f"{name}: block_bytes is {self.block_bytes}; it has to be from 1 to {MOST_BLOCK_BYTES}"
            )
        if self.shard_bytes < self.block_bytes:
            raise RecipeError(
                f"{name}: shard_bytes ({self.shard_bytes}) is less than block_bytes ({self.block_bytes})"
            )
        self.audit.check(f"{name}.audit")
        if not 0 <= self.holdout < 1:
            raise RecipeError(f"{name}: holdout is {self.holdout}; it is a share from 0 to below 1")
        if not self.components.by or len(set(self.components.columns)) < len(self.components.by):
            raise RecipeError(
                f"{name}: components.by is {list(self.components.columns)}; name at least one column, each once"
            )


def _scores(columns: Iterable[str]) -> tuple[str, ...]:
    """What `locate` and a mixture's analysis ask for first; other measures are a join by id away."""
    return tuple(name for name in columns if name == "language" or name.endswith("_score"))


def _known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            raise RecipeError(f"{what}: no earlier stage makes {name!r}; {suggestion(name, known)}")
        if name in (*DOCS.names, *AUDIT.names) and name != "source":
            raise RecipeError(f"{what}: {name!r} is a column of every docs sidecar already; leave it out")
