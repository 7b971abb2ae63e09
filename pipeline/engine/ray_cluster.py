"""What must be equal on all nodes of a Ray cluster: what they see of OUT, and the versions of all that makes bytes.

A probe file in OUT, with a word of this run, stands as long as the run: every node reads it before the first task, and every worker before its
first, so that a node that comes later is held to the same. A node with another version of what makes bytes is an error with its name:
its tasks would succeed and be wrong.
"""

from __future__ import annotations

import platform
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from corpusmill import __version__
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.ray_nodes import Nodes, nodes_of
from corpusmill.pipeline.errors import RunError
from corpusmill.pipeline.remote import surroundings

EQUAL = tuple(
    "brotli datasketch fasttext-community justext lxml lxml_html_clean numba numpy pyarrow "
    "pyyaml resiliparse scikit-learn scipy tld tokenizers trafilatura xxhash zstandard".split()
)
"""Distributions that make or write the bytes of a run: all that operations name in `libraries` but torch, and what they are written with.

Only trained proxies use torch, and most nodes do without: the driver's version stands in their fingerprint, those of nodes are not compared.
"""


@dataclass(frozen=True)
class Terms:
    """What every worker checks before its first task: the probe and its word, and the versions that the driver has."""

    probe: str
    word: str
    versions: Mapping[str, str | None]
    blind: str  # what is said of a node that cannot read the probe
    environment: Mapping[str, str]  # where stores are; never credentials, which nodes have of their own


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
