"""Fixtures that cost seconds are made once a session."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from runs import corpusmill, inputs, write_recipe

# Machines are shared and kernels compile inside the first example: no law here is about time.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


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
    """OUT of a whole run with one worker that nothing disturbed. Read only."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    corpusmill("run", recipe, "--out", out, *inputs(crawl), "--workers", "1")
    return out
