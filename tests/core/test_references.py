"""Secrets of addresses are neither shown nor stored, however they are typed."""

from __future__ import annotations

import pytest

from calipers.core import ModelError
from calipers.core.references import clean, clean_text, hide, secrets_of
from tests.support.samples import Run

ADDRESSES = [
    "http://user:S3CRET@h:80/v1", "HTTP://user:S3CRET@host/v1", "https://S3CRET@host/v1", "http:/user:S3CRET@host/v1",
    "//user:S3CRET@host/v1", "static:http://user:S3CRET@host", "vectors:https://host/v?key=S3CRET", "ftp://u:S3CRET@host",
    "http://host/v1?a=b&key=S3CRET", "http://host/v1#S3CRET", "http://host/v1;key=S3CRET", "http://u:S3CRET@[::1]:80/",
    "http://user:S3CRET@", "http://u:a@S3CRET@host", "http://u%3AS3CRET@host", "http://u:a/S3CRET@host", "http://[::1?k=S3CRET",
    "http://u:a?S3CRET@host", "http://u:a#S3CRET@host", "user:S3CRET@host", "user:S3CRET@127.0.0.1:8080/v1",
    "static:user:S3CRET@host", "hybrid:onnx:user:S3CRET@host+bm25", "USER:S3CRET@HOST/v1?key=S3CRET",
    "host:8080/v1?key=S3CRET", "vectors:127.0.0.1:80?S3CRET", "user:S3CRET@[::1]:80", "u:S3CRET@h",
]  # fmt: skip
ODD = [
    "http://u:a S3CRET@host/", "http://u:a'S3CRET@host/", 'http://u:a"S3CRET@host/', "http://u:\tS3CRET@host/",
    "http://u:a\nS3CRET@host/", "http://u:a<S3CRET@host",
]  # fmt: skip


@pytest.mark.parametrize("address", [*ADDRESSES, *ODD])
def test_no_form_of_an_address_shows_its_secret(address: str) -> None:
    shown = (
        clean(address),
        clean_text(f"no answer from {address}: x"),
        clean_text(f"no model at {address!r}, or {address}"),
    )
    assert not [text for text in shown if "S3CRET" in text]
    assert "S3CRET" not in str(ModelError(f"{address!r} cannot be read"))


@pytest.mark.parametrize("address", [*ADDRESSES, *ODD, "http://h/?key=a S3CRET", "http://h/?key=a'S3CRET"])
def test_the_words_of_a_command_are_known_and_hidden_in_any_text(address: str) -> None:
    texts = f"{address} and {address!r}", f"you sent {secrets_of(address)[0] if secrets_of(address) else ''}"
    assert not [text for text in texts if "S3CRET" in hide(text, ["eval", address])]


def test_what_is_no_secret_stays() -> None:
    plain = (
        "http://host:80/v1 did not answer: see https://docs.test/a/b or write to me@host.test, //x, a:b, 12:30 @ noon"
    )
    assert clean_text(plain) == plain
    for path in (
        "./a?b@c:d",
        "static:./a@b",
        "hub:owner/name@main",
        "static:name@v2",
        "C:\\\\a@b",
        "run:a:b",
        "./data/a:b@c",
        "bm25:k1=1.2",
    ):
        assert clean(path) == clean_text(path) == path
    assert hide("a user of ./model", ["./model", "user"]) == "a user of ./model"


@pytest.mark.parametrize("flags", [(), ("--debug",), ("--json",)])
@pytest.mark.parametrize(
    "address", ["http://u:a S3CRET@127.0.0.1:1/?key=it's S3CRET", "onnx:HTTPS://u:S3CRET@x.test:99999/"]
)
def test_no_command_shows_a_secret(calipers: Run, address: str, flags: tuple[str, ...]) -> None:
    for words in (["eval", address, "--timeout", "1"], ["build", address, "-o", "x"]):
        done = calipers(*words, *flags)
        assert done.returncode in (2, 3)
        assert "S3CRET" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "word", ["a", "a.", "http:", "//", "x:", "a:b ", "http:a: ", "(a:80/", "aa:b@", "'a:b'", "@", "me:x@ "]
)
def test_a_text_of_any_length_is_cleaned_in_time(word: str) -> None:
    """With work that grows as the square of the length each of these takes minutes."""
    text = word * (300_000 // len(word))
    assert len(clean_text(text)) <= len(text)
    assert len(clean(text)) <= len(text)
