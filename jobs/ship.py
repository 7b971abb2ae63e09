"""The package of this checkout, made ready to travel with a Ray job.

The wheel is built and unpacked here and goes as a folder (1 MB, a few seconds): Ray would install a wheel on every node with a pip that
fetches its dependencies, which may be other versions than the cluster's.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import corpusmill
from corpusmill.pipeline.errors import RecipeError, RunError


def checkout() -> Path:
    """The folder with pyproject.toml that this program runs from; RecipeError for an installed package."""
    folder = Path(corpusmill.__file__).resolve().parent.parent
    project = folder / "pyproject.toml"
    if (
        not project.is_file()
        or tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("name") != "corpusmill"
    ):
        raise RecipeError(
            f"--ship takes the code of a checkout along, and this corpusmill is installed in {folder}: "
            "run it from a clone, or install the same version on the cluster"
        )
    return folder


def packed_checkout(folder: Path) -> Path:
    """Build the wheel and unpack it below `folder`; the path of the package in it."""
    root = checkout()
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if importlib.util.find_spec("hatchling") is not None:
        build.append("--no-build-isolation")  # needs no index
    done = subprocess.run(
        [*build, "--wheel-dir", str(folder / "wheel"), str(root)], capture_output=True, text=True
    )
    wheels = list((folder / "wheel").glob("corpusmill-*.whl"))
    if done.returncode or len(wheels) != 1:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no wheel was made"]
        raise RunError(f"--ship: the wheel of {root} cannot be built: {last[0]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(folder / "package")
    return folder / "package" / "corpusmill"
