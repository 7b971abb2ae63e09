"""What a node does once for all its workers, tried by real processes and without Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from corpusmill.pipeline.engine.place import place_of
from corpusmill.pipeline.engine.ray_cluster import different, look_around, terms_for

WORKER = """
import sys, time
from pathlib import Path
from corpusmill.pipeline.engine.ray_node import warm_once

def warm():
    with Path(sys.argv[1]).open("a") as file:
        file.write("compiled\\n")
    if sys.argv[2] == "dies":
        import os
        os._exit(1)
    time.sleep(0.3)

warm_once("corpusmill.room:Operation", warm, {"corpusmill": sys.argv[3], "numba": "1", "python": "3.11"})
print(Path(sys.argv[1]).read_text().count("compiled"))
"""


def workers(tmp_path: Path, *ends: str, version: str = "1") -> list[str]:
    """Workers of one node, at once; what each saw when its kernels were ready."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path / "log"), end, version],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for end in ends
    ]
    return [each.communicate(timeout=100)[0].strip() for each in started]


def test_kernels_are_compiled_by_one_worker_of_a_node_and_again_for_another_version(tmp_path: Path) -> None:
    assert workers(tmp_path, "lives", "lives", "lives") == ["1", "1", "1"]
    assert workers(tmp_path, "lives") == ["1"]
    assert workers(tmp_path, "lives", "lives", version="2") == ["2", "2"]


def test_a_worker_that_dies_while_it_compiles_leaves_it_to_the_next(tmp_path: Path) -> None:
    assert workers(tmp_path, "dies") == [""]
    assert workers(tmp_path, "lives", "lives") == ["2", "2"]


def test_a_node_is_fit_when_it_sees_this_runs_probe_and_has_its_versions(tmp_path: Path) -> None:
    from dataclasses import asdict, replace

    look = look_around()
    terms = terms_for(place_of(tmp_path))
    word, found = look(asdict(terms))
    assert different(terms, word, found) == ""
    assert str(tmp_path) in different(terms, None, found)
    assert str(tmp_path) in different(terms, "a word of another run", found)
    older = {**found, "trafilatura": "0.1", "brotli": None}
    said = different(terms, word, older)
    assert "trafilatura 0.1 (here " in said and "brotli missing (here " in said and "constraints.txt" in said
    elsewhere = replace(terms, probe=str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").write_text("a word of another run")
    assert different(elsewhere, *look(asdict(elsewhere))) == terms.blind
