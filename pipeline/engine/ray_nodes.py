"""The nodes of a Ray cluster during a run: which live and what they have, what may come, and whether the head still answers.

Whatever is asked of the head is asked by a thread of its own, every LOOK_S: Ray's calls wait for a head that is gone, a minute and more, and then
end the process. A look takes 1 ms on one node.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpusmill.pipeline.engine.resources import Needs, fits, words
from corpusmill.pipeline.errors import RunError

LOOK_S = 2.0
"""Seconds between two looks at the nodes."""

HEAD_WAIT_S = 40.0
"""How long a head may be silent: below the 60 s after which Ray ends a process of its own accord, in the middle of whatever it does."""

NODE_WAIT_S = 600.0
"""How long a demand that a lost node could meet waits for another such node: preempted machines come back in minutes."""

SETTLE_S = 20.0
"""How long a cluster may take to say whether it grows: its autoscaler writes that down some seconds after the head is up."""


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
    """What an autoscaler can add: resources of its kinds of nodes, None where it does not say; not `elastic`: nothing.

    `told`: the cluster has said so; a head that has just come up has not yet.
    """

    elastic: bool
    kinds: Sequence[Mapping[str, float]] | None = None
    told: bool = True


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
        return Growth(any(not str(kind).startswith("node_") for kind in kinds.values()), told=bool(kinds))
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


def lost(why: str) -> RunError:
    """The error of a driver that has no cluster any more."""
    return RunError(
        f"{why}; what is done is kept, and the same command goes on from here, on a Ray that runs or without one"
    )


class Lookout:
    """What is known of the nodes, kept fresh by a thread until it is closed."""

    def __init__(self, ray: Any, say: Callable[[str], None]) -> None:
        self._ray, self._say = ray, say
        self.address: str = ray.get_runtime_context().gcs_address
        self.nodes, self.growth = nodes_of(ray), growth_of(ray)
        self._looks, self._known_looks, self._silent_s, self._polled = 0, 0, 0.0, time.monotonic()
        self._why = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="ray-nodes", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_S):
            try:
                self.nodes, self.growth = nodes_of(self._ray), growth_of(self._ray)
            except Exception as error:  # whatever Ray makes of a head that is gone
                self._why = f" ({type(error).__name__})"
                continue
            self._looks += 1

    def head_answers(self) -> bool:
        """Whether the head has answered since this was asked last, or a moment ago; RunError when it has been silent for HEAD_WAIT_S.

        Only time in which this is asked counts: a driver that is busy with something else may keep the thread from hearing the answer.
        """
        now = time.monotonic()
        if self._looks != self._known_looks:
            if self._silent_s > 2 * LOOK_S:
                self._say(f"the head of the Ray cluster ({self.address}) answers again")
            self._known_looks, self._silent_s = self._looks, 0.0
        before = self._silent_s
        self._silent_s += min(now - self._polled, LOOK_S)
        self._polled = now
        if self._silent_s > HEAD_WAIT_S:
            raise lost(
                f"the head of the Ray cluster ({self.address}) has not answered for {HEAD_WAIT_S:.0f} s{self._why}"
            )
        if before <= 2 * LOOK_S < self._silent_s:
            self._say(
                f"the head of the Ray cluster ({self.address}) does not answer: waiting {HEAD_WAIT_S:.0f} s for it"
            )
        return self._silent_s <= 2 * LOOK_S

    def close(self) -> None:
        self._ended.set()
        self._thread.join(LOOK_S)
