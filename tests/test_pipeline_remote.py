"""Addresses of object stores: what is accepted, and that no credential gets into text."""

from __future__ import annotations

import pytest

from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.remote import Access, bucket_path, filesystem, redacted, scheme_of


@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        ("crawl/a.warc.gz", ""),
        ("s3://b/k", "s3"),
        ("S3://b/k", "s3"),
        ("gs://b/k", "gs"),
        ("https://h/k", "https"),
    ],
)
def test_scheme_of_an_address(path: str, scheme: str) -> None:
    assert scheme_of(path) == scheme


def test_an_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(RecipeError, match="ftp:// is not known; s3://"):
        scheme_of("ftp://host/file")


@pytest.mark.parametrize("path", ["s3:/bucket/out", "s3:bucket", "gs:/bucket/out", "https:/host/file"])
def test_an_address_with_a_missing_slash_is_no_folder_of_that_name(path: str) -> None:
    with pytest.raises(RecipeError, match=f"an address begins with {path.partition(':')[0]}://"):
        scheme_of(path)
    assert scheme_of(f"./{path}") == ""


@pytest.mark.parametrize("url", ["s3://b", "s3://b/", "s3://b/k/", "s3://b/k/l"])
def test_a_bucket_and_a_prefix_may_end_with_a_slash(url: str) -> None:
    assert bucket_path(url) == url.removeprefix("s3://")


@pytest.mark.parametrize(
    "url",
    [
        "s3:///key",
        "s3://",
        "s3://b/../c",
        "s3://bad bucket/k",
        "s3://b//k",
        "s3://b/k//l",
        "s3://b/k//",
        "s3://b//",
    ],
)
def test_addresses_that_name_no_object_are_refused(url: str) -> None:
    with pytest.raises(RecipeError, match="BUCKET/KEY"):
        bucket_path(url)


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    with pytest.raises(RecipeError, match="do not belong into an address") as caught:
        bucket_path("s3://AKIAIOSFODNN7:wJalrXUtnFEMI@bucket/key")
    assert "wJalr" not in str(caught.value) and "AKIA" not in str(caught.value)


def test_a_bad_endpoint_names_what_is_needed() -> None:
    with pytest.raises(RecipeError, match="HOST"):
        filesystem("s3", Access(endpoint="localhost:9000"))


def test_secrets_of_the_environment_and_of_addresses_are_blanked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted/secret+value")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "/begins/like+a/path")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/var/lib/someone/token")
    text = "GET https://u:pw@host/x?X-Amz-Signature=abc failed with planted/secret+value /begins/like+a/path; see /var/lib/someone/token"
    assert redacted(text) == "GET https://***@host/x?*** failed with *** ***; see /var/lib/someone/token"
