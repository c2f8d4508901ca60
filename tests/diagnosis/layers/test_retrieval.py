"""The retrieval layer on small spaces: hand-made results, and the figures of the retrieval task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calipers.core import SILENT, Dataset, DataSource, Figure, Outcomes, RequestError, read_figures, read_named
from calipers.diagnosis.layers import GroupVectors, Space, Texts, retrieval
from calipers.diagnosis.layers.edits import EDITS
from calipers.diagnosis.layers.retrieval import RankingOptions, kinds
from calipers.metrics.codecs import CODECS
from calipers.metrics.indexes import INDEXES
from calipers.runs import embedding
from calipers.shop import sample as shop
from calipers.tasks import retrieval as task
from tests.support.diagnoses import Letters, space_of


def space(documents: dict[str, str], queries: dict[str, tuple[str, dict[str, float]]]) -> tuple[Space, Dataset]:
    """A space of Letters, searched."""
    corpus = Dataset(tuple(documents), {"text": list(documents.values())}, DataSource("here"), "")
    columns = {"query": [q for q, _ in queries.values()], "qrels": [g for _, g in queries.values()]}
    dataset = Dataset(tuple(queries), columns, DataSource("here"), "", {"corpus": corpus})
    model = Letters()
    made = space_of(dataset, model.encode(list(documents.values())), model.encode(columns["query"]))
    asking = embedding.SearchOptions(depth=100)
    material = embedding.Material(dataset, None, (), None, (), False)
    return embedding.search(made, model.info, material, asking, SILENT), dataset


def figures(outcomes: Outcomes) -> dict[str, Figure]:
    return {figure.name: figure for figure in read_figures(outcomes)}


DOCUMENTS = {"a": "aaaa", "ab": "aabb", "b": "bbbb", "c": "cccc", "cd": "cccd"}


def test_zero_recall_and_reversals_by_hand() -> None:
    made, _ = space(DOCUMENTS, {"q1": ("a", {"a": 1, "ab": 3}), "q2": ("c", {"b": 2}), "q3": ("b", {})})
    outcomes = retrieval.run(Letters(), made, RankingOptions(k=2), SILENT)
    found = figures(outcomes)
    assert found["zero_recall"].value == 0.5  # q2 misses, q3 has nothing to find and does not count
    assert (found["zero_recall"].count, found["zero_recall@100"].value) == (2, 0.0)
    assert found["grade_reversal"].value == 1.0  # a (grade 1) above ab (grade 3)
    named = {(n.figure, n.id): n.note for n in read_named(outcomes)}
    assert "of 1 that are relevant" in named["zero_recall", "q2"]
    assert "grade 1, at 1, stands above" in named["grade_reversal", "q1"]


def test_an_accessory_above_a_product_is_named_with_esci_grades() -> None:
    made, _ = space(DOCUMENTS, {"q1": ("a", {"a": 1, "ab": 3})})
    outcomes = retrieval.run(Letters(), made, RankingOptions(k=3, grades="esci"), SILENT)
    assert figures(outcomes)["rank_reversal"].value == 1
    (named,) = [n for n in read_named(outcomes) if n.figure == "rank_reversal"]
    assert "complement, at 1" in named.note
    assert "exact, at 2" in named.note
    plain = figures(retrieval.run(Letters(), made, RankingOptions(k=3), SILENT))
    assert plain["rank_reversal"].value is None
    assert "accessories" in str(plain["rank_reversal"].reason)


def test_edits_reach_the_model_and_case_matters_to_this_one() -> None:
    made, _ = space(DOCUMENTS, {"q1": ("bbba", {"b": 1}), "q2": ("cd", {"c": 1})})
    outcomes = retrieval.run(Letters(), made, RankingOptions(k=2), SILENT)
    found = figures(outcomes)
    assert found["robustness/spacing"].value == 1.0
    assert (found["robustness/case"].value or 0.0) < 0.5  # upper-case letters are other letters
    assert found["robustness/width"].value == 0.0  # no letter that it knows: no vector, nothing found
    assert found["robustness/case"].warning
    assert found["robustness/typo"].count == 1  # cd is too short for a slip
    each = np.stack([outcomes.columns[f"robustness/{kind}"] for kind in ("case", "spacing", "width", "typo")])
    assert found["robustness"].value == pytest.approx(np.mean([each[:, 0].mean(), each[:3, 1].mean()]))


def test_robustness_of_some_queries_is_told_as_a_sample() -> None:
    made, _ = space(DOCUMENTS, {"q1": ("aaab", {"a": 1}), "q2": ("cd", {"c": 1})})
    found = figures(retrieval.run(Letters(), made, RankingOptions(k=2, texts=1), SILENT))
    assert (found["robustness"].exact, found["robustness"].count, found["ndcg@2"].exact) == (False, 1, True)


def test_vectors_in_hand_have_no_robustness_and_say_why() -> None:
    made, _ = space(DOCUMENTS, {"q1": ("a", {"a": 1})})
    found = figures(retrieval.run(None, made, RankingOptions(k=2), SILENT))
    assert found["robustness"].value is None
    assert "already computed" in (found["robustness"].reason or "")


def test_paraphrases_are_compared_two_by_two() -> None:
    made, _ = space(DOCUMENTS, {"q1": ("a", {"a": 1})})
    texts = ["aaab", "aaba", "c", "cd"]
    groups = GroupVectors(("g", "h"), Texts(tuple("1234"), texts, Letters().encode(texts)), np.array([0, 0, 1, 1]))
    outcomes = retrieval.run(Letters(), replace(made, paraphrases=groups), RankingOptions(k=1), SILENT)
    found = figures(outcomes)["robustness/paraphrases"]
    assert (found.value, found.count, found.unit) == (0.5, 2, "group")
    assert outcomes.ids == ("q1", "g/group", "h/group")


def test_the_baseline_has_other_results() -> None:
    made, _ = space(DOCUMENTS, {"q1": ("a", {"a": 1}), "q2": ("c", {"c": 1})})
    other = np.array([[0, 1], [0, 1]])  # the same for q1, others for q2
    found = figures(retrieval.run(None, replace(made, reference=other), RankingOptions(k=2), SILENT))
    assert (found["jaccard@2"].value, found["churn"].value) == (0.5, 0.5)


@pytest.mark.parametrize("k", [10, 3])
def test_quality_is_that_of_the_retrieval_task(k: int) -> None:
    dataset = shop.load()
    texts, model = dataset.tables["corpus"].columns["text"], Letters()
    vectors = model.encode(texts) + 1e-3
    made = space_of(dataset, vectors, model.encode(dataset.columns["query"]) + 1e-3)
    material = embedding.Material(dataset, None, (), None, (), True)
    made = embedding.search(made, model.info, material, embedding.SearchOptions(), SILENT)
    found = retrieval.run(None, made, RankingOptions(k=k, grades="esci"), SILENT)
    assert made.searched is not None
    for name in ("map@100", "recall@100") + (("ndcg@10", "mrr@10", "recall@10") if k == 10 else ()):
        assert np.array_equal(found.columns[name], made.searched.columns[name])
    hits = task.rank(
        task.search(_Found(made), dataset, task.RetrievalOptions(), SILENT, task.read_judgements(dataset).wanted)[0],
        task.read_judgements(dataset),
        task.RetrievalOptions(),
        dataset,
    )
    assert np.allclose(found.columns[f"ndcg@{k}"], task.ranking.ndcg(hits, k))
    assert k < 10 or figures(found)["rank_reversal"].count > 0


class _Found:
    """The first stage of a searched space as a ranker."""

    info = Letters.info

    def __init__(self, made: Space) -> None:
        self.made = made

    def rank(self, queries: Any, corpus: Any, k: int, **options: Any) -> Any:
        return embedding.SpaceSearch(self.made, self.info).rank(queries, corpus, k, **options)


def test_every_figure_has_a_meaning_and_one_direction() -> None:
    for name, kind in kinds(RankingOptions(grades="esci")).items():
        assert kind.meaning.endswith("."), name
        assert (kind.level_text is None) == (not kind.advice), name
    settings = {name.partition("/")[2] for name in kinds(RankingOptions()) if name.startswith("jaccard")} - {""}
    assert settings <= {*CODECS, *INDEXES}
    edited = {name.partition("/")[2] for name in kinds(RankingOptions()) if name.startswith("robustness/")}
    assert edited == {*EDITS, "paraphrases"}


def test_a_space_without_queries_or_results_is_refused() -> None:
    made, _ = space(DOCUMENTS, {"q1": ("a", {"a": 1})})
    with pytest.raises(RequestError, match="`queries`"):
        retrieval.run(None, replace(made, queries=None), RankingOptions(), SILENT)
    with pytest.raises(RequestError, match="searched"):
        retrieval.run(None, replace(made, searched=None), RankingOptions(), SILENT)
