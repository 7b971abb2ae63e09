"""From a recipe to the stages that the engine runs, each with the layers that it reads.

A recipe stage's config appends here through `extend(chain, name)`. The chain knows what stands at each point: which edits made
the text, which stage holds which measure, which ledger says what is kept so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from corpusmill.pipeline.documents import DOCUMENTS
from corpusmill.pipeline.engine.stage import Edit, Measure, SetOperation, Stage
from corpusmill.pipeline.engine.task import load_class
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.judge import Judge
from corpusmill.pipeline.kinds import Kind, kinds_of
from corpusmill.pipeline.ledger import Ledger
from corpusmill.pipeline.recipe import Recipe, StageSpec
from corpusmill.pipeline.registry import STAGES, build, suggestion
from corpusmill.pipeline.rules import Cut

LEDGER_PREFIX = "ledger."


@dataclass
class Chain:
    """Appends stages in recipe order."""

    seed: int = 17
    kinds: Mapping[str, Kind] = field(default_factory=dict)  # of sources whose text is not just natural
    stages: list[Stage] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)  # measure -> stage that holds it
    text: tuple[str, ...] = ()  # edits, latest first
    ledger: str | None = None
    clusters: str | None = None  # the last layer with a `cluster` of duplicates
    # Layers since the last ledger that can hold failed rows.
    _fallible: list[str] = field(default_factory=list)

    def measure(self, name: str, operation: Measure, suffix: str = "") -> None:
        """A layer of measures; its columns, with the suffix, can be cut on from here on."""
        self._append(name, operation, operation.needs, suffix=suffix)
        self._fallible.append(name)
        for column in operation.schema().names:
            if column + suffix in self.columns or column + suffix in DOCUMENTS.names:
                raise RecipeError(
                    f"{name}: the measure {column + suffix!r} is there already; give the stage another place or leave it out"
                )
            self.columns[column + suffix] = name

    def edit(self, name: str, operation: Edit, kept: bool = False) -> None:
        """Another text, which all later stages read; with `kept` only for rows kept so far."""
        self._append(name, operation, operation.needs, kept=kept)
        self._fallible.append(name)
        self.text = (name, *self.text)

    def judge(self, name: str, cuts: Iterable[tuple[str, Cut]]) -> None:
        """A verdict over stored measures; close it with `verdict(name)`."""
        operation = Judge(tuple(cuts))
        self._append(name, operation, operation.needs)

    def set(
        self,
        name: str,
        operation: SetOperation,
        reads: Sequence[str] = (),
        kept: bool = False,
        measures: Sequence[str] = (),
        writes: Sequence[str] = (),
    ) -> None:
        """Work across partitions. It may read the stages of `reads`, the documents, the text at this point and `measures`.

        `writes` are columns that it makes row for row: measures for whoever comes later.
        """
        own = dict.fromkeys(writes, name)
        self._append(name, operation, measures, reads, kept, with_text=name != "documents", own=own)
        self.columns.update(own)

    def verdict(self, *names: str, stage: str | None = None) -> None:
        """Close a stage in the ledger: rows that the verdict layer does not keep leave here. Without a name: failures only."""
        verdict = names[-1] if names else None
        title = stage or (verdict.partition(".")[0] if verdict else "documents")
        name = LEDGER_PREFIX + title
        operation = Ledger(title, self.ledger, verdict, tuple(self._fallible))
        reads = [each for each in (self.ledger, verdict, *self._fallible) if each]
        self._append(name, operation, (), reads=reads)
        self.ledger = name
        self._fallible = []

    def _append(
        self,
        name: str,
        operation: Measure | Edit | Judge | Ledger | SetOperation,
        needs: Sequence[str],
        reads: Sequence[str] = (),
        kept: bool = False,
        suffix: str = "",
        with_text: bool = False,
        own: Mapping[str, str] | None = None,
    ) -> None:
        if any(stage.name == name for stage in self.stages):
            raise RecipeError(f"two stages are called {name}: give one of them another name in the recipe")
        text = self.text if with_text or "text" in needs else ()
        columns = self._resolve(name, needs)
        ledger = self.ledger if kept else None
        first = [] if name == "documents" else ["documents"]
        wanted = (*first, *reads, *text, *columns.values(), *([ledger] if ledger else []))
        known = {stage.name for stage in self.stages}
        for each in wanted:
            if each not in known:
                raise RecipeError(f"{name} reads {each}, which no earlier stage makes")
        self.stages.append(
            Stage(
                name,
                operation,
                tuple(dict.fromkeys(wanted)),
                text,
                ledger,
                {**columns, **(own or {})},
                suffix,
            )
        )

    def _resolve(self, name: str, needs: Sequence[str]) -> dict[str, str]:
        found = {}
        for need in needs:
            if need in DOCUMENTS.names:
                continue
            if need not in self.columns:
                raise RecipeError(
                    f"{name} needs the measure {need!r}, which no earlier stage computes; {suggestion(need, self.columns)}"
                )
            found[need] = self.columns[need]
        return found


def compile_recipe(recipe: Recipe, sample: float | None = None, limit: int | None = None) -> list[Stage]:
    """All stages of a recipe in running order, with the ledgers between them."""
    chain = Chain(recipe.seed, kinds_of(recipe.inputs))
    first = recipe.stages[0]
    chain.set("documents", first.config.operation(recipe.seed, sample, limit))
    chain.verdict(stage=first.name)
    specs = recipe.stages[1:]
    if specs and specs[-1].key == "shard":
        # Shards without weights would be no stream; the default says what the data says.
        specs = (*specs, StageSpec("mix", "mix", build(load_class(STAGES["mix"]), {}, "mix")))
    for spec in specs:
        spec.config.extend(chain, spec.name)
    return chain.stages


def up_to(stages: list[Stage], last: str | None) -> list[Stage]:
    """Those up to the stage called `last`; all for None."""
    if last is None:
        return stages
    names = [stage.name for stage in stages]
    if last not in names:
        raise RecipeError(f"the recipe has no stage {last!r}; {suggestion(last, names)}")
    return stages[: names.index(last) + 1]
