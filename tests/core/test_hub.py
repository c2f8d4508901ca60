"""Whether the hub can answer is known within a second."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from calipers.core.hub import why_unreachable


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "home" / "hub"))


def test_a_closed_port_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:  # bound, so that nobody else listens there
        silent.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        reason = why_unreachable("org/name", "dataset")
    assert reason == "it is not in the cache, and 127.0.0.1 cannot be reached from here"


def test_what_listens_may_answer_and_a_proxy_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert why_unreachable("org/name") is None
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert why_unreachable("org/name")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert why_unreachable("org/name") is None


def test_what_is_cached_needs_no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert why_unreachable("org/name") == "it is not in the cache, and HF_HUB_OFFLINE forbids to fetch it"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert why_unreachable("org/name") is not None
    (tmp_path / "hub" / "models--org--name").mkdir(parents=True)
    assert why_unreachable("org/name") is None
