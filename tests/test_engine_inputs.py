"""Inputs on stores and web servers: found, chosen and known as files on a disk are."""

from __future__ import annotations

import glob
import gzip
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from faulty_proxy import faulty_proxy
from hypothesis import given
from hypothesis import strategies as st
from s3_server import Bucket
from web_server import Site, web_server

from corpusmill.pipeline.engine.inputs import find_inputs
from corpusmill.pipeline.engine.matching import matches
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.input import Input
from corpusmill.pipeline.recipe import parse_recipe

CRAWL = "CC-MAIN-2024-10"
STAGES: list[Any] = [{"extract": {}}]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Laid out like Common Crawl's: lists of paths relative to the site's top, and the files that they name."""
    folder = tmp_path / "site"
    names = [f"crawl-data/{CRAWL}/segments/17{n % 3}/warc/CC-{n:05}.warc.gz" for n in range(30)]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 50)
    lists = folder / "crawl-data" / CRAWL
    lists.joinpath("warc.paths.gz").write_bytes(
        gzip.compress("".join(f"{name}\n" for name in names).encode())
    )
    lists.joinpath("wet.paths.gz").write_bytes(gzip.compress(names[0].encode() + b"\n"))
    with web_server(folder) as site:
        yield site


def relatives(*inputs: Input, **options: Any) -> list[str]:
    return [file.relative for file in find_inputs(inputs, **options)]


# Wildcards


@given(
    st.lists(
        st.sampled_from(["*", "**", "?", "a", "b*", "[ab]", "[!a]", ".a", ".*", "*.a", "**a"]),
        min_size=1,
        max_size=4,
    ),
    st.sets(
        st.lists(st.sampled_from(["a", "b", "ab", ".a", ".b", "c.a", "[ab]"]), min_size=1, max_size=4).map(
            "/".join
        ),
        min_size=1,
        max_size=12,
    ),
)
def test_wildcards_match_names_of_a_store_as_they_match_on_a_disk(
    tmp_path_factory: pytest.TempPathFactory, pattern: list[str], names: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    # On a disk no name is a file and a folder at once.
    files = {name for name in names if not any(other.startswith(f"{name}/") for other in names)}
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    text = "/".join(pattern)
    found = glob.glob(text, root_dir=folder, recursive=True)  # noqa: PTH207
    on_disk = {name for name in found if not name.endswith("/") and (folder / name).is_file()}
    assert {name for name in files if matches(text, name)} == on_disk


def test_a_store_is_listed_once_below_the_fixed_prefix(bucket: Bucket, tmp_path: Path) -> None:
    for name in ("in/a.gz", "in/x/b.gz", "in/x/y/c d.gz", "in/.hidden.gz", "other/d.gz", "in/x/not"):
        (tmp_path / "up" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "up" / name).write_bytes(name.encode())
    bucket.upload(tmp_path / "up", "top")
    assert relatives(Input(bucket.url("top/in/*.gz"))) == ["a.gz"]
    with faulty_proxy(bucket.endpoint) as proxy:
        item = Input(bucket.url("top/in/**/*.gz"), endpoint=proxy.endpoint)
        assert relatives(item) == ["a.gz", "x/b.gz", "x/y/c d.gz"]
        assert [request.method for request in proxy.requests] == ["GET"]
    assert relatives(Input(bucket.url("top/*/x/[a-b]*"))) == ["in/x/b.gz"]
    (file,) = find_inputs([Input(bucket.url("top/in/x/y/c d.gz"), "own")])
    assert (file.relative, file.source, file.size_bytes, file.named) == ("c d.gz", "own", 13, True)
    by_listing = find_inputs([Input(bucket.url("top/in/x/y/*"))])[0]
    assert by_listing.identity == file.identity and not by_listing.named
    with pytest.raises(InputError, match=r"no object matches s3://.*/none\*"):
        find_inputs([Input(bucket.url("top/none*"))])
    with pytest.raises(InputError, match="is a folder: name files"):
        find_inputs([Input(bucket.url("top/in"))])
    with pytest.raises(InputError, match="is not there"):
        find_inputs([Input(bucket.url("top/gone"))])
    with pytest.raises(InputError, match="there is no such bucket"):
        find_inputs([Input("s3://no-such-bucket-here/x/*")])
    with pytest.raises(RecipeError, match="BUCKET/KEY is needed"):
        find_inputs([Input("s3://*/x")])


def test_a_run_never_reads_what_it_wrote_to_a_store(bucket: Bucket, tmp_path: Path) -> None:
    for name in ("x", "out/text/part", "outside"):
        (tmp_path / "up" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "up" / name).write_bytes(b"1")
    bucket.upload(tmp_path / "up", "top")
    found = [file.relative for file in find_inputs([Input(bucket.url("top/**"))], bucket.url("top/out"))]
    assert found == ["outside", "x"]


def test_a_changed_object_has_another_identity(bucket: Bucket) -> None:
    client = bucket.client()
    client.put_object(Bucket=bucket.name, Key="in/a", Body=b"one")
    before = find_inputs([Input(bucket.url("in/*"))])[0].identity
    client.put_object(Bucket=bucket.name, Key="in/a", Body=b"four")
    assert find_inputs([Input(bucket.url("in/*"))])[0].identity != before


def test_an_input_may_lie_at_another_endpoint_than_the_environments(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.client().put_object(Bucket=bucket.name, Key="in/a", Body=b"one")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert relatives(Input(bucket.url("in/*"), endpoint=bucket.endpoint, region="us-east-1")) == ["a"]


# Web servers


def test_a_file_on_a_web_server_is_known_by_size_and_etag_in_one_request(site: Site) -> None:
    url = site.url(f"crawl-data/{CRAWL}/segments/170/warc/CC-00000.warc.gz")
    (file,) = find_inputs([Input(url)])
    assert (file.relative, file.size_bytes, file.named) == ("CC-00000.warc.gz", 61 * 50, True)
    assert len(site.asked) == 1
    (site.folder / url[len(site.endpoint) + 1 :]).write_bytes(b"x" * 61 * 50)
    assert find_inputs([Input(url)])[0].identity != file.identity


def test_without_an_etag_three_places_are_looked_at(site: Site) -> None:
    site.validators = "none"
    path = site.folder / "large"
    path.write_bytes(bytes(500_000))
    before = find_inputs([Input(site.url("large"))])[0].identity
    with path.open("r+b") as file:
        file.seek(250_000)
        file.write(b"X")
    assert find_inputs([Input(site.url("large"))])[0].identity != before


def test_names_are_those_that_a_disk_would_have(site: Site) -> None:
    (site.folder / "a b+ü%.gz").write_bytes(b"1")
    assert relatives(Input(site.url("a%20b+%C3%BC%25.gz"))) == ["a b+ü%.gz"]


def test_wildcards_need_a_listing_and_web_servers_have_none(site: Site) -> None:
    with pytest.raises(RecipeError, match="paths_file"):
        find_inputs([Input(site.url("x/*.gz"))])
    with pytest.raises(RecipeError, match="plain address"):
        find_inputs([Input(site.url("x.gz?signature=planted"))])


def test_a_missing_file_is_named_before_any_work(site: Site) -> None:
    with pytest.raises(InputError, match=r"/gone: there is no such file \(404\)"):
        find_inputs([Input(site.url("gone"))])


# Lists


def test_a_crawl_is_its_list_of_files_relative_to_the_base(site: Site) -> None:
    files = find_inputs([Input(crawl=CRAWL, base=site.endpoint, source="cc")])
    assert len(files) == 30 and {file.source for file in files} == {"cc"}
    assert files[0].relative == f"crawl-data/{CRAWL}/segments/170/warc/CC-00000.warc.gz"
    assert files[0].path == site.url(files[0].relative) and not files[0].named
    assert relatives(Input(crawl=CRAWL, base=site.url(""), kind="wet")) == [files[0].relative]


def test_take_is_a_part_of_what_more_would_take(site: Site) -> None:
    of = {n: set(relatives(Input(crawl=CRAWL, base=site.endpoint, take=n))) for n in (1, 5, 20, 30, 99)}
    assert [len(of[n]) for n in (1, 5, 20, 30, 99)] == [1, 5, 20, 30, 30]
    assert of[1] < of[5] < of[20] < of[30] == of[99]
    site.asked.clear()
    find_inputs([Input(crawl=CRAWL, base=site.endpoint, take=5)])
    assert len(site.count()) == 1 + 5, "files that are not taken are not asked for"


def test_a_list_may_lie_anywhere_and_its_files_elsewhere(site: Site, bucket: Bucket, tmp_path: Path) -> None:
    name = f"crawl-data/{CRAWL}/segments/170/warc/CC-00000.warc.gz"
    bucket.upload(site.folder, "mirror")
    plain, packed = f"# a comment\n\n  {name}\r\n{name}\n".encode(), gzip.compress(name.encode())
    (tmp_path / "list.txt").write_bytes(plain)
    (site.folder / "list.gz").write_bytes(packed)
    bucket.client().put_object(Bucket=bucket.name, Key="list.gz", Body=packed)
    for place in (str(tmp_path / "list.txt"), site.url("list.gz"), bucket.url("list.gz")):
        for base in (site.endpoint, bucket.url("mirror/"), str(site.folder)):
            (file,) = find_inputs([Input(paths_file=place, base=base)])
            assert file.relative == name and file.size_bytes == (site.folder / name).stat().st_size
    (tmp_path / "list.txt").write_text(site.url(name))
    assert relatives(Input(paths_file=str(tmp_path / "list.txt"), base=site.endpoint)) == [name]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "lists no file"),
        (b"# nothing\n\n", "lists no file"),
        (b"a/b\n<html>\n", r"line 2: '<html>' is no path"),
        (b"a/b\n\n../c\n", r"line 3: '\.\./c' is no path"),
        (b"/etc/passwd\n", "line 1"),
        (b"a//b\n", "line 1"),
        (b"a\x00b\n", "line 1"),
        (b"https://elsewhere/a\n", "line 1"),
        (b"a\n\xff\xfe\n", r"line 2: not in UTF-8"),
        (b"a" * 5000, "line 1"),
        (gzip.compress(b"a/b\n" * 10, mtime=0)[:-9], r"line \d+: the list is damaged"),
        (
            gzip.compress(Random(7).randbytes(90).hex().encode() + b"\n", mtime=0)[:40] + b"damage" * 9,
            r"line \d+: the list is damaged",
        ),
    ],
)
def test_a_damaged_list_is_an_error_with_its_line(content: bytes, error: str, tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(content)
    with pytest.raises(InputError, match=error):
        find_inputs([Input(paths_file=str(tmp_path / "list"), base=str(tmp_path))])


def test_a_list_of_ones_own_needs_its_base(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("mine/a.gz\n")
    with pytest.raises(RecipeError, match=r"line 1: 'mine/a.gz' is none of Common Crawl's: say with `base`"):
        find_inputs([Input(paths_file=str(tmp_path / "list"))])
    with pytest.raises(InputError, match="cannot read the list"):
        find_inputs([Input(paths_file=str(tmp_path / "gone"))])


# Recipes


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "exactly one of path, paths_file and crawl"),
        ({"path": "a", "crawl": CRAWL}, "not path and crawl"),
        ({"path": "a", "base": "b"}, "base goes with"),
        ({"crawl": "2024-10"}, "a name like CC-MAIN-2024-10"),
        ({"crawl": CRAWL, "kind": "wat"}, "'warc' or 'wet'"),
        ({"path": "a", "kind": "wet"}, "kind goes with crawl"),
        ({"crawl": CRAWL, "take": 0}, "at least 1"),
        ({"path": "a", "sample": 0}, "above 0 and at most 1"),
        ({"crawl": CRAWL, "takes": 3}, "did you mean 'take'"),
        ({"path": "s3://b/k", "endpoint": "http://user:planted@host"}, r"HOST\[:PORT\]"),
        ({"path": "s3://b/k", "endpoint": "host:9000"}, r"HOST\[:PORT\]"),
    ],
)
def test_a_wrong_input_of_a_recipe_is_named(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(RecipeError, match=rf"inputs\.0.*{error}") as caught:
        parse_recipe({"inputs": [fields], "stages": STAGES})
    assert "planted" not in str(caught.value)


def test_what_is_stored_of_an_input_is_what_was_said() -> None:
    fields = {"crawl": CRAWL, "take": 3, "base": "s3://mirror/", "anonymous": True}
    stored = parse_recipe({"inputs": [{"path": "a"}, fields], "stages": STAGES}).canonical()["inputs"]
    assert stored == [{"path": "a", "source": "web"}, {"source": "web", **fields}]
    again = parse_recipe({"inputs": stored, "stages": STAGES})
    assert again.canonical()["inputs"] == stored
