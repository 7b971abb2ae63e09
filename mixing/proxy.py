"""What a proxy is, without torch: its size and budget, the shards it reads, and the plan of its stream.

    view = View.of(shards_folder, {"web": "<fp>/web", "books": "<fp>/books"}, targets)
    training = Training("1M", budget_tokens=20_000_000, target_tokens=10_000_000_000)
    records = train(view, training, {"web": 700_000_000, "books": 300_000_000}, seed=0, run="anchor-0")      # mixing/train.py

**Repetition is matched**: a run of `target_tokens` reads a small component many times, a proxy of `budget_tokens` would read it once and like
it too much. So a proxy has of each component the share budget_tokens / target_tokens of its rows, at least one: its epochs are the real run's.
Rows hold shuffled documents, so the first ones are a random part; it is the same for all runs, whatever their seeds.

**A seed is of model and order together**: runs of equal seed begin with the same weights and read each component in the same order, whatever the
mixture: their losses compare in pairs. Another seed changes both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.mixing.held import Held
from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.engine.stage import WORKER_BYTES
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.registry import suggestion
from corpusmill.shards.layout import Manifest, content_hash, read_manifest
from corpusmill.shards.plan import Phase, Plan, compile_plan

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.place import Place

VERSION = 1
"""Of all that decides what a proxy learns: raised when the same run would say other losses."""

BASE_WIDTH = 64
"""The width at which the learning rate was found (mixing/decoder.py carries it to others)."""

STEPS = 512
"""A run has about so many steps while a batch is small: fewer leave a proxy near the frequencies of single tokens."""

MOST_BATCH_TOKENS = 1 << 17
"""Beyond it a larger batch teaches a small model nothing more, and runs get more steps instead."""

WINDOW = 16  # blocks shuffled together, as in a mix stage

TOKENS_A_PARAMETER = 20
"""Of the matrices inside: about what is best for a fixed amount of work (Hoffmann et al. 2022)."""


@dataclass(frozen=True)
class Size:
    """A decoder of `layers` layers: 16 · width² · layers parameters without embeddings and head, norms aside."""

    name: str
    width: int
    layers: int
    heads: int

    @property
    def inside(self) -> int:
        """Parameters of the matrices between embeddings and head."""
        return 16 * self.width**2 * self.layers


SIZES = {
    size.name: size
    for size in (
        Size("64k", 64, 1, 2),  # for tests and for learning the tool
        Size("250k", 88, 2, 4),
        Size("1M", 128, 4, 4),
        Size("5M", 256, 5, 4),
        Size("15M", 384, 6, 6),
        Size("30M", 512, 7, 8),
        Size("60M", 640, 9, 10),
    )
}


def work(size: Size, vocabulary: int, length: int) -> float:
    """Floating-point operations of a token that is learnt: 6 a parameter that multiplies, and attention (Kaplan et al. 2020, appendix B,
    forward and back)."""
    return 6 * (size.inside + size.width * vocabulary) + 12 * size.layers * size.width * length


def worker_bytes(size: Size | None) -> int:
    """Memory of a worker that trains: torch, a pass's logits and their gradients, and a model with its gradients and both of AdamW's means."""
    return WORKER_BYTES + (1 << 30) + (0 if size is None else 2 * 16 * size.inside)


@dataclass(frozen=True)
class Training:
    """How a proxy is trained. `size`: None for a trainer of one's own (mixing/command.py). `target_tokens`: budget of the run that the
    mixture is for; None reads all rows, however short the proxy.

    `eval_tokens`: how much of each target is read, from its beginning; `steps` and `batch` follow from the budget.
    """

    size: str | None
    budget_tokens: int
    target_tokens: int | None = None
    eval_tokens: int = 1 << 17
    learning_rate: float = 0.01
    weight_decay: float = 0.1
    warmup: float = 0.05  # share of the steps; then the rate falls in a line to 0

    def __post_init__(self) -> None:
        if self.size is not None and self.size not in SIZES:
            raise RecipeError(f"no proxy has size {self.size!r}; {suggestion(self.size, SIZES)}")
        for name in ("budget_tokens", "target_tokens", "eval_tokens", "learning_rate"):
            if (value := getattr(self, name)) is not None and not 0 < value < float("inf"):
                raise RecipeError(f"proxy {self.size or 'command'}: {name} is {value}; it has to be above 0")

    @property
    def shape(self) -> Size:
        """Of the decoder."""
        assert self.size is not None  # nobody asks it of a command
        return SIZES[self.size]

    def batch_rows(self, length: int) -> int:
        """Rows a step."""
        return max(1, min(self.budget_tokens // STEPS, MOST_BATCH_TOKENS) // length)

    def steps(self, length: int) -> int:
        """Whole batches of the budget."""
        steps = self.budget_tokens // (self.batch_rows(length) * length)
        if not steps:
            raise RecipeError(
                f"proxy {self.size or 'command'}: budget_tokens is {self.budget_tokens}, one row has {length}; give it more"
            )
        return steps

    def id(self, manifest: Manifest, command: str = "") -> str:
        """32 hex digits of all that makes a proxy but mixture and seed; `manifest` of any component, `command` of another trainer."""
        rows = {
            name: getattr(manifest, name) for name in ("sequence_length", "vocab_size", "tokenizer_sha256")
        }
        content = {
            "version": VERSION,
            "window": WINDOW,
            "command": command,
            **asdict(self),
            **(asdict(self.shape) if self.size else {}),
            **rows,
        }
        return content_hash(canonical(content))[:32]


@dataclass(frozen=True, eq=False)
class View:
    """What all runs of a search read: components by (folder below `root`, manifest), sorted by name, and targets."""

    root: Path | Place
    components: tuple[tuple[str, Manifest], ...]
    targets: tuple[Held, ...]

    @classmethod
    def of(cls, root: Path | Place, folders: Mapping[str, str], targets: tuple[Held, ...]) -> View:
        """`folders`: of each component, below `root`, by name."""
        if not folders or not targets:
            raise RecipeError("proxies need components to read and targets to be measured on")
        found = tuple((folder, read_manifest(root / folder)) for _, folder in sorted(folders.items()))
        for (name, _), (folder, manifest) in zip(sorted(folders.items()), found, strict=True):
            if manifest.name != name:
                raise RecipeError(f"{folder} is component {manifest.name}, not {name}")
        for held in targets:
            if held.tokenizer_sha256 != found[0][1].tokenizer_sha256:
                raise RecipeError(
                    f"target {held.name} was tokenized with another tokenizer than the components; tokenize it with theirs"
                )
        return cls(root, found, targets)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(manifest.name for _, manifest in self.components)

    @property
    def manifest(self) -> Manifest:
        """Of any component: all have one tokenizer and row length."""
        return self.components[0][1]


def matched_rows(rows: Mapping[str, int], training: Training) -> dict[str, int]:
    """Of each component, how many of its rows a proxy may read, so that its epochs are those of the real run."""
    if training.target_tokens is None or training.target_tokens <= training.budget_tokens:
        return dict(rows)
    part, whole = training.budget_tokens, training.target_tokens
    return {name: max(1, (2 * count * part + whole) // (2 * whole)) for name, count in rows.items()}


def plan_of(view: View, training: Training, weights_ppb: Mapping[str, int], seed: int) -> Plan:
    """The stream of a run: its components in part, one phase, whole batches."""
    length = view.manifest.sequence_length
    rows = {manifest.name: manifest.rows for _, manifest in view.components}
    return compile_plan(
        view.components,
        [Phase(0, {name: weights_ppb.get(name, 0) for name in view.names} | dict(weights_ppb))],
        seed=seed,
        window=WINDOW,
        samples=training.steps(length) * training.batch_rows(length),
        first_rows={
            name: count for name, count in matched_rows(rows, training).items() if count < rows[name]
        },
    )
