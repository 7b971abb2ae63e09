"""Rounds whose OUT lies on an object store that fails, goes away or is slow: a real S3 server behind a proxy that breaks requests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from faulty_proxy import Faults, Proxy, faulty_proxy
from s3_server import FOREIGN, environment, make_bucket, s3_server

from chaos.kills import moment, strike, wait
from chaos.trial import Trial


def failing(trial: Trial) -> None:
    """Requests are refused, reset, answered by half or done without an answer; the store may be away for a while, or the driver killed.

    A run waits for a store that is away, for minutes; then it gives up, and the same command goes on.
    """
    dice = trial.dice
    with on_store(trial) as proxy:
        kinds = ("busy", "reset", "lost", "cut", "cut_upload")
        shares = {kind: round(dice.uniform(0.01, 0.06), 3) for kind in kinds}
        proxy.faults = Faults(seed=dice.randrange(1 << 30), **shares)
        what, when = dice.choice(["", "driver", "outage"]), moment(trial.ground, dice)
        run = trial.start()
        if what:
            wait(run, when)
        if what == "driver":
            strike(run, "driver", trial, when)
        if what == "outage":
            flaky, seconds = proxy.faults, round(dice.uniform(1, 30), 1)
            proxy.faults = Faults(reset=1.0, most=1 << 30)
            run.sleep(seconds)
            proxy.faults = flaky
            trial.note(f"store away for {seconds} s from {when[1]}+{when[2]:.2f}s on")
        code = trial.end(run, {"": (0,), "driver": (-9, 0), "outage": (0, 1, 2)}[what])
        broken = proxy.broken()
        trial.note(f"{sum(broken.values())} requests broken" + (", done all the same" if code == 0 else ""))
        proxy.faults = Faults()
        trial.end(trial.start(), (0,))


def slow(trial: Trial) -> None:
    """Many requests are answered late; the driver may be killed."""
    dice = trial.dice
    with on_store(trial) as proxy:
        late = round(dice.uniform(0.1, 0.4), 2)
        proxy.faults = Faults(seed=dice.randrange(1 << 30), delay=0.1, delay_seconds=late)
        run = trial.start()
        if dice.random() < 0.5:
            when = moment(trial.ground, dice)
            wait(run, when)
            strike(run, "driver", trial, when)
        trial.end(run, (-9, 0))
        trial.note(f"{proxy.broken().total()} requests answered {late} s late")
        trial.end(trial.start(), (0,))


@contextlib.contextmanager
def on_store(trial: Trial) -> Iterator[Proxy]:
    """OUT on a store of its own for as long as the context lasts, then its objects as files, to be judged."""
    folder = trial.out.parent
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(s3_server(folder / "s3.log"))
        proxy = stack.enter_context(faulty_proxy(endpoint))
        stack.enter_context(instead({**dict.fromkeys(FOREIGN), **environment(proxy.endpoint, folder)}))
        bucket = make_bucket(endpoint)
        trial.address = bucket.url("out")
        yield proxy
        for name, data in bucket.objects("out").items():
            path = trial.out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        trial.address = trial.out


@contextlib.contextmanager
def instead(variables: Mapping[str, str | None]) -> Iterator[None]:
    """These variables in our environment (None: not there), and what was there again afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
