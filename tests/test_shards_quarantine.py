"""Quarantine: exactly the named tokens are gone from exactly the named sample on, and nothing else has moved."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_samples import EOS, Sample, documents, small_shards, write_shards

from corpusmill.pipeline.errors import CursorError, ShardError
from corpusmill.shards import Cursor, hide, locate, stream, verify
from corpusmill.shards.hide import hide_document, hide_samples, lift
from corpusmill.shards.locate import Located
from corpusmill.shards.plan import MOST_SAMPLES, PPB, Phase
from corpusmill.shards.quarantine import QUARANTINE_FILE, Quarantine, read_quarantine
from corpusmill.shards.reader import Shards
from corpusmill.shards.sidecar import Wanted

TOTAL = 600
MASK = ("loss_mask",)
URLS = [f"https://{name}.example/{n}" for name, n in (("books", 3), ("books", 33), ("code", 5), ("web", 7))]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    small_shards(tmp_path / "shards", total=TOTAL)
    return tmp_path / "shards"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same shards without a list; not to be changed."""
    root = tmp_path_factory.mktemp("clean")
    small_shards(root, total=TOTAL)
    return root


@pytest.fixture(scope="module")
def located(clean: Path) -> list[Located]:
    return locate(clean, 0, TOTAL)


def read(root: Path, start: int = 0, stop: int = TOTAL) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, loss mask) of samples `start` .. `stop` - 1."""
    opened = Shards(root)
    cursor = Cursor(opened.plan.id, start, opened.quarantine.id)
    with stream(root, stop - start, cursor=cursor, want=MASK, prefetch=0) as batches:
        batch = next(batches)
    return batch["tokens"], batch["loss_mask"]


def hidden(located: list[Located], url: str, start: int, tokens: tuple[int, int] = (0, 10**9)) -> np.ndarray:
    """[TOTAL, T + 1]: tokens of the document at `url`, found by looking at every piece of every sample."""
    gone = np.zeros((TOTAL, 9), np.bool_)
    for sample in located:
        for piece in sample.pieces:
            if piece.url == url and sample.sample >= start:
                first, last = (max(piece.token, min(t, 10**8)) for t in tokens)
                gone[
                    sample.sample,
                    piece.start + first - piece.token : min(piece.end, piece.start + last - piece.token),
                ] = True
    return gone


def check(root: Path, clean: Path, gone: np.ndarray) -> None:
    """What the stream gives is what it gave without the list, but for `gone`."""
    (tokens, mask), (before, old) = read(root), read(clean)
    assert np.array_equal(tokens, np.where(gone, EOS, before))
    assert np.array_equal(mask, old & ~gone[:, 1:])


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("start", [0, 250])
def test_a_documents_tokens_are_end_of_text_without_loss_from_the_sample_on(
    shards: Path, clean: Path, located: list[Located], url: str, start: int
) -> None:
    hide_document(shards, Wanted(url=url), start, "it says the same word for ever")
    gone = hidden(located, url, start)
    assert gone.any()
    check(shards, clean, gone)
    assert verify(shards) == []


@settings(deadline=None, max_examples=10)
@given(data=st.data())
def test_any_list_hides_what_its_entries_and_lifts_say_together(
    clean: Path, located: list[Located], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("list") / "shards"
    shutil.copytree(clean, root)
    gone = np.zeros((TOTAL, 9), np.bool_)
    for url in data.draw(st.lists(st.sampled_from(URLS), unique=True, max_size=3)):
        start = data.draw(st.integers(0, TOTAL))
        pieces = [piece for sample in located for piece in sample.pieces if piece.url == url]
        length = max(piece.token + piece.end - piece.start for piece in pieces)
        first = data.draw(st.integers(0, length - 1))
        last = data.draw(st.integers(first + 1, length))
        grown = hide_document(root, Wanted(url=url), start, "odd", (first, last))
        here = hidden(located, url, start, (first, last))
        if data.draw(st.booleans()):
            end = data.draw(st.integers(start, TOTAL))
            lift(root, len(grown.entries) - 1, end, "it was harmless")
            here[end:] = False
        gone |= here
    check(root, clean, gone)


def test_rows_that_two_documents_share_lose_only_the_one_and_keep_the_token_they_share(
    tmp_path: Path,
) -> None:
    # T = 4. Stream: 1 2 0 | 3 0 | 4 5 6 7 8 0: rows 1 2 0 3 0, 0 4 5 6 7, 7 8 0 . . (0 is end-of-text)
    write_shards(tmp_path, [Sample("a", [[[1, 2], [3], [4, 5, 6, 7, 8]]])], {"a": PPB}, length=4, total=3)
    order = [row[0] for row in sorted((located.row, located.sample) for located in locate(tmp_path, 0, 3))]
    place = [next(s.sample for s in locate(tmp_path, 0, 3) if s.row == row) for row in order]
    hide_document(tmp_path, Wanted(url="https://a.example/1"), 0, "all of 3 0")
    tokens, mask = read(tmp_path, 0, 3)
    assert tokens[place].tolist() == [[1, 2, 0, 0, 0], [0, 4, 5, 6, 7], [7, 8, 0, 0, 0]]
    # Targets of the first row are 2 0 3 0: the last two are the hidden document's. The second row begins with its end as an input.
    assert mask[place].tolist() == [[True, True, False, False], [True] * 4, [True, True, False, False]]
    hide_document(tmp_path, Wanted(url="https://a.example/2"), 0, "all of 4 5 6 7 8 0", (3, 6))
    tokens, mask = read(tmp_path, 0, 3)
    assert tokens[place].tolist() == [[1, 2, 0, 0, 0], [0, 4, 5, 6, 0], [0, 0, 0, 0, 0]]
    assert mask[place].tolist() == [[True, True, False, False], [True, True, True, False], [False] * 4]


def test_rows_of_samples_are_hidden_whenever_they_come_again(
    shards: Path, clean: Path, located: list[Located]
) -> None:
    hide_samples(shards, 100, 103, 50, "loss went up here")
    rows = {(s.component, s.row) for s in located[100:103]}
    gone = np.array([[(s.component, s.row) in rows and s.sample >= 50] * 9 for s in located])
    assert gone.any(axis=1).sum() > 6  # 600 samples are several epochs
    check(shards, clean, gone)


def test_ranks_workers_and_parts_of_rows_see_the_same_as_one_reader(shards: Path) -> None:
    for url in URLS:
        hide_document(shards, Wanted(url=url), 100, "odd")
    tokens, mask = read(shards)
    for kind in ("dp", "cp"):
        parts = []
        for rank in range(2):
            where = {f"{kind}_rank": rank, f"{kind}_size": 2}
            with stream(shards, TOTAL, want=MASK, **where) as batches:  # type: ignore[arg-type]
                parts.append(next(batches))
        assert np.array_equal(
            np.concatenate([part["loss_mask"] for part in parts], axis=0 if kind == "dp" else 1), mask
        )
        joined = (
            np.concatenate([part["tokens"] for part in parts])
            if kind == "dp"
            else np.concatenate([parts[0]["tokens"][:, :-1], parts[1]["tokens"]], axis=1)
        )
        assert np.array_equal(joined, tokens)


def test_pieces_keep_their_positions_and_bounds(shards: Path, clean: Path) -> None:
    hide_document(shards, Wanted(url=URLS[0]), 0, "odd")
    want = ("loss_mask", "position_ids", "cu_seqlens")
    with stream(shards, TOTAL, want=want) as a, stream(clean, TOTAL, want=want) as b:
        one, other = next(a), next(b)
    assert all(np.array_equal(one[name], other[name]) for name in ("position_ids", "cu_seqlens"))


def test_a_stream_that_does_not_take_the_mask_is_refused_while_anything_is_hidden(shards: Path) -> None:
    hide_document(shards, Wanted(url=URLS[0]), 100, "odd")
    with pytest.raises(CursorError, match="loss_mask"):
        stream(shards, 8)
    lift(shards, 0, 200, "it was harmless")
    opened = Shards(shards)
    with pytest.raises(CursorError, match="loss_mask"):
        stream(shards, 8, cursor=Cursor(opened.plan.id, 199, opened.quarantine.id))
    with stream(shards, 8, cursor=Cursor(opened.plan.id, 200, opened.quarantine.id)) as batches:
        next(batches)


def test_a_plan_without_the_entrys_component_needs_no_mask(shards: Path) -> None:
    hide_document(shards, Wanted(url=URLS[2]), 0, "odd")
    plan = Shards(shards).plan
    other = replace(plan, components=plan.components[:1], phases=(Phase(0, {"books": PPB}),))
    (shards / "books.json").write_bytes(other.encode())
    with stream(shards / "books.json", 8) as batches:
        next(batches)


# Cursors


def cursor_at(root: Path, sample: int) -> Cursor:
    opened = Shards(root)
    return Cursor(opened.plan.id, sample, opened.quarantine.id)


def first_seen(located: list[Located], url: str) -> int:
    return next(s.sample for s in located if any(piece.url == url for piece in s.pieces))


def test_a_cursor_from_before_the_list_goes_on_when_nothing_before_it_has_changed(
    shards: Path, clean: Path, located: list[Located]
) -> None:
    saved = cursor_at(shards, 100)
    assert saved.quarantine is None
    hide_document(shards, Wanted(url=URLS[0]), 100, "odd")
    with stream(shards, 20, cursor=saved, want=MASK) as batches:
        tokens = next(batches)["tokens"]
        assert batches.cursor.quarantine == Shards(shards).quarantine.id
    assert np.array_equal(tokens, read(shards, 100, 120)[0])


def test_a_list_that_changed_samples_before_the_cursor_is_refused_with_entry_and_sample(
    shards: Path, located: list[Located]
) -> None:
    saved = cursor_at(shards, 300)
    seen = first_seen(located, URLS[0])
    hide_document(shards, Wanted(url=URLS[0]), 0, "odd")
    says = rf"entry 0 \([0-9a-f]{{32}} {URLS[0]} .*from sample 0 on.*tokens of sample {seen};"
    with pytest.raises(CursorError, match=says):
        stream(shards, 8, cursor=saved, want=MASK)
    with stream(
        shards, 8, cursor=Cursor(saved.plan, seen), want=MASK
    ) as batches:  # nothing before it differs
        next(batches)


def test_an_entry_from_an_earlier_sample_fits_when_its_document_had_not_come_yet(
    shards: Path, located: list[Located]
) -> None:
    late = max(URLS, key=lambda url: first_seen(located, url))
    seen = first_seen(located, late)
    assert seen > 0
    saved = cursor_at(shards, seen)
    hide_document(shards, Wanted(url=late), 0, "odd")
    with stream(shards, 8, cursor=saved, want=MASK) as batches:
        assert batches.cursor.next == seen


def test_a_lift_before_the_cursor_is_a_change_and_one_behind_it_is_none(shards: Path) -> None:
    hide_document(shards, Wanted(url=URLS[0]), 0, "odd")
    saved = cursor_at(shards, 300)
    lift(shards, 0, 300, "it was harmless")
    with stream(shards, 8, cursor=saved) as batches:
        next(batches)
    earlier = Quarantine(Shards(shards).quarantine.entries[:1])
    (shards / QUARANTINE_FILE).write_bytes(earlier.encode())
    lift(shards, 0, 10, "it was harmless")
    with pytest.raises(CursorError, match=r"entry 1 \(entry 0 lifted, from sample 10 on\)"):
        stream(shards, 8, cursor=saved)


@pytest.mark.parametrize("then", ["gone", "other"])
def test_a_list_that_is_gone_or_another_is_refused(shards: Path, then: str) -> None:
    hide_document(shards, Wanted(url=URLS[0]), 100, "odd")
    saved = cursor_at(shards, 300)
    assert saved.quarantine is not None
    (shards / QUARANTINE_FILE).unlink()
    if then == "other":
        hide_document(shards, Wanted(url=URLS[1]), 100, "odd")
    with pytest.raises(CursorError, match=f"made under quarantine list {saved.quarantine[:8]}.*restore"):
        stream(shards, 8, cursor=saved, want=MASK)


RESUMED = """
import sys
from corpusmill.shards import stream
with stream(sys.argv[1], 30, cursor=sys.argv[2] or None, want=("loss_mask",)) as batches:
    batch = next(batches)
    print(batches.cursor.to_json(), batch["tokens"].tobytes().hex(), batch["loss_mask"].tobytes().hex())
"""


def test_fresh_processes_with_a_list_that_grows_between_them_give_one_straight_order(
    shards: Path, clean: Path, located: list[Located]
) -> None:
    cursor, tokens, mask = "", [], []
    gone = np.zeros((TOTAL, 9), np.bool_)
    for turn, url in enumerate(URLS):
        run = subprocess.run(
            [sys.executable, "-c", RESUMED, str(shards), cursor], capture_output=True, text=True, check=True
        )
        cursor, *parts = run.stdout.split()
        tokens.append(np.frombuffer(bytes.fromhex(parts[0]), np.uint16).reshape(30, 9))
        mask.append(np.frombuffer(bytes.fromhex(parts[1]), np.bool_).reshape(30, 8))
        start = 30 * (turn + 1)
        hide_document(shards, Wanted(url=url), start, f"seen before sample {start}")
        gone |= hidden(located, url, start)
    before, old = read(clean, 0, 120)
    assert np.array_equal(np.concatenate(tokens), np.where(gone[:120], EOS, before))
    assert np.array_equal(np.concatenate(mask), old & ~gone[:120, 1:])
    check(shards, clean, gone)


# The list


def test_the_same_entries_are_the_same_bytes_and_every_version_is_a_beginning_of_the_next(
    tmp_path: Path,
) -> None:
    lists = []
    for name in "ab":
        small_shards(tmp_path / name, total=TOTAL)
        versions = [hide_document(tmp_path / name, Wanted(url=url), 9, "odd") for url in URLS]
        lists.append((tmp_path / name / QUARANTINE_FILE).read_bytes())
        assert [v.id for v in versions] == versions[-1].versions()[1:]
    assert lists[0] == lists[1]
    assert read_quarantine(tmp_path / "a", Shards(tmp_path / "a").plan) == versions[-1]


def test_a_list_that_was_edited_or_damaged_is_refused(shards: Path) -> None:
    hide_document(shards, Wanted(url=URLS[0]), 100, "odd")
    path = shards / QUARANTINE_FILE
    whole = path.read_text()
    for changed, says in (
        (whole.replace('"from": 100', '"from": 99'), "was edited"),
        (whole[:-30], "cannot be read"),
        ("[]", "cannot be read"),
        (whole.replace("/v1", "/v9"), "of format 'corpusmill/quarantine/v9'"),
        (whole.replace('"from": 100', '"from": "100"'), "was edited|from is"),
    ):
        assert changed != whole
        path.write_text(changed)
        with pytest.raises(ShardError, match=rf"quarantine\.json.*({says})"):
            stream(shards, 8, want=MASK)
        assert any("quarantine.json" in str(finding) for finding in verify(shards))


def test_a_list_for_other_shards_is_refused(shards: Path, tmp_path: Path) -> None:
    write_shards(tmp_path / "other", [Sample("web", [documents(9, 25)])], {"web": PPB}, total=50)
    hide_document(tmp_path / "other", Wanted(url=URLS[3]), 0, "odd")
    shutil.copy(tmp_path / "other" / QUARANTINE_FILE, shards)
    with pytest.raises(ShardError, match="made for other shards of web"):
        stream(shards, 8, want=MASK)


def test_two_that_add_at_once_do_not_lose_an_entry(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second finds another entry in the list when it comes to write: it adds its own behind that."""
    find = hide.documents

    def slow(*arguments: Any) -> Any:
        monkeypatch.undo()
        hide_document(shards, Wanted(url=URLS[1]), 5, "first")
        return find(*arguments)

    monkeypatch.setattr(hide, "documents", slow)
    hide_document(shards, Wanted(url=URLS[0]), 5, "second")
    assert [entry.reason for entry in Shards(shards).quarantine.entries] == ["first", "second"]


def test_what_cannot_be_added_is_refused_and_leaves_the_list_as_it_was(shards: Path) -> None:
    hide_document(shards, Wanted(url=URLS[0]), 100, "odd")
    whole = (shards / QUARANTINE_FILE).read_bytes()
    tokens = 1 + len(documents(1, 30)[3])
    for add, says in (
        (lambda: hide_document(shards, Wanted(url=URLS[0]), 150, "again"), "in quarantine already"),
        (lambda: hide_document(shards, Wanted(url=URLS[1]), -1, "odd"), "from is -1"),
        (lambda: hide_document(shards, Wanted(url=URLS[1]), 5, " "), "a reason is needed"),
        (lambda: hide_document(shards, Wanted(url="x"), 5, "odd"), "no document x"),
        (lambda: hide_document(shards, Wanted(url=URLS[0]), 5, "odd", (0, tokens + 1)), "not 0 to"),
        (lambda: hide_samples(shards, 0, TOTAL + 1, 5, "odd"), "plan has 0 to 599"),
        (lambda: hide_samples(shards, 0, 1, 5, "odd", (3, 10)), "no tokens 3 to 9"),
        (lambda: lift(shards, 1, 200, "fine"), "no entry 1 to lift"),
        (lambda: lift(shards, 0, 99, "fine"), "not from 99"),
    ):
        with pytest.raises((ShardError, CursorError), match=says):
            add()
        assert (shards / QUARANTINE_FILE).read_bytes() == whole
    lift(shards, 0, 200, "fine")
    with pytest.raises(ShardError, match="lifted already"):
        lift(shards, 0, 300, "fine")
    hide_document(shards, Wanted(url=URLS[0]), 250, "it was not")


def test_many_that_add_at_the_same_moment_lose_no_entry(shards: Path) -> None:
    wanted = [f"https://web.example/{n}" for n in range(8)]

    def add(url: str) -> None:
        hide_document(shards, Wanted(url=url), 5, "odd")

    with ThreadPoolExecutor(len(wanted)) as pool:
        list(pool.map(add, wanted))
    assert sorted(str(entry.url) for entry in Shards(shards).quarantine.entries) == wanted


def test_a_list_that_is_a_link_to_nowhere_hides_nothing_silently(shards: Path) -> None:
    (shards / QUARANTINE_FILE).symlink_to(shards / "gone.json")
    with pytest.raises(ShardError, match="cannot be read as a quarantine list"):
        stream(shards, 8)


@pytest.mark.parametrize("start", [MOST_SAMPLES + 1, 10**30])
def test_an_entry_beyond_all_samples_is_refused_before_it_is_written(shards: Path, start: int) -> None:
    with pytest.raises(ShardError, match=f"from is {start}"):
        hide_document(shards, Wanted(url=URLS[0]), start, "odd")
    assert not (shards / QUARANTINE_FILE).exists()


def test_a_reason_that_cannot_be_written_is_refused(shards: Path) -> None:
    with pytest.raises(ShardError, match="no text in UTF-8"):
        hide_document(shards, Wanted(url=URLS[0]), 5, "a byte of another encoding: \udcff")


def test_what_names_no_document_is_refused() -> None:
    for wanted in ({"url": ""}, {"id": ""}, {"warc": ("", 5)}):
        with pytest.raises(ShardError, match="is empty"):
            Wanted(**wanted)  # type: ignore[arg-type]
