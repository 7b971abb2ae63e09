"""A measure, an edit and a set stage that crash, hang or eat memory for real, for the tests of the engine. A text's first word says what it does."""

from __future__ import annotations

import ctypes
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from corpusmill.pipeline.engine.stage import (
    Backstop,
    Edit,
    Inputs,
    Measure,
    Result,
    SetOperation,
    TaskIO,
    Unit,
)
from corpusmill.pipeline.rules import Cut, Rule

# Three seconds: on a machine that is busy with others a healthy row was once charged more than one.
SMALL = Backstop(cpu_s=3.0, cpu_s_per_mb=0.0, memory_bytes=300 << 20)


def behave(text: str, together: int) -> None:
    """What the text asks for; `together` is the rows of its piece."""
    word, _, rest = text.partition(" ")
    if word == "segfault":
        ctypes.string_at(0)
    if word == "abort":
        os.abort()
    if word == "spin":
        while True:
            pass
    if word == "spin_in_c":
        re.match(r"(a+)+$", "a" * 64 + "b")
    if word == "eat":
        hoard = [bytearray(1 << 24) for _ in range(128)]
        raise MemoryError(f"{len(hoard)} pieces are all that this machine shall give")
    if word == "raise":
        raise LookupError(rest)
    if word == "panic":
        raise BaseException(rest)  # as a panic of a Rust library arrives
    if word == "crowded" and together > 1:
        ctypes.string_at(0)
    if word == "fragile" and Path(rest).exists():
        ctypes.string_at(0)
    if word == "killed":  # as often as its file has letters
        path, left = Path(rest), Path(rest).read_text()
        if left:
            path.write_text(left[1:])
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Letters(Measure):
    """Letters of a text, once it has behaved."""

    backstop: ClassVar[Backstop] = SMALL

    def schema(self) -> pa.Schema:
        return pa.schema([pa.field("letters", pa.int64(), metadata={"about": "characters of the text"})])

    def measure(self, rows: pa.Table) -> pa.Table:
        texts = rows["text"].to_pylist()
        for text in texts:
            behave(text, len(texts))
        return pa.table([pa.array([len(text) for text in texts], pa.int64())], schema=self.schema())


@dataclass(frozen=True)
class Upper(Edit):
    """A text in capitals, once it has behaved."""

    backstop: ClassVar[Backstop] = SMALL

    def edit(self, rows: pa.Table) -> pa.Array:
        texts = rows["text"].to_pylist()
        for text in texts:
            behave(text, len(texts))
        return pa.array([text.upper() for text in texts], pa.large_string())


@dataclass(frozen=True)
class Misbehaving(Rule):
    """A rule that keeps texts of three letters and more."""

    def measures(self) -> tuple[Measure, ...]:
        return (Letters(),)

    def cuts(self) -> tuple[Cut, ...]:
        return (Cut("letters", at_least=3),)


@dataclass(frozen=True)
class Shout:
    """The stage of the edit."""

    def extend(self, chain: Any, name: str) -> None:
        chain.edit(name, Upper(), kept=True)
        chain.verdict(stage=name)


@dataclass(frozen=True)
class Together(SetOperation):
    """Looks at all kept texts of a partition together, once each has behaved."""

    def units(self, inputs: Inputs) -> list[Unit]:
        return [Unit(0, 1, {"round": 1}, tuple(sorted(inputs.results("documents"))))]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        texts = [
            text
            for part in unit.parts
            for _, rows in io.rows(part, ["text"], kept=True)
            for text in rows["text"].to_pylist()
        ]
        for text in texts:
            behave(text, len(texts))
        return io.result(rows=len(texts))


@dataclass(frozen=True)
class Gather:
    """The stage of the set operation."""

    def extend(self, chain: Any, name: str) -> None:
        chain.set(name, Together(), kept=True)
