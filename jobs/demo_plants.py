"""What a crawl holds beside good pages: other languages, spam, garbage, boilerplate, copies, personal data, odd answers.

All of it is generated. Other languages are sentences of random stop words (from justext's lists): no text that anyone
wrote, yet language identification is sure of it.
"""

from __future__ import annotations

import base64
import html
import zlib
from collections.abc import Callable
from functools import cache

from corpusmill.jobs.demo_warc import Exchange, gzipped
from corpusmill.jobs.dice import Dice

LANGUAGES = (
    "Arabic Bulgarian Czech Dutch Finnish French German Greek Hungarian Italian Polish Portuguese Romanian Russian Spanish Swedish Turkish"
).split()

LATIN = (
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna aliqua "
    "enim minim veniam quis nostrud exercitation ullamco laboris nisi aliquip ex ea commodo consequat"
).split()
OFFERS = (
    "cheap shoes",
    "best price",
    "free delivery",
    "discount code",
    "instant loan",
    "weight loss pills",
    "win the lottery",
    "luxury watch replica",
    "buy followers",
    "hot deals",
    "casino bonus",
    "replica handbags",
    "order now",
    "limited offer",
)
WALLS = (
    "We use cookies to make this site work and to show you advertising that fits your interests. By clicking accept you agree to "
    "our cookie policy and to the terms of use. You can change your settings at any time in the privacy centre.",
    "JavaScript must be enabled in order to view this page. Please enable JavaScript in the settings of your browser and reload "
    "the page. If the problem persists please use another browser or contact the support.",
    "This content is not available in your region. Please read our privacy policy and our terms of use. Use of cookies is "
    "described in the cookie policy.",
)
SWAPS = ("also", "indeed", "often", "here", "again", "rather", "perhaps", "always", "simply", "mostly")
ACCENTS = "The café on the corner \u2013 “open since 1987” \u2013 is naïve about its prices; señor Müller pays 3 € for a crème brûlée."


@cache
def _stop_words(language: str) -> tuple[str, ...]:
    from justext import get_stoplist  # type: ignore[import-untyped]

    return tuple(sorted(get_stoplist(language)))


def other_language(dice: Dice) -> str:
    """Paragraphs in one of LANGUAGES."""
    words = _stop_words(dice.choose(LANGUAGES))
    return "\n\n".join(
        " ".join(_sentence(words, dice) for _ in range(4 + dice.below(4))) for _ in range(4 + dice.below(5))
    )


def _sentence(words: tuple[str, ...], dice: Dice) -> str:
    line = " ".join(dice.choose(words) for _ in range(9 + dice.below(7)))
    return line[:1].upper() + line[1:] + "."


def spam(dice: Dice) -> str:
    """HTML: a heap of offers, one line many times, or a farm of links."""
    kind = dice.below(3)
    if kind == 0:
        return "<p>" + " ".join(dice.choose(OFFERS) for _ in range(300)) + "</p>"
    if kind == 1:
        line = f"Get {dice.choose(OFFERS)} and {dice.choose(OFFERS)} today with {dice.choose(OFFERS)}."
        return "".join(f"<p>{line}</p>" for _ in range(40 + dice.below(40)))
    links = (
        f'<li><a href="http://{dice.below(10**6)}.shop.example/">{dice.choose(OFFERS)}</a></li>'
        for _ in range(150)
    )
    return "<ul>" + "".join(links) + "</ul>"


def garbled(dice: Dice) -> str:
    """HTML: text decoded with a wrong charset, keys hit at random, or a file pasted as base64."""
    kind = dice.below(3)
    if kind == 0:
        wrong = other_language(Dice(dice.below(10**9), "garbled")).encode().decode("cp1252", errors="replace")
        return f"<p>{html.escape(wrong)}</p>"
    if kind == 1:
        letters = "bcdfghjklmnpqrstvwxz0123456789#%&=+_~^|"
        lines = ("".join(dice.choose(letters) for _ in range(3 + dice.below(20))) for _ in range(160))
        return f"<p>{html.escape(' '.join(lines))}</p>"
    data = b"".join(dice.below(2**64).to_bytes(8, "big") for _ in range(300))
    return f"<p>{base64.b64encode(data).decode()}</p>"


def boilerplate(dice: Dice) -> str:
    """Text: filler Latin, or a wall that stands before a page."""
    if dice.below(2):
        return "\n\n".join(
            " ".join(_sentence(tuple(LATIN), dice) for _ in range(6)) for _ in range(5)
        ).replace("lorem", "lorem ipsum")
    return "\n\n".join(dice.some(WALLS, 3))


def stub(dice: Dice) -> str:
    """Text: a page with a few words."""
    return f"This page has {2 + dice.below(8)} words and waits for an author. Come back in {2 + dice.below(20)} days."


def near_copy(text: str, dice: Dice) -> str:
    """The text as an editor leaves it: one word in about ninety replaced, so that most 5-word shingles survive."""
    words = text.split(" ")
    for at in range(dice.below(45), len(words), 90):
        if words[at].isalpha():
            words[at] = dice.choose(SWAPS)
    return " ".join(words)


def with_personal_data(text: str, dice: Dice) -> str:
    """The text with an address to write to and a server that answers."""
    who = f"{dice.choose(('ana', 'joe', 'mia', 'lev', 'uma'))}.{dice.choose(('reed', 'stone', 'field', 'marsh'))}{dice.below(90) + 10}"
    host = f"93.{dice.below(200) + 20}.{dice.below(250)}.{dice.below(250) + 1}"
    return f"{text}\n\nQuestions about this page go to {who}@mail-{dice.below(50)}.com, and the files are on the server {host} as well."


def http_error(url: str, dice: Dice) -> Exchange:
    """A page that says that there is none."""
    status = dice.choose(
        ("404 Not Found", "500 Internal Server Error", "403 Forbidden", "301 Moved Permanently")
    )
    more = (("Location", url + "/new"),) if status.startswith("301") else ()
    return Exchange(
        url,
        f"<html><body><h1>{status}</h1><p>The page cannot be shown.</p></body></html>".encode(),
        status,
        headers=more,
    )


def not_html(url: str, dice: Dice) -> Exchange:
    """An image, data or a document."""
    content_type, body = dice.choose(
        (
            ("image/png", b"\x89PNG\r\n\x1a\n" + bytes(dice.below(256) for _ in range(400))),
            ("application/json", b'{"items": [1, 2, 3], "next": null}'),
            ("application/pdf", b"%PDF-1.4\n" + bytes(dice.below(256) for _ in range(400))),
        )
    )
    return Exchange(url, body, content_type=content_type)


def encoded(url: str, page: Callable[[str], str], way: int) -> Exchange:
    """A good page on the wire in one of nine ways that servers use, two of them wrong; `page` makes the page for a charset."""
    text = page("utf-8").encode()
    html_type = "text/html"
    ways: tuple[Callable[[], Exchange], ...] = (
        lambda: Exchange(url, _chunked(text), headers=(("Transfer-Encoding", "chunked"),)),
        lambda: Exchange(url, gzipped(text), headers=(("Content-Encoding", "gzip"),)),
        lambda: Exchange(
            url,
            _chunked(gzipped(text)),
            headers=(("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked")),
        ),
        lambda: Exchange(url, zlib.compress(text), headers=(("Content-Encoding", "deflate"),)),
        lambda: Exchange(
            url,
            page("windows-1252").encode("cp1252", "replace"),
            content_type=f"{html_type}; charset=windows-1252",
        ),
        lambda: Exchange(url, page("windows-1252").encode("cp1252", "replace"), content_type=html_type),
        lambda: Exchange(url, b"\xff\xfe" + page("utf-16").encode("utf-16-le"), content_type=html_type),
        # In fact UTF-8.
        lambda: Exchange(url, page("iso-8859-1").encode(), content_type=f"{html_type}; charset=iso-8859-1"),
        lambda: Exchange(url, text, headers=(("Content-Encoding", "gzip"),)),  # in fact not compressed
    )
    return ways[way % len(ways)]()


def _chunked(body: bytes, size: int = 1000) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
