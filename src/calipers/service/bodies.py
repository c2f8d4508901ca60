"""Bodies of requests: JSON to queries of one of three kinds. Everything that is wrong is one sentence."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from calipers.metrics.arrays import Array, Vectors
from calipers.reliability import Trust

_KINDS = ("scores", "vector", "text")
_KEYS = {"scores": {"scores"}, "vector": {"vector", "neighbours"}, "text": {"text"}}
_COMMON = {"id", "model_fingerprint", "corpus_fingerprint"}
_MOST_CHARACTERS = 10_000
_LARGEST = 3.4e38  # of float32


class Refusal(Exception):
    """A request that is answered with this status and sentence."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers or {}


@dataclass(frozen=True, eq=False)
class ScoreRequest:
    """One query: `scores` float64[k], or a `vector` float32[d] with its `neighbours` float32[k, d], or a `text`."""

    kind: str
    id: str | None = None
    scores: Array | None = None
    vector: Vectors | None = None
    neighbours: Vectors | None = None
    text: str | None = None


def parse(body: bytes, trust: Trust, most: int) -> tuple[list[ScoreRequest], bool]:
    """The queries, and whether they came as a batch."""
    document = _load(body)
    if "batch" not in document:
        return [_query(document, trust, "the query")], False
    if extra := sorted(set(document) - {"batch"} - _COMMON):
        _refuse(f"'batch' does not go with {extra[0]!r}: put it into the queries")
    rows = document["batch"]
    if not isinstance(rows, list) or not rows:
        _refuse("expected 'batch' to be a list of queries")
    if len(rows) > most:
        raise Refusal(413, f"a batch of {len(rows)} queries is more than the limit of {most}")
    common = {key: document[key] for key in _COMMON & set(document)}
    return [_query({**common, **_object(row, place)}, trust, f"query {place}") for place, row in enumerate(rows)], True


def _load(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body, parse_constant=_no_constant)
    except Refusal:
        raise
    except (ValueError, RecursionError) as error:
        _refuse(f"the body is no JSON: {str(error).splitlines()[0][:120] or 'nested too deeply'}")
    if not isinstance(document, dict):
        _refuse(f"expected a JSON object, found {type(document).__name__}")
    return document


def _no_constant(name: str) -> NoReturn:
    _refuse(f"numbers must be finite, found {name}")


def _object(row: Any, place: int) -> dict[str, Any]:
    if not isinstance(row, dict):
        _refuse(f"query {place}: expected an object, found {type(row).__name__}")
    return row


def _query(row: dict[str, Any], trust: Trust, where: str) -> ScoreRequest:
    kinds = [kind for kind in _KINDS if kind in row]
    if len(kinds) != 1:
        _refuse(f"{where}: expected exactly one of 'scores', 'vector' (with 'neighbours') and 'text'")
    if extra := sorted(set(row) - _KEYS[kinds[0]] - _COMMON):
        _refuse(f"{where}: {extra[0][:40]!r} is not a key of a query with {kinds[0]!r}")
    id = row.get("id")
    if id is not None and not isinstance(id, str):
        _refuse(f"{where}: expected 'id' to be a text")
    for what in ("model", "corpus"):
        _check_fingerprint(row.get(f"{what}_fingerprint"), trust, what, where)
    if kinds[0] == "scores":
        scores = _numbers(row["scores"], (trust.k,), f"{where}: 'scores'")
        if (np.abs(scores) > 1.001).any():
            _refuse(f"{where}: scores must be cosines, from -1 to 1")
        return ScoreRequest("scores", id, scores=scores)
    if kinds[0] == "text":
        return ScoreRequest("text", id, text=_text(row["text"], where))
    d = trust.codec.dimensions
    vector = _numbers(row["vector"], (d,), f"{where}: 'vector'").astype(np.float32)
    near = _numbers(row.get("neighbours"), (trust.k, d), f"{where}: 'neighbours'").astype(np.float32)
    _check_lengths(vector[None], trust.about.get("query_norms"), f"{where}: the vector")
    _check_lengths(near, trust.about.get("document_norms"), f"{where}: a neighbour")
    _check_direction(near, trust, where)
    return ScoreRequest("vectors", id, vector=vector, neighbours=near)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        _refuse(f"{where}: expected 'text' to be a text that is not blank")
    if len(value) > _MOST_CHARACTERS:
        raise Refusal(
            413, f"{where}: a text of {len(value):,} characters is more than the limit of {_MOST_CHARACTERS:,}"
        )
    if any("\ud800" <= character <= "\udfff" for character in value):
        _refuse(f"{where}: the text holds half of a surrogate pair")
    return value


def _numbers(value: Any, shape: tuple[int, ...], where: str) -> Array:
    """Finite numbers of this shape, float64."""
    wanted = " × ".join(map(str, shape))
    try:
        array = np.array(value, dtype=object)
    except ValueError:
        _refuse(f"{where} must be {wanted} numbers, as the calibration was fitted with, found lists of other lengths")
    if array.shape != shape:
        _refuse(f"{where} must be {wanted} numbers, as the calibration was fitted with, found {_shape(array)}")
    flat = array.reshape(-1).tolist()
    if any(isinstance(x, bool) or not isinstance(x, (int, float)) for x in flat):
        _refuse(f"{where} must hold numbers only")
    if any(not -_LARGEST < x < _LARGEST or (isinstance(x, float) and not math.isfinite(x)) for x in flat):
        _refuse(f"{where} must hold finite numbers only")
    return np.array(flat, np.float64).reshape(shape)


def _shape(array: Array) -> str:
    return " × ".join(map(str, array.shape)) or "a single value"


def _check_fingerprint(given: Any, trust: Trust, what: str, where: str) -> None:
    fitted = trust.about.get(f"{what}_fingerprint")
    if given is not None and given != fitted:
        raise Refusal(409, f"{where} is of another {what} than the calibration's ({fitted or 'not recorded'})")


def _check_lengths(vectors: Vectors, written: str | None, where: str) -> None:
    """Lengths far from those of the calibration come from another model, or from other settings."""
    try:
        low, high = map(float, (written or "").split())
    except ValueError:
        return
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    if (lengths > 2 * high).any() or (lengths < low / 2).any():
        worst = lengths[(lengths > 2 * high) | (lengths < low / 2)][0]
        raise Refusal(
            409,
            f"{where} has length {worst:.4g}, and those of the calibration {low:.4g} to {high:.4g}: is it of another "
            "model, or normalised differently?",
        )


def _check_direction(neighbours: Vectors, trust: Trust, where: str) -> None:
    """Neighbours whose cosines with the corpus mean no document has are of another space."""
    if trust.background is None:
        return
    mean = trust.background.mean
    usual = trust.background.sample.astype(np.float32) @ mean
    lengths = np.maximum(np.linalg.norm(neighbours, axis=1), 1e-30)
    own = float(((neighbours @ mean) / lengths).mean())
    slack = 0.25 * float(usual.max() - usual.min()) + 1e-6
    if not usual.min() - slack <= own <= usual.max() + slack:
        raise Refusal(409, f"{where}: no document of the calibration's corpus points where these neighbours do")


def _refuse(sentence: str) -> NoReturn:
    raise Refusal(422 if not sentence.startswith("the body") else 400, sentence)
