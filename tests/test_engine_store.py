"""The folder for temporary files is the user's own: what lies there is loaded as code and handed to trainers."""

import os
import tempfile
from pathlib import Path

import pytest

from corpusmill.pipeline.engine.store import can_write, own_folder
from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.cache import Cache


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TMPDIR of this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_nobody_else_can_look_into_it_whoever_makes_it_first(temporary: Path) -> None:
    assert Cache().place() == own_folder() / "blocks"
    assert own_folder() == temporary / f"corpusmill-{os.getuid()}"
    assert own_folder().stat().st_mode & 0o777 == 0o700


def test_a_link_in_its_place_is_not_followed(temporary: Path) -> None:
    (temporary / "theirs").mkdir()
    (temporary / f"corpusmill-{os.getuid()}").symlink_to(temporary / "theirs")
    with pytest.raises(PermissionError, match="another user's"):
        own_folder()
    with pytest.raises(
        ShardError, match=r"corpusmill-\d+: blocks cannot be kept there .*cache=Cache\(FOLDER\)"
    ):
        Cache().place()
    assert not list((temporary / "theirs").iterdir())


def test_where_a_file_can_be_made_is_found_by_making_one(tmp_path: Path) -> None:
    assert can_write(tmp_path / "new" / "folder")
    assert not list((tmp_path / "new" / "folder").iterdir())
    (tmp_path / "file").touch()
    assert not can_write(tmp_path / "file" / "below")
