"""`verify --repair`: what was broken comes back as it was, from what the run still has; what cannot is said and left alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from runs import corpusmill, hashes
from shard_samples import small_shards


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.fixture
def out(undisturbed: Path, crawl: Path, tmp_path: Path) -> Path:
    """A copy of the run whose inputs are gone."""
    copy = tmp_path / "out"
    shutil.copytree(undisturbed, copy)
    recipe = copy / "recipe.yaml"
    assert str(crawl) in recipe.read_text()
    recipe.write_text(recipe.read_text().replace(str(crawl), str(tmp_path / "gone")))
    return copy


def test_layers_shards_and_plans_are_made_again_without_the_crawl(
    undisturbed: Path, out: Path, tmp_path: Path
) -> None:
    shards = out / "shards"
    flip(sorted(shards.rglob("part-*.arrow"))[0])
    sorted(shards.rglob("docs-*.parquet"))[-1].unlink()
    sorted(shards.rglob("manifest.json"))[0].unlink()
    flip(sorted((out / "layers").rglob("part-*.parquet"))[0])
    (shards / "plan.json").unlink()
    done = corpusmill("verify", out, "--repair")
    assert done.stdout.count("made again by its stage") == 4 and " 0 findings" in done.stdout
    assert without_recipe(out) == without_recipe(undisturbed)


def without_recipe(out: Path) -> dict[str, str]:
    return {name: digest for name, digest in hashes(out).items() if name != "recipe.yaml"}


def test_a_block_table_comes_from_the_shards_beside_it(undisturbed: Path, out: Path) -> None:
    tables = sorted((out / "shards").rglob("blocks.arrow"))
    flip(tables[0])
    done = corpusmill("verify", out, "--repair")
    assert f"{tables[0]}: made again from what lies beside it" in done.stdout
    assert "by its stage" not in done.stdout
    assert without_recipe(out) == without_recipe(undisturbed)


def test_documents_need_the_crawl_and_nothing_is_dropped_without_it(out: Path) -> None:
    documents = sorted((out / "text" / "documents").rglob("part-*.parquet"))[0]
    part = sorted((out / "shards").rglob("part-*.arrow"))[0]
    flip(documents)
    flip(part)
    assert "gone" in corpusmill("verify", out, "--repair", expect=2).stderr
    assert documents.is_file() and part.is_file()


def test_shards_alone_get_their_block_table_back_and_keep_what_needs_the_run(tmp_path: Path) -> None:
    small_shards(tmp_path)
    table, other = tmp_path / "fp" / "books" / "blocks.arrow", tmp_path / "fp" / "web" / "blocks.arrow"
    before = table.read_bytes()
    table.unlink()
    flip(other)
    flip(tmp_path / "fp" / "web" / "part-00000.arrow")
    broken = other.read_bytes()
    done = corpusmill("verify", tmp_path, "--repair", expect=1)
    assert f"{table}: made again from the shards" in done.stdout
    assert table.read_bytes() == before
    assert other.read_bytes() == broken, "a table of damaged shards would only hide the damage"
    assert "fp/web/part-00000.arrow: is damaged" in done.stdout
