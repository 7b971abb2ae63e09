"""The document table: what extract writes once and every later stage reads.

One row is one document: a response, resource or conversion record of a crawl, a line of JSONL, a row of Parquet.
A row without `text` says why: `reason` when extract dropped it (status, type, a limit, nothing extracted),
`failed` when an exception or a backstop stopped it. Rows are never deleted or reordered afterwards.
"""

import pyarrow as pa
import xxhash

ROW_GROUP = 1024
"""Rows in a row group of every text-bearing file (about 5 MB of text; one row costs 33 ms to read at 2,048 and 18 ms at 1,024)."""

ORIGIN = pa.struct([("file", pa.string()), ("offset", pa.int64()), ("length", pa.int64())])

DOCUMENTS = pa.schema(
    [
        pa.field(
            "id",
            pa.binary(16),
            metadata={"about": "xxh3-128 of source, path below the input's fixed prefix, offset"},
        ),
        pa.field(
            "text",
            pa.large_string(),
            metadata={"about": "UTF-8; null when the row was dropped or failed here"},
        ),
        pa.field(
            "url", pa.string(), metadata={"about": "target URI of the record; null when the input has none"}
        ),
        pa.field("source", pa.string(), metadata={"about": "the name that the recipe gives the input"}),
        pa.field(
            "date", pa.timestamp("us", tz="UTC"), metadata={"about": "WARC-Date or the input's date column"}
        ),
        pa.field(
            "origin",
            ORIGIN,
            metadata={
                "about": "file below the input's fixed prefix; byte offset and stored byte length of the record "
                "(inflated stream for compressed JSONL and one-stream gzip; row number and 1 for Parquet)"
            },
        ),
        pa.field(
            "record_id", pa.string(), metadata={"about": "WARC-Record-ID or the input's own id; not unique"}
        ),
        pa.field("meta", pa.string(), metadata={"about": "JSON object: status, mime, charset, title, ..."}),
        pa.field(
            "reason",
            pa.string(),
            metadata={"about": "why extract dropped the row; null when it has text or failed"},
        ),
        pa.field(
            "failed",
            pa.string(),
            metadata={
                "about": "what stopped the row: exception:<class>, cpu_limit, memory, crash:<signal>, unparsable"
            },
        ),
        pa.field("modality", pa.string(), metadata={"about": "reserved; null means text"}),
        pa.field("media", pa.string(), metadata={"about": "reserved; JSON list of media records"}),
    ]
)


def document_id(source: str, path: str, offset: int) -> bytes:
    """16 bytes that name a document for good; `path` is relative to the input's fixed prefix, with `/` between parts."""
    return xxhash.xxh3_128_digest(f"{source}\0{path}\0{offset}".encode())


def number(part: int, row: int) -> int:
    """The u64 document number inside one run: partition in the high 32 bits, row in the low 32."""
    return part << 32 | row
