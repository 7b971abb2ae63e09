"""The audit of tokens: what it measures against plain loops, what it keeps out and how that is counted and listed."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shard_runs import Document, Run, documents, vocabulary_of
from shard_samples import small_shards

from corpusmill.jobs.cli import main
from corpusmill.mixing.stage import Mix
from corpusmill.pipeline.engine import merge
from corpusmill.pipeline.errors import RecipeError, ShardError
from corpusmill.pipeline.run import Run as Finished
from corpusmill.pipeline.text.tokenizer import train_bpe
from corpusmill.shards.audit import PERIODS, Audit, audit, id_flags, runs, spellings
from corpusmill.shards.audited import audited
from corpusmill.shards.kept_out import KEPT_OUT, KEPT_OUT_FILE
from corpusmill.shards.stage import Shard, TokenizerSource

SMALL = Shard(
    TokenizerSource(train="bpe", vocab=300), sequence_length=16, block_bytes=1 << 10, shard_bytes=1 << 14
)


def slow_runs(ids: Sequence[int]) -> tuple[int, int, int]:
    """By trying every stretch: longest run of one id, longest stretch of two periods or more, its shortest period."""
    longest = max(
        (b - a for a in range(len(ids)) for b in range(a + 1, len(ids) + 1) if len(set(ids[a:b])) == 1),
        default=0,
    )
    best = (0, 0)
    for period in range(1, min(PERIODS, len(ids) // 2) + 1):
        for a in range(len(ids)):
            for b in range(a + 2 * period, len(ids) + 1):
                if all(ids[i] == ids[i - period] for i in range(a + period, b)) and b - a > best[0]:
                    best = (b - a, period)
    return longest, *best


@given(st.lists(st.lists(st.integers(0, 2), max_size=14), min_size=1, max_size=6))
def test_runs_are_those_that_trying_every_stretch_finds(found: list[list[int]]) -> None:
    ids = np.array([token for document in found for token in document], np.uint16)
    lengths = np.array([len(document) for document in found], np.int64)
    assert list(zip(*(each.tolist() for each in runs(ids, lengths)), strict=True)) == [
        slow_runs(document) for document in found
    ]


@given(
    period=st.integers(1, PERIODS + 1),
    times=st.integers(2, 5),
    before=st.integers(0, 70),
    after=st.integers(0, 70),
)
def test_a_planted_period_is_found_among_other_tokens(
    period: int, times: int, before: int, after: int
) -> None:
    fresh = iter(range(1000, 60_000))
    one = [next(fresh) for _ in range(period)]
    ids = [*(next(fresh) for _ in range(before)), *one * times, *(next(fresh) for _ in range(after))]
    longest, periodic, found = runs(np.array(ids, np.uint16), np.array([len(ids)]))
    wanted = (period * times, period) if period <= PERIODS else (0, 0)
    assert (int(periodic[0]), int(found[0])) == wanted
    assert longest[0] == (times if period == 1 else 1)


def test_a_run_ends_with_its_document() -> None:
    longest, periodic, _ = runs(np.full(10, 7, np.uint32), np.array([3, 0, 6, 1]))
    assert (longest.tolist(), periodic.tolist()) == ([3, 0, 6, 1], [3, 0, 6, 0])


def test_what_is_measured_does_not_hang_on_how_many_tokens_are_looked_at_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = np.random.default_rng(3)
    lengths = draw.integers(0, 40, 300)
    ids = draw.integers(0, 3, lengths.sum()).astype(np.uint16)
    flags = np.array([True, False, False]), np.array([False, True, False])
    whole = audit(ids, lengths, lengths * 3, *flags)
    assert whole.num_rows == 300
    for tokens in (1, 7, 100):
        monkeypatch.setattr("corpusmill.shards.audit.AT_ONCE", tokens)
        assert audit(ids, lengths, lengths * 3, *flags).equals(whole)
    assert audit(ids[:0], lengths[:0], lengths[:0], *flags).num_rows == 0


def test_shares_are_counted_by_document() -> None:
    fragments, rare = np.array([False, True, False]), np.array([False, False, True])
    table = audit(
        np.array([1, 0, 0, 1, 2], np.uint16), np.array([4, 0, 1]), np.array([8, 0, 4]), fragments, rare
    )
    assert table["fragment_share"].to_pylist() == [0.5, 0.0, 0.0]
    assert table["rare_share"].to_pylist() == [0.0, 0.0, 1.0]
    assert table["tokens_per_byte"].to_pylist() == [0.5, 0.0, 0.25]


def test_the_spelling_of_each_byte_level_id_is_what_the_tokenizer_decodes() -> None:
    from tokenizers import Tokenizer

    content = train_bpe(["naïve café \N{EURO SIGN} \N{CJK UNIFIED IDEOGRAPH-4E2D} the then " * 20], 330)
    loaded = Tokenizer.from_str(content.decode())
    found = spellings(content)
    assert len(found) == loaded.get_vocab_size() - 1  # all but the end of text
    for number, spelling in found.items():
        decoded = loaded.decode([number])
        assert decoded == spelling or (spelling is None and "\N{REPLACEMENT CHARACTER}" in decoded)
    fragments, rare = id_flags(content, loaded.get_vocab_size())
    # 128 bytes of ASCII are characters, the other 128 are parts of one.
    assert fragments[1:257].sum() == 128
    assert rare.nonzero()[0].tolist() == list(
        range(loaded.get_vocab_size() - rare.sum(), loaded.get_vocab_size())
    )


def test_pieces_of_other_vocabularies_are_told_from_bytes() -> None:
    unigram = {
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["\u2581the", -1], ["<0xE2>", -2]]}
    }
    assert spellings(json.dumps(unigram).encode()) == {0: None, 1: " the", 2: None}


def texts() -> list[str]:
    plain = [f"page {i} says something of its own, number {i * i} of many" for i in range(40)]
    return [*plain, "x " * 1500 + "end", "one two three four five six seven. " * 700, "short", ""]


def split(rows: Sequence[Document]) -> list[list[Document]]:
    return [list(rows[:20]), list(rows[20:])]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(
        tmp_path_factory.mktemp("audit"),
        split(documents(texts())),
        replace(SMALL, tokenizer=bytewise(tmp_path_factory.mktemp("t"))),
    )


def bytewise(folder: Path) -> TokenizerSource:
    """Every byte is a token, so that a text's runs can be read off it."""
    (folder / "tokenizer.json").write_bytes(vocabulary_of(300))
    return TokenizerSource(str(folder / "tokenizer.json"))


def kept_out(run: Run) -> list[dict[str, Any]]:
    table = pq.read_table(run.folder("shard.write") / KEPT_OUT_FILE)
    assert table.schema.names == KEPT_OUT.names
    return list(table.to_pylist())


def test_what_is_over_a_limit_is_listed_with_its_address_and_reason(tmp_path: Path) -> None:
    shard = replace(SMALL, tokenizer=bytewise(tmp_path), audit=Audit(longest_run=1000, periodic_run=2000))
    rows = [Document("z" * 1001 + "a" * 1000, number=1), *documents(texts()[:42], "books")]
    run = Run(tmp_path / "out", split(rows), shard)
    found = {row["url"]: row for row in kept_out(run)}
    run_row, page, table = (
        found[f"https://{where}"] for where in ("web.example/1", "books.example/40", "books.example/41")
    )
    assert len(found) == 3
    assert (run_row["reason"], run_row["longest_run"], run_row["tokens"]) == ("longest_run", 1001, 2001)
    assert (page["reason"], page["periodic_run"], page["period"]) == ("periodic_run", 3000, 2)
    assert (table["reason"], table["periodic_run"], table["period"]) == ("periodic_run", 35 * 700, 35)
    assert (table["file"], table["offset"], table["source"]) == ("books.jsonl", 41, "books")
    assert [row["id"] for row in kept_out(run)] == sorted(row["id"] for row in kept_out(run))
    assert run.manifests["shard.write"].counts["kept_out"] == 3


def test_every_row_is_a_document_of_the_shards_or_counted_with_the_reason_why_not(run: Run) -> None:
    scattered, written = (run.manifests[f"shard.{name}"].counts for name in ("scatter", "write"))
    assert scattered["empty"] == 1
    assert scattered["kept_out.periodic_run"] == 1  # 24,500 tokens; 1,500 times "x " has 3,000
    assert written["documents"] + scattered["empty"] + scattered["kept_out.periodic_run"] == len(texts())
    assert written["kept_out"] == 1


def test_the_sidecar_holds_what_was_measured_of_each_document(run: Run) -> None:
    files = sorted(run.folder("shard.write").glob("web/docs-*.parquet"))
    rows = {row["url"]: row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()}
    assert len(rows) == 42
    row = rows["https://web.example/40"]
    assert (row["longest_run"], row["periodic_run"], row["period"], row["tokens_per_byte"]) == (
        1,
        3000,
        2,
        1.0,
    )
    for url, row in rows.items():
        text = texts()[int(url.rpartition("/")[2])]
        assert row["longest_run"] == max(len(list(same)) for _, same in groupby(text))
        assert row["tokens"] == len(text) + 1  # and its end


def test_a_limit_that_nothing_could_pass_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"shard\.audit\.longest_run is 0"):
        Audit(longest_run=0).check("shard.audit")


def test_without_limits_nothing_is_kept_out_and_no_list_is_made(tmp_path: Path) -> None:
    free = replace(SMALL, tokenizer=bytewise(tmp_path), audit=Audit(None, None))
    run = Run(tmp_path / "out", split(documents(texts())), free)
    assert run.manifests["shard.write"].counts["documents"] == len(texts()) - 1
    assert KEPT_OUT_FILE not in run.files("shard.write")


def test_the_list_is_the_same_however_documents_were_partitioned(run: Run, tmp_path: Path) -> None:
    again = Run(tmp_path, [documents(texts())], replace(SMALL, tokenizer=bytewise(tmp_path)))
    assert kept_out(again) == kept_out(run)


def test_merged_scatter_files_give_the_same_shards_and_the_same_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(1)
    rows = documents("".join(draw.choices(string.ascii_letters, k=8_000)) for _ in range(12))
    parts = [[*rows[4 * i : 4 * i + 4], Document("y" * 2000, number=100 + i)] for i in range(3)]
    shard = replace(SMALL, tokenizer=bytewise(tmp_path))
    straight = Run(tmp_path / "straight", parts, shard)
    monkeypatch.setattr(merge, "BOUNDS", merge.Bounds(small=1 << 40, aim=1, many=0, most=256))
    merged = Run(tmp_path / "merged", parts, shard)
    scattered = merged.files("shard.scatter")
    assert sorted(scattered) == [f"{kind}-{i:05d}.arrow" for kind in ("kept-out", "tokens") for i in range(3)]
    assert 0 < len(merged.files("shard.scatter.merged")) < 3
    assert merged.files("shard.write") == straight.files("shard.write")
    assert len(kept_out(merged)) == 3


def test_the_audit_of_shards_shows_the_spread_and_who_stands_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = documents([*(f"page {i} of many" for i in range(200)), "q" * 900, "z" * 2000])
    run = Run(tmp_path, [rows], replace(SMALL, tokenizer=bytewise(tmp_path)), Mix())
    (web,) = audited(run.out)
    assert (web.documents, web.shards_read) == (201, web.shards)
    # 27 of the numbers have a digit twice in a row and 111 thrice; 99.9 % of 201 documents is the highest.
    assert web.quantiles["longest_run"] == [1, 2, 2, 900, 900]
    assert web.worst["longest_run"][0]["url"] == "https://web.example/200"
    pages = "".join(row.text for row in rows[:201])
    assert web.ids[0][1] == max("qp ", key=pages.count) == "q"
    assert main(["show", str(run.out), "--audit"]) == 0
    shown = capsys.readouterr().out
    assert "web: 201 documents" in shown and "https://web.example/200" in shown
    assert "kept out of all components: longest_run 1" in shown and "https://web.example/201" in shown
    assert main(["show", str(run.out / "shards"), "--audit", "--json"]) == 0
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["worst"]["periodic_run"][0]["period"] == 1 and last == {"kept_out": {"longest_run": 1}}


def test_shards_without_an_audit_say_so(tmp_path: Path) -> None:
    small_shards(tmp_path)
    with pytest.raises(ShardError, match="made without an audit"):
        audited(tmp_path)


def test_what_the_ledger_kept_is_in_the_shards_or_counted(
    undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Finished(undisturbed)
    _, last = run.ledger()[-1]
    scattered = run.manifest("shard.scatter")
    left = {name: n for name, n in scattered.counts.items() if name != "tokens"}
    assert scattered.rows + sum(left.values()) == last["kept"] > 0
    assert run.manifest("shard.write").counts["documents"] == scattered.rows
    assert main(["show", str(undisturbed)]) == 0
    assert f"shard: {scattered.rows:,} documents in shards" in capsys.readouterr().out
