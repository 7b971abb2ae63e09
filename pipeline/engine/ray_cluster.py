"""A Ray cluster as a run sees it: how to reach it, what its nodes are and have, whether it grows, and what must be equal on all of them.

A probe file in OUT, with a word of this run, stands as long as the run: every node reads it before the first task, and every worker before its
first, so that a node that comes later is held to the same. A node with another version of what makes bytes is an error with its name:
its tasks would succeed and be wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from corpusmill import __version__
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.resources import Needs, fits, words
from corpusmill.pipeline.errors import RecipeError, RunError
from corpusmill.pipeline.remote import surroundings

START_TRIES = 4
"""`ray.init` gives its own node a fixed 30 s to come up, too little on a busy machine (3 of 9 starts failed at a load of 12)."""

EQUAL = (
    *(
        "brotli",
        "datasketch",
        "fasttext-community",
        "justext",
        "lxml",
        "lxml_html_clean",
        "numba",
        "numpy",
        "pyarrow",
    ),
    *("pyyaml", "resiliparse", "tokenizers", "trafilatura", "xxhash", "zstandard"),
)
"""Distributions that make or write the bytes of a run: all that operations name in `libraries`, and what they are written with."""

NODE_WAIT_S = 600.0
"""How long a demand that a lost node could meet waits for another such node: preempted machines come back in minutes."""


@dataclass(frozen=True)
class Terms:
    """What every worker checks before its first task: the probe and its word, and the versions that the driver has."""

    probe: str
    word: str
    versions: Mapping[str, str | None]
    blind: str  # what is said of a node that cannot read the probe
    environment: Mapping[str, str]  # where stores are; never credentials, which nodes have of their own


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep this process's handler: `ray.init` puts one in its place that ends the driver at once, with exit code 15 and no word."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def connect(address: str, workers: int | None = None) -> Any:
    """Ray, connected; start-up is retried, and what went wrong is said with the next step."""
    import ray

    if address not in ("auto", "local"):
        need_answer(address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address == "local":
        options |= {"include_dashboard": False, "num_cpus": workers}
    for attempt in range(1, START_TRIES + 1):
        try:
            with _own_sigterm():
                ray.init(address=address, **options)
            return ray
        except ConnectionError as error:
            raise RunError(
                f"no Ray cluster at {address!r}: {error}; start one with `ray start --head`, or give its address{_token_step()}"
            ) from None
        except Exception as error:
            if attempt == START_TRIES or address != "local":
                raise RunError(
                    f"Ray did not start or answer at {address!r}: {type(error).__name__}: {error}"
                ) from None
            ray.shutdown()
            time.sleep(2 * attempt)
    raise AssertionError


def _token_step() -> str:
    """`ray start` asks for a token unless told otherwise, `ray.init` sends one only when told to, and says no more than that it failed."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        return "; if it answers, it has another token: see RAY_AUTH_TOKEN_PATH"
    return "; a cluster with a token, as `ray start` makes one, needs RAY_AUTH_MODE=token here too"


def need_answer(address: str) -> None:
    """Whether something listens there: Ray itself waits minutes for a cluster that is not."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise RecipeError(f"--ray {address}: HOST:PORT of a cluster's head, auto or local is needed")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise RunError(
            f"no Ray cluster at {address}: {error.strerror or error}; start one with `ray start --head`"
        ) from None


@dataclass(frozen=True)
class Nodes:
    """The living nodes, by id: the machine's name and its resources by Ray's names."""

    resources: Mapping[str, Mapping[str, float]]
    names: Mapping[str, str]

    def slots(self, needs: Needs) -> int:
        """Workers of this demand that can run at once, on nodes that can really run one."""
        return sum(fits(node, needs) for node in self.resources.values())


def nodes_of(ray: Any) -> Nodes:
    """0.5 ms on one node."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    return Nodes(
        {node["NodeID"]: node["Resources"] for node in alive},
        {node["NodeID"]: node["NodeManagerHostname"] for node in alive},
    )


@dataclass(frozen=True)
class Growth:
    """What an autoscaler can add: resources of its kinds of nodes, None where it does not say; not `elastic`: nothing."""

    elastic: bool
    kinds: Sequence[Mapping[str, float]] | None = None


def growth_of(ray: Any) -> Growth:
    """Ray has no public call for it. The second autoscaler tells its kinds of nodes; the first one can be known by the names that it gives
    to nodes: where nothing grows, a status is kept too, with a kind `node_<id>` for every node."""
    from ray._private.state import state
    from ray.experimental.internal_kv import _internal_kv_get

    try:
        config = state.get_cluster_config()
        if config is not None and config.node_group_configs:
            groups = [group for group in config.node_group_configs if group.max_count != 0]
            return Growth(bool(groups), [dict(group.resources) for group in groups])
        status = json.loads(_internal_kv_get("__autoscaling_status") or "{}")
        kinds = (status.get("autoscaler_report") or {}).get("node_type_mapping") or {}
        return Growth(any(not str(kind).startswith("node_") for kind in kinds.values()))
    except (AttributeError, ImportError, RuntimeError, ValueError):  # another Ray: as if nothing grew
        return Growth(False)


def need_room(stage: str, needs: Needs, seen: Sequence[Mapping[str, float]], growth: Growth) -> None:
    """RunError for a demand that no node, past or to come, can meet: Ray would wait for ever without a word."""
    if any(fits(node, needs) for node in seen) or (growth.elastic and growth.kinds is None):
        return
    if any(fits(kind, needs) for kind in growth.kinds or ()):
        return
    shown = {words(_shown(node)) for node in (*seen, *(growth.kinds or ()))}
    raise RunError(
        f"stage {stage}: a worker needs {needs.words()}, and no node of the cluster has that; there are nodes with {'; with '.join(sorted(shown))}. "
        "Start a larger node, or ask for less with --resources STAGE=memory:1GiB"
    )


def _shown(node: Mapping[str, float]) -> dict[str, float]:
    hidden = ("node:", "object_store_memory", "accelerator_type:")
    return {name: amount for name, amount in sorted(node.items()) if not name.startswith(hidden)}


def terms_for(out: Place) -> Terms:
    """Write the probe; whoever asks for it takes it away at the end."""
    import ray

    word = uuid.uuid4().hex
    probe = out / "metrics" / f"probe-{word}"
    probe.put(word.encode())
    versions: dict[str, str | None] = {
        "corpusmill": __version__,
        "ray": ray.__version__,
        "python": platform.python_version()[:4],
    }
    versions |= {name: version_here(name) for name in EQUAL}
    blind = (
        f"does not see {out} as it is here: put OUT on storage that every node mounts at this path"
        if out.local
        else f"cannot read {out}: it needs the network and credentials of its own for it"
    )
    return Terms(str(probe), word, versions, blind, surroundings())


def version_here(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def look_around() -> Callable[[Mapping[str, Any]], tuple[str | None, dict[str, str | None]]]:
    """A function of the terms for any node: the probe's word (None where it cannot be read), and the versions there.

    It is made here, inside a function, so that Ray sends its code: a node without corpusmill, or with another, can still answer.
    """

    def look(terms: Mapping[str, Any]) -> tuple[str | None, dict[str, str | None]]:
        import importlib.metadata
        import os
        import platform
        import time

        import ray

        found: dict[str, str | None] = {}
        for name in terms["versions"]:
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found[name] = None
        found["python"], found["ray"], found["corpusmill"] = (
            platform.python_version()[:4],
            ray.__version__,
            None,
        )
        try:
            from corpusmill import __version__
            from corpusmill.pipeline.engine.place import place_of
        except ImportError:
            return None, found
        found["corpusmill"] = __version__
        os.environ.update(terms["environment"])
        for wait in (0, 1, 2, 4):  # a network file system may show a new file late
            time.sleep(wait)
            try:
                return str(place_of(terms["probe"]).read_text()), found
            except OSError:
                continue
        return None, found

    return look


def different(terms: Terms, word: str | None, found: Mapping[str, str | None]) -> str:
    """What is wrong with a node that saw this, in words after its name; "" when nothing is."""
    others = [
        f"{name} {found.get(name) or 'missing'} (here {mine or 'missing'})"
        for name, mine in terms.versions.items()
        if found.get(name) != mine
    ]
    if others:
        return f"has {', '.join(others)}: install the same versions on every node (constraints.txt), or submit with --ship for corpusmill's own"
    if word != terms.word:
        return terms.blind
    return ""


def probe_nodes(ray: Any, terms: Terms, nodes: Nodes) -> None:
    """Ask every node that can run tasks; RunError names those where a task would go wrong."""
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(max_retries=3, num_cpus=0)(look_around())
    answers = {
        node: look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
            asdict(terms)
        )
        for node, has in nodes.resources.items()
        if has.get("CPU")
    }
    wrong: dict[str, list[str]] = {}
    for node, answer in answers.items():
        try:
            why = different(terms, *ray.get(answer))
        except RayError:
            if node in nodes_of(ray).resources:
                raise
            continue  # it left while it was asked
        if why:
            wrong.setdefault(why, []).append(nodes.names[node])
    if wrong:
        raise RunError("; ".join(f"{', '.join(sorted(names))} {why}" for why, names in wrong.items()))
