"""Models that order documents by themselves, opened for a diagnosis: BM25, a hybrid search, the results of an engine.

What is behind them is one ability, `Ranker.rank(queries, corpus, k)`. They have no space of vectors to describe: layers
that need one say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from calipers import models
from calipers.core import SILENT, Encoder, Model, ModelInfo, Progress, on_side
from calipers.core.datasets import Listed
from calipers.core.inputs import expand
from calipers.data import trec
from calipers.metrics import overlap
from calipers.metrics.arrays import Ints
from calipers.metrics.search import NOTHING_WANTED, Hits, Wanted
from calipers.models import ModelOptions
from calipers.models.hybrid import combine, settle
from calipers.models.source import split_hybrid
from calipers.runs import embedding
from calipers.runs.embedding import Material, SearchOptions, SpaceSearch
from calipers.runs.space import Directed, Space, Texts
from calipers.runs.vector_cache import CachedEncoder, VectorCache
from calipers.tasks.rankers import Fused, FusedRanker, GivenRun, Ranker

_RUN = "run:"


def is_run(model: object) -> bool:
    """Whether a reference names a file of results: `run:FILE`."""
    return isinstance(model, str) and model.startswith(_RUN)


def read_run(reference: str, name: str | None = None) -> GivenRun:
    """The results of another engine as a model, called `name` or after its file."""
    file = expand(reference.removeprefix(_RUN))
    results = trec.read_run(file)  # refuses what is no regular file, before its bytes are read for the fingerprint
    info = ModelInfo("run", name or file.name, str(file), "none", models.hub.fingerprint([file]))
    return GivenRun(results, info)


def ranks_by_itself(model: str | Model) -> bool:
    """Whether a model orders documents without a space of vectors."""
    if isinstance(model, str):
        return is_run(model) or models.find(model).backend in ("bm25", "hybrid")
    return isinstance(model, (Ranker, Fused))


def encodes(model: str | Model) -> bool:
    """Whether vectors have a part in it: options of models and prompts have an effect."""
    if isinstance(model, str):
        return not is_run(model) and models.find(model).backend != "bm25"
    return not isinstance(model, Ranker)


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """A model that is ready to search a corpus. `encoder` counts what it encodes; `plain` is the model itself where it
    gives vectors, and `prepare` embeds the texts, or lists them where it has none."""

    info: ModelInfo
    prepare: Callable[[], Space]
    encoder: CachedEncoder | None = None
    plain: Encoder | None = None

    @property
    def reader(self) -> CachedEncoder | None:
        """What layers may encode further texts with: nothing, where the texts have no vectors."""
        return self.encoder if self.plain else None

    @property
    def counts(self) -> dict[str, int]:
        """Texts that were encoded, and those whose vectors were kept."""
        encoder = self.encoder
        return {"texts_encoded": encoder.encoded if encoder else 0, "texts_reused": encoder.reused if encoder else 0}

    @property
    def damaged(self) -> list[str]:
        return self.encoder.damaged if self.encoder else []


def open_model(
    model: str | Model,
    material: Material,
    options: SearchOptions,
    vectors: VectorCache | None,
    progress: Progress,
    *,
    is_baseline: bool = False,
) -> OpenedModel:
    """Whatever searches: a model that gives vectors, or one that orders documents by itself."""
    source = models.find(model) if isinstance(model, str) and not is_run(model) else None
    if not ranks_by_itself(model) or (source and source.backend == "hybrid"):
        if source and source.backend == "hybrid":
            settle(source)  # before the encoder is loaded
            model = split_hybrid(source.reference)[0]
        ids, loading = embedding.text_ids(material), options.model_options
        encoder, plain = embedding.open_encoder(model, ids, loading, vectors, is_baseline=is_baseline)
        if source and source.backend == "hybrid":
            return _hybrid(encoder, combine(cast(Encoder, encoder), source), material, options, progress)
        return OpenedModel(encoder.info, lambda: embedding.embed(encoder, material, options, progress), encoder, plain)
    if isinstance(model, Fused):
        return _hybrid(CachedEncoder(model.encoder, None, None), model, material, options, progress)
    ranker = _ranker(model, options, is_baseline=is_baseline)
    why = f"{'a file of results' if isinstance(ranker, GivenRun) else ranker.info.model_id} has no vectors"
    return OpenedModel(ranker.info, lambda: embedding.without_vectors(material, ranker, why))


def _ranker(model: str | Model, options: SearchOptions, *, is_baseline: bool) -> Ranker:
    """BM25, or a file of results: options of a model are those of the other side, where there is one."""
    chosen = ModelOptions(model_id=None if is_baseline else options.model_options.model_id)
    if not isinstance(model, str):
        return cast(Ranker, model)
    return (
        read_run(model, chosen.model_id)
        if is_run(model)
        else cast(Ranker, models.load(models.find(model), chosen, "retrieve"))
    )


def _hybrid(
    encoder: CachedEncoder, model: Fused, material: Material, options: SearchOptions, progress: Progress
) -> OpenedModel:
    def prepare() -> Space:
        space = embedding.embed(encoder, replace(material, pairs=None, groups=None), options, progress)
        ranker = FusedRanker(_InSpace(space, encoder, model.info), model.lexical, model.fusion, model.info)
        why = (
            f"a hybrid search has no vectors of its own; those of {encoder.info.model_id} have a diagnosis of their own"
        )
        return replace(embedding.without_vectors(material, ranker, why), truncated=space.truncated)

    return OpenedModel(model.info, prepare, encoder)


def search_again(
    model: Encoder | None, space: Space, alive: Directed, k: int, progress: Progress
) -> Callable[[Sequence[str]], Ints] | None:
    """What other queries find, texts → rows of the corpus int64[q, k]; None where nothing can say it."""
    if space.ranker is not None:
        ranker, corpus = space.ranker, Listed(space.corpus.ids, space.corpus.texts)
        return None if isinstance(ranker, GivenRun) else lambda texts: _rows(ranker, texts, corpus, k, progress)
    if model is None or model.info.backend == "vectors" or space.queries is None:
        return None
    side, prompt = on_side(model, "query"), space.queries.prompt
    return lambda texts: alive.find(side.encode(texts, prompt=prompt, progress=progress), k)


def _rows(ranker: Ranker, texts: Sequence[str], corpus: Listed, k: int, progress: Progress) -> Ints:
    hits = ranker.rank(Listed([str(n) for n in range(len(texts))], texts), corpus, k, progress=progress)
    return np.asarray(overlap.table(hits.queries, hits.ranks, hits.documents, queries=len(texts), k=k, missing=-1))


@dataclass(frozen=True, eq=False)
class _InSpace:
    """An encoder as a ranker of a corpus that is embedded. Other queries than the space's are encoded."""

    space: Space
    encoder: CachedEncoder
    info: ModelInfo

    def rank(
        self, queries: Listed, corpus: Listed, k: int, *, wanted: Wanted = NOTHING_WANTED, progress: Progress = SILENT
    ) -> Hits:
        space = self.space
        assert space.queries is not None
        if tuple(queries.texts) != tuple(space.queries.texts):
            prompt = space.queries.prompt
            vectors = on_side(cast(Encoder, self.encoder), "query").encode(
                queries.texts, prompt=prompt, progress=progress
            )
            space = replace(space, queries=Texts(tuple(queries.ids), queries.texts, vectors, prompt), qrels=())
        return SpaceSearch(space, self.info).rank(queries, corpus, k, wanted=wanted, progress=progress)
