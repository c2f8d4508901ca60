"""A trust score as one file: safetensors, which holds arrays and nothing that runs, with a JSON header.

A file is read as something that a stranger may have written: names, types, shapes and values are all checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import DataError, RequestError
from calipers.core.files import whole_file
from calipers.metrics.calibration import Isotonic, Logistic, Map
from calipers.metrics.codecs import CODECS, Codec
from calipers.metrics.trust import FEATURES
from calipers.reliability.records import METHODS, DecisionThresholds, Detector
from calipers.rendering.document import strict

SCHEMA = "calipers/trust-file/2"  # in 1 the isotonic map read R_q
_F = len(FEATURES)
_LOGISTIC = {"mean": (_F,), "scale": (_F,), "weights": (_F,), "intercept": (1,)}
_MOST_DIMENSIONS = 1 << 20

Tensors = dict[str, NDArray[Any]]


def write(path: Path, fields: Mapping[str, Any]) -> None:
    """The fields of a Trust, as `read` gives them."""
    from safetensors.numpy import save

    codec, maps, detectors = fields["codec"], fields["maps"], fields["detectors"]
    header = {
        "schema": SCHEMA,
        "codec": codec.name,
        "dimensions": codec.dimensions,
        "k": fields["k"],
        "method": fields["method"],
        "maps": list(maps),
        "detectors": {kind: {"threshold": d.threshold, "acts": d.acts} for kind, d in detectors.items()},
        "thresholds": asdict(fields["thresholds"]),
        "report": fields["report"],
        "about": fields["about"],
    }
    metadata = {"calipers": json.dumps(strict(header), allow_nan=False)}
    content = save(_tensors(codec, maps, detectors), metadata=metadata)
    try:
        with whole_file(path) as part:
            part.write_bytes(content)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror or error}") from error


def read(path: Path) -> dict[str, Any]:
    """The fields of a Trust. Everything that is wrong with the file ends in a DataError that names it."""
    header, tensors = _open(path)
    try:
        return _fields(header, tensors)
    except _Unfit as error:
        raise DataError(f"{path} is no trust file that fits: {error}; save it again") from error


class _Unfit(Exception):
    pass


def _tensors(codec: Codec, maps: Mapping[str, Map], detectors: Mapping[str, Detector]) -> Tensors:
    arrays = {f"codec/{name}": table for name, table in codec.tables.items()}
    fitted: dict[str, Map] = {f"map/{name}": map for name, map in maps.items()}
    fitted |= {f"detector/{kind}": detector.map for kind, detector in detectors.items()}
    for prefix, one in fitted.items():
        arrays |= {f"{prefix}/{name}": np.atleast_1d(np.asarray(value)) for name, value in vars(one).items()}
    return {name: np.ascontiguousarray(value) for name, value in arrays.items()}


def _open(path: Path) -> tuple[dict[str, Any], Tensors]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise RequestError(f"there is no file {path}: `Trust.save` makes one")
    if not path.stat().st_size:
        raise DataError(f"{path} is empty and so is no trust file: expected one that `Trust.save` wrote")
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get("calipers")
            if text is None:
                raise DataError(f"{path} is no trust file: its header does not come from `Trust.save`")
            return _object(json.loads(text), "the header"), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RecursionError, TypeError, _Unfit) as error:
        why = str(error).splitlines()[0]
        raise DataError(f"{path} is no trust file: {why}") from error


def _fields(header: Mapping[str, Any], tensors: Tensors) -> dict[str, Any]:
    if header.get("schema") != SCHEMA:
        raise _Unfit(f"expected the schema {SCHEMA!r}, found {header.get('schema')!r}")
    wanted = _object(header.get("detectors", {}), "'detectors'")
    codec = _codec(header, tensors)
    maps = _maps(header, tensors)
    detectors = {kind: _detector(kind, _object(entry, "a detector"), tensors) for kind, entry in wanted.items()}
    if others := sorted(set(tensors) - set(_tensors(codec, maps, detectors))):
        raise _Unfit(f"it holds the array {others[0]!r}, which is not part of a trust file")
    return {
        "codec": codec,
        "k": _integer(header, "k", 2),
        "thresholds": _thresholds(_object(header.get("thresholds"), "'thresholds'"), bool(maps)),
        "method": _one_of(header, "method", METHODS),
        "maps": maps,
        "detectors": detectors,
        "report": _object(header.get("report", {}), "'report'"),
        "about": {str(key): str(value) for key, value in _object(header.get("about", {}), "'about'").items()},
    }


def _codec(header: Mapping[str, Any], tensors: Tensors) -> Codec:
    name = _one_of(header, "codec", tuple(CODECS))
    d = _integer(header, "dimensions", 1)
    if d > _MOST_DIMENSIONS:
        raise _Unfit(f"vectors of {d} dimensions are more than {_MOST_DIMENSIONS}")
    shapes: dict[str, dict[str, tuple[int | None, ...]]] = {
        "fp16": {},
        "int8": {"low": (d,), "step": (d,)},
        "int4": {"low": (d,), "step": (d,)},
        "binary": {"sides": (2, d)},
        "pq": {"centroids": (None, None, None)},
    }
    tables = {key: _array(tensors, f"codec/{key}", shape, np.float32) for key, shape in shapes[name].items()}
    if name == "pq":
        parts, count, width = tables["centroids"].shape
        if parts * width != d or not 1 <= count <= 256:
            raise _Unfit(f"centroids {[parts, count, width]} do not go with {d} dimensions")
    if (tables.get("step", np.ones(1)) <= 0).any():
        raise _Unfit("a step of its codec is not above 0")
    return Codec(name, d, tables)


def _maps(header: Mapping[str, Any], tensors: Tensors) -> dict[str, Map]:
    names = header.get("maps")
    if not isinstance(names, list) or names not in ([], list(METHODS)):
        raise _Unfit(f"expected no maps or {' and '.join(METHODS)}, found {names!r}")
    if not names:
        return {}
    score, probability = (_array(tensors, f"map/isotonic/{key}", (None,)) for key in ("score", "probability"))
    if len(score) != len(probability) or not len(score) or (np.diff(score) <= 0).any():
        raise _Unfit("the knots of its isotonic map do not rise")
    if ((probability < 0) | (probability > 1)).any():
        raise _Unfit("a probability of its isotonic map is outside 0 to 1")
    return {"logistic": _logistic("map/logistic", tensors), "isotonic": Isotonic(score, probability)}


def _detector(kind: str, entry: Mapping[str, Any], tensors: Tensors) -> Detector:
    if not isinstance(entry.get("acts"), bool):
        raise _Unfit(f"expected yes or no for 'acts' of {kind!r}, found {entry.get('acts')!r}")
    return Detector(_logistic(f"detector/{kind}", tensors), _number(entry, "threshold"), entry["acts"])


def _logistic(prefix: str, tensors: Tensors) -> Logistic:
    arrays = {key: _array(tensors, f"{prefix}/{key}", shape) for key, shape in _LOGISTIC.items()}
    if (arrays["scale"] <= 0).any():
        raise _Unfit(f"a scale of {prefix} is not above 0")
    return Logistic(arrays["mean"], arrays["scale"], arrays["weights"], float(arrays["intercept"][0]))


def _thresholds(entry: Mapping[str, Any], calibrated: bool) -> DecisionThresholds:
    on = _one_of(entry, "on", ("probability", "reliability"))
    if (on == "probability") != calibrated:
        raise _Unfit(f"its thresholds are on the {on} and it has {'' if calibrated else 'no '}maps")
    answer = None if entry.get("answer") is None else _number(entry, "answer")
    return DecisionThresholds(on, answer, _number(entry, "fall_back"), str(entry.get("why", "")))


def _array(tensors: Tensors, name: str, shape: tuple[int | None, ...], kind: type = np.float64) -> NDArray[Any]:
    array = tensors.get(name)
    wanted = f"[{', '.join('n' if size is None else str(size) for size in shape)}]"
    if array is None:
        raise _Unfit(f"expected the array {name} {wanted}, found none")
    fits = array.ndim == len(shape) and all(size in (None, have) for size, have in zip(shape, array.shape, strict=True))
    if not fits or array.dtype != kind:
        raise _Unfit(f"expected {name} as {np.dtype(kind)} {wanted}, found {array.dtype} {list(array.shape)}")
    if not np.isfinite(array).all():
        raise _Unfit(f"{name} holds NaN or infinite numbers")
    return array


def _one_of(header: Mapping[str, Any], key: str, choices: tuple[Any, ...]) -> Any:
    if header.get(key) not in choices:
        raise _Unfit(f"expected {key!r} to be {' or '.join(choices)}, found {header.get(key)!r}")
    return header[key]


def _integer(header: Mapping[str, Any], key: str, least: int) -> int:
    value = header.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _Unfit(f"expected {key!r} to be a whole number from {least} on, found {value!r}")
    return value


def _number(header: Mapping[str, Any], key: str) -> float:
    value = header.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise _Unfit(f"expected {key!r} to be a finite number, found {value!r}")
    return float(value)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Unfit(f"expected {what} to be an object, found {type(value).__name__}")
    return value
