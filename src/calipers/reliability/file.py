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
from calipers.metrics.calibration import Isotonic, Logistic, Map
from calipers.metrics.codecs import CODECS, Codec
from calipers.metrics.trust import FEATURES
from calipers.reliability.records import METHODS, Detector, Method, Thresholds

SCHEMA = "calipers/trust-file/2"  # in 1 the isotonic map read R_q
_F = len(FEATURES)
_LOGISTIC = {"mean": (_F,), "scale": (_F,), "weights": (_F,), "intercept": (1,)}
_MOST_DIMENSIONS = 1 << 20

Tensors = dict[str, NDArray[Any]]


def write(
    path: Path,
    *,
    codec: Codec,
    k: int,
    thresholds: Thresholds,
    method: Method,
    maps: Mapping[str, Map],
    detectors: Mapping[str, Detector],
    report: Mapping[str, Any],
    about: Mapping[str, str],
) -> None:
    from safetensors.numpy import save

    header = {
        "schema": SCHEMA,
        "codec": codec.name,
        "dimensions": codec.dimensions,
        "k": k,
        "method": method,
        "maps": list(maps),
        "detectors": {kind: {"threshold": d.threshold, "acts": d.acts} for kind, d in detectors.items()},
        "thresholds": asdict(thresholds),
        "report": report,
        "about": about,
    }
    metadata = {"calipers": json.dumps(_strict(header), allow_nan=False)}
    content = save(_tensors(codec, maps, detectors), metadata=metadata)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise RequestError(f"{path} cannot be written: {error.strerror or error}") from error


def read(path: Path) -> dict[str, Any]:
    """The fields of a Trust. Everything that is wrong with the file ends in a DataError that names it."""
    header, tensors = _open(path)
    try:
        return _fields(header, tensors)
    except _Unfit as error:
        raise DataError(f"{path} is no trust file that fits: {error}; make it again with --save") from error


class _Unfit(Exception):
    pass


def _tensors(codec: Codec, maps: Mapping[str, Map], detectors: Mapping[str, Detector]) -> Tensors:
    found = {f"codec/{name}": table for name, table in codec.tables.items()}
    fitted: dict[str, Map] = {f"map/{name}": map for name, map in maps.items()}
    fitted |= {f"detector/{kind}": detector.map for kind, detector in detectors.items()}
    for prefix, one in fitted.items():
        found |= {f"{prefix}/{name}": np.atleast_1d(np.asarray(value)) for name, value in vars(one).items()}
    return {name: np.ascontiguousarray(value) for name, value in found.items()}


def _open(path: Path) -> tuple[dict[str, Any], Tensors]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise RequestError(f"there is no file {path}: calipers trust --save makes one")
    if not path.stat().st_size:
        raise DataError(f"{path} is empty and so is no trust file: expected one that calipers trust --save made")
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get("calipers")
            if text is None:
                raise DataError(f"{path} is no trust file: its header does not come from calipers trust --save")
            return _object(json.loads(text), "the header"), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RecursionError, TypeError, _Unfit) as error:
        why = str(error).splitlines()[0]
        raise DataError(f"{path} is no trust file, as calipers trust --save makes it: {why}") from error


def _fields(header: Mapping[str, Any], tensors: Tensors) -> dict[str, Any]:
    if header.get("schema") != SCHEMA:
        raise _Unfit(f"expected the schema {SCHEMA!r}, found {header.get('schema')!r}")
    method = _one_of(header, "method", METHODS)
    wanted = _object(header.get("detectors", {}), "'detectors'")
    codec = _codec(header, tensors)
    maps = _maps(header, tensors)
    detectors = {kind: _detector(kind, _object(told, "a detector"), tensors) for kind, told in wanted.items()}
    expected = _tensors(codec, maps, detectors)
    if others := sorted(set(tensors) - set(expected)):
        raise _Unfit(f"it holds the array {others[0]!r}, of which nothing is known")
    limits = _thresholds(_object(header.get("thresholds"), "'thresholds'"), bool(maps))
    return {
        "codec": codec,
        "k": _integer(header, "k", 2),
        "thresholds": limits,
        "method": method,
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


def _detector(kind: str, told: Mapping[str, Any], tensors: Tensors) -> Detector:
    if not isinstance(told.get("acts"), bool):
        raise _Unfit(f"expected yes or no for 'acts' of {kind!r}, found {told.get('acts')!r}")
    return Detector(_logistic(f"detector/{kind}", tensors), _number(told, "threshold"), told["acts"])


def _logistic(prefix: str, tensors: Tensors) -> Logistic:
    found = {key: _array(tensors, f"{prefix}/{key}", shape) for key, shape in _LOGISTIC.items()}
    if (found["scale"] <= 0).any():
        raise _Unfit(f"a scale of {prefix} is not above 0")
    return Logistic(found["mean"], found["scale"], found["weights"], float(found["intercept"][0]))


def _thresholds(told: Mapping[str, Any], calibrated: bool) -> Thresholds:
    on = _one_of(told, "on", ("probability", "reliability"))
    if (on == "probability") != calibrated:
        raise _Unfit(f"its thresholds are on the {on} and it has {'' if calibrated else 'no '}maps")
    answer = None if told.get("answer") is None else _number(told, "answer")
    return Thresholds(on, answer, _number(told, "fall_back"), str(told.get("why", "")))


def _array(tensors: Tensors, name: str, shape: tuple[int | None, ...], kind: type = np.float64) -> NDArray[Any]:
    found = tensors.get(name)
    wanted = f"[{', '.join('n' if size is None else str(size) for size in shape)}]"
    if found is None:
        raise _Unfit(f"expected the array {name} {wanted}, found none")
    fits = found.ndim == len(shape) and all(size in (None, have) for size, have in zip(shape, found.shape, strict=True))
    if not fits or found.dtype != kind:
        raise _Unfit(f"expected {name} as {np.dtype(kind)} {wanted}, found {found.dtype} {list(found.shape)}")
    if not np.isfinite(found).all():
        raise _Unfit(f"{name} holds NaN or infinite numbers")
    return found


def _one_of(told: Mapping[str, Any], key: str, known: tuple[Any, ...]) -> Any:
    if told.get(key) not in known:
        raise _Unfit(f"expected {key!r} to be {' or '.join(known)}, found {told.get(key)!r}")
    return told[key]


def _integer(told: Mapping[str, Any], key: str, least: int) -> int:
    found = told.get(key)
    if not isinstance(found, int) or isinstance(found, bool) or found < least:
        raise _Unfit(f"expected {key!r} to be a whole number from {least} on, found {found!r}")
    return found


def _number(told: Mapping[str, Any], key: str) -> float:
    found = told.get(key)
    if not isinstance(found, (int, float)) or isinstance(found, bool) or not math.isfinite(found):
        raise _Unfit(f"expected {key!r} to be a finite number, found {found!r}")
    return float(found)


def _object(found: Any, what: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise _Unfit(f"expected {what} to be an object, found {type(found).__name__}")
    return found


def _strict(value: Any) -> Any:
    """NaN, which JSON does not have, becomes null; arrays are no part of a header."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _strict(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(inner) for inner in value]
    return value
