"""Every error that corpusmill raises on purpose.

    CorpusmillError
    ├── RecipeError    a recipe, a recipe file or the arguments that choose one
    ├── InputError     a file that we were asked to read
    ├── ModelError     a model file: missing, or not the one that was pinned
    ├── ShardError     shards, their manifest or their plan
    ├── CursorError    a stream's cursor, batch or rank arguments
    ├── BudgetError    memory, error or drop budgets that a run went over
    └── RunError       a task that failed for good; names the stage and the log
        └── DamagedError   a file of the run whose bytes are not those that were recorded

A message says what is wrong, where, and the next step. The command line prints the message alone and exits with `exit_code`.
"""


class CorpusmillError(Exception):
    """The base: catch this to catch all of ours."""

    exit_code = 2


class RecipeError(CorpusmillError):
    """A recipe that cannot be run as it stands, or that differs from the one an output was made with."""


class InputError(CorpusmillError):
    """An input that cannot be read; the message names file and offset."""


class ModelError(CorpusmillError):
    """A model file that is missing or has another hash; the message names the command that fetches it."""


class ShardError(CorpusmillError):
    """A shard, manifest or plan that is damaged, missing or of another version."""


class CursorError(CorpusmillError):
    """A cursor, batch size or rank that does not fit the plan; the message says what would."""


class BudgetError(CorpusmillError):
    """A declared budget (memory, errors, drops) that the run went over."""

    exit_code = 1


class RunError(CorpusmillError):
    """A stage that could not be finished."""

    exit_code = 1


class DamagedError(RunError):
    """A file of a run that changed since it was written: `stage` made it, `name` is its path in the stage's folder."""

    def __init__(self, message: str, stage: str = "", name: str = "") -> None:
        super().__init__(message)
        self.stage = stage
        self.name = name
