"""One entry of a recipe's `inputs`: where files are, and which of them are taken."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, Literal
from urllib.parse import urlsplit

from corpusmill.pipeline.kinds import Kind, Synthetic
from corpusmill.pipeline.remote import WEB, Access

COMMON_CRAWL = "https://data.commoncrawl.org/"
CRAWL = re.compile(r"CC-MAIN-\d{4}-\d{2}")


@dataclass(frozen=True)
class Input:
    """Exactly one of `path`, `paths_file` and `crawl`.

    `path`: a file here (relative to the folder of the call, not of the recipe), `s3://`, `gs://` or `https://`; all but the last may hold
    wildcards (`*`, `?`, `[]`, `**`). What stands before the first wildcard is the fixed prefix: ids are made of the path below it.
    `paths_file`: a list of paths, one a line, plain or gzip, here or at an address; they, and so the ids, are relative to `base`.
    `crawl`: a crawl of Common Crawl, by its list of WARC (or WET: `kind`) files below `base`, which a mirror may stand in for.
    `base` is by default https://data.commoncrawl.org/. `take`: only so many of the files, by the hash of their relative paths: those of
    `take: 10` are among those of `take: 100`. `sample`: only this share of its documents, by the keyed hash of their ids (`--sample` is one
    for all inputs; the smaller holds).
    `endpoint`, `region`, `anonymous`: how to reach the store of this input, where it is not the one of the environment.
    `synthetic`: text of a model, `rephrased` from natural text or `generated`; `generation`: 1 (as by default) where the model had read natural text, one
    more for each model between; `protected`: mixtures leave it a floor. These belong to the source: all its inputs say the same, a component never
    mixes kinds, and `--input SOURCE=PATH` keeps what the recipe says of that source.
    """

    path: str | None = None
    source: str = "web"
    paths_file: str | None = None
    crawl: str | None = None
    kind: Literal["warc", "wet"] = "warc"
    base: str | None = None
    take: int | None = None
    sample: float | None = None
    endpoint: str | None = None
    region: str | None = None
    anonymous: bool = False
    synthetic: Synthetic = "none"
    generation: int | None = None
    protected: bool = False

    def __post_init__(self) -> None:
        given = [name for name in ("path", "paths_file", "crawl") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"exactly one of path, paths_file and crawl is needed, not {' and '.join(given) or 'none'}"
            )
        if self.base is not None and self.path is not None:
            raise ValueError("base goes with paths_file and crawl; a path stands for itself")
        if self.crawl is not None and not CRAWL.fullmatch(self.crawl):
            raise ValueError(f"crawl {self.crawl!r}: a name like CC-MAIN-2024-10 is needed")
        if self.kind != "warc" and self.crawl is None:
            raise ValueError("kind goes with crawl; other files are told by their bytes")
        if self.take is not None and self.take < 1:
            raise ValueError(f"take must be at least 1, not {self.take}")
        if self.sample is not None and not 0 < self.sample <= 1:
            raise ValueError(f"sample must be above 0 and at most 1, not {self.sample}")
        if self.endpoint is not None and not _is_endpoint(self.endpoint):
            raise ValueError("endpoint: http[s]://HOST[:PORT] is needed, without name, password or path")
        if self.generation is not None and self.synthetic == "none":
            raise ValueError("generation goes with synthetic: rephrased or generated; natural text has none")
        if self.generation is not None and self.generation < 1:
            raise ValueError(f"generation must be at least 1, not {self.generation}")

    @property
    def access(self) -> Access:
        return Access(self.endpoint, self.region, self.anonymous)

    @property
    def kind_of_text(self) -> Kind:
        generation = int(self.synthetic != "none") if self.generation is None else self.generation
        return Kind(self.synthetic, generation, self.protected)

    def canonical(self) -> dict[str, Any]:
        """What is stored of it: `source`, and all else that is not as by default."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name == "source" or getattr(self, field.name) != field.default
        }


def _is_endpoint(text: str) -> bool:
    try:
        parts = urlsplit(text)
        plain = not parts.path.strip("/") and not parts.query and not parts.fragment
        return (
            parts.scheme in WEB
            and bool(parts.hostname)
            and "@" not in parts.netloc
            and parts.port != 0
            and plain
        )
    except ValueError:
        return False
