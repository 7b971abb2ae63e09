"""Components: names from data become safe folders; only a source that was split has its small parts merged."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from corpusmill.shards.components import Key, component_names, merge_small, slugs
from corpusmill.shards.layout import MANIFEST, TOKENIZER_FILE

HOSTILE = [
    "../../etc/passwd",
    "..",
    ".",
    "",
    "/",
    "a/b",
    "a\\b",
    "CON\0",
    "Web",
    "web",
    "WEB",
    "\uff57\uff45\uff42",
    "東京",
    "x" * 300,
    "-",
    "_commits",
]


@given(
    st.sets(
        st.one_of(st.text(max_size=80), st.sampled_from([*HOSTILE, TOKENIZER_FILE, MANIFEST])), max_size=30
    )
)
def test_every_name_has_a_folder_of_its_own_below_the_shards(names: set[str]) -> None:
    found = slugs(names)
    assert set(found) == names
    assert len(set(found.values())) == len(names)
    for slug in found.values():
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", slug), slug
        assert slug != TOKENIZER_FILE


@given(st.sets(st.text(max_size=20), min_size=2, max_size=10))
def test_a_slug_does_not_depend_on_the_other_names(names: set[str]) -> None:
    together = slugs(names)
    assert {name: slugs([name])[name] for name in names} == together


def test_plain_names_are_their_own_folders() -> None:
    names = ["web", "books", "web.en", "cc-2024_10"]
    assert slugs(names) == {name: name for name in names}


def test_a_name_that_looks_like_anothers_slug_gets_another() -> None:
    (taken,) = slugs(["Web"]).values()
    both = slugs(["Web", taken])
    assert both["Web"] == taken
    assert both[taken] != taken


def test_keys_that_would_share_a_name_do_not() -> None:
    names = component_names([("a.b", "c"), ("a", "b.c"), ("web", "en")])
    assert names[("web", "en")] == "web.en"
    assert len(set(names.values())) == 3


def test_a_small_source_is_never_merged() -> None:
    tokens: dict[Key, int] = {("web",): 10**9, ("tiny",): 3, ("small",): 5}
    assert merge_small(tokens, ("source",), 1000) == {key: key for key in tokens}


def test_small_parts_of_a_split_source_meet_in_its_rest() -> None:
    tokens: dict[Key, int] = {
        ("en", "web"): 10**9,
        ("fi", "web"): 3,
        ("is", "web"): 5,
        ("fi", "books"): 4,
        ("sv", "web"): 0,
    }
    assert merge_small(tokens, ("language", "source"), 1000) == {
        ("en", "web"): ("en", "web"),
        ("fi", "web"): ("web", "rest"),
        ("is", "web"): ("web", "rest"),
        ("fi", "books"): ("fi", "books"),
        ("sv", "web"): ("sv", "web"),
    }
