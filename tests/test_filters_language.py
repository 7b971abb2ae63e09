"""Language: odd texts, labels, thresholds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from runs import COLLECTIONS

from corpusmill.filters import fasttext_model, language
from corpusmill.filters.language import LABELS, OTHER_NAMES, Language, LanguageMeasure, check_language
from corpusmill.pipeline.errors import ModelError, RecipeError
from corpusmill.pipeline.judge import Judge

PUD = COLLECTIONS / "text" / "pud"

SENTENCES = {
    "en": "The children walked to the river and threw small stones into the water until it was dark.",
    "de": "Die Kinder gingen zum Fluss hinunter und warfen kleine Steine ins Wasser, bis es dunkel war.",
    "fr": "Les enfants sont descendus vers la rivière et ont jeté des petites pierres dans l'eau.",
    "ru": "Дети спустились к реке и бросали маленькие камни в воду, пока не стемнело.",
    "zh": "孩子们走到河边，往水里扔小石头，一直玩到天黑。",  # noqa: RUF001
    "ja": "子どもたちは川まで歩いて行き、暗くなるまで小さな石を水に投げていた。",
}


def test_sentences_get_their_language(language_model: Path) -> None:
    table = LanguageMeasure().measure(pa.table({"text": pa.array(SENTENCES.values(), pa.large_string())}))
    assert table.schema == LanguageMeasure().schema()
    assert table["language"].to_pylist() == list(SENTENCES)
    assert all(0.6 < score <= 1 for score in table["language_score"].to_pylist())


@pytest.mark.skipif(not PUD.is_dir(), reason="the parallel sentences are not here")
def test_parallel_sentences_get_the_language_of_their_file(language_model: Path) -> None:
    files = sorted(PUD.glob("*.txt"))
    for path in files:
        lines = path.read_text(encoding="utf-8").split("\n")
        found, score = language.predict("\n".join(lines[:20]))
        assert found == path.stem
        assert score > 0.5


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\v", "\0", "\f"])
def test_line_ends_and_nul_change_nothing(end: str, language_model: Path) -> None:
    text = SENTENCES["en"]
    assert language.predict(text.replace(" ", end, 1))[0] == "en"
    assert language.predict(text + end) == language.predict(text + " ")


def test_the_sign_for_the_end_of_a_line_ends_no_text(language_model: Path) -> None:
    text = SENTENCES["en"]
    for marked in (f"</s> {text}", f"{text} </s>", text.replace(" ", " </s> ", 1)):
        assert language.predict(marked) == language.predict(text)
    assert language.predict("</s>") == ("none", 0.0)


@pytest.mark.parametrize("text", ["", " ", "\n", "\0", "\r\n \t", "\u2028"])
def test_a_text_of_nothing_has_no_language(text: str, language_model: Path) -> None:
    assert language.predict(text) == ("none", 0.0)


def test_an_answer_without_labels_is_no_language() -> None:
    class Silent:
        def predict(self, *_: Any) -> list[Any]:
            return []

    assert fasttext_model.best(Silent(), "words") == ("none", 0.0)


def test_scores_stay_within_0_and_1_for_odd_texts(language_model: Path) -> None:
    for text in ["a", "1 2 3", "!!!", "\U0001f600", "\u0300", "x" * 100_000, "\ud7ff\ue000\uffff"]:
        label, score = language.predict(text)
        assert label in LABELS and 0 <= score <= 1


def test_null_texts_and_no_texts(language_model: Path) -> None:
    for texts in ([], [None]):
        table = LanguageMeasure().measure(pa.table({"text": pa.array(texts, pa.large_string())}))
        assert table.to_pylist() == [{"language": None, "language_score": None}] * len(texts)


def kept(rule: Language, rows: list[tuple[str, float]]) -> list[bool]:
    table = pa.table(
        {"language": [label for label, _ in rows], "language_score": [score for _, score in rows]}
    )
    kept: list[bool] = Judge(tuple(("language", cut) for cut in rule.cuts())).judge(table)["kept"].to_pylist()
    return kept


def test_the_threshold_is_inclusive_and_a_language_can_have_its_own() -> None:
    rule = Language(keep=("en", "fr"), at_least=0.65, thresholds={"fr": 0.824})
    rows = [("en", 0.65), ("en", 0.649), ("fr", 0.824), ("fr", 0.82), ("de", 0.99), ("none", 0.0)]
    assert kept(rule, rows) == [True, False, True, False, False, False]


def test_without_keep_every_language_passes_that_is_sure_enough() -> None:
    assert kept(Language(), [("en", 0.7), ("yue", 0.65), ("de", 0.6), ("none", 0.0)]) == [
        True,
        True,
        False,
        False,
    ]
    own = Language(thresholds={"de": 0.5})
    assert kept(own, [("de", 0.5), ("de", 0.49), ("en", 0.64), ("none", 0.0)]) == [True, False, False, False]
    assert kept(Language(keep=("en",), at_least=None), [("en", 0.0), ("de", 1.0)]) == [True, False]


@pytest.mark.parametrize(
    ("code", "meant"),
    [("eng", "en"), ("English", "en"), ("deu", "de"), ("zh-CN", "zh"), ("zh_Hans", "zh"), ("en-US", "en"), ("jp", "ja"), ("EN", "en")],
)  # fmt: skip
def test_a_language_that_the_model_does_not_have_is_refused_with_a_suggestion(code: str, meant: str) -> None:
    with pytest.raises(RecipeError, match=f"no language '{code}'; did you mean '{meant}'"):
        Language(keep=(code,))


def test_other_mistakes_in_the_fields_are_refused() -> None:
    with pytest.raises(RecipeError, match="labels are two or three letters"):
        check_language("qqqqq", "here")
    with pytest.raises(RecipeError, match="'de' has a threshold but is not in keep"):
        Language(keep=("en",), thresholds={"de": 0.5})
    with pytest.raises(RecipeError, match="no score from 0 to 1"):
        Language(thresholds={"de": 65})
    with pytest.raises(RecipeError, match="no share"):
        Language(at_least=65)


def test_the_labels_are_those_of_the_model(language_model: Path) -> None:
    model = fasttext_model.load(str(language_model))
    assert {label.removeprefix("__label__") for label in model.getLabels("strict")[0]} == LABELS
    assert set(OTHER_NAMES.values()) <= LABELS


def test_the_model_enters_the_fingerprint_and_is_named_when_missing(
    language_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LanguageMeasure().models()["lid.176"].startswith("8f3472cf")
    monkeypatch.setenv("CORPUSMILL_MODELS", str(tmp_path))
    with pytest.raises(ModelError, match="corpusmill model get"):
        LanguageMeasure().models()


def test_two_distributions_of_fasttext_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"fasttext": ["fasttext", "fasttext-community", "fasttext"]}
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: both)
    with pytest.raises(ModelError, match="pip uninstall -y fasttext fasttext-community"):
        fasttext_model.check_distributions()
