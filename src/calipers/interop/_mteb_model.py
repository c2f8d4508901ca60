"""Our models in mteb's shape. Its protocols are structural: what has the methods is a model, and nothing is imported
here before it is needed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers import models
from calipers.core import SILENT, Encoder, InvalidOutput, Model, ModelInfo, PairScorer, Progress, RequestError
from calipers.models import ModelOptions
from calipers.models.tokenizer import read_json
from calipers.tasks.pair_scores import one_score

SIMILARITIES = ("cosine", "dot")
_FRAMEWORKS = {"torch": ["PyTorch"], "onnx": ["ONNX"], "static": ["NumPy"], "vectors": ["NumPy"], "http": ["API"]}
_DOCUMENT = ("document", "passage", "corpus")  # what models call the prompt of a document, first come first served
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_DEAD_FROM = 10  # distinct texts with one and the same vector: fewer may differ only in what a tokenizer drops


def need_mteb() -> Any:
    try:
        import mteb
    except ImportError as error:
        raise RequestError("mteb tasks need the package mteb: pip install 'calipers[mteb]'") from error
    return mteb


def as_mteb(
    model: str | Model,
    *,
    options: ModelOptions | None = None,
    ability: str = "encode",
    prompts: Mapping[str, str] | None = None,
    similarity: str | None = None,
    progress: Progress = SILENT,
) -> MtebEncoder | MtebCrossEncoder:
    """One of our models as an mteb model, for `mteb.evaluate` and `mteb.mock_run`.

    `model` is a loaded Encoder or PairScorer, or a reference; `options` and `ability` ("encode" or "score") say how a
    reference is loaded. `prompts` are texts by task name, task type or "query" and "document", or by both as in
    "STS-query"; None takes those of the model's own files. `similarity` is "cosine" or "dot"; None takes the model's
    own. The name is the model's, the revision a hash of its content and of all that decides its output.
    """
    need_mteb()
    loaded = _load(model, options, ability)
    if hasattr(loaded, "score"):
        return MtebCrossEncoder(loaded, progress)
    if not hasattr(loaded, "encode"):
        raise RequestError(f"{loaded.info.model_id} cannot be an mteb model: it takes one that encodes or scores pairs")
    told = loaded.info.settings.get("prompts") or {} if prompts is None else prompts
    return MtebEncoder(loaded, dict(told), similarity or _own_similarity(loaded.info), progress)


def _load(model: str | Model, options: ModelOptions | None, ability: str) -> Any:
    if not isinstance(model, str):
        if options is not None:
            raise RequestError("options are for loading a reference: this model is loaded already")
        return model
    if ability not in ("encode", "score"):
        raise RequestError(f"an mteb model can encode or score, found {ability!r}")
    return models.load(models.find(model), options or ModelOptions(), ability)


def _own_similarity(info: ModelInfo) -> str:
    """What the model's files ask for; cosine where they ask for nothing."""
    folders: list[Path] = []
    if info.path and info.backend in ("torch", "static", "onnx"):
        place = Path(info.path)
        # a graph lies among the settings or, as on the hub, in a folder below them
        folders = [place.parent, place.parent.parent] if place.is_file() else [place]
    found = [read_json(folder / "config_sentence_transformers.json") for folder in folders]
    asked = next((settings["similarity_fn_name"] for settings in found if settings.get("similarity_fn_name")), None)
    if asked not in (None, *SIMILARITIES):
        raise RequestError(
            f"{info.model_id} asks for {asked} similarity, which mteb does not have: give similarity='cosine' or 'dot'"
        )
    return asked or "cosine"


class MtebEncoder:
    """mteb's EncoderProtocol. `zero_vectors` counts, by task, split and subset, texts that the model knows nothing
    of: mteb gives them a cosine of 0."""

    def __init__(self, model: Encoder, prompts: Mapping[str, str], similarity: str, progress: Progress) -> None:
        if similarity not in SIMILARITIES:
            raise RequestError(f"similarity must be one of {', '.join(SIMILARITIES)}, found {similarity!r}")
        self.model = model
        self.prompts = prompts
        self.zero_vectors: dict[str, int] = {}
        self._similarity = similarity
        self._progress = progress
        self.mteb_model_meta = make_meta(model.info, "dense", prompts, similarity)

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **_: Any,
    ) -> NDArray[np.float32]:
        """float32[n, d]. mteb's batches are put together again: ours follow the lengths of all texts."""
        texts = [text for batch in inputs for text in batch["text"]]
        if not texts:
            return np.zeros((0, 0), np.float32)
        side = None if prompt_type is None else str(getattr(prompt_type, "value", prompt_type))
        prompt = choose_prompt(self.prompts, str(task_metadata.name), str(task_metadata.type), side)
        chosen = {} if prompt is None else {"prompt": prompt}
        vectors = np.asarray(self.model.encode(texts, progress=self._progress, **chosen), np.float32)
        where = f"{task_metadata.name}/{hf_split}/{hf_subset}"
        _refuse_dead(vectors, texts, where)
        zero = int((~vectors.any(axis=1)).sum())
        if zero:
            self.zero_vectors[where] = self.zero_vectors.get(where, 0) + zero
        return vectors

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        from mteb import similarity_functions as theirs

        compare = theirs.cos_sim if self._similarity == "cosine" else theirs.dot_score
        return compare(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        from mteb import similarity_functions as theirs

        compare = theirs.pairwise_cos_sim if self._similarity == "cosine" else theirs.pairwise_dot_score
        return compare(embeddings1, embeddings2)


class MtebCrossEncoder:
    """mteb's CrossEncoderProtocol, for retrieval and reranking."""

    def __init__(self, model: PairScorer, progress: Progress) -> None:
        self.model = model
        self._progress = progress
        self.mteb_model_meta = make_meta(model.info, "cross-encoder", {}, None)

    def predict(
        self,
        inputs1: Iterable[Mapping[str, Any]],
        inputs2: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **_: Any,
    ) -> NDArray[np.float32]:
        """float32[n]: how well the second text answers the first."""
        first, second = ([text for batch in side for text in batch["text"]] for side in (inputs1, inputs2))
        pairs = list(zip(first, second, strict=True))
        if not pairs:
            return np.zeros(0, np.float32)
        scores = one_score(np.asarray(self.model.score(pairs, progress=self._progress)), "mteb")
        _refuse_dead(scores[:, None], pairs, f"{task_metadata.name}/{hf_split}/{hf_subset}")
        return scores


def choose_prompt(prompts: Mapping[str, str], task: str, type_: str, side: str | None) -> str | None:
    """The prompt of the most special name that has one, in mteb's order; None where there is none.

    >>> choose_prompt({"query": "q: ", "passage": "p: ", "STS": "s: "}, "JSTS", "STS", "query")
    's: '
    >>> choose_prompt({"query": "q: ", "passage": "p: "}, "SciFact", "Retrieval", "document")
    'p: '
    >>> choose_prompt({"query": "q: "}, "JSTS", "STS", None)
    """
    sides = () if side is None else _DOCUMENT if side == "document" else (side,)
    names = [
        *(f"{task}-{s}" for s in sides),
        task,
        *(f"{type_}-{s}" for s in sides),
        type_,
        *sides,
    ]
    return next((prompts[name] for name in names if name in prompts), None)


def make_meta(info: ModelInfo, kind: str, prompts: Mapping[str, str], similarity: str | None) -> Any:
    """Who the model is: mteb keeps results under the name and the revision, so neither may be empty."""
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    functions = {"cosine": ScoringFunction.COSINE, "dot": ScoringFunction.DOT_PRODUCT, None: None}
    length = info.settings.get("max_length")
    return ModelMeta.create_empty(
        overwrites={
            "name": model_name(info.model_id),
            "revision": revision(info, prompts, similarity),
            "framework": _FRAMEWORKS.get(info.backend, []),
            "similarity_fn_name": functions[similarity],
            "max_tokens": float(length) if isinstance(length, int) else None,
            "use_instructions": bool(prompts),
            "model_type": [kind],
        }
    )


def model_name(model_id: str) -> str:
    """mteb wants owner/name, and makes a folder of it.

    >>> model_name("BAAI/bge-small-en-v1.5"), model_name("http://localhost:80/embed")
    ('BAAI/bge-small-en-v1.5', 'calipers/http_localhost_80_embed')
    """
    return model_id if _HUB_NAME.fullmatch(model_id) else "calipers/" + re.sub(r"[^\w.-]+", "_", model_id)


def revision(info: ModelInfo, prompts: Mapping[str, str], similarity: str | None) -> str:
    """40 hexadecimal digits over the content of the model and all that decides its output: other pooling, other
    prompts or another backend are another revision. Of an endpoint only the address is known."""
    parts = [info.fingerprint, info.backend, info.device, dict(info.settings), dict(prompts), similarity]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:40]


def _refuse_dead(values: NDArray[np.float32], asked: list[Any], where: str) -> None:
    dead = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(dead):
        rows = [f"{where}#{i}" for i in dead.tolist()]
        raise InvalidOutput(
            f"the model gives NaN or infinite numbers for {len(dead)} of {len(asked)} inputs of {where}", rows
        )
    if len(set(asked)) >= _DEAD_FROM and (values == values[0]).all():
        rows = [f"{where}#{i}" for i in range(len(asked))]
        raise InvalidOutput(f"the model gives the same answer to all {len(asked)} inputs of {where}", rows)
