"""Web pages around a text: eight sites in four layouts, with the navigation, notices and footers that a crawl is full of.

The text becomes headings, paragraphs, lists and code; what surrounds it is ours and must not survive extraction.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Literal

from corpusmill.jobs.dice import Dice

Layout = Literal["article", "boxes", "table", "sections"]


@dataclass(frozen=True)
class Site:
    """A host with its furniture."""

    host: str
    name: str
    layout: Layout
    menu: tuple[str, ...]
    notice: str


SITES = (
    Site("handbook.example", "The Handbook", "article", ("Home", "Chapters", "Index", "Search", "Print"), ""),
    Site(
        "arrays.example",
        "Arrays and Friends",
        "boxes",
        ("Start", "Tutorials", "Reference", "Forum", "Donate"),
        "cookies",
    ),
    Site(
        "www.kiln-notes.example",
        "Kiln Notes",
        "sections",
        ("Blog", "Archive", "About", "Contact", "Feed"),
        "newsletter",
    ),
    Site(
        "docs.millrace.example",
        "Millrace Documentation",
        "article",
        ("Guide", "API", "Changes", "Source"),
        "",
    ),
    Site("oldserver.example", "Old Server", "table", ("Main", "Files", "Links", "Guestbook"), ""),
    Site("mirror.northwind.example", "Northwind Mirror", "table", ("Mirrors", "Status", "Contact"), ""),
    Site(
        "learn.sparrow.example",
        "Sparrow Learning",
        "boxes",
        ("Courses", "Teachers", "Prices", "Log in"),
        "cookies",
    ),
    Site(
        "forum.tinkers.example",
        "Tinkers' Forum",
        "sections",
        ("Latest", "Unread", "Members", "Rules"),
        "newsletter",
    ),
)

NOTICES = {
    "": "",
    "cookies": '<div class="cookie-banner"><p>We value your privacy. This site uses cookies.</p><button>Accept all</button>'
    "<button>Settings</button></div>",
    "newsletter": '<div class="newsletter"><p>Never miss a post: subscribe to our newsletter.</p><form><input type="email" '
    'placeholder="Your address"><button>Subscribe</button></form></div>',
}
RELATED = (
    "Ten tips for a tidy workshop",
    "What our readers asked this month",
    "The long way home",
    "How we moved to the new server",
    "Notes from the spring meeting",
    "A short history of the mill",
    "Where to begin",
    "Most read this week",
)


def page(site: Site, title: str, body: str, dice: Dice, charset: str = "utf-8") -> str:
    """A whole page of `site` around the HTML `body`."""
    menu = "".join(f'<li><a href="/{word.lower().replace(" ", "-")}">{word}</a></li>' for word in site.menu)
    related = "".join(
        f'<li><a href="/read/{dice.below(9000)}">{line}</a></li>' for line in dice.some(RELATED, 4)
    )
    footer = f"<p>&copy; 2026 {site.name}. All rights reserved. <a href='/imprint'>Imprint</a> | <a href='/privacy'>Privacy</a></p>"
    head = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="{charset}"><title>{html.escape(title)} - {site.name}</title>'
        f'<link rel="stylesheet" href="/style.css"><script>var page = {{"views": {dice.below(99999)}}};</script></head>'
    )
    notice = NOTICES[site.notice]
    heading = f"<h1>{html.escape(title)}</h1>"
    if site.layout == "article":
        frame = (
            f"<header><a href='/'>{site.name}</a><nav><ul>{menu}</ul></nav></header><main><article>{heading}\n{body}\n</article></main>"
            f"<aside><h3>Related</h3><ul>{related}</ul></aside><footer>{footer}</footer>"
        )
    elif site.layout == "boxes":
        frame = (
            f'<div id="top"><div class="logo">{site.name}</div><ul class="menu">{menu}</ul></div><div class="wrap"><div class="content">'
            f'{heading}\n{body}\n</div><div class="sidebar"><ul>{related}</ul></div></div><div class="footer">{footer}</div>'
        )
    elif site.layout == "table":
        cells = "".join(f"<td>{word}</td>" for word in site.menu)
        frame = (
            f'<table width="100%" bgcolor="#ccccff"><tr><td><b>{site.name}</b></td>{cells}</tr></table><div align="left">'
            f'{heading}\n{body}\n</div><hr><center><font size="1">{footer}</font></center>'
        )
    else:
        frame = (
            f'<nav class="navbar"><ul>{menu}</ul></nav><section class="post">{heading}<p class="byline">{dice.below(28) + 1} March 2026, '
            f'{dice.below(90)} comments</p>\n{body}\n</section><section class="more"><ul>{related}</ul></section><footer>{footer}</footer>'
        )
    return f"{head}<body>{notice}{frame}</body></html>\n"


def body_of(text: str) -> str:
    """HTML of a plain, reST or Markdown text: what its blank lines, indents, bullets and underlines say."""
    return "\n".join(
        _block(block) for block in re.split(r"\n\s*\n", text.expandtabs().strip("\n")) if block.strip()
    )


def _block(block: str) -> str:
    lines = [line.rstrip() for line in block.split("\n") if line.strip()]
    if len(lines) > 1 and re.fullmatch(r"[-=~^*#\"]{3,}", lines[1].strip()):
        rest = _block("\n".join(lines[2:])) if lines[2:] else ""
        return f"<h2>{_inline(lines[0].strip())}</h2>\n{rest}"
    if mark := re.match(r"#{1,4} +(.*)", lines[0]):
        rest = _block("\n".join(lines[1:])) if lines[1:] else ""
        return f"<h2>{_inline(mark[1])}</h2>\n{rest}"
    if any(re.match(r"\s*(>>>|\$ |```|\.\. )", line) for line in lines[:2]):
        return f"<pre>{html.escape(chr(10).join(lines))}</pre>"
    if re.match(r"\s*[-*+] ", lines[0]):
        items = re.split(r"\n\s*[-*+] ", "\n" + "\n".join(lines))[1:]
        return "<ul>" + "".join(f"<li>{_inline(' '.join(item.split()))}</li>" for item in items) + "</ul>"
    return f"<p>{_inline(' '.join(' '.join(lines).split()))}</p>"


def _inline(text: str) -> str:
    text = re.sub(r"<[^>]{1,200}>", " ", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r":[a-z:]+:`~?([^`]+)`", r"\1", html.escape(text, quote=False))
    return re.sub(r"``([^`]+)``", r"<code>\1</code>", text)
