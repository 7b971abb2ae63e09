"""The language of a text, by fastText's lid.176: a measure (label and score) and the rule that cuts on it.

The model is named, never passed: each worker loads the pinned file once (0.3 s with its checks). One prediction over the whole text costs
0.7 ms for 4,000 characters (718 extracted pages). How a text is read: filters/fasttext_model.py.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from corpusmill.filters.fasttext_model import DISTRIBUTION, NONE, best, check_distributions, load
from corpusmill.filters.rule import FilterRule, check_shares
from corpusmill.pipeline.engine.stage import Measure
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.models import model_path, pinned
from corpusmill.pipeline.rules import Cut

MODEL = "lid.176"

LABELS = frozenset(
    """
    af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb ckb co cs cv cy da de diq dsb dty dv el
    eml en eo es et eu fa fi fr frr fy ga gd gl gn gom gu gv he hi hif hr hsb ht hu hy ia id ie ilo io is it ja jbo jv ka kk km kn ko
    krc ku kv kw ky la lb lez li lmo lo lrc lt lv mai mg mhr min mk ml mn mr mrj ms mt mwl my myv mzn nah nap nds ne new nl nn no oc or
    os pa pam pfl pl pms pnb ps pt qu rm ro ru rue sa sah sc scn sco sd sh si sk sl so sq sr su sv sw ta te tg th tk tl tr tt tyv ug uk
    ur uz vec vep vi vls vo wa war wuu xal xmf yi yo yue zh
    """.split()
)

# What people write instead of a label: three-letter codes and English names that no spelling rule leads to.
OTHER_NAMES = dict(
    pair.split("=")
    for pair in """
    ara=ar arabic=ar ben=bn bengali=bn ces=cs cze=cs czech=cs chi=zh zho=zh chinese=zh cmn=zh deu=de ger=de german=de ell=el gre=el
    greek=el eng=en english=en spa=es spanish=es fas=fa per=fa persian=fa fra=fr fre=fr french=fr heb=he hebrew=he hin=hi hindi=hi
    ind=id indonesian=id ita=it italian=it jpn=ja japanese=ja jp=ja kor=ko korean=ko kr=ko nld=nl dut=nl dutch=nl pol=pl polish=pl
    por=pt portuguese=pt ron=ro rum=ro rus=ru russian=ru swe=sv swedish=sv tha=th thai=th tur=tr turkish=tr ukr=uk ukrainian=uk
    urd=ur urdu=ur vie=vi vietnamese=vi zh-cn=zh zh-tw=zh zh-hans=zh zh-hant=zh cn=zh nb=no ua=uk cz=cs
    """.split()
)


def check_language(code: str, where: str) -> None:
    """RecipeError with a suggestion unless the model has the label: a rule for a label that never comes would drop every row."""
    if code in LABELS:
        return
    known = OTHER_NAMES.get(code.lower()) or code.lower().partition("-")[0].partition("_")[0]
    near = [known] if known in LABELS else difflib.get_close_matches(code.lower(), sorted(LABELS), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "labels are two or three letters, like en, de, zh, arz"
    raise RecipeError(f"{where}: {MODEL} has no language {code!r}; {hint}")


def predict(text: str) -> tuple[str, float]:
    """(label, score from 0 to 1) of one text; ("none", 0.0) where the model has no answer."""
    return best(load(str(_path())), text)


@lru_cache(maxsize=1)
def _path() -> Any:
    return model_path(MODEL)


@dataclass(frozen=True)
class LanguageMeasure(Measure):
    """`language` and `language_score` of each text."""

    version: ClassVar[int] = 1
    libraries: ClassVar[tuple[str, ...]] = (DISTRIBUTION,)

    def models(self) -> dict[str, str]:
        model_path(MODEL)
        check_distributions()
        return {MODEL: pinned(MODEL).sha256}

    def warm(self) -> None:
        predict("one line of text")

    def schema(self) -> pa.Schema:
        label = f"most probable of the 176 labels of {MODEL} (ISO 639), or none"
        score = f"probability of that label by {MODEL}, 0 to 1"
        return pa.schema(
            [
                pa.field("language", pa.string(), metadata={"about": label}),
                pa.field("language_score", pa.float64(), metadata={"about": score}),
            ]
        )

    def measure(self, rows: pa.Table) -> pa.Table:
        # A loop over rows: the model takes one text a call, and the call is 99 % of the time.
        found = [(None, None) if text is None else predict(text) for text in rows["text"].to_pylist()]
        labels = pa.array([label for label, _ in found], pa.string())
        scores = pa.array(
            [np.nan if score is None else score for _, score in found], pa.float64(), from_pandas=True
        )
        return pa.Table.from_arrays([labels, scores], schema=self.schema())


@dataclass(frozen=True)
class Language(FilterRule):
    """Keeps texts in one of the languages of `keep` (all if empty) whose score is `at_least`, or the language's own in `thresholds`."""

    keep: tuple[str, ...] = ()
    at_least: float | None = 0.65  # FineWeb's
    thresholds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_shares(self, "at_least")
        for code in self.keep:
            check_language(code, "language.keep")
        for code, value in self.thresholds.items():
            check_language(code, "language.thresholds")
            if self.keep and code not in self.keep:
                raise RecipeError(
                    f"language.thresholds: {code!r} has a threshold but is not in keep: add it there or take it out"
                )
            if not 0 <= value <= 1:
                raise RecipeError(f"language.thresholds: {code}: {value} is no score from 0 to 1")

    def measures(self) -> tuple[Measure, ...]:
        return (LanguageMeasure(),)

    def cuts(self) -> tuple[Cut, ...]:
        cuts = []
        if self.keep:
            cuts.append(Cut("language", one_of=self.keep))
        if self.at_least is not None:
            rest = sorted({NONE, *(self.keep or LABELS)} - set(self.thresholds))
            only = {"language": tuple(rest)} if self.thresholds else {}
            cuts.append(Cut("language_score", at_least=self.at_least, only=only))
        for code, value in sorted(self.thresholds.items()):
            cuts.append(Cut("language_score", at_least=value, only={"language": (code,)}))
        return tuple(cuts)
