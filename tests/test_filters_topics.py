"""Topics: terms of any script, planted topics found again, names that last, the same whatever order texts come in batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.filters.terms import terms_of
from corpusmill.filters.topic_model import BATCH, NONE, fit_topics
from corpusmill.filters.topics_stage import Topics
from corpusmill.pipeline.errors import RecipeError

SUBJECTS = {
    "kitchen": "bread butter flour oven sugar salt pepper onion garlic soup knife plate spoon honey cheese".split(),
    "harbour": "ship anchor sailor harbour tide cargo rope mast captain deck voyage storm island lighthouse net".split(),
    "garden": "rose tulip soil seed water spade hedge lawn orchard apple bloom root leaf branch compost".split(),
}
COMMON = "the and that with from this they have been which their would there".split()


def planted(each: int, seed: int = 1) -> tuple[list[str], list[str]]:
    """Texts about SUBJECTS in turns, half of their words common ones, and the subject of each."""
    generator = np.random.default_rng(seed)
    texts, subjects = [], []
    for _ in range(each):
        for subject, words in SUBJECTS.items():
            chosen = [*generator.choice(words, 30), *generator.choice(COMMON, 30)]
            texts.append(" ".join(generator.permutation(chosen).tolist()))
            subjects.append(subject)
    return texts, subjects


def test_planted_topics_are_found_and_called_by_their_words() -> None:
    texts, subjects = planted(40)
    model = fit_topics(texts, 3, seed=17)
    assert sum(topic.documents for topic in model.topics) == len(texts)
    assert [topic.documents for topic in model.topics] == [40, 40, 40]
    assert len(set(zip(subjects, model.assign(texts), strict=True))) == 3
    for topic in model.topics:
        (subject,) = {s for s, words in SUBJECTS.items() if set(topic.terms[:5]) <= set(words)}
        assert topic.name.split("-")[0] in SUBJECTS[subject]
    unseen, of = planted(10, seed=2)
    assert set(zip(of, model.assign(unseen), strict=True)) == set(
        zip(subjects, model.assign(texts), strict=True)
    )


def test_scripts_without_spaces_are_told_by_pairs_of_characters() -> None:
    generator = np.random.default_rng(4)
    weather, trains = ["天気", "晴れ", "台風", "気温", "雨雲"], ["電車", "駅前", "線路", "切符", "乗客"]
    texts = ["".join(generator.choice(words, 40).tolist()) for _ in range(20) for words in (weather, trains)]
    found = fit_topics(texts, 2, seed=3).assign(texts)
    assert len(set(found[::2])) == len(set(found[1::2])) == 1 and found[0] != found[1]


def test_one_seed_gives_one_model_and_names_outlive_another_seed() -> None:
    texts, _ = planted(40)
    first, again, other = (fit_topics(texts, 3, seed) for seed in (5, 5, 6))
    assert first.topics == again.topics and np.array_equal(first.centroids, again.centroids)
    assert {topic.name for topic in other.topics} == {topic.name for topic in first.topics}


def test_assignment_does_not_depend_on_what_stands_beside_a_text() -> None:
    texts, _ = planted(BATCH // 3 + 20)
    model = fit_topics(texts, 3, seed=1)
    assert model.assign(texts) == [model.assign([text])[0] for text in texts]


@pytest.mark.parametrize("count", [0, 1, 4, 9, 12])
def test_small_corpora_have_few_topics_and_none_fails(count: int) -> None:
    texts = planted(10)[0][:count]
    model = fit_topics(texts, 24, seed=2)
    assert len(model.topics) <= max(1, count // 5)
    assert bool(model.topics) == bool(count)
    assert all(name != NONE for name in model.assign(texts))
    assert model.assign(["", "123 !!", "zyx zyx"]) == [NONE] * 3


@settings(max_examples=50)
@given(st.lists(st.text(st.sampled_from("aBc é\u0301漢字ไท -1\n")), max_size=5))
def test_terms_are_those_of_a_walk_over_characters(texts: list[str]) -> None:
    found = terms_of(texts)
    spelt = sorted((int(text), found.spelling(place)) for place, text in enumerate(found.text.tolist()))
    assert spelt == sorted((number, term) for number, text in enumerate(texts) for term in walk(text))
    same = {term: set() for _, term in spelt}
    for place, (bucket, text) in enumerate(zip(found.bucket.tolist(), found.text.tolist(), strict=True)):
        assert 0 <= bucket < 1 << 16 and 0 <= text < len(texts)
        same[found.spelling(place)].add(bucket)
    assert all(len(buckets) == 1 for buckets in same.values())


def walk(text: str) -> list[str]:
    """Runs of three and more letters and marks, and pairs of characters of scripts without spaces."""
    solid, letters = "漢字ไท", "aBcé\u0301"
    words, word = [], ""
    for place, char in enumerate(text + "\n"):
        if char in letters:
            word += char.lower()
            continue
        words += [word] if len(word) >= 3 else []
        word = ""
        if char in solid and text[place + 1 : place + 2] and text[place + 1] in solid:
            words.append(char + text[place + 1])
    return words


def test_topics_that_cannot_be_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"topics\.count is 0"):
        Topics(count=0)
    with pytest.raises(RecipeError, match=r"topics\.sample is 5; it has to be from count \(24\)"):
        Topics(sample=5)
