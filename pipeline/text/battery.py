"""Texts on which an engine has to give the reference's ids before it may be used for a vocabulary.

Equality on thousands of ordinary documents says little: engines that agreed on all of those differed on strings of rare and
unassigned characters beside an apostrophe, a line end or a run of blanks. So there are `strings`, some 900 odd ones, and `pages`,
2 MB of words, markup and code in many scripts; both are the same everywhere. 1.5 to 2 CPU seconds a vocabulary, nearly all the reference's.
"""

# ruff: noqa: RUF001  (letters that look like others are what is tested)

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.text.engines import Engine

AnyIds = tuple[npt.NDArray[Any], npt.NDArray[np.int64]]
"""Ids of all texts end to end, of any width, and how many each has."""

SEED = 20_240_229

PAGES_BYTES = 2 << 20

RANDOM_STRINGS = 600

ODD = [
    "",
    " ",
    "\x00",
    "a\x00b\x00",
    "\ufeff",
    "\ufeffstart",
    "mid\ufeffdle",
    "\ufffd\ufffe\uffff",
    "\U0010ffff\U0010fffd\ue000\uf8ff",
    "\u200b\u200c\u200d\u2060",
    "👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 ❤️‍🔥",
    "🇫🇷🇩🇪🇯🇵🇫",
    "e\u0301 é ñ n\u0303 A\u030a Å \u212b",
    "Z\u0351\u036b\u0343a\u0363\u036c\u0308l\u033b\u0317g\u0332\u0319o",
    "\u0301alone \u0301",
    "\u202eright to left\u202c \u2066isolated\u2069",
    "١٢٣ ۴۵۶ १२३ ৪৫৬ ௧௨ ๑๒๓ ༡༢ 123 ①②③ Ⅳ ½ ²³ 𝟙𝟚",
    "1234567890" * 7,
    "3.14159 1,000,000 1e-9 0x1F600 12:34:56 2024-02-29",
    "don't DON'T Don’t we'll WE'LL they're I'd you've she's 'sx 'ſx 'S 'ſ 'K 'LL' ''s '",
    "'\u0130 '\u0131 'ﬆ 'ß 'tſ x'ſ\n'm",
    "it's'll've're'd'm't",
    "l'été d'aujourd'hui 'twas rock'n'roll",
    "line\u2028separator\u2029paragraph\x85next\x0bvertical\x0cfeed",
    "\r\n\r\n\r\r\n\n\r",
    "a\r\nb\rc\n\rd",
    "\t\ttabs \t mixed\t \n\t'math'",
    "trailing   ",
    "   leading",
    " \n \n  \n   \n",
    "a \n b",
    "a\n\n\n\nb",
    "x  \n  ",
    "\u00a0no\u00a0break\u00a0\u00a0",
    "\u3000wide\u3000\u2003em\u2009thin\u1680ogham\u180e",
    "日本語のテキスト、中文文本。한국어 텍스트 ภาษาไทย ខ្មែរ မြန်မာ",
    "漢字かなカナﾊﾝｶｸ𠮷𠜎㐀",
    "हिन्दी में क्षत्रिय தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල",
    "العَرَبِيَّة עִבְרִית فارسی‌ها اردو",
    "Ελληνικά Русский Ўзбекча ქართული Հայերեն አማርኛ",
    "Tiếng Việt İstanbul ığdır ŁÓDŹ ÆØÅ ǅ ﬁ ﬀ ß ẞ",
    "ＦＵＬＬ　ｗｉｄｔｈ ℌ𝔢𝔩𝔩𝔬 ｶﾞ",
    "\ud7a3\u1100\u1161\u11a8 각",
    "a\u0000\u0001\u0002\x1b[31mred\x1b[0m\x7f\x80\x9f",
    "def f(x):\n    return {k: v[0] for k, v in x.items() if v}\n\n\n#\tend",
    "if (a&&b||!c) { x->y += *p++; /* \\n */ } // -> => != === <<= >>> ::",
    "<div class=\"a\">&nbsp;&#39;</div><!-- --><script>var a='</script>'",
    "SELECT * FROM t WHERE a='it''s' AND b LIKE '%\\_%' -- x",
    "https://user:pw@host.example:8080/a/b?c=d&e=%20f#g mail@example.org",
    "C:\\Windows\\System32 ~/../etc/ $HOME ${X} `ls` |& 2>&1",
    "\\begin{equation} \\alpha_{i}^{2} \\le \\frac{1}{2} $$x$$ \\end{equation}",
    "|---|---|\n| a | b |\n* item\n1. one\n> quote\n```\ncode\n```",
    "__init__ snake_case camelCase PascalCase kebab-case SCREAMING_CASE v1.2.3-rc4",
    "aGVsbG8gd29ybGQgdGhpcyBpcyBiYXNlNjQ=" * 4,
    "0123456789abcdef" * 8,
    "<0x0A> <0xFF> ▁ ▁▁ Ġ Ċ Ã© ##ing </w> @@",
    "<|endoftext|> <|im_start|>user <|fim_prefix|> </s> <s> <unk> <pad> [MASK] [CLS] [SEP] <eos> <bos>",
    "<|", "|>", "<|>", "<||>", "<|end", "oftext|>", "< |endoftext|>", "<|endoftext|", "<|ENDOFTEXT|>",
]  # fmt: skip

RUNS = " \n\t=-_.*#a0漢é🙂\u0301\u200d\u00a0'\"<|\\"
"""Characters of which every length of run is one string."""

CONTEXTS = ["{}", "a{}b", " {} ", "\n{}\n", "'{}s", "1{}2", ".{}.", "漢{}字", "{}<|endoftext|>{}"]


def strings(special: Iterable[str] = ()) -> list[str]:
    """Odd strings; `special` are the vocabulary's special tokens, each spelt out in several surroundings."""
    draw = random.Random(SEED)
    runs = [letter * count for letter in RUNS for count in (2, 3, 4, 7, 8, 15, 16, 31, 64, 129, 1000)]
    named = [context.replace("{}", token) for token in list(special)[:64] for context in CONTEXTS]
    scattered = [_random_string(draw) for _ in range(RANDOM_STRINGS)]
    return [*ODD, *runs, *named, *scattered]


def _random_string(draw: random.Random) -> str:
    """Rare, unassigned and ordinary characters, with blanks, line ends and apostrophes between them."""
    beside = [" ", "  ", "\n", "\r\n", "\n\n", "'", "'s", "\t", ".", "a", "Z", "7", "\u0301"]
    planes = [0x80, 0x800, 0x3000, 0x10000, 0x20000, 0x110000]
    return "".join(
        draw.choice(beside) if draw.random() < 0.4 else _character(draw, draw.choice(planes))
        for _ in range(draw.randint(1, 24))
    )


def _character(draw: random.Random, below: int) -> str:
    number = draw.randrange(below)
    return "\ufffd" if 0xD800 <= number < 0xE000 else chr(number)


def pages(size_bytes: int = PAGES_BYTES) -> Iterator[str]:
    """Made-up pages: words that repeat as words do, in one script a page, with markup or code in between."""
    draw = random.Random(SEED + 1)
    lexicons = [_lexicon(draw, script) for script in SCRIPTS]
    made = 0
    while made < size_bytes:
        page = _page(draw, draw.choice(lexicons))
        made += len(page.encode())
        yield page


SCRIPTS = [
    ("abcdefghijklmnopqrstuvwxyz", 9),
    ("abcdefghijklmnopqrstuvwxyzäöüßéèçñåø", 11),
    ("абвгдежзийклмнопрстуфхцчшщъыьэюя", 10),
    ("αβγδεζηθικλμνξοπρστυφχψωάέήίόύώ", 9),
    ("ابتثجحخدذرزسشصضطظعغفقكلمنهوي", 7),
    ("אבגדהוזחטיכלמנסעפצקרשת", 6),
    ("कखगघचछजझटठडढणतथदधनपफबभमयरलवािीुू", 7),
    ("กขคงจฉชซดตถทธนบปผฝพฟภมยรลวสหอาิีึืุูเแโไ", 9),
    (
        "的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后",
        4,
    ),
    ("のにはをがとたでしてれさあるいうえおかきくけこアイウエオカキクケコ日本語人年月", 5),
    ("가나다라마바사아자차카타파하고노도로모보소오조", 4),
]
"""Letters and the most of them in a word."""


def _lexicon(draw: random.Random, script: tuple[str, int]) -> list[str]:
    letters, longest = script
    words = ["".join(draw.choices(letters, k=draw.randint(1, longest))) for _ in range(3000)]
    return [word.capitalize() if draw.random() < 0.1 else word for word in words]


def _page(draw: random.Random, lexicon: list[str]) -> str:
    lines = []
    for _ in range(draw.randint(3, 40)):
        words = [lexicon[int(len(lexicon) * draw.random() ** 3)] for _ in range(draw.randint(1, 30))]
        kind = draw.random()
        if kind < 0.6:
            lines.append(draw.choice([" ", " ", " ", ", ", "  "]).join(words) + draw.choice(".!?:…。"))
        elif kind < 0.75:
            name, value = words[0], draw.randrange(10**9)
            lines.append(
                f"{' ' * draw.randint(0, 12)}{name}_{len(words)} = {{'{words[-1]}': {value}}};  // {value:x}"
            )
        elif kind < 0.85:
            lines.append(f'<a href="/{words[0]}/{draw.randrange(10**6)}">{" ".join(words)}</a>')
        else:
            lines.append(
                draw.choice(["", "\t", "* ", "# ", "> "]) + "\u00a0".join(words[:5]) + "\r" * (kind > 0.97)
            )
    return draw.choice(["\n", "\n\n", "\n", " "]).join(lines)


def first_difference(reference: Engine, engine: Engine, special: Iterable[str]) -> str | None:
    """The first text of the battery on which the engines differ, spelt in ASCII; None when there is none.

    The engine sees each text twice: what it remembers must not change what it says.
    """
    for texts in (strings(special), list(pages())):
        wanted = reference.encode(texts)
        for _ in range(2):
            place = differs(wanted, engine.encode(texts))
            if place is not None:
                return ascii(texts[place][:80])
    return None


def differs(wanted: AnyIds, found: AnyIds) -> int | None:
    """The number of the first text whose ids differ; None when none does."""
    (ids, lengths), (others, sizes) = wanted, found
    if len(lengths) == len(sizes) and np.array_equal(lengths, sizes) and np.array_equal(ids, others):
        return None
    here = there = 0
    for place, (length, size) in enumerate(zip(lengths.tolist(), sizes.tolist(), strict=False)):
        if not np.array_equal(ids[here : here + length], others[there : there + size]):
            return place
        here, there = here + length, there + size
    return len(lengths) - 1


def is_odd(text: str) -> bool:
    """Whether a text holds what engines have been wrong about: marks of special tokens, control characters, CJK; or is long."""
    return len(text) > 100_000 or "<|" in text or not _USUAL.issuperset(text[:20_000])


_USUAL = frozenset(
    chr(number)
    for number in range(0x20, 0x0600)
    if unicodedata.category(chr(number)) not in ("Cc", "Cf", "Cn", "Mn")
) | frozenset("\n\t\u2013\u2014\u2018\u2019\u201c\u201d\u2022\u2026\u20ac")
"""Letters of Europe and the signs of ordinary prose."""
