"""The recipe's `dedup` stage: its fields, checked before a run, and the stages that it stands for.

signatures   measure over all rows with text
hashes  copies            exact copies, by content hash
bands  bands.merged  pairs              candidates, by bands of the signature (engine datasketch: its index instead of bands)
shingles  shingles.merged  edges        every candidate verified by exact Jaccard similarity
clusters  outcomes        survivors over the whole corpus
verdict                   a row a document; closes the stage in the ledger
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from corpusmill.dedup.bands import optimum, probability
from corpusmill.dedup.clusters import Clusters, Outcomes
from corpusmill.dedup.exact import Copies, HashScatter
from corpusmill.dedup.layout import Shared
from corpusmill.dedup.pairs import FEW_LEADERS, BandScatter, Pairs
from corpusmill.dedup.reference import DatasketchPairs
from corpusmill.dedup.signatures import SIGNATURE, Signatures
from corpusmill.dedup.verdict import Verdict
from corpusmill.dedup.verify import Edges, ShingleScatter
from corpusmill.pipeline.chain import Chain
from corpusmill.pipeline.documents import DOCUMENTS
from corpusmill.pipeline.engine import merge
from corpusmill.pipeline.engine.merge import Merge
from corpusmill.pipeline.errors import RecipeError

AUTO_HASHES = 112
MOST_HASHES = 1 << 14
"""64 KiB a document; RefinedWeb took 9,000 hashes (Penedo et al. 2023)."""
MOST = 1 << 62
LEAST_RECALL = 0.5
"""Chance with which a pair at Jaccard 0.95 (or at_least, when higher) must become a candidate, or the settings are refused."""


@dataclass(frozen=True)
class Dedup:
    """Remove exact copies and near duplicates, keeping one similar document for each that goes.

    at_least: Jaccard similarity of sets of `ngram`-word shingles from which two documents count as duplicates.
    bands, rows: 14 of 8 as FineWeb; `bands: auto` takes datasketch's optimum for `at_least` and a signature of `hashes` minima.
    scope: `source` seeks duplicates within each source only.
    priority: columns (measures or document columns) that say which of two similar documents stays: the greater value, or with `-`
    before the name the smaller. Then more words, then the content hash.
    near: false removes exact copies only.
    max_source_loss: share of a source (of 1,000 and more documents) whose removal stops the run.
    leaders, long_run: how many members of a run of equal bands the others are compared with (2 in runs longer than `long_run`).
    bucket_bytes: records that one task sorts; memory_bytes: what clusters over the whole corpus may take.
    """

    at_least: float = 0.7
    bands: int | Literal["auto"] = 14
    rows: int = 8
    hashes: int | None = None  # None: bands x rows, or 112 with bands: auto
    ngram: int = 5
    scope: Literal["global", "source"] = "global"
    priority: tuple[str, ...] = ()
    near: bool = True
    max_source_loss: float = 0.95
    engine: Literal["files", "datasketch"] = "files"
    leaders: int = 8
    long_run: int = 1_000
    bucket_bytes: int = 256 << 20
    memory_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        if not 0.0 < self.at_least <= 1.0:
            raise RecipeError(
                f"dedup.at_least is a Jaccard similarity above 0 and up to 1, not {self.at_least}"
            )
        if not 0.0 <= self.max_source_loss <= 1.0:
            raise RecipeError(f"dedup.max_source_loss is a share from 0 to 1, not {self.max_source_loss}")
        least = {
            "rows": 1,
            "ngram": 1,
            "leaders": FEW_LEADERS,
            "long_run": 2,
            "bucket_bytes": 1 << 12,
            "memory_bytes": 1 << 20,
        }
        for name, low in least.items():
            if not low <= getattr(self, name) <= MOST:
                raise RecipeError(f"dedup.{name} must be from {low} to {MOST}, not {getattr(self, name)}")
        if len(set(self.priority)) != len(self.priority):
            raise RecipeError(f"dedup.priority names a column twice: {', '.join(self.priority)}")
        self._check_bands()
        hashes = self.hashes or (AUTO_HASHES if self.bands == "auto" else self.bands * self.rows)
        if hashes > MOST_HASHES:
            raise RecipeError(f"dedup: a signature has at most {MOST_HASHES} hashes, not {hashes}")

    def _check_bands(self) -> None:
        if self.bands == "auto":
            if self.rows != 8:
                raise RecipeError(
                    "dedup.rows has no effect with bands: auto; give `hashes`, the length of the signature"
                )
            if self.hashes is not None and self.hashes < 2:
                raise RecipeError(f"dedup.hashes must be at least 2, not {self.hashes}")
            return
        low = 2 if self.engine == "datasketch" else 1  # its index refuses a single band
        if self.bands < low:
            raise RecipeError(f"dedup.bands must be at least {low} or auto, not {self.bands}")
        if self.hashes is not None and self.hashes < self.bands * self.rows:
            raise RecipeError(
                f"dedup: {self.bands} bands of {self.rows} need {self.bands * self.rows} hashes, not {self.hashes}"
            )
        similar = max(self.at_least, 0.95)
        chance = probability(similar, self.bands, self.rows)
        if self.near and chance < LEAST_RECALL:
            raise RecipeError(
                f"dedup: {self.bands} bands of {self.rows} rows would find {chance:.0%} of the pairs at Jaccard {similar}: "
                "take more bands or fewer rows (FineWeb: 14 bands of 8), or bands: auto"
            )

    def banding(self) -> tuple[int, int, int]:
        """(bands, rows, hashes) in force."""
        if self.bands == "auto":
            hashes = self.hashes or AUTO_HASHES
            return (*optimum(self.at_least, hashes), hashes)
        return self.bands, self.rows, self.hashes or self.bands * self.rows

    def extend(self, chain: Chain, name: str) -> None:
        self._check_priority(chain)
        bands, rows, hashes = self.banding()
        suffix = f"@{name}" if SIGNATURE in chain.columns else ""
        shared = Shared(name, bands, rows, self.scope, self.priority, self.bucket_bytes, suffix)
        step = shared.name
        chain.measure(step("signatures"), Signatures(self.ngram, hashes), suffix)
        signatures = (step("signatures"),)
        chain.set(step("hashes"), HashScatter(shared), signatures, kept=True, measures=self._measures(chain))
        chain.set(step("copies"), Copies(shared), reads=(step("hashes"),))
        if self.near:
            self._extend_near(chain, shared)
        chain.set(
            step("outcomes"),
            Outcomes(shared, self.near),
            reads=(step("copies"), *([step("clusters")] if self.near else [])),
        )
        evidence = ("outcomes", *(["clusters"] if self.near else []))
        verdict = Verdict(shared, self.near, self.max_source_loss)
        reads = (*signatures, *map(step, evidence))
        chain.set(step("verdict"), verdict, reads, kept=True, measures=self._measures(chain))
        chain.verdict(step("verdict"))
        chain.clusters = step("verdict")

    def _extend_near(self, chain: Chain, shared: Shared) -> None:
        step = shared.name
        own = (step("signatures"), step("copies"))
        if self.engine == "datasketch":
            index = DatasketchPairs(shared, self.leaders, self.long_run)
            chain.set(step("pairs"), index, own, kept=True, measures=self._measures(chain))
        else:
            chain.set(step("bands"), BandScatter(shared), own, kept=True, measures=self._measures(chain))
            chain.set(step("bands.merged"), Merge(step("bands"), merge.BOUNDS), reads=(step("bands"),))
            pairs = Pairs(shared, self.leaders, self.long_run)
            chain.set(step("pairs"), pairs, reads=(step("bands"), step("bands.merged")))
        shingles, reads = ShingleScatter(shared, self.ngram), (*own, step("pairs"))
        chain.set(step("shingles"), shingles, reads, kept=True, measures=self._measures(chain))
        chain.set(step("shingles.merged"), Merge(step("shingles"), merge.BOUNDS), reads=(step("shingles"),))
        verified = (step("pairs"), step("shingles"), step("shingles.merged"))
        chain.set(step("edges"), Edges(shared, self.at_least), reads=verified)
        chain.set(step("clusters"), Clusters(shared, self.memory_bytes), reads=(step("edges"),))

    def _measures(self, chain: Chain) -> list[str]:
        """The columns of `priority` that earlier stages measured (the others are the documents' own)."""
        names = [name.removeprefix("-") for name in self.priority]
        return [name for name in names if name in chain.columns]

    def _check_priority(self, chain: Chain) -> None:
        known = {*chain.columns, *DOCUMENTS.names}
        for name in self.priority:
            if name.removeprefix("-") not in known:
                raise RecipeError(
                    f"dedup.priority: no earlier stage computes {name.removeprefix('-')!r}; there are {_listed(chain.columns)}"
                )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no measures yet"
