"""From bytes to text: which encoding a page is in.

Order: BOM, NULs between the letters of the first markup (UTF-16), valid non-ASCII UTF-8 whatever is declared (other encodings do
not give it by chance), HTTP header, meta in the first 1,024 bytes, detection on the bytes, cp1252 with replacement. A declared label
that does not fit its bytes is passed over.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Markup in 16 bits, as a page begins; all bytes may still be ASCII.
WIDE = ((re.compile(rb"(?:[\t-~]\0){8}"), "utf-16-le"), (re.compile(rb"(?:\0[\t-~]){8}"), "utf-16-be"))
META = re.compile(rb"<meta[^>]{0,512}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{2,40})", re.IGNORECASE)
XML = re.compile(rb"^\s*<\?xml[^>]{0,128}?encoding\s*=\s*[\"']([A-Za-z0-9_.:-]{2,40})", re.IGNORECASE)
# Supersets that browsers read under the narrower labels (WHATWG Encoding, 4.2; Python's codecs are the strict ones).
WIDER = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "iso8859-11": "cp874",
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
}
NOT_TEXT = frozenset(
    "utf_7 idna punycode unicode_escape raw_unicode_escape undefined mbcs oem palmos".split()
)
KOREAN = ("cp949", "uhc")  # the detector's names for EUC-KR, which WHATWG does not list
BAD_SHARE = 0.02
"""Undecodable share of the non-ASCII bytes up to which a label is believed: a page cut inside a character, a stray byte."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """`by` says what chose the charset: bom, utf-8, http, meta, detection, fallback; `replaced` is the share of U+FFFD."""

    text: str
    charset: str
    by: str
    replaced: float


def codec(label: str) -> str | None:
    """The Python codec that browsers would use under this label; None for one that nobody knows."""
    from resiliparse.parse.encoding import map_encoding_to_html5

    mapped = map_encoding_to_html5(label.strip().lower(), fallback_utf8=False) or label
    try:
        found = codecs.lookup(mapped)
    except (LookupError, ValueError):
        return None
    if found.name.replace("-", "_") in NOT_TEXT or not found._is_text_encoding:
        return None
    return WIDER.get(found.name, found.name)


def decode(data: bytes, http_label: str | None = None) -> Decoded:
    """Decode a page; never fails, what cannot be decoded becomes U+FFFD."""
    for bom, name in BOMS:
        if data.startswith(bom):
            return _decoded(data[len(bom) :], name, "bom")
    for pattern, name in WIDE:
        if pattern.match(data):
            return _decoded(data, name, "detection")
    if data.isascii():
        return _seven_bits(data, http_label)
    try:
        return Decoded(data.decode("utf-8"), "utf-8", "utf-8", 0.0)
    except UnicodeDecodeError:
        pass
    foreign = max(1, len(data) - len(data.translate(None, delete=bytes(range(128, 256)))))
    for label, by in _declared(data, http_label):
        known = codec(label)
        if known is None:
            continue
        # A page whose markup can be read as ASCII is not in UTF-16, whatever its meta says.
        name = "utf-8" if known.startswith("utf-16") and b"\0" not in data[:256] else known
        try:
            text = data.decode(name, "replace")
        except (UnicodeError, ValueError):
            continue
        if text.count("\ufffd") <= BAD_SHARE * foreign:
            return _share(text, name, by)
    return _detected(data, foreign)


def _seven_bits(data: bytes, http_label: str | None) -> Decoded:
    """ASCII, unless escapes in it and a label or the detector say ISO-2022 or HZ: any other label would fit it too."""
    if b"\x1b$" in data or b"~{" in data:
        from resiliparse.parse.encoding import detect_encoding

        detected = detect_encoding(data, max_len=1 << 16, html5_compatible=False)
        for label, by in [*_declared(data, http_label), *([(detected, "detection")] if detected else [])]:
            name = codec(label)
            if name is not None and name.startswith(("iso2022", "hz")):
                return _decoded(data, name, by)
    return Decoded(data.decode("ascii"), "utf-8", "utf-8", 0.0)


def _declared(data: bytes, http_label: str | None) -> list[tuple[str, str]]:
    labels = [(http_label, "http")] if http_label else []
    head = data[:1024]
    found = META.search(head) or XML.search(head)
    if found:
        labels.append((found[1].decode("ascii"), "meta"))
    return labels


def _detected(data: bytes, foreign: int) -> Decoded:
    from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

    # Markup is ASCII and drowns what is to be told apart: the detector sees the bytes outside of tags, if they are enough.
    bare = re.sub(rb"(?is)<(script|style)\b.*?(?:</\1|\Z)|<[^<>]*>?|\s+", b" ", data[: 1 << 18])
    for sample in (bare, data):
        label = detect_encoding(sample, max_len=1 << 16, html5_compatible=False) or ""
        # The detector knows DOS code pages, the web does not: only what browsers read is believed.
        web = label.lower() in KOREAN or map_encoding_to_html5(label, fallback_utf8=False)
        found = codec(label) if web else None
        if found is not None:
            text = data.decode(found, "replace")
            if text.count("\ufffd") <= BAD_SHARE * foreign:
                return _share(text, found, "detection")
    return _decoded(data, "cp1252", "fallback")


def _decoded(data: bytes, name: str, by: str) -> Decoded:
    return _share(data.decode(name, "replace"), name, by)


def _share(text: str, name: str, by: str) -> Decoded:
    return Decoded(text, name, by, text.count("\ufffd") / len(text) if text else 0.0)
