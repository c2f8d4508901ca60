"""build: a reference to a model and a dataset to checked artifacts in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calipers import data, models, tasks
from calipers.artifacts import early, stages
from calipers.artifacts.export import HEADS, ExportSource, head_of
from calipers.artifacts.inputs import Rows
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import BuildOptions, Manifest
from calipers.artifacts.stages import BuildPlan
from calipers.core import SILENT, Column, DataError, Dataset, ModelError, Progress, RequestError
from calipers.data import DataOptions
from calipers.models import heads, identity, layout, onnx_files, torch_weights
from calipers.models.onnx_session import choose_provider

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SAMPLES = 64  # rows of a dataset to calibrate on
_CHECKED = 16  # rows that stages are checked on
# ability → the task whose data a model is calibrated on by default.
_TASKS = {"encode": "sentence-similarity", "fill-mask": "fill-mask", "score": "reranking"}
_TEXT = Column("text_column", "text", "text", "the text")
_PAIR = (Column("a", "sentence1", "text", "the first text"), Column("b", "sentence2", "text", "the second text"))
_BUNDLED = (
    "warning: ranges are from bundled English sentences: other languages, subjects and lengths may exceed them and "
    "lose more; name texts of your own as `calibration`"
)
_MODEL_OPTIONS = (
    *("model_id", "revision", "pooling", "normalize", "prompt", "prompt_name", "max_length", "device", "provider"),
)


def build(
    model: str, output: Path | str, *, recipe: Recipe, options: BuildOptions | None = None, progress: Progress = SILENT
) -> Manifest:
    """Export, optimise and quantise a model into a folder. Each stage is checked against the one before it.

    >>> build("./bert", "./out", recipe=Recipe("int8-dynamic"))
    Manifest(bert, int8-dynamic: torch, exported, optimized, quantized)
    """
    planned = plan(model, Path(output), recipe, options, progress=progress)
    _refuse_without_effect(planned)
    return stages.make(planned, progress)


def _refuse_without_effect(planned: BuildPlan) -> None:
    """An exported graph gives tokens unless it is pooled: how vectors come of them is decided when it is measured. And
    without texts of the user's own, there is nothing to choose of them but how many ranges are taken from."""
    options, files = planned.options, layout.read_layout(planned.source.folder)
    requested, has_head = options.model_options, bool(heads.describe_head(files.config))
    # Of weights with a head, a pooling means: an encoder, in spite of it.
    given = {"pooling": requested.pooling is not None and not has_head, "normalize": requested.normalize is not None}
    for name in (name for name, is_given in given.items() if is_given and not options.pooled):
        raise RequestError(f"`{name}` has no effect without `pooled`: the graph gives tokens, not vectors")
    if options.calibration:
        return
    used = ["samples"] if planned.calibration else []
    options.data_options.refuse_others("a build without texts of its own", *used)
    if options.columns:
        raise RequestError("`columns` has no effect without `calibration`: no texts are named")


def plan(
    model: str, output: Path, recipe: Recipe, options: BuildOptions | None = None, *, progress: Progress = SILENT
) -> BuildPlan:
    """What a build would do: where the model is, which head it gets, and real texts as its tokens."""
    options = options or BuildOptions()
    early.refuse_missing(options.stages)
    place = models.find(model)
    if place.backend not in ("torch", "onnx"):
        raise RequestError(f"{model} ({place.backend}) cannot be built: expected a PyTorch model or an ONNX graph")
    models.refuse_revision(place, options.model_options)
    progress.start("Reading", 0)
    source, graph = (_from_torch if place.backend == "torch" else _from_graph)(place, options)
    if graph:
        options = replace(options, stages={"exported": graph, **options.stages})
    early.refuse_quantised(options.stages)
    if "quantized" not in options.stages:
        early.refuse_unknown_nodes(recipe, options, output, source.fingerprint)
    calibrated = recipe.needs_ranges and "quantized" not in options.stages
    calibrated = calibrated and (recipe.needs_texts or options.calibration is not None)
    if calibrated and options.calibration is None and source.ability != "encode":
        raise RequestError(
            f"{recipe.precision} needs real texts of the model's own kind to take ranges from: name a file, a folder "
            "or a hub id as `calibration`"
        )
    rows = _rows(source, options, calibrated)
    return BuildPlan(
        source=source,
        folder=output,
        recipe=recipe,
        rows=rows.take(_CHECKED),
        options=options,
        calibration=rows if calibrated else None,
        provider=choose_provider(options.model_options),
        warnings=(_BUNDLED,) if calibrated and options.calibration is None else (),
    )


def _from_torch(place: models.Source, options: BuildOptions) -> tuple[ExportSource, Path | None]:
    requested = options.model_options
    requested.refuse_others("a build", *_MODEL_OPTIONS, "allow_pickle", "trust_remote_code")
    on_cpu = replace(requested, device="cpu", provider=None)  # the device is for the graph
    folder = torch_weights.find_folder(place, on_cpu)
    model_id = torch_weights.model_info(place, folder, on_cpu).model_id
    source = _source(folder, options, str(identity.fingerprint(place, on_cpu)), model_id)
    files = layout.read_layout(folder)
    transformer, arguments = files.transformer, files.config_arguments
    kind = HEADS[source.ability][0]
    size = sum(file.stat().st_size for pattern in ("*.safetensors", "*.bin") for file in transformer.glob(pattern))

    def load() -> PreTrainedModel:
        torch_weights.require_torch()
        return torch_weights.load_weights(kind, transformer, on_cpu, arguments)

    return replace(source, load=load, size=size), None


def _from_graph(place: models.Source, options: BuildOptions) -> tuple[ExportSource, Path]:
    """An exported graph to begin with: there is no PyTorch model to check it against."""
    requested = options.model_options
    requested.refuse_others("a build of an ONNX graph", *_MODEL_OPTIONS, "file_name")
    file = onnx_files.graph_file(place, requested)
    folder = onnx_files.settings_folder(file, requested)
    fingerprint, model_id = str(identity.fingerprint(place, requested)), onnx_files.folder_name(file)
    return _source(folder, options, fingerprint, requested.model_id or model_id), file


def _source(folder: Path, options: BuildOptions, fingerprint: str, model_id: str) -> ExportSource:
    files = layout.read_layout(folder)
    settings = layout.settle(files, options.model_options)
    config = files.config
    ability = _ability(options, files, config)
    if ability == "encode" and files.further:
        raise ModelError(
            f"{folder} has modules that an exported graph would lack ({', '.join(files.further)}): "
            "only a transformer with pooling and normalisation can be built"
        )
    if ability == "encode" and settings.pooling_assumed:
        heads.refuse_head(heads.describe_head(config), folder)
    return ExportSource(
        folder=folder,
        fingerprint=fingerprint,
        model_id=model_id,
        ability=ability,
        load=None,
        pooling=settings.pooling,
        normalize=settings.normalize,
        family=str(config.get("model_type", "")),
        heads=_first_number(config, "num_attention_heads", "n_heads"),
        width=_first_number(config, "hidden_size", "dim"),
    )


def _first_number(config: Mapping[str, Any], *names: str) -> int:
    """The first of these settings that is a whole number, or 0, for which the optimiser infers it."""
    return next((config[name] for name in names if isinstance(config.get(name), int)), 0)


def _ability(options: BuildOptions, files: layout.Layout, config: Mapping[str, Any]) -> str:
    if options.task:
        ability = tasks.find(options.task).ability
        ability = "encode" if ability == "retrieve" else ability
        if ability not in HEADS:
            raise RequestError(f"the task {options.task} needs a model that can {ability}, which cannot be built")
        return ability
    if options.pooled or files.pooling is not None:
        return "encode"
    return head_of(str((config.get("architectures") or [""])[0]))


# --- real texts, as tokens --------------------------------------------------------------------------------------


def _rows(source: ExportSource, options: BuildOptions, calibrated: bool) -> Rows:
    """The texts that stages are checked and timed on, and ranges taken from; without a dataset, the bundled pairs."""
    if options.calibration:
        dataset = _load(options.calibration, source, options)
    else:
        most = (options.data_options.samples or SAMPLES) if calibrated else _CHECKED
        dataset = data.load_rows(str(data.sample("english")), _PAIR, mapping={}, options=DataOptions(samples=most))
    return _tokens(dataset, source, options)


def _load(path: str, source: ExportSource, options: BuildOptions) -> Dataset:
    """The text columns of the dataset: those of the task, or a column called text. Names of its other columns, such as
    the scores, are taken and not read."""
    task = tasks.find(options.task or _TASKS[source.ability])
    columns = [column for column in task.columns if column.kind in ("text", "texts", "documents")]
    others = {column.key for column in task.columns} - {column.key for column in columns}
    mapping = {key: name for key, name in options.columns.items() if key not in others}
    most = options.data_options.samples or SAMPLES
    chosen = replace(options.data_options, samples=most + len(options.excluded_ids))
    if not columns or (source.ability != "score" and not mapping and has_texts(path, chosen)):
        columns = [_TEXT]
    dataset = data.load_rows(path, columns, mapping=mapping, options=chosen)
    free = [i for i, name in enumerate(dataset.ids) if name not in options.excluded_ids]
    return dataset.take((free or range(len(dataset)))[:most])


def has_texts(path: str, options: DataOptions) -> bool:
    """Whether a dataset has a column called text."""
    try:
        return len(data.load_rows(path, [_TEXT], mapping={}, options=replace(options, samples=1, shuffle=False))) == 1
    except DataError:
        return False


def _tokens(dataset: Dataset, source: ExportSource, options: BuildOptions) -> Rows:
    files = layout.read_layout(source.folder)
    settings = layout.settle(files, options.model_options)
    pairs = source.ability == "score"
    trust = options.model_options.trust_remote_code
    reader = layout.open_tokenizer(files, max_length=settings.max_length, pairs=pairs, trust_remote_code=trust)
    named = list(_pairs(dataset) if pairs else _texts(dataset))
    if not named:
        raise DataError(f"{dataset.source.path} holds no {'pairs of texts' if pairs else 'texts'} to calibrate on")
    ids, texts = zip(*named, strict=True)
    if pairs:
        tokens = reader.encode_pairs([(settings.prompt + a, b) for a, b in texts])
    else:
        tokens = reader.encode([settings.prompt + text for text in texts])
    kept = [i for i, row in enumerate(tokens) if len(row.ids)]
    return Rows(
        ids=tuple(ids[i] for i in kept),
        tokens=tuple(tokens[i] for i in kept),
        pad_id=reader.pad_id,
        longest=files.longest or reader.max_length,
        first_position=reader.first_position,
        path=dataset.source.path,
        fingerprint=dataset.fingerprint,
    )


def _texts(dataset: Dataset) -> Iterator[tuple[str, str]]:
    """(id, text) for every text of every row; where a row has several, its id is followed by a number."""
    columns = [values for values in dataset.columns.values() if values and isinstance(values[0], str)]
    for i, name in enumerate(dataset.ids):
        for number, values in enumerate(columns, 1):
            yield (f"{name}:{number}" if len(columns) > 1 else name), values[i]


def _pairs(dataset: Dataset) -> Iterator[tuple[str, tuple[str, str]]]:
    """(id, pair): the first two text columns, or a query with one of its documents, another place in each row."""
    plain = [values for values in dataset.columns.values() if values and isinstance(values[0], str)]
    lists = [values for values in dataset.columns.values() if values and not isinstance(values[0], str)]
    for i, name in enumerate(dataset.ids):
        if len(plain) >= 2:
            yield name, (plain[0][i], plain[1][i])
        elif plain and (documents := [document for values in lists for document in values[i] or ()]):
            document = documents[i % len(documents)]
            yield name, (plain[0][i], document if isinstance(document, str) else document.text)
