"""Fixtures that cost seconds are made once a session; files go whole to the processes of `pytest -n`, the longest first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from parallel import by_length
from runs import corpusmill, inputs, write_recipe
from s3_server import Bucket, enter, environment, make_bucket

# Machines are shared and kernels compile inside the first example: no law here is about time.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Servers of tests are on the loopback, where no proxy of this machine leads.
os.environ.setdefault("no_proxy", "127.0.0.1,localhost")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=by_length)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from parallel import FilesWhole

    return FilesWhole(config, log)


@pytest.fixture(scope="session")
def language_model() -> Path:
    """The path of lid.176; skips where it cannot be had."""
    from corpusmill.pipeline.errors import ModelError
    from corpusmill.pipeline.models import model_path

    try:
        return model_path("lid.176")
    except ModelError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl of 160 pages of all kinds."""
    from corpusmill.jobs.demo_pages import make_demo_crawl

    folder = tmp_path_factory.mktemp("crawl")
    make_demo_crawl(folder, 160)
    return folder


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="session")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, crawl: Path, recipe: Path, language_model: Path
) -> Path:
    """OUT of a whole run with one worker that nothing disturbed, beside it `events`, what it said of its progress. Read only."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    done = corpusmill("run", recipe, "--out", out, *inputs(crawl), "--workers", "1")
    out.with_name("events").write_text(done.stderr)
    return out


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real S3 server; skips where moto is not installed."""
    pytest.importorskip("moto.server")
    from s3_server import s3_server

    with s3_server(tmp_path_factory.mktemp("s3") / "server.log") as endpoint:
        yield endpoint


@pytest.fixture
def bucket(s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A new bucket; this process and its children reach it by their environment."""
    enter(monkeypatch, environment(s3_endpoint, tmp_path))
    return make_bucket(s3_endpoint)
