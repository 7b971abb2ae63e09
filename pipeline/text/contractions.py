"""English words that are cut, or kept whole, against the rules: contractions, abbreviations, emoticons.

`EXCEPTIONS` maps a spelling to the lengths of its words: "don't" is (2, 3), "Mr." is (3,). FineWeb's thresholds were set with a
splitter that cuts these, also where the apostrophe is missing ("dont"), so we cut them alike.
"""

# ruff: noqa: RUF001
from __future__ import annotations

from collections.abc import Iterator, Mapping

PRONOUNS = "i you he she it we they"
QUESTIONS = "who what when where why how there that this these those"
NOT_VERBS = "ca could do does did had may might must need ought sha should wo would"
NOT_VERBS_SHORT = "ai are is was were have has dare"
HAVE_VERBS = "could might must should would"

# Words that lose an apostrophe and then mean something else stay whole.
REAL_WORDS = frozenset(
    "Ill ill Its its Hell hell Shell shell Shed shed were Were Well well Whore whore".split()
)

WHOLE = """
a. b. c. d. e. f. g. h. i. j. k. l. m. n. o. p. q. r. s. t. u. v. w. x. y. z. ä. ö. ü. C++ ' '' 'S 's ‘S ‘s 're 'd
and/or w/o 'Cause 'cause 'cos 'Cos 'coz 'Coz 'cuz 'Cuz 'bout ma'am Ma'am o'clock O'clock lovin' Lovin' havin' Havin' doin' Doin'
goin' Goin' nothin' Nothin' nuthin' Nuthin' ol' Ol' somethin' Somethin' 'em 'll 'nuff em ll nuff
Mt. Ak. Ala. Apr. Ariz. Ark. Aug. Calif. Colo. Conn. Dec. Del. Feb. Fla. Ga. Ia. Id. Ill. Ind. Jan. Jul. Jun. Kan. Kans. Ky. La.
Mar. Mass. Mich. Minn. Miss. N.C. N.D. N.H. N.J. N.M. N.Y. Neb. Nebr. Nev. Nov. Oct. Okla. Ore. Pa. S.C. Sep. Sept. Tenn. Va.
Wash. Wis. a.m. Adm. Bros. co. Co. Corp. D.C. Dr. e.g. E.g. E.G. Gen. Gov. i.e. I.e. I.E. Inc. Jr. Ltd. Md. Messrs. Mo. Mont.
Mr. Mrs. Ms. p.m. Ph.D. Prof. Rep. Rev. Sen. St. vs. v.s. <space> \\n \\t \\")
:) :-) :)) :-)) :))) :-))) (: (-: =) (= :] :-] [: [-: [= =] :o) (o: :} :-} 8) 8-) (-8 ;) ;-) (; (-; :( :-( :(( :-(( :((( :-(((
): )-: =( >:( :') :'-) :'( :'-( :/ :-/ =/ =| :| :-| ]= =[ :1 :P :-P :p :-p :O :-O :o :-o :0 :-0 :() >:o :* :-* :3 :-3 =3 :> :->
:X :-X :x :-x :D :-D ;D ;-D =D xD XD xDD XDD 8D 8-D ^_^ ^__^ ^___^ >.< >.> <.< ._. ;_; -_- -__- v.v V.V v_v V_V o_o o_O O_o O_O
0_o o_0 0_0 o.O O.o O.O o.o 0.0 o.0 0.o @_@ <3 <33 <333 </3 (^_^) (-_-) (._.) (>_<) (*_*) (¬_¬) ಠ_ಠ ಠ︵ಠ (ಠ_ಠ) ¯\\(ツ)/¯ ><(((*>
"""

CUT = """
y'|all y|all how|'d|'y How|'d|'y not|'ve not|ve Not|'ve Not|ve can|not Can|not gon|na Gon|na got|ta Got|ta let|'s Let|'s c'm|on C'm|on
"""


def _both(words: str) -> Iterator[str]:
    for word in words.split():
        yield word
        yield word.title()


def _ends(word: str, *ends: str) -> Iterator[tuple[str, ...]]:
    """The word with each end ("'ll 've" is two), and once more with the apostrophes at the start of the ends left out."""
    for end in ends:
        parts = tuple(end.split())
        yield (word, *parts)
        yield (word, *(part.removeprefix("'").replace("n't", "nt") for part in parts))


def _pronouns() -> Iterator[tuple[str, ...]]:
    for word in _both(PRONOUNS):
        yield from _ends(word, "'ll", "'ll 've", "'d", "'d 've")
        if word in ("i", "I"):
            yield from _ends(word, "'m", "'m a")
        if word.lower() in ("i", "you", "we", "they"):
            yield from _ends(word, "'ve")
        if word.lower() in ("you", "we", "they"):
            yield from _ends(word, "'re")
        if word.lower() in ("he", "she", "it"):
            yield from _ends(word, "'s")


def _questions() -> Iterator[tuple[str, ...]]:
    for word in _both(QUESTIONS):
        yield from _ends(word, "'ll", "'ll 've", "'d", "'d 've")
        if word.lower() not in ("these", "those"):
            yield from _ends(word, "'s")
        if word.lower() not in ("that", "this"):
            yield from _ends(word, "'re", "'ve")


def _verbs() -> Iterator[tuple[str, ...]]:
    for word in _both(NOT_VERBS):
        yield from _ends(word, "n't", "n't 've")
    for word in _both(NOT_VERBS_SHORT):
        yield from _ends(word, "n't")
    for word in _both(HAVE_VERBS):
        yield from _ends(word, "'ve")


def _times() -> Iterator[tuple[str, ...]]:
    for hour in range(1, 13):
        for period in ("a.m.", "am", "p.m.", "pm"):
            yield (str(hour), period)


def _exceptions() -> Mapping[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    whole = [(word,) for word in WHOLE.split()]
    cut = [tuple(word.split("|")) for word in CUT.split()]
    degrees = [("°", unit, ".") for unit in "cfkCFK"]
    for parts in [*_pronouns(), *_questions(), *_verbs(), *_times(), *whole, *cut, *degrees]:
        word = "".join(parts)
        if word in REAL_WORDS:
            continue
        found[word] = tuple(map(len, parts))
        found[word.replace("'", "’")] = found[word]
    return found


EXCEPTIONS = _exceptions()
