"""build: a reference to a model and a dataset to the records that `calipers.artifacts` works on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calipers import artifacts as build
from calipers import data, models, tasks
from calipers.core import SILENT, CalipersError, Column, DataError, Dataset, ModelError, Progress, RequestError
from calipers.data import DataOptions
from calipers.models import ModelOptions, hub, layout, onnx_files, onnx_session, tokenizer, torch_weights

SAMPLES = 64  # rows of a dataset to calibrate on
_CHECKED = 16
# ability → the task whose data a model is calibrated on where nobody says which.
_TASKS = {"encode": "sentence-similarity", "fill-mask": "fill-mask", "score": "reranking"}
_TEXT = Column("text_column", "text", "text", "the text")
_PAIR = (Column("a", "sentence1", "text", "the first text"), Column("b", "sentence2", "text", "the second text"))


@dataclass(frozen=True)
class Wishes:
    """What to build. None and empty: as the model's own files and the task say."""

    task: str | None = None
    calibration: str | None = None  # a dataset; None is the task's own
    not_on: frozenset[str] = frozenset()  # ids of rows that are measured: ranges come from others, where there are any
    columns: Mapping[str, str] = field(default_factory=dict)
    data_options: DataOptions = field(default_factory=DataOptions)
    model_options: ModelOptions = field(default_factory=ModelOptions)
    given: Mapping[str, Path] = field(default_factory=dict)
    optimize: bool = True
    opset: int = build.OPSET
    shape: tuple[int, int] | None = None
    pooled: bool = False
    refuse: bool = True


def build_artifacts(
    model: str, folder: Path, recipe: build.Recipe, wishes: Wishes | None = None, *, progress: Progress = SILENT
) -> build.Manifest:
    """Export, optimise and quantise a model into a folder, every stage checked against the one before."""
    return build.build(build_request(model, folder, recipe, wishes, progress=progress), progress)


def build_request(
    model: str, folder: Path, recipe: build.Recipe, wishes: Wishes | None = None, *, progress: Progress = SILENT
) -> build.BuildRequest:
    """The same without building: where the model is, which head it gets, and real texts as its tokens."""
    wish = wishes or Wishes()
    place = models.find(model)
    if place.backend not in ("torch", "onnx"):
        raise RequestError(f"{model} ({place.backend}) cannot be built: that takes a PyTorch model or an ONNX graph")
    progress.start("Reading", 0)
    source, graph = (_from_torch if place.backend == "torch" else _from_graph)(place, wish)
    given = {**({"exported": graph} if graph else {}), **wish.given}
    calibrated = recipe.needs_ranges and "quantized" not in given
    rows = _rows(source, wish, calibrated)
    return build.BuildRequest(
        source=source,
        folder=folder,
        recipe=recipe,
        rows=rows.take(_CHECKED),
        calibration=rows if calibrated else None,
        given=given,
        optimize=wish.optimize,
        opset=wish.opset,
        shape=wish.shape,
        pooled=wish.pooled,
        refuse=wish.refuse,
        provider=onnx_session.choose_provider(wish.model_options),
    )


def _from_torch(place: models.Source, wish: Wishes) -> tuple[build.Source, Path | None]:
    used = ("model_id", "revision", "pooling", "normalize", "prompt", "prompt_name", "max_length")
    options = wish.model_options
    options.refuse_others("a build", *used, "device", "provider", "allow_pickle", "trust_remote_code")
    plain = replace(options, device="cpu", provider=None)  # the device is the graph's to run on
    folder = torch_weights.fetch_folder(place, plain)
    info = torch_weights.model_info(place, folder, plain)
    source = _source(folder, wish, info.fingerprint, info.model_id)
    transformer = layout.read_layout(folder).transformer
    kind = build.HEADS[source.ability][0]
    size = sum(file.stat().st_size for pattern in ("*.safetensors", "*.bin") for file in transformer.glob(pattern))
    return replace(source, load=lambda: torch_weights.load_weights(kind, transformer, plain), size=size), None


def _from_graph(place: models.Source, wish: Wishes) -> tuple[build.Source, Path]:
    """An exported graph to begin with: there is no PyTorch model that it could be checked against."""
    options = wish.model_options
    used = ("model_id", "revision", "pooling", "normalize", "prompt", "prompt_name", "max_length")
    options.refuse_others("a build of an ONNX graph", *used, "device", "provider")
    file = onnx_files.graph_file(place, options)
    folder = onnx_files.settings_folder(file, options)
    return _source(folder, wish, hub.fingerprint([file]), options.model_id or onnx_files.folder_name(file)), file


def _source(folder: Path, wish: Wishes, fingerprint: str, model_id: str) -> build.Source:
    found = layout.read_layout(folder)
    settings = layout.settle(found, wish.model_options)
    config = tokenizer.read_json(found.transformer / "config.json")
    ability = _ability(wish, found, config)
    if ability == "encode" and found.further:
        raise ModelError(
            f"{folder} has modules that an exported graph would lack ({', '.join(found.further)}): "
            "only a transformer with pooling and normalisation can be built"
        )
    return build.Source(
        folder=folder,
        fingerprint=fingerprint,
        model_id=model_id,
        ability=ability,
        load=None,
        pooling=settings.pooling,
        normalize=settings.normalize,
        family=str(config.get("model_type", "")),
        heads=_whole(config, "num_attention_heads", "n_heads"),
        width=_whole(config, "hidden_size", "dim"),
    )


def _whole(config: Mapping[str, Any], *names: str) -> int:
    """The first of the names that holds a whole number, or 0, which lets the optimiser find out."""
    return next((config[name] for name in names if isinstance(config.get(name), int)), 0)


def _ability(wish: Wishes, found: layout.Layout, config: Mapping[str, Any]) -> str:
    if wish.task:
        asked = tasks.find(wish.task).ability
        ability = "encode" if asked == "retrieve" else asked
        if ability not in build.HEADS:
            raise RequestError(f"the task {wish.task} asks a model to {ability}, and no artifact can be built for that")
        return ability
    if wish.pooled or found.pooling is not None:
        return "encode"
    return build.head_of(str((config.get("architectures") or [""])[0]))


# --- real texts, as tokens --------------------------------------------------------------------------------------


def _rows(source: build.Source, wish: Wishes, calibrated: bool) -> build.Rows:
    """What ranges are taken from, if any are, and stages checked and timed on: without a dataset, the bundled pairs."""
    if calibrated or wish.calibration:
        found = _load(source, wish)
    else:
        options = DataOptions(samples=_CHECKED)
        found = data.load_rows(str(data.sample("english")), _PAIR, mapping={}, options=options)
    return _tokens(found, source, wish)


def _load(source: build.Source, wish: Wishes) -> Dataset:
    """The text columns of the dataset: those of the task, or a column called text."""
    task = tasks.find(wish.task or _TASKS[source.ability])
    columns = [column for column in task.columns if column.kind in ("text", "texts", "documents")]
    default = task.default_data
    options = wish.data_options
    path = wish.calibration or default.path
    if not wish.calibration:
        options = replace(options, name=options.name or default.name, split=options.split or default.split)
    most = options.samples or SAMPLES
    options = replace(options, samples=most + len(wish.not_on))
    if not columns or (source.ability != "score" and not wish.columns and _has_texts(path, options)):
        columns = [_TEXT]
    try:
        found = data.load_rows(path, columns, mapping=wish.columns, options=options)
    except CalipersError as error:
        if wish.calibration:
            raise
        raise RequestError(f"{error} (these are the task's own texts; --calibration names yours)") from error
    free = [i for i, name in enumerate(found.ids) if name not in wish.not_on]
    return found.take((free or range(len(found)))[:most])


def _has_texts(path: str, options: DataOptions) -> bool:
    try:
        return len(data.load_rows(path, [_TEXT], mapping={}, options=replace(options, samples=1, shuffle=False))) == 1
    except DataError:
        return False


def _tokens(found: Dataset, source: build.Source, wish: Wishes) -> build.Rows:
    own = layout.read_layout(source.folder)
    settings = layout.settle(own, wish.model_options)
    pairs = source.ability == "score"
    reader = tokenizer.open_tokenizer(
        own.transformer, max_length=settings.max_length, lower_case=settings.lower_case, pairs=pairs
    )
    named = list(_pairs(found) if pairs else _texts(found))
    if not named:
        raise DataError(f"{found.source.path} holds no {'pairs of texts' if pairs else 'texts'} to calibrate on")
    ids, texts = zip(*named, strict=True)
    if pairs:
        drawn = reader.encode_pairs([(settings.prompt + a, b) for a, b in texts])
    else:
        drawn = reader.encode([settings.prompt + text for text in texts])
    kept = [i for i, row in enumerate(drawn) if len(row.ids)]
    config = tokenizer.read_json(own.transformer / "config.json")
    first = tokenizer.first_position(config)
    return build.Rows(
        ids=tuple(ids[i] for i in kept),
        tokens=tuple(drawn[i].ids for i in kept),
        types=tuple(drawn[i].type_ids for i in kept),
        pad_id=reader.pad_id,
        longest=tokenizer.longest_input(own.transformer) or reader.max_length,
        first_position=first,
        path=found.source.path,
        fingerprint=found.fingerprint,
    )


def _texts(found: Dataset) -> Iterator[tuple[str, str]]:
    """(id, text) for every text of every row; a row with several of them has its id with a number behind it."""
    columns = [values for values in found.columns.values() if values and isinstance(values[0], str)]
    for i, name in enumerate(found.ids):
        for number, values in enumerate(columns, 1):
            yield (f"{name}:{number}" if len(columns) > 1 else name), values[i]


def _pairs(found: Dataset) -> Iterator[tuple[str, tuple[str, str]]]:
    """(id, pair): two text columns as they stand, or a query with one of its documents, another place in each row."""
    plain = [values for values in found.columns.values() if values and isinstance(values[0], str)]
    lists = [values for values in found.columns.values() if values and not isinstance(values[0], str)]
    for i, name in enumerate(found.ids):
        if len(plain) >= 2:
            yield name, (plain[0][i], plain[1][i])
        elif plain and (documents := [d for values in lists for d in _documents(values[i])]):
            yield name, (plain[0][i], documents[i % len(documents)])


def _documents(values: Sequence[Any] | None) -> list[str]:
    return [value if isinstance(value, str) else value.text for value in values or ()]
