"""Rounds on Ray: kill -9 of its workers, of the driver, and of a node of a cluster of two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ray_heads import ray_head, ray_workers, take_node, two_nodes

from chaos.ground import Ground
from chaos.kills import moment, strike, wait
from chaos.processes import kill
from chaos.rounds import Outcome, play
from chaos.trial import Trial


def workers(trial: Trial) -> None:
    """Every worker that runs a task of ours at that moment, twice at most."""
    run = trial.start()
    for _ in range(trial.dice.randint(1, 2)):
        when = moment(trial.ground, trial.dice)
        wait(run, when)
        found = ray_workers()
        while run.running and not found:
            run.sleep(0.02)
            found = ray_workers()
        hit = sum(kill(pid) for pid in found)
        trial.note(f"{hit} workers at {when[1]}+{when[2]:.2f}s")
    trial.end(run, (0,))


def driver(trial: Trial) -> None:
    when = moment(trial.ground, trial.dice)
    run = trial.start()
    wait(run, when)
    strike(run, "driver", trial, when)
    trial.end(run, (-9, 0))


def node(trial: Trial) -> None:
    """One of two nodes goes; the driver goes on with the other."""
    assert trial.environment is not None
    alone = trial.environment
    with two_nodes(alone) as (address, nodes):
        trial.environment = {**alone, "CLUSTER": address}
        when = moment(trial.ground, trial.dice)
        run = trial.start()
        wait(run, when)
        take_node(nodes)
        trial.note(f"a node at {when[1]}+{when[2]:.2f}s")
        trial.end(run, (0,))
    trial.environment = alone


KINDS: dict[str, Callable[[Trial], None]] = {
    "Ray node killed": node,
    "Ray workers killed": workers,
    "Ray driver killed": driver,
}
"""In turn, so that 4 of 10 rounds lose a node."""


def ray_kind_of(number: int) -> str:
    return list(KINDS)[number % len(KINDS)]


def play_on_ray(ground: Ground, seed: int, numbers: Iterable[int]) -> Iterator[Outcome]:
    """A head for all rounds, a second cluster for each that loses a node."""
    folder = ground.folder / "ray"
    folder.mkdir()
    with ray_head(folder) as environment:
        one = partial(play, ground, seed, environment=environment, kinds=KINDS)
        for number in numbers:
            yield one(number, ray_kind_of(number))
