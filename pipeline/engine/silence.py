"""What a run would otherwise pass over in silence: files that give no document, rules for sources that are not there, a run that keeps nothing.

None of it is an error of a stage, and each is most often a mistake. All is told from manifests, which the driver holds anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.stage import Result, Stage
from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.judge import Judge

SHOWN = 5
"""Files that a warning names; `show` lists all of them."""

NOT_READ = "files are not read"


@dataclass(frozen=True)
class Barren:
    """An input file without a document that could be used, and why."""

    source: str
    file: str
    why: str

    @property
    def refused(self) -> bool:
        """Whether its kind is none that is read."""
        return self.why.endswith(NOT_READ)

    def __str__(self) -> str:
        return f"{self.file} ({self.source}): {self.why}"


@dataclass
class _File:
    counts: Counter[str] = field(default_factory=Counter)

    def why(self) -> str | None:
        """None for a file that gave a document, or whose documents the sample does not hold."""
        counts = self.counts
        if counts["kept"] or (counts["sampled_out"] and not counts["rows"]):
            return None
        refused = next((name for name in sorted(counts) if name.startswith("file_refused.")), None)
        if refused:
            return f"{refused.partition('.')[2]} {NOT_READ}"
        if counts["file_empty"]:
            return "it is empty"
        if counts["rows"]:
            name, n = _most(counts)
            return f"{counts['rows']:,} records, none with text that can be used: most are {name} ({n:,})"
        beside = [f"{n:,} {name}" for name, n in sorted(counts.items()) if n]
        return f"no record of a document{': ' + ', '.join(beside) if beside else ''}"


def barren_files(results: Mapping[int, Result]) -> list[Barren]:
    """Files none of whose ranges gave a document that can be used, in the order of the inputs; those that were read under a `--limit` are not told apart."""
    files: dict[tuple[str, str], _File] = {}
    for result in results.values():
        if "file" in result.extra:
            key = (result.extra["source"], result.extra["file"])
            files.setdefault(key, _File()).counts.update(result.counts)
    return [Barren(*key, why) for key, file in sorted(files.items()) if (why := file.why()) is not None]


def barren_message(barren: Sequence[Barren], files: int, out: Place) -> str:
    more = len(barren) - SHOWN
    rest = [f"  and {more:,} more: corpusmill show {out}"] if more > 0 else []
    head = f"{len(barren):,} of {files:,} input files gave no document:"
    return "\n".join([head, *(f"  {one}" for one in barren[:SHOWN]), *rest])


def need_documents(counts: Mapping[str, int], barren: Sequence[Barren], files: int) -> None:
    """InputError when all inputs together hold no record of a document."""
    if counts.get("rows", 0):
        return
    if counts.get("sampled_out", 0):
        raise InputError(
            f"the sample holds none of {counts['sampled_out']:,} documents: take a larger share (--sample, or `sample` of an input)"
        )
    named = "; ".join(map(str, barren[:SHOWN]))
    raise InputError(
        f"none of {files:,} input files holds a document{': ' + named if named else ''}; name others with --input [SOURCE=]PATH"
    )


def nothing_kept(ledgers: Sequence[tuple[str, Mapping[str, int]]], out: Place) -> str | None:
    """What to say of a run whose last ledger keeps nothing; None where it keeps something or was given nothing."""
    if not ledgers or ledgers[-1][1]["kept"] or not ledgers[0][1]["in"]:
        return None
    stage, (reason, n) = max(
        ((stage, _most(counts)) for stage, counts in ledgers), key=lambda each: each[1][1]
    )
    return (
        f"nothing is kept of {ledgers[0][1]['in']:,} documents: most left at stage {stage} by {reason} ({n:,}); "
        f"corpusmill show {out} has all reasons, and `--reason {reason} --columns url` lists its documents"
    )


def unknown_sources(stages: Iterable[Stage], sources: Collection[str]) -> list[str]:
    """A line for each `when` that names sources of which there is no input: what it limits is done to nothing."""
    lines: dict[str, None] = {}
    for stage in stages:
        title = stage.name.partition(".")[0]
        limits = (
            [(rule, cut.only) for rule, cut in stage.operation.cuts]
            if isinstance(stage.operation, Judge)
            else [(stage.name.partition(".")[2], getattr(stage.operation, "when", {}))]
        )
        for rule, only in limits:
            missing = [name for name in only.get("source", ()) if name not in sources]
            if missing:
                where = f"{title}.{rule}" if rule else title
                lines[
                    f"{where}: when.source names {', '.join(missing)}, but the inputs are of {', '.join(sorted(sources))}"
                ] = None
    return list(lines)


def _most(counts: Mapping[str, int]) -> tuple[str, int]:
    """The reason that took most rows, and how many."""
    gone = {
        name.partition(".")[2]: n for name, n in counts.items() if name.startswith(("dropped.", "failed."))
    }
    return max(gone.items(), key=lambda item: item[1], default=("", 0))
