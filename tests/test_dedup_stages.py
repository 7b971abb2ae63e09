# ruff: noqa: RUF001 (texts in other scripts)
"""The whole dedup stage over documents in memory: who goes, what is left as evidence, and that no layout matters."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from typing import Any

import pytest
from dedup_runs import Doc, Memory, cut, dedup, kept_paths, verdicts
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from corpusmill.dedup import reference, shingle
from corpusmill.dedup.clusters import Clusters
from corpusmill.dedup.layout import Layout, Shared, lay_out
from corpusmill.dedup.stage import Dedup
from corpusmill.dedup.verdict import Verdict
from corpusmill.pipeline.documents import DOCUMENTS
from corpusmill.pipeline.engine.stage import Result
from corpusmill.pipeline.errors import BudgetError, RecipeError

# Finds every pair of 0.5 and more but for one in ten million.
PLENTY = {"bands": 56, "rows": 2, "leaders": 100}
TINY = 1 << 12  # bytes in a bucket: as many buckets as can be


def text(seed: int, words: int, vocabulary: int = 5000) -> str:
    generator = random.Random(seed)
    return " ".join(f"w{generator.randrange(vocabulary)}" for _ in range(words))


def jaccard(a: str, b: str, ngram: int = 5) -> float:
    one, other = set(shingle.shingles(a, ngram)), set(shingle.shingles(b, ngram))
    return len(one & other) / len(one | other)


def edited(original: str, changes: int, seed: int) -> str:
    generator = random.Random(seed)
    words = original.split()
    for _ in range(changes):
        words[generator.randrange(len(words))] = f"new{generator.randrange(10**6)}"
    return " ".join(words)


def corpus(families: int = 60) -> list[Doc]:
    """Families of edited copies, exact copies, short, empty, foreign and dropped documents."""
    generator = random.Random(5)
    docs = []
    for family in range(families):
        original = text(family, generator.randint(20, 200))
        docs.append(Doc(original, f"{family}", quality=generator.random()))
        for copy in range(generator.choice([0, 0, 1, 2, 4])):
            changed = edited(original, generator.choice([0, 1, 2, 4]), 100 * family + copy)
            source = generator.choice(["web", "web", "books"])
            docs.append(Doc(changed, f"{family}.{copy}", source, quality=generator.random()))
    docs += [Doc(None, "no text"), Doc("", "empty 1"), Doc("", "empty 2"), Doc("one two", "short 1")]
    docs += [Doc("One two!", "short 2"), Doc("one three", "short 3"), Doc(text(3, 50), "late", dropped=True)]
    docs += [Doc("敏捷的棕色狐狸跳过了懒狗然后一直睡到早上" + end, f"zh {end}") for end in ("。", "！", "了")]
    return docs


def test_of_three_equal_texts_one_stays() -> None:
    memory = dedup([Doc(text(1, 80), name) for name in "abc"] + [Doc(text(2, 80), "other")])
    assert len(kept_paths(memory)) == 2 and "other" in kept_paths(memory)
    rows = [
        row for doc, row in zip(memory.parts[0], verdicts(memory).values(), strict=True) if doc.path in "abc"
    ]
    (stays,) = [doc.id for doc in memory.parts[0] if doc.path in kept_paths(memory) and doc.path != "other"]
    assert Counter(row["reason"] for row in rows) == {None: 1, "dedup.exact": 2}
    for row in rows:
        assert row["cluster_size"] == 3 and row["cluster"] == rows[0]["cluster"]
        if not row["kept"]:
            assert row["kept_id"] == stays and row["score"] == 1.0


def test_near_copies_fall_to_the_longest_and_say_by_how_much() -> None:
    long = text(1, 300)
    short = " ".join(long.split()[:250])
    memory = dedup([Doc(short, "short"), Doc(text(7, 200), "other"), Doc(long, "long")])
    assert kept_paths(memory) == ["long", "other"]
    row = verdicts(memory)[Doc(short, "short").id]
    assert row["reason"] == "dedup.near" and row["kept_id"] == Doc(long, "long").id
    assert row["score"] == jaccard(long, short) and row["cluster_size"] == 2


def test_documents_that_are_alone_stay_and_have_no_cluster() -> None:
    memory = dedup([Doc(text(i, 120), str(i)) for i in range(50)])
    assert len(kept_paths(memory)) == 50
    for row in verdicts(memory).values():
        assert (row["cluster"], row["cluster_size"], row["kept_id"], row["score"]) == (None, 1, None, None)


@pytest.mark.parametrize("own", [36, 60])
def test_pages_of_one_template_about_different_towns_are_kept_apart(own: int) -> None:
    """120 words of template and `own` words of content: Jaccard 0.59 and 0.47, so bands do bring them together."""
    template = text(0, 120)
    towns = [template + " " + text(100 + i, own) for i in range(40)]
    assert jaccard(towns[0], towns[1]) < 0.65
    memory = dedup([Doc(town, str(i)) for i, town in enumerate(towns)], bands=28, rows=4)
    summary = json.loads(memory.blobs["dedup.verdict", "summary.json"])
    assert summary["candidates"] > 100 and summary["verified"] == 0
    assert len(kept_paths(memory)) == 40


def test_a_chain_loses_nobody_without_a_similar_survivor() -> None:
    """Windows of 100 words that slide by 10: neighbours have 0.81, the next but one 0.66."""
    words = text(4, 700, 10**6).split()
    chain = [" ".join(words[10 * i : 10 * i + 100]) for i in range(60)]
    assert jaccard(chain[0], chain[1]) > 0.8 and jaccard(chain[0], chain[2]) < 0.7
    docs = [Doc(each, str(i)) for i, each in enumerate(chain)]
    memory = dedup(docs, 3, **PLENTY)
    rows, by_id = verdicts(memory), {doc.id: doc for doc in docs}
    for doc in docs:
        row = rows[doc.id]
        assert row["cluster_size"] == 60
        if not row["kept"]:
            other = by_id[row["kept_id"]]
            assert rows[other.id]["kept"] and jaccard(str(doc.text), str(other.text)) >= 0.7
    assert 20 <= len(kept_paths(memory)) <= 30


def test_the_threshold_is_the_exact_similarity() -> None:
    """{a,b} and {a,b,c,d,e} share 2 of 5 single words: 0.4."""
    docs = [Doc("a b", "two"), Doc("a b c d e", "five")]
    fields: dict[str, Any] = {"ngram": 1, "bands": 64, "rows": 1}
    assert kept_paths(dedup(docs, at_least=0.4, **fields)) == ["five"]
    assert kept_paths(dedup(docs, at_least=0.41, **fields)) == ["five", "two"]


def test_short_empty_and_wordless_documents() -> None:
    docs = [
        Doc("", "e1"),
        Doc("", "e2"),
        Doc("!!!", "x1"),
        Doc("???", "x2"),
        Doc("Hi there", "s1"),
        Doc("hi, there", "s2"),
    ]
    docs += [Doc("hi you", "s3"), Doc("hi", "s4")]
    memory = dedup(docs, **PLENTY)
    kept = kept_paths(memory)
    assert len([path for path in kept if path[0] == "e"]) == 1
    assert len([path for path in kept if path in ("s1", "s2")]) == 1
    assert {"x1", "x2", "s3", "s4"} <= set(kept)
    assert {row["reason"] for row in verdicts(memory).values()} == {None, "dedup.exact"}


@pytest.mark.parametrize(
    ("one", "other", "distinct"),
    [
        (
            "敏捷的棕色狐狸跳过了懒狗然后它一直睡到早上什么也没有发生",
            "。",
            "今天天气很好我们一起去公园散步看花吃冰淇淋然后回家",
        ),
        (
            "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจแล้วก็นอนหลับไปจนถึงเช้า",
            " ๆๆ",
            "วันนี้อากาศดีมากเราไปเดินเล่นที่สวนสาธารณะด้วยกันแล้วกลับบ้าน",
        ),
        (
            "الثعلب البني السريع يقفز فوق الكلب الكسول ثم ينام حتى يأتي الصباح الجديد كل يوم",
            " جدا",
            "اليوم الطقس جميل جدا وسنذهب معا إلى الحديقة ثم نعود إلى البيت مساء قبل العشاء",
        ),
    ],
)
def test_scripts_without_spaces_or_of_other_directions(one: str, other: str, distinct: str) -> None:
    memory = dedup([Doc(one, "one"), Doc(one + other, "near"), Doc(distinct, "distinct")], **PLENTY)
    kept = kept_paths(memory)
    assert len(kept) == 2 and "distinct" in kept


def test_rows_that_earlier_verdicts_dropped_take_no_part() -> None:
    docs = [Doc(text(1, 90), "first", dropped=True), Doc(text(1, 90), "second"), Doc(None, "none")]
    memory = dedup(docs)
    assert kept_paths(memory) == ["second"]
    rows = verdicts(memory)
    assert rows[docs[0].id]["kept"] is None and rows[docs[0].id]["cluster_size"] is None
    assert rows[docs[2].id]["kept"] is None and rows[docs[1].id]["cluster_size"] == 1


def test_a_copy_of_a_document_that_fell_falls_to_the_one_that_stays() -> None:
    long = text(1, 300)
    short = " ".join(long.split()[:270])
    docs = [Doc(long, "long"), Doc(short, "short 1"), Doc(short, "short 2")]
    memory = dedup(docs, 3)
    assert kept_paths(memory) == ["long"]
    for doc in docs[1:]:
        row = verdicts(memory)[doc.id]
        assert row["kept_id"] == docs[0].id and row["reason"] == "dedup.near"
        assert row["score"] == jaccard(long, short) and row["cluster_size"] == 3


def test_priority_comes_before_length_and_a_minus_turns_it() -> None:
    long = text(1, 300)
    short = " ".join(long.split()[:270])
    docs = [Doc(long, "long", quality=0.1), Doc(short, "short", quality=0.9), Doc(long + " x", "null")]
    assert kept_paths(dedup(docs, priority=("quality",))) == ["short"]
    assert kept_paths(dedup(docs, priority=("-quality",))) == ["long"]
    assert kept_paths(dedup(docs)) == ["null"]
    equal = [Doc(long, "a", quality=0.5), Doc(long, "b", quality=0.7), Doc(long, "c", quality=-3.0)]
    assert kept_paths(dedup(equal, priority=("quality",))) == ["b"]
    assert kept_paths(dedup(equal, priority=("-quality",))) == ["c"]


def test_scope_source_seeks_within_each_source() -> None:
    long = text(1, 300)
    docs = [Doc(long, f"{source} {i}", source) for source in ("web", "books") for i in range(2)]
    docs += [Doc(" ".join(long.split()[:280]), f"{source} near", source) for source in ("web", "books")]
    sources = Counter(path.split()[0] for path in kept_paths(dedup(docs, 2, scope="source")))
    assert sources == {"web": 1, "books": 1}
    assert len(kept_paths(dedup(docs, 2))) == 1
    clusters = {row["cluster"] for row in verdicts(dedup(docs, 2, scope="source")).values()}
    assert len(clusters) == 2


@pytest.fixture(scope="module")
def whole() -> dict[bytes, dict[str, Any]]:
    return verdicts(dedup(corpus()))


@pytest.mark.parametrize("parts", [1, 3, 7])
@pytest.mark.parametrize("fields", [{}, {"bucket_bytes": TINY}], ids=["one bucket", "many buckets"])
def test_partitions_buckets_and_order_of_files_do_not_matter(
    whole: dict[bytes, dict[str, Any]], parts: int, fields: dict[str, int]
) -> None:
    docs = corpus()
    random.Random(parts).shuffle(docs)
    memory = dedup(docs, parts, **fields)
    assert verdicts(memory) == whole
    if fields:
        assert min(len(memory.done[f"dedup.{step}"]) for step in ("copies", "pairs", "edges", "outcomes")) > 1


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(24)), st.integers(1, 24), st.sampled_from(["global", "source"]))
def test_survivors_depend_on_documents_alone(order: list[int], parts: int, scope: str) -> None:
    docs = corpus(12)[:24]
    before = verdicts(dedup(docs, scope=scope, **PLENTY))
    assert verdicts(dedup([docs[i] for i in order], parts, scope=scope, **PLENTY)) == before


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcd"), max_size=9), max_size=14),
    st.sampled_from([0.4, 0.5, 0.75, 1.0]),
)
def test_every_removal_answers_to_a_survivor_and_no_two_survivors_are_similar(
    texts: list[list[str]], at_least: float
) -> None:
    docs = [Doc(" ".join(words), str(i)) for i, words in enumerate(texts)]
    memory = dedup(docs, 2, at_least=at_least, ngram=2, bands=112, rows=1, leaders=100)
    rows, by_id = verdicts(memory), {doc.id: doc for doc in docs}
    for doc in docs:
        row = rows[doc.id]
        if row["kept"]:
            continue
        other = by_id[row["kept_id"]]
        assert rows[other.id]["kept"] and other is not doc
        if row["reason"] == "dedup.near":
            assert jaccard(str(doc.text), str(other.text), 2) >= at_least
        else:
            assert doc.text == other.text
    stay = [doc for doc in docs if rows[doc.id]["kept"] and doc.text]
    for i, doc in enumerate(stay):  # 112 bands of one row find any pair from 0.4 on
        assert all(jaccard(str(doc.text), str(other.text), 2) < at_least for other in stay[:i])


@pytest.mark.parametrize("scope", ["global", "source"])
def test_the_reference_engine_has_the_same_survivors(scope: str) -> None:
    docs = corpus(900)
    assert len(docs) > 2000
    files, index = dedup(docs, 3, scope=scope), dedup(docs, 2, engine="datasketch", scope=scope)
    assert verdicts(files) == verdicts(index)
    pairs = [sum(result.rows for result in memory.done["dedup.pairs"].values()) for memory in (files, index)]
    assert pairs[0] == pairs[1] > 500


def test_the_reference_engine_refuses_more_documents_than_it_can_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reference, "MOST_DOCUMENTS", 3)
    with pytest.raises(BudgetError, match="at most 3 documents, the inputs have 4"):
        dedup([Doc(text(i, 9), str(i)) for i in range(4)], engine="datasketch")


def test_long_runs_cost_two_comparisons_a_member_and_are_reported() -> None:
    page = text(1, 400)
    docs = [Doc(f"{page} visitor{i}", str(i)) for i in range(300)]
    memory = dedup(docs, 2, long_run=50)
    summary = json.loads(memory.blobs["dedup.verdict", "summary.json"])
    assert 200 < summary["longest_run"] <= 300 and summary["long_runs"] == 14
    assert len(kept_paths(memory)) == 1 and summary["largest_cluster"] == 300
    assert summary["candidates"] < 3 * 300


def test_counts_add_up_and_the_summary_says_what_was_done() -> None:
    memory = dedup(corpus(), 3)
    total: Counter[str] = Counter()
    for result in memory.done["dedup.verdict"].values():
        total.update(result.counts)
    assert total["considered"] == total["kept"] + total["exact"] + total["near"]
    assert total["considered"] == sum(int(mask) for part in range(3) for mask in memory.kept(part))
    summary = json.loads(memory.blobs["dedup.verdict", "summary.json"])
    assert {name: summary[name] for name in ("considered", "kept", "exact", "near")} == {
        name: total[name] for name in ("considered", "kept", "exact", "near")
    }
    assert summary["candidates"] >= summary["verified"] > 0 and "note" not in summary


def test_a_run_without_effect_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "corpusmill"):
        memory = dedup([Doc(text(i, 20), str(i)) for i in range(1000)])
    assert "no duplicate among 1,000 documents" in caplog.text
    assert "no duplicate" in json.loads(memory.blobs["dedup.verdict", "summary.json"])["note"]


def test_exact_only_takes_no_near_duplicates() -> None:
    long = text(1, 300)
    docs = [Doc(long, "a"), Doc(long.upper(), "b"), Doc(long + " more", "c")]
    memory = dedup(docs, near=False)
    assert len(kept_paths(memory)) == 2 and "dedup.edges" not in memory.done


def test_a_source_that_would_be_emptied_stops_the_run() -> None:
    shared = Shared("dedup", 14, 8, "global", (), 1 << 20)
    results = {
        0: Result(0, extra={"sources": {"news": [600, 590], "web": [5000, 100]}}),
        1: Result(1, extra={"sources": {"news": [600, 580], "tiny": [900, 899]}}),
    }
    with pytest.raises(BudgetError, match=r"source 'news' would lose 1,170 of 1,200 documents \(97\.5%\)"):
        Verdict(shared, True, 0.95).check({}, results)
    assert Verdict(shared, True, 0.98).check({}, results) == []


def test_more_edges_than_the_declared_memory_are_refused_by_name() -> None:
    memory = dedup([Doc(f"{text(1, 200)} {i}", str(i)) for i in range(30)])
    shared = Shared("dedup", 14, 8, "global", (), 256 << 20)
    with pytest.raises(
        BudgetError, match=r"dedup\.clusters: .* verified edges between 30 documents .* memory_bytes"
    ):
        Clusters(shared, 100).units(memory)


def test_two_dedups_in_one_recipe_keep_their_measures_apart() -> None:
    memory = Memory(cut(corpus(20), 2))
    Dedup(near=False).extend(memory, "dedup")
    Dedup(ngram=3).extend(memory, "again")
    assert memory.columns["signature"] == "dedup.signatures"
    assert memory.columns["signature@again"] == "again.signatures"
    assert verdicts(memory, "again")


def test_no_documents_at_all() -> None:
    memory = dedup([], 2)
    assert verdicts(memory) == {}
    assert kept_paths(dedup([Doc(None, "none")])) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"at_least": 0.0}, "at_least"),
        ({"at_least": 70}, "at_least"),
        ({"bands": 0}, "bands"),
        ({"bands": 1, "rows": 112}, "would find 0% of the pairs at Jaccard 0.95"),
        ({"bands": "auto", "rows": 4}, "no effect with bands: auto"),
        ({"hashes": 100}, "need 112 hashes"),
        ({"hashes": 10**9}, "at most 16384 hashes"),
        ({"bands": 10**9}, "at most 16384 hashes"),
        ({"bands": 1, "rows": 2, "engine": "datasketch"}, "bands must be at least 2"),
        ({"ngram": 10**30}, "ngram"),
        ({"ngram": 0}, "ngram"),
        ({"priority": ("quality", "quality")}, "twice"),
        ({"max_source_loss": 95}, "max_source_loss"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_a_run(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Dedup(**fields)


def test_auto_bands_find_what_they_are_made_for() -> None:
    docs = [Doc(text(1, 200), "one"), Doc(edited(text(1, 200), 1, 3), "two"), Doc(text(2, 200), "other")]
    assert len(kept_paths(dedup(docs, bands="auto"))) == 2
    with pytest.raises(RecipeError, match=r"finds nothing for at_least 1\.0"):
        dedup(docs, bands="auto", at_least=1.0)


def test_a_priority_that_nobody_computes_is_refused_by_name() -> None:
    with pytest.raises(RecipeError, match="no earlier stage computes 'qualty'; there are quality"):
        dedup([Doc("a", "a")], priority=("-qualty",))


def test_a_priority_that_is_no_number_is_refused() -> None:
    assert "source" in DOCUMENTS.names
    with pytest.raises(RecipeError, match="'source' is a column of string"):
        dedup([Doc("a", "a")], priority=("source",))


def test_recipe_values_are_validated() -> None:
    adapter = TypeAdapter(Dedup)
    assert adapter.validate_python({"bands": "auto", "priority": ["-words"]}).priority == ("-words",)
    with pytest.raises(ValidationError):
        adapter.validate_python({"bands": "many"})
    with pytest.raises(ValidationError):
        adapter.validate_python({"scope": "galaxy"})


def test_units_and_operations_survive_json() -> None:
    memory = dedup(corpus(10), 2)
    assert all(
        json.loads(json.dumps(result.extra)) == result.extra
        for results in memory.done.values()
        for result in results.values()
    )
    shared = Shared("dedup", 14, 8, "global", ("-words",), 1 << 20)
    adapter = TypeAdapter(Verdict)
    assert adapter.validate_python(adapter.dump_python(Verdict(shared, True, 0.9), mode="json")) == Verdict(
        shared, True, 0.9
    )
    layout, units = lay_out(memory, shared)
    assert units and all(Layout.of(json.loads(json.dumps(unit.fields))) == layout for unit in units)
