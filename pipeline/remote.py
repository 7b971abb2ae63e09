"""Addresses of object stores: `s3://bucket/key` and `gs://bucket/key`, opened with pyarrow's own clients.

Where a store is and how to reach it comes from the environment, as with every S3 tool: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or
AWS_DEFAULT_REGION, and the credentials chain (variables, files, instance roles). An input may name another endpoint or region, since a public
crawl and an own bucket are seldom in one place. Credentials are never taken from an address, and `redacted` keeps them out of all text.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from corpusmill.pipeline.errors import RecipeError

BUCKETS = ("s3", "gs")
WEB = ("http", "https")

CONNECT_SECONDS, REQUEST_SECONDS, ATTEMPTS = 10.0, 60.0, 8
"""Patience with a store: pyarrow's own (1 s, 3 s, 3 attempts) gives up on a busy one."""

ASK_SECONDS = 4.0
"""Patience of a question that only wants to know whether a store answers."""


class Unreachable(OSError):
    """A store or server that did not give its bytes for as long as we ask: a task's attempt failed, nothing is wrong with the file."""


@dataclass(frozen=True)
class Access:
    """How to reach a store: `endpoint` (http[s]://host[:port]) and `region`; None takes the environment's. `anonymous` signs nothing."""

    endpoint: str | None = None
    region: str | None = None
    anonymous: bool = False


def scheme_of(path: str) -> str:
    """`s3`, `gs`, `http`, `https`, or "" for a path on this machine; any other is an error that lists these."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", path)
    if found is None:
        if meant := re.match(r"(s3|gs|https?):", path, re.IGNORECASE):
            raise RecipeError(
                f"{redacted(path)}: an address begins with {meant[1].lower()}://; a file here of this name is ./{redacted(path)}"
            )
        return ""
    scheme = found[1].lower()
    if scheme not in (*BUCKETS, *WEB):
        raise RecipeError(
            f"{redacted(path)}: {scheme}:// is not known; s3://, gs://, https:// and local paths are"
        )
    return scheme


def bucket_path(url: str) -> str:
    """`bucket/key` of an s3:// or gs:// address; credentials, queries and `..` in it are refused."""
    scheme, _, path = url.partition("://")
    if "@" in path.split("/", 1)[0]:
        raise RecipeError(
            f"{redacted(url)}: credentials do not belong into an address; they come from the environment (AWS_ACCESS_KEY_ID, ~/.aws, roles)"
        )
    bucket, _, key = path.partition("/")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", bucket) or any(
        part in ("..", ".", "") for part in key.removesuffix("/").split("/") if key
    ):
        raise RecipeError(
            f"{redacted(url)}: {scheme}://BUCKET/KEY is needed, without . and .. and empty names"
        )
    return path


def filesystem(scheme: str, access: Access = Access(), patient: bool = True) -> Any:
    """The client of a store, one a process, place and access: it keeps its connections. One without patience asks once, for seconds."""
    environment = os.environ
    endpoint, region = access.endpoint, access.region
    if scheme == "s3":
        endpoint = endpoint or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        region = region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    return _client(scheme, endpoint or None, region or "us-east-1", access.anonymous, patient)


@functools.cache
def _client(scheme: str, endpoint: str | None, region: str, anonymous: bool, patient: bool) -> Any:
    from pyarrow import fs

    if scheme == "gs":
        limit = None if patient else timedelta(seconds=2 * ASK_SECONDS)
        return fs.GcsFileSystem(anonymous=anonymous, endpoint_override=endpoint, retry_time_limit=limit)
    where = urlsplit(endpoint) if endpoint else None
    if where is not None and (where.scheme not in WEB or not where.hostname or "@" in where.netloc):
        raise RecipeError(f"endpoint {redacted(endpoint or '')}: http[s]://HOST[:PORT] is needed")
    return fs.S3FileSystem(
        anonymous=anonymous,
        region=region,
        scheme=where.scheme if where else "https",
        endpoint_override=where.netloc if where else None,
        connect_timeout=CONNECT_SECONDS if patient else ASK_SECONDS,
        request_timeout=REQUEST_SECONDS if patient else ASK_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS if patient else 1),
        allow_delayed_open=True,  # an object of up to 5 MiB is one PUT instead of the three of a multipart upload
    )


SURROUNDINGS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION")


def surroundings() -> dict[str, str]:
    """What of this process's environment says where a store is: workers on other machines get it. Credentials are not among it."""
    found = {name: os.environ[name] for name in SURROUNDINGS if os.environ.get(name)}
    for name, value in found.items():
        if "@" in value or "?" in value:
            raise RecipeError(f"{name}={redacted(value)}: credentials do not belong into an address")
    return found


SECRET_NAMES = re.compile(r"(SECRET|TOKEN|PASSWORD|ACCESS_KEY|CREDENTIAL)", re.IGNORECASE)
SECRET_MINIMUM = 8  # characters; shorter values would blank out ordinary words


def redacted(text: str) -> str:
    """`text` without user:password@ and queries of addresses, and without the value of any secret in the environment."""
    text = re.sub(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@]*@", r"\1***@", text, flags=re.IGNORECASE)
    text = re.sub(r"(\bhttps?://[^\s?#'\"]*)\?[^\s'\"]*", r"\1?***", text, flags=re.IGNORECASE)
    for name, value in os.environ.items():
        is_secret = SECRET_NAMES.search(name) and not name.endswith(("_PATH", "_FILE"))
        if is_secret and len(value) >= SECRET_MINIMUM:
            text = text.replace(value, "***")
    return text


MISTAKES = (
    (("NO_SUCH_BUCKET", "NoSuchBucket"), "there is no such bucket: make it, or correct the address"),
    (
        (
            "PERMANENT_REDIRECT",
            "PermanentRedirect",
            "AuthorizationHeaderMalformed",
            "HTTP response code: 301",
            "IllegalLocation",
        ),
        "the bucket is in another region: set AWS_REGION to its own",
    ),
    (
        (
            "ACCESS_DENIED",
            "INVALID_ACCESS_KEY_ID",
            "SIGNATURE_DOES_NOT_MATCH",
            "EXPIRED_TOKEN",
            "INVALID_CLIENT_TOKEN_ID",
            "InvalidAccessKeyId",
            "ExpiredToken",
            "InvalidToken",
            "HTTP response code: 403",
            "HTTP response code: 401",
        ),
        "the store refuses these credentials: see AWS_ACCESS_KEY_ID, AWS_PROFILE or the machine's role, and the rights in docs/stores.md",
    ),
)
"""What a store says of a wrong call -> the next step."""


def mistake_in(message: str) -> str | None:
    """The next step when an error is the caller's; None when it may pass."""
    return next((step for words, step in MISTAKES if any(word in message for word in words)), None)
