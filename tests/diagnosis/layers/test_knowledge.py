"""The knowledge probe: coherence and its background by hand and by plain loops, halos, mining, and the edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers import models
from calipers.core import (
    SILENT,
    Figure,
    Halo,
    ModelInfo,
    Outcomes,
    RequestError,
    read_figures,
    read_named,
)
from calipers.diagnosis.layers import LAYERS, Space, Texts, knowledge, words
from calipers.diagnosis.layers.knowledge import KnowledgeOptions
from calipers.models import ModelOptions

TOPICS = ("camera lens", "garden hose", "coffee grinder")


class Table:
    """Vectors of texts by their topic; a word of the alphabet is split into its letters."""

    info = ModelInfo("test", "table", None, "cpu", "none")

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.topics = np.linalg.qr(rng.standard_normal((16, 16)))[0][: len(TOPICS)]

    def encode(self, texts: Sequence[str], **_: object) -> NDArray[np.float32]:
        rows = []
        for text in texts:
            near = np.array([sum(word in text for word in topic.split()) for topic in TOPICS], float) @ self.topics
            own = np.random.default_rng(sum(map(ord, text))).standard_normal(16) * 0.15
            rows.append(near + own if text else np.zeros(16))
        return np.array(rows, np.float32)

    def pieces(self, words: Sequence[str]) -> list[list[str | None]]:
        return [list(word) if len(word) > 7 else [word] for word in words]


class Head:
    """Says the halo that it is told."""

    def __init__(self, halos: dict[str, Halo]) -> None:
        self.halos = halos

    def top_tokens(self, texts: Sequence[str], k: int = 10) -> list[Halo]:
        return [self.halos.get(text, Halo((), (), ())) for text in texts]


@pytest.fixture(scope="module")
def space() -> Space:
    texts = [f"{topic} number {i} {'abcdefgh'[i % 8]}" for i in range(40) for topic in TOPICS]
    ids = tuple(f"d{i}" for i in range(len(texts)))
    return Space(Texts(ids, texts, Table().encode(texts)), entities=("lens", "hose", "camera lens", "nothing at all"))


OPTIONS = KnowledgeOptions()


def run(space: Space, options: KnowledgeOptions = OPTIONS, model: object = None) -> Outcomes:
    return knowledge.run(model or Table(), space, options, SILENT)  # type: ignore[arg-type]


def measure(space: Space, options: KnowledgeOptions = OPTIONS, model: object = None) -> dict[str, Figure]:
    return {figure.name: figure for figure in read_figures(run(space, options, model))}


def plain_coherence(vectors: NDArray[np.float32], rows: Sequence[int]) -> float:
    unit = [vectors[i].astype(float) / np.linalg.norm(vectors[i].astype(float)) for i in rows]
    return float(np.mean([a @ b for a, b in combinations(unit, 2)]))


def test_coherence_is_the_mean_over_all_pairs_of_the_nearest_documents(space: Space) -> None:
    outcomes = run(space)
    vectors = space.corpus.vectors
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for entity, found in zip(space.entities, outcomes.columns["entity_coherence"], strict=True):
        asked = Table().encode([entity])[0]
        nearest = np.argsort(-(unit @ asked))[:10]
        assert found == pytest.approx(plain_coherence(vectors, [int(i) for i in nearest]), abs=1e-6)


def test_the_background_is_that_of_random_sets(space: Space) -> None:
    sets = knowledge.random_sets(120, 10, 1000, seed=42)
    assert sets.shape == (1000, 10)
    assert all(len(set(row)) == 10 for row in sets.tolist())
    plain = [plain_coherence(space.corpus.vectors, row) for row in sets.tolist()]
    outcomes = run(space)
    assert outcomes.counts["background"] == pytest.approx(np.mean(plain), abs=1e-6)
    found = outcomes.details["entities"]
    value = outcomes.columns["entity_coherence"]
    np.testing.assert_allclose(found["z"], (value - np.mean(plain)) / np.std(plain, ddof=1), atol=1e-5)
    np.testing.assert_allclose(found["relative"], (value - np.mean(plain)) / (1 - np.mean(plain)), atol=1e-6)
    np.testing.assert_allclose(found["among_random"], [(np.array(plain) < v).mean() for v in value], atol=1e-9)


def test_levels_are_read_against_the_corpus() -> None:
    random = knowledge.Background(np.linspace(0.1, 0.2, 100), np.linspace(0.5, 0.9, 100))
    probe = knowledge.Probe(
        tuple("abcdefg"),
        ("given",) * 7,
        np.zeros((7, 2), np.int64),
        np.zeros((7, 2)),
        np.array([0.15, 0.15, 0.3, 0.8, 0.8, 0.8, np.nan]),
        np.array([0.4, 1.0, 1.0, 0.5, 0.4, np.nan, np.nan]),  # of the first results, those that mention it
        np.array([10, 10, 10, 10, 10, 0, 3]),
        random,
        None,
        None,
    )
    # What all results mention does not hallucinate, and what few or no documents mention is not grounded.
    assert probe.levels == ["hallucinating", "between", "between", "grounded", "between", "between", "unknown"]


def test_a_shift_of_all_vectors_raises_the_plain_coherence_and_not_the_relative_one(space: Space) -> None:
    """Anisotropy: the absolute levels would call everything grounded."""

    class Shifted(Table):
        def encode(self, texts: Sequence[str], **_: object) -> NDArray[np.float32]:
            return super().encode(texts) + np.float32(3.0)

    moved = replace(space, corpus=replace(space.corpus, vectors=space.corpus.vectors + np.float32(3.0)))
    before, after = measure(space), measure(moved, model=Shifted())
    assert after["entity_coherence"].value > 0.95 > before["entity_coherence"].value  # type: ignore[operator]
    assert after["entity_coherence_relative"].value == pytest.approx(
        before["entity_coherence_relative"].value, abs=0.15
    )


def test_metrics_are_the_figures(space: Space) -> None:
    outcomes = run(replace(space, head=Head({"lens": Halo(("lens", "photo"), (-0.1, -3.0), (True, False))})))
    figures = {figure.name: figure for figure in read_figures(outcomes)}
    for metric in LAYERS["knowledge"].measures(OPTIONS):
        if metric.name in outcomes.columns:
            assert metric.value(outcomes.columns) == pytest.approx(figures[metric.name].value)
    assert all(figure.meaning.endswith(".") for figure in figures.values())
    assert outcomes.ids[0] == "0:lens/entity"


def test_drift_is_a_halo_that_is_mostly_echo(space: Space) -> None:
    halos = {
        "lens": Halo(("lens", "photo"), (float(np.log(0.6)), float(np.log(0.2))), (True, False)),
        "hose": Halo(("hose", "water"), (float(np.log(0.2)), float(np.log(0.6))), (True, False)),
        "camera lens": Halo(("zoom",), (-1.0,), (False,)),
    }
    outcomes = run(replace(space, head=Head(halos)))
    found = {figure.name: figure for figure in read_figures(outcomes)}
    assert found["lexical_drift"].value == pytest.approx(1 / 3)
    assert found["lexical_drift"].count == 3  # the empty halo says nothing
    assert found["halo_echo"].value == pytest.approx((0.75 + 0.25 + 0) / 3)
    drifting = [named for named in read_named(outcomes) if named.figure == "lexical_drift"]
    assert [(named.text, named.note) for named in drifting] == [("lens", "halo: (lens) photo")]
    table = outcomes.details["halos"]
    assert list(table["token"]) == ["lens", "photo", "hose", "water", "zoom"]
    assert table["echo"].tolist() == [True, False, True, False, False]


def test_an_entity_of_unknown_sub_words_is_not_counted_as_different(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    halo = Halo(("##", "##photo"), (-0.5, -1.0), (False, False))
    monkeypatch.setattr(Table, "pieces", lambda self, words: [[None] if word == "lens" else [word] for word in words])
    outcomes = run(replace(space, head=Head({"lens": halo, "hose": halo})))
    found = {figure.name: figure for figure in read_figures(outcomes)}
    assert found["lexical_drift"].count == 1
    assert any(named.note == "halo: photo" for named in read_named(outcomes))  # no marks, and no mark alone


def test_without_a_head_halos_are_unknown(space: Space) -> None:
    found = measure(space)
    assert found["lexical_drift"].value is None
    assert "`mlm_head`" in (found["lexical_drift"].reason or "")
    assert "lexical_drift" not in run(space).columns


def test_the_graph_has_an_edge_to_every_neighbour_and_between_any_two(space: Space) -> None:
    edges = run(space, KnowledgeOptions(k=3)).details["edges"]
    assert len(edges["cosine"]) == len(space.entities) * (3 + 3)
    first = edges["example"] == 0
    assert (edges["source"][first] == "").sum() == 3
    place = {id: row for row, id in enumerate(space.corpus.ids)}
    for source, target, cosine in zip(*(edges[key][first] for key in ("source", "target", "cosine")), strict=True):
        one = space.corpus.vectors[place[source]] if source else Table().encode(["lens"])[0]
        other = space.corpus.vectors[place[target]]
        assert cosine == pytest.approx(float(one @ other / np.linalg.norm(one) / np.linalg.norm(other)), abs=1e-5)
    texts = dict(zip(space.corpus.ids, space.corpus.texts, strict=True))
    ends = zip(edges["source"], edges["target"], strict=True)
    assert edges["text"].tolist() == ["" if source else texts[target][:60] for source, target in ends]


def test_the_graph_of_a_large_k_holds_the_nearest(space: Space) -> None:
    edges = run(space, KnowledgeOptions(k=100)).details["edges"]
    assert len(edges["cosine"]) == len(space.entities) * (20 + 20 * 19 // 2)


def test_the_effect_of_fragmentation_is_a_difference_of_means() -> None:
    relative = np.array([0.9, 0.7, 0.2, 0.4, 0.6, np.nan])
    sizes = [(1, 1), (2, 2), (1, 3), (1, 2), (1, 4), (1, 1)]
    found = knowledge.fragmentation_effect(relative, sizes)
    assert found is not None
    assert np.nanmean(found) == pytest.approx(0.8 - 0.4)
    assert np.isnan(found[5])
    assert knowledge.fragmentation_effect(relative, [(1, 1)] * 6) is None
    assert knowledge.fragmentation_effect(relative, None) is None


@pytest.mark.parametrize(
    ("entity", "reason"),
    [
        ("lens", "the tokenizer has all 1 entities whole, with none to compare with: name some that it sp"),
        ("coffeelens", "the tokenizer splits all 1 entities, with none to compare with: name some that it has"),
    ],
)
def test_entities_of_one_kind_have_no_effect_and_say_why(space: Space, entity: str, reason: str) -> None:
    outcomes = run(replace(space, entities=[entity]))
    effect = {figure.name: figure for figure in read_figures(outcomes)}["fragmentation_effect"]
    assert effect.value is None
    assert (effect.reason or "").startswith(reason)


def test_its_error_is_that_of_a_difference_of_means() -> None:
    rng = np.random.default_rng(0)
    split = rng.random(400) < 0.3
    relative = rng.normal(0.5, 0.1, 400) - 0.2 * split
    found = knowledge.fragmentation_effect(relative, [(1, 2 if s else 1) for s in split])
    assert found is not None
    expected = np.sqrt(relative[split].var(ddof=1) / split.sum() + relative[~split].var(ddof=1) / (~split).sum())
    assert found.std(ddof=1) / np.sqrt(400) == pytest.approx(expected, rel=0.01)


class TestMining:
    TEXTS = ("Zalman cooler 12V", "Zalman fan", "Photographic paper", "photographic film", "the the", "the BX500-20")

    def test_rare_words_the_longest_first(self) -> None:
        assert words.rare_words([*self.TEXTS, *["the"] * 40], most=4) == ("Photographic", "Zalman")

    def test_as_many_as_requested(self, space: Space) -> None:
        lines = [
            f"the {name} of item {i}" for i in range(4) for name in ("Alphacom", "Betatron", "Gammafox") for _ in "ab"
        ]
        vectors = np.random.default_rng(0).standard_normal((len(lines), 16)).astype(np.float32)
        bare = Space(Texts(tuple(map(str, range(len(lines)))), lines, vectors))
        assert len(run(bare, KnowledgeOptions(mined=2)).ids) == 2

    def test_nothing_to_mine_is_said(self, space: Space) -> None:
        bare = Texts(("a", "b", "c"), ["x", "y", "z"], np.eye(3, 16, dtype=np.float32))
        with pytest.raises(RequestError, match="`entities`"):
            run(Space(bare))

    def test_sub_words_of_all_words_of_an_entity(self) -> None:
        assert words.count_pieces(Table(), ["coffee grinders", "mug"]) == [(2, 9), (1, 1)]  # type: ignore[arg-type]
        assert words.count_pieces(None, ["mug"]) is None


class TestEdges:
    def test_an_entity_without_a_vector_is_unknown_and_shown(self, space: Space) -> None:
        outcomes = run(replace(space, entities=("lens", "")))
        assert outcomes.counts["entities_without_vector"] == 1
        assert np.isnan(outcomes.columns["entity_coherence"][1])
        figures = {figure.name: figure for figure in read_figures(outcomes)}
        assert (figures["entity_coherence"].count, figures["unknown_entities"].value) == (1, 0.5)
        assert figures["grounded_entities"].count == 2
        assert figures["unknown_entities"].warning is not None
        assert outcomes.details["entities"]["level"].tolist()[1] == "unknown"
        first = read_named(outcomes)[0]
        assert (first.figure, first.note.partition(";")[0]) == (
            "unknown_entities",
            "given: the model gives it no vector",
        )

    def test_no_vector_at_all_leaves_the_coherence_unknown(self, space: Space) -> None:
        figures = {figure.name: figure for figure in read_figures(run(replace(space, entities=("",))))}
        assert figures["unknown_entities"].value == 1
        assert figures["entity_coherence"].reason == "the model gives no entity a vector"

    def test_one_neighbour_has_no_coherence(self, space: Space) -> None:
        with pytest.raises(RequestError, match="at least 2"):
            run(space, KnowledgeOptions(k=1))

    def test_one_entity_has_no_interval(self, space: Space) -> None:
        found = measure(replace(space, entities=("lens",)))["entity_coherence"]
        assert found.value is not None
        assert found.interval is None

    def test_fewer_documents_than_neighbours(self, space: Space) -> None:
        few = Texts(space.corpus.ids[:3], space.corpus.texts[:3], space.corpus.vectors[:3])
        outcomes = run(replace(space, corpus=few))
        assert outcomes.counts["neighbours"] == 3
        assert np.isnan(outcomes.details["entities"]["z"]).all()  # there is one set of three only

    def test_stored_vectors_cannot_answer(self, space: Space) -> None:
        with pytest.raises(RequestError, match="already computed"):
            knowledge.run(None, space, OPTIONS, SILENT)

    def test_the_same_entity_twice_is_asked_once(self, space: Space) -> None:
        assert len(run(replace(space, entities=("lens", "lens"))).ids) == 1

    def test_wrong_options_are_refused(self) -> None:
        with pytest.raises(RequestError, match="`halo`"):
            KnowledgeOptions(halo=0)


def test_a_static_model_on_a_real_corpus(data: Callable[[str], Path], model: Callable[[str], Path]) -> None:
    from calipers.data import DataOptions, beir

    potion = models.load(models.find(f"static:{model('potion-base-4m-int8')}"), ModelOptions(), "encode")
    corpus = beir.load(str(data("icecat")), DataOptions(shuffle=False)).tables["corpus"].take(range(2000))
    texts = Texts(corpus.ids, corpus.columns["text"], potion.encode(corpus.columns["text"]))  # type: ignore[attr-defined]
    outcomes = run(Space(texts), model=potion)
    assert len(outcomes.ids) == 50
    assert 0.2 < outcomes.columns["entity_coherence"].mean() < 0.9
    drift = next(figure for figure in read_figures(outcomes) if figure.name == "lexical_drift")
    assert "PyTorch" in (drift.reason or "")
    assert "mlm_head" not in (drift.reason or "")  # it cannot be used with a static model
    kinds = outcomes.details["entities"]["kind"].tolist()
    assert set(kinds) == {"brand", "name", "code"}
    assert np.nanmin(outcomes.columns["entity_mentions"]) >= 0


def test_mentions_are_of_as_many_results_as_there_are_documents_that_mention_it(space: Space) -> None:
    """Three documents mention a: of the first three results the share that does, not of ten."""
    texts = ["aa one", "aa two", "bb", "aa three", *(f"cc {i}" for i in range(20))]
    turns = np.linspace(0.0, 1.5, len(texts))
    corpus = Texts(tuple(map(str, range(len(texts)))), texts, np.stack([np.cos(turns), np.sin(turns)], axis=1))

    class First(Table):
        def encode(self, texts: Sequence[str], **_: object) -> NDArray[np.float32]:
            return np.tile(np.array([1.0, 0.0], np.float32), (len(texts), 1))

    outcomes = run(Space(corpus, entities=("aa", "CC", "zz", "a")), model=First())
    np.testing.assert_allclose(outcomes.columns["entity_mentions"], [2 / 3, 6 / 10, np.nan, np.nan])
    assert outcomes.details["entities"]["mentioning"].tolist() == [3, 10, 0, 0]


def test_the_methods_levels_stand_beside_those_of_the_corpus(space: Space) -> None:
    outcomes = run(space)
    coherence = outcomes.columns["entity_coherence"]
    figures = {figure.name: figure.value for figure in read_figures(outcomes)}
    assert figures["entities_above_0.7"] == (coherence > 0.7).mean()
    assert figures["entities_below_0.3"] == (coherence < 0.3).mean()
    assert any("(above 0.7)" in named.note for named in read_named(outcomes))
