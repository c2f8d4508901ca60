"""A trust score as one file: safetensors, which holds arrays and nothing that runs, with a JSON header.

A file is read as something that a stranger may have written: names, types, shapes and values are all checked.
"""

from __future__ import annotations

import json
import math
import re
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
from calipers.metrics.predictors import INPUTS, PREDICTORS, CorpusStatistics, names_for
from calipers.metrics.trust import FEATURES
from calipers.reliability.records import METHODS, DecisionThresholds, Detector, InputMap
from calipers.rendering.document import strict

SCHEMA = "calipers/trust-file/3"  # in 1 the isotonic map read R_q; 2 had one map, of vectors
_EARLIER = "calipers/trust-file/2"
_MOST_FEATURES = 1_000
_MOST_DIMENSIONS = 1 << 20
_DETECTORS = {"detectors": "detector", "score_detectors": "score_detector"}  # field → where its arrays are
_PREDICTORS = frozenset(name for names in PREDICTORS.values() for name in names)
_SORTED = re.compile("score_[1-9][0-9]{0,4}")

Tensors = dict[str, NDArray[Any]]


def write(path: Path, fields: Mapping[str, Any]) -> None:
    """The fields of a Trust, as `read` gives them."""
    from safetensors.numpy import save

    codec, maps = fields["codec"], fields["maps"]
    header = {
        "schema": SCHEMA,
        "codec": codec.name,
        "dimensions": codec.dimensions,
        "k": fields["k"],
        "method": fields["method"],
        "maps": {
            kind: {"features": list(one.features), "thresholds": asdict(one.thresholds)} for kind, one in maps.items()
        },
        **{group: {kind: _describe(d) for kind, d in fields[group].items()} for group in _DETECTORS},
        "reference": list(fields["reference"]),
        "thresholds": asdict(fields["thresholds"]),
        "report": fields["report"],
        "about": fields["about"],
    }
    metadata = {"calipers": json.dumps(strict(header), allow_nan=False)}
    content = save(_tensors(fields), metadata=metadata)
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


def _describe(detector: Detector) -> dict[str, Any]:
    return {"threshold": detector.threshold, "acts": detector.acts, "features": list(detector.features)}


def _tensors(fields: Mapping[str, Any]) -> Tensors:
    arrays = {f"codec/{name}": table for name, table in fields["codec"].tables.items()}
    fitted: dict[str, Map] = {}
    for kind, one in fields["maps"].items():
        fitted |= {f"map/{kind}/logistic": one.logistic, f"map/{kind}/isotonic": one.isotonic}
    for group, prefix in _DETECTORS.items():
        fitted |= {f"{prefix}/{kind}": detector.map for kind, detector in fields[group].items()}
    for prefix, one in fitted.items():
        arrays |= {f"{prefix}/{name}": np.atleast_1d(np.asarray(value)) for name, value in vars(one).items()}
    arrays |= {f"reference/{name}": column for name, column in fields["reference"].items()}
    if fields["background"] is not None:
        arrays |= {f"background/{name}": value for name, value in vars(fields["background"]).items()}
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
    if header.get("schema") == _EARLIER:
        header, tensors = _upgrade(header, tensors)
    if header.get("schema") != SCHEMA:
        raise _Unfit(f"expected the schema {SCHEMA!r}, found {header.get('schema')!r}")
    maps = _maps(header, tensors)
    fields = {
        "codec": _codec(header, tensors),
        "k": _integer(header, "k", 2),
        "thresholds": _thresholds(_object(header.get("thresholds"), "'thresholds'"), bool(maps)),
        "method": _one_of(header, "method", METHODS),
        "maps": maps,
        **{group: _detectors(header, group, tensors) for group in _DETECTORS},
        "background": _background(header, tensors),
        "reference": _reference(header, tensors),
        "report": _object(header.get("report", {}), "'report'"),
        "about": {str(key): str(value) for key, value in _object(header.get("about", {}), "'about'").items()},
    }
    if others := sorted(set(tensors) - set(_tensors(fields))):
        raise _Unfit(f"it holds the array {others[0]!r}, which is not part of a trust file")
    return fields


def _upgrade(header: Mapping[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
    """A file of the version before, as one with a map of vectors alone."""
    if header.get("maps") not in ([], list(METHODS)):
        raise _Unfit(f"expected no maps or {' and '.join(METHODS)}, found {header.get('maps')!r}")
    entry = {"features": list(FEATURES), "thresholds": header.get("thresholds")}
    detectors = _object(header.get("detectors", {}), "'detectors'")
    described = {k: {**_object(d, "a detector"), "features": list(FEATURES)} for k, d in detectors.items()}
    renamed = {name.replace("map/", "map/vectors/"): array for name, array in tensors.items()}
    maps = {"vectors": entry} if header["maps"] else {}
    return {**header, "schema": SCHEMA, "maps": maps, "detectors": described}, renamed


def _background(header: Mapping[str, Any], tensors: Tensors) -> CorpusStatistics | None:
    if not any(name.startswith("background/") for name in tensors):
        return None
    d = _integer(header, "dimensions", 1)
    mean = _array(tensors, "background/mean", (d,), np.float32)
    return CorpusStatistics(mean, _array(tensors, "background/sample", (None, d), np.float16))


def _reference(header: Mapping[str, Any], tensors: Tensors) -> dict[str, NDArray[Any]]:
    names = _names(header.get("reference", []), "'reference'")
    columns = {name: _array(tensors, f"reference/{name}", (None,)) for name in names}
    if len({len(column) for column in columns.values()}) > 1:
        raise _Unfit("the columns of its reference differ in length")
    return columns


def _names(value: Any, what: str) -> tuple[str, ...]:
    """Names of predictors, each once."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value) or len(set(value)) < len(value):
        raise _Unfit(f"expected {what} to be a list of names, each once")
    strange = next((name for name in value if name not in _PREDICTORS and not _SORTED.fullmatch(name)), None)
    if strange is not None or len(value) > _MOST_FEATURES:
        raise _Unfit(f"there is no predictor {strange!r}" if strange is not None else f"{what} has too many names")
    return tuple(value)


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


def _maps(header: Mapping[str, Any], tensors: Tensors) -> dict[str, InputMap]:
    entries = _object(header.get("maps"), "'maps'")
    if strange := [kind for kind in entries if kind not in INPUTS]:
        raise _Unfit(f"there is no map of {strange[0]!r}: expected {', '.join(INPUTS)}")
    return {kind: _map(kind, _object(entries[kind], "a map"), tensors) for kind in INPUTS if kind in entries}


def _map(kind: str, entry: Mapping[str, Any], tensors: Tensors) -> InputMap:
    features = _names(entry.get("features"), f"'features' of the map of {kind}")
    readable = (*names_for(kind), *(name for name in features if _SORTED.fullmatch(name)))
    if strange := [name for name in features if name not in readable]:
        raise _Unfit(f"the map of {kind} reads {strange[0]!r}, which that input does not have")
    prefix = f"map/{kind}/isotonic"
    score, probability = (_array(tensors, f"{prefix}/{key}", (None,)) for key in ("score", "probability"))
    if len(score) != len(probability) or not len(score) or (np.diff(score) <= 0).any():
        raise _Unfit("the knots of its isotonic map do not rise")
    if ((probability < 0) | (probability > 1)).any():
        raise _Unfit("a probability of its isotonic map is outside 0 to 1")
    logistic = _logistic(f"map/{kind}/logistic", tensors, len(features))
    thresholds = _thresholds(_object(entry.get("thresholds"), "'thresholds'"), True)
    return InputMap(features, logistic, Isotonic(score, probability), thresholds)


def _detectors(header: Mapping[str, Any], group: str, tensors: Tensors) -> dict[str, Detector]:
    entries = _object(header.get(group, {}), f"'{group}'")
    return {
        kind: _detector(f"{_DETECTORS[group]}/{kind}", kind, _object(entry, "a detector"), tensors)
        for kind, entry in entries.items()
    }


def _detector(prefix: str, kind: str, entry: Mapping[str, Any], tensors: Tensors) -> Detector:
    if not isinstance(entry.get("acts"), bool):
        raise _Unfit(f"expected yes or no for 'acts' of {kind!r}, found {entry.get('acts')!r}")
    features = _names(entry.get("features", list(FEATURES)), f"'features' of {kind!r}")
    logistic = _logistic(prefix, tensors, len(features))
    return Detector(logistic, _number(entry, "threshold"), entry["acts"], features)


def _logistic(prefix: str, tensors: Tensors, features: int) -> Logistic:
    shapes = {**dict.fromkeys(("mean", "scale", "weights"), (features,)), "intercept": (1,)}
    arrays = {key: _array(tensors, f"{prefix}/{key}", shape) for key, shape in shapes.items()}
    if (arrays["scale"] <= 0).any():
        raise _Unfit(f"a scale of {prefix} is not above 0")
    return Logistic(arrays["mean"], arrays["scale"], arrays["weights"], float(arrays["intercept"][0]))


def _thresholds(entry: Mapping[str, Any], calibrated: bool) -> DecisionThresholds:
    on = _one_of(entry, "on", ("probability", "reliability"))
    if (on == "probability") != calibrated:
        raise _Unfit(f"its thresholds are on the {on} and it has {'' if calibrated else 'no '}maps")
    answer = None if entry.get("answer") is None else _number(entry, "answer")
    rerank = None if entry.get("rerank") is None else _number(entry, "rerank")
    return DecisionThresholds(on, answer, _number(entry, "fall_back"), str(entry.get("why", "")), rerank)


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
