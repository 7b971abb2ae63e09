"""One page, from stored bytes to text or to the reason why there is none: a pure function, run inside the guard child."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from corpusmill.pipeline.extract.charset import decode
from corpusmill.pipeline.extract.html import title
from corpusmill.pipeline.extract.http import (
    Bomb,
    Response,
    content_decoded,
    media_type,
    parse_response,
    transfer_decoded,
)
from corpusmill.pipeline.extract.limits import Limits, over

HTML = ("text/html", "application/xhtml+xml")
GENERIC = ("", "application/octet-stream", "application/unknown", "unknown/unknown", "application/http")
SIGNATURES = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"PK\x03\x04", "application/zip"),
    (b"RIFF", "application/riff"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"ID3", "audio/mpeg"),
)
OPENINGS = (
    b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<meta", b"<script", b"<style", b"<div", b"<table",
    b"<p", b"<h1", b"<a ", b"<br", b"<!--",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What the text of a page depends on, beside its bytes."""

    extractor: str = "trafilatura"
    output: str = "text"
    statuses: tuple[int, ...] = (200,)
    mimes: tuple[str, ...] = HTML
    limits: Limits = field(default_factory=Limits)
    cpu_s: float = 30.0  # backstop: CPU seconds of one page, before its process is ended
    memory_mb: int = 3072  # backstop: address space of the process that extracts


def patient(settings: Settings, patience: float) -> Settings:
    """The same with so many times the CPU time and memory, which change no text."""
    return replace(settings, cpu_s=settings.cpu_s * patience, memory_mb=int(settings.memory_mb * patience))


@dataclass(frozen=True, slots=True)
class Page:
    """A stored record block: an HTTP response of a `response` record, or the bare content of another."""

    record: str  # the WARC type
    mime: str  # the record's Content-Type
    block: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """Exactly one of text, reason and failed is set; `meta` says what was seen on the way."""

    text: str | None = None
    reason: str | None = None
    failed: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)


def process(page: Page, settings: Settings, extract: Callable[[str], str | None]) -> Outcome:
    """Status, type, transfer and content encodings, bounds, charset, extraction, in this order; the first that fails is the reason."""
    meta: dict[str, Any] = {}
    response = _response(page, meta)
    if response.status is not None and response.status not in settings.statuses:
        return Outcome(reason="http_status", meta=meta)
    body, note = transfer_decoded(response)
    _note(meta, "transfer", note)
    if not body.strip():
        return Outcome(reason="empty_body", meta=meta)
    mime, label = media_type(response.headers.get("content-type", ""))
    _note(meta, "mime", mime)
    accepted = settings.mimes if page.record == "response" else (*settings.mimes, "text/plain")
    if mime not in accepted and mime not in GENERIC:
        return Outcome(reason="mime", meta=meta)
    try:
        body, note = content_decoded(
            body, response.headers.get("content-encoding", ""), settings.limits.max_inflated_bytes
        )
    except Bomb:
        return Outcome(reason="bomb", meta=meta)
    _note(meta, "encoding", note)
    if len(body) > settings.limits.max_bytes:
        return Outcome(reason="too_large", meta=meta)
    seen = sniff_mime(body)
    if (mime in GENERIC or seen not in (None, "text/html")) and seen != mime:
        _note(meta, "mime_seen", seen)
        mime = seen or ""
        if mime not in accepted:
            return Outcome(reason="mime", meta=meta)
    return _text(body, mime, label, settings, extract, meta)


def _response(page: Page, meta: dict[str, Any]) -> Response:
    """The block as a response; bare content gets the record's own type."""
    if page.record == "response":
        response = parse_response(page.block)
        if response.status is not None:
            meta["status"] = response.status
            return response
    return Response(None, {"content-type": page.mime}, page.block)


def _note(meta: dict[str, Any], key: str, value: str | None) -> None:
    if value:
        meta[key] = value


def sniff_mime(body: bytes) -> str | None:
    """The type that the first bytes show; None when they show none (text without markup, data)."""
    for magic, mime in SIGNATURES:
        if body.startswith(magic):
            return mime
    head = body[:1024].removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n\0").lower()
    if head.startswith(OPENINGS) or (head.startswith(b"<?xml") and b"<html" in head):
        return "text/html"
    if body[:2] in (b"\xff\xfe", b"\xfe\xff") and b"<" in head[:64]:
        return "text/html"
    return None


def _text(
    body: bytes,
    mime: str,
    label: str | None,
    settings: Settings,
    extract: Callable[[str], str | None],
    meta: dict[str, Any],
) -> Outcome:
    decoded = decode(body, label)
    meta.update(charset=decoded.charset, charset_by=decoded.by)
    if decoded.replaced:
        meta["replaced"] = round(decoded.replaced, 6)
    if mime == "text/plain":
        text: str | None = decoded.text
    elif mime in HTML:
        reason = over(decoded.text, settings.limits)
        if reason:
            return Outcome(reason=reason, meta=meta)
        _note(meta, "title", title(decoded.text))
        text = extract(decoded.text)
    else:
        return Outcome(reason="not_extractable", meta=meta)
    if not text or text.isspace():
        return Outcome(reason="no_text", meta=meta)
    return Outcome(text=whole(text), meta=meta)


def whole(text: str) -> str:
    """`text` with U+FFFD for lone surrogates (an entity or a JSON escape can make them), which no UTF-8 can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
