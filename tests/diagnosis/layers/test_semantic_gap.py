"""The semantic gap: by hand, against plain loops, and on models that are made to have each fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from calipers import models
from calipers.core import SILENT, Figure, InvalidOutput, Outcomes, RequestError, read_figures, read_named
from calipers.data import DataOptions, beir
from calipers.diagnosis.layers import LAYERS, Space, Texts, semantic_gap, words
from calipers.diagnosis.layers.semantic_gap import SemanticGapOptions
from calipers.shop import sample as shop
from tests.support.references import by_residuals, plain_jaccard, plain_set

OPTIONS = SemanticGapOptions()


def make_space(vectors: Callable[[list[str]], NDArray[np.float32]], *, queries: int = 40, products: int = 300) -> Space:
    """The sample shop under an encoder that is a plain function."""
    made = shop.make(products=products, queries=queries)
    texts = [f"{p.row['title']} {p.row['description']}" for p in made.products]
    asked = [query.text for query in made.queries]
    both = vectors([*texts, *asked])
    return Space(
        Texts(tuple(p.id for p in made.products), texts, both[: len(texts)]),
        Texts(tuple(q.id for q in made.queries), asked, both[len(texts) :]),
        made.qrels,
    )


def bag_of_bigrams(texts: list[str]) -> NDArray[np.float32]:
    """The plainest text search in the form of vectors."""
    sets = [plain_set(text) for text in texts]
    place = {gram: i for i, gram in enumerate(sorted(set().union(*sets)))}
    table = np.zeros((len(texts), len(place)), np.float32)
    for row, grams in enumerate(sets):
        table[row, [place[gram] for gram in grams]] = 1.0
    return table


def noise(texts: list[str]) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((len(texts), 24)).astype(np.float32)


@pytest.fixture(scope="module")
def noisy() -> Space:
    return make_space(noise)


@pytest.fixture(scope="module")
def of_noise(noisy: Space) -> Outcomes:
    return run(noisy)


def run(space: Space, options: SemanticGapOptions = OPTIONS) -> Outcomes:
    return semantic_gap.run(None, space, options, SILENT)


def measure(space: Space, options: SemanticGapOptions = OPTIONS) -> dict[str, Figure]:
    return {figure.name: figure for figure in read_figures(run(space, options))}


def small(grades: list[dict[str, float]] | None = None) -> Space:
    documents = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], np.float32)
    return Space(
        Texts(("d0", "d1", "d2"), ["red mug", "blue mug", "tea"], documents),
        Texts(("q0", "q1"), ["red", "tea"], np.array([[2.0, 0.0], [0.0, 3.0]], np.float32)),
        grades if grades is not None else [{"d0": 3, "d1": 0, "gone": 3}, {"d2": 2, "d0": 0}],
    )


def test_the_gap_by_hand() -> None:
    outcomes = run(small())
    pairs = outcomes.details["pairs"]
    # red in "red mug": {re, ed} of {re, ed, d␣, ␣m, mu, ug}; "blue mug" shares nothing with it
    np.testing.assert_allclose(pairs["overlap"], [2 / 6, 0.0, 1.0, 0.0])
    np.testing.assert_allclose(pairs["cosine"], [1.0, 0.0, 0.5**0.5, 0.0], atol=1e-7)
    found = {figure.name: figure for figure in read_figures(outcomes)}["semantic_gap"]
    assert found.value == pytest.approx((4 / 6 + 0 + (1 - 0.5**0.5) + 0) / 4, abs=1e-6)
    assert (found.count, found.unit) == (4, "pair")
    assert outcomes.ids == ("q0/query", "q1/query")
    assert list(pairs["document"]) == ["d0", "d1", "d2", "d0"]


def test_every_figure_equals_a_plain_loop(noisy: Space, of_noise: Outcomes) -> None:
    space = noisy
    assert space.queries
    place = {id: row for row, id in enumerate(space.corpus.ids)}
    rows = [(q, place[id], grade) for q, grades in enumerate(space.qrels) for id, grade in grades.items()]
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (space.queries.vectors, space.corpus.vectors)]
    cosine = np.array([float(unit[0][q] @ unit[1][d]) for q, d, _ in rows])
    texts = [(space.queries.texts[q], space.corpus.texts[d]) for q, d, _ in rows]
    overlap = np.array([plain_jaccard(*pair) for pair in texts])
    held = np.array([len(plain_set(a) & plain_set(b)) / len(plain_set(a)) for a, b in texts])
    grade = np.array([g for *_, g in rows])
    found = {figure.name: figure for figure in read_figures(of_noise)}
    assert found["semantic_gap"].value == pytest.approx(np.abs(overlap - cosine).mean(), abs=1e-6)
    assert found["lexical_correlation"].value == pytest.approx(spearmanr(cosine, overlap).statistic, abs=1e-6)
    assert found["relevance_correlation"].value == pytest.approx(spearmanr(cosine, grade).statistic, abs=1e-6)
    assert found["meaning_correlation"].value == pytest.approx(by_residuals(cosine, grade, overlap), abs=1e-6)
    assert found["beyond_lexical"].value == pytest.approx(by_residuals(cosine, grade, overlap, held), abs=1e-6)
    table = of_noise.details["pairs"]
    false, near = table["without_overlap"] & (grade < 1), cosine >= np.median(cosine[grade >= 1]) - 1e-9
    assert found["hallucination_rate"].value == pytest.approx(near[false].mean())
    assert found["hallucination_excess"].value == pytest.approx(near[false].mean() - near.mean())


def test_metrics_are_the_figures_and_intervals_hold_them(of_noise: Outcomes) -> None:
    outcomes = of_noise
    figures = {figure.name: figure for figure in read_figures(outcomes)}
    for metric in LAYERS["semantic_gap"].measures(OPTIONS):
        figure = figures[metric.name]
        assert figure.value is not None
        assert figure.interval is not None
        assert figure.interval[0] <= figure.value <= figure.interval[1]
        assert metric.value(outcomes.columns) == pytest.approx(figure.value, abs=1e-9)
        assert figure.meaning.endswith(".")


def test_the_spread_of_contributions_is_the_error_of_the_bootstrap(of_noise: Outcomes) -> None:
    outcomes = of_noise
    for figure in read_figures(outcomes):
        values = outcomes.columns[figure.name]
        assert figure.interval is not None
        by_jackknife = values.std(ddof=1) / np.sqrt(len(values))
        assert by_jackknife == pytest.approx((figure.interval[1] - figure.interval[0]) / 3.92, rel=0.25)


def test_a_bag_of_bigrams_is_named_vectorised_grep() -> None:
    outcomes = run(make_space(bag_of_bigrams))
    assert any(note.startswith("vectorised grep") for note in outcomes.notes)
    matched = [named for named in read_named(outcomes) if named.figure == "lexical_correlation"]
    assert matched
    assert all("letters, not meaning" in named.note for named in matched)


def test_a_bag_of_bigrams_of_title_and_text_is_named_where_overlap_is_with_the_title() -> None:
    """Its letters in the text must not pass for meaning."""
    space = make_space(bag_of_bigrams)
    titles = [str(product.row["title"]) for product in shop.make(products=300, queries=40).products]
    space = replace(space, corpus=replace(space.corpus, title_lengths=np.array([len(title) for title in titles])))
    assert space.corpus.title(7) == titles[7] != space.corpus.texts[7]
    outcomes = run(space)
    assert any(note.startswith("vectorised grep") for note in outcomes.notes)
    judged = semantic_gap.judge(space, OPTIONS)
    assert judged
    pairs = zip(judged.query[:50].tolist(), judged.document[:50].tolist(), strict=True)
    assert space.queries
    plain = [plain_jaccard(space.queries.texts[q], titles[d]) for q, d in pairs]
    np.testing.assert_allclose(judged.overlap[:50], plain)


def test_the_overlap_itself_as_cosine_is_named_too(noisy: Space) -> None:
    """In the very order of the overlap nothing is left for a partial correlation, which is unknown and says why."""
    judged = semantic_gap.judge(noisy, OPTIONS)
    assert judged
    figures, _ = semantic_gap.measure(replace(judged, cosine=judged.overlap), OPTIONS)
    found = {figure.name: figure for figure in figures}
    assert found["lexical_correlation"].value == pytest.approx(1.0)
    assert "very order" in (found["lexical_correlation"].warning or "")
    assert found["meaning_correlation"].value is None
    assert "nothing is left" in (found["meaning_correlation"].reason or "")


def test_a_model_that_draws_strangers_near_is_named(noisy: Space) -> None:
    """Irrelevant documents that share no letters are put where the query is."""
    judged = semantic_gap.judge(noisy, OPTIONS)
    assert judged
    strange = judged.alone & ~judged.relevant
    raised = replace(judged, near=np.where(strange, judged.group % 5 > 0, judged.near))
    figures, _ = semantic_gap.measure(raised, OPTIONS)
    warnings = [figure.warning for figure in figures if figure.warning]
    assert len(warnings) == 1
    assert warnings[0].startswith("semantic hallucination")


def test_noise_is_neither(of_noise: Outcomes) -> None:
    assert of_noise.notes == ()


def test_relevance_itself_as_vectors_is_neither() -> None:
    made = shop.make(products=300, queries=40)
    kinds = np.array([*(p.kind for p in made.products), *(q.kind for q in made.queries)])
    outcomes = run(make_space(lambda _: np.eye(kinds.max() + 1, dtype=np.float32)[kinds] + 0.01))
    assert outcomes.notes == ()
    found = {figure.name: figure.value for figure in read_figures(outcomes)}
    assert (found["beyond_lexical"] or 0) > 0.3


@pytest.mark.parametrize("grades", [[], [{}, {}], [{"gone": 3}, {}]])
def test_without_judged_pairs_the_layer_says_what_it_needs(grades: list[dict[str, float]]) -> None:
    with pytest.raises(RequestError, match="judged pairs"):
        run(small(grades))
    with pytest.raises(RequestError, match="`queries`"):
        run(replace(small(), queries=None))


def titled() -> Space:
    space = small()
    return replace(space, corpus=replace(space.corpus, title_lengths=np.array([3, 4, 0])))


def test_overlap_is_with_the_title_and_with_the_text_on_request() -> None:
    """The titles are "red" and "blue"; "tea" has none and is compared as it is."""
    np.testing.assert_allclose(run(titled()).details["pairs"]["overlap"], [1.0, 0.0, 1.0, 0.0])
    whole = run(titled(), SemanticGapOptions(overlap_with="title+text"))
    np.testing.assert_allclose(whole.details["pairs"]["overlap"], [2 / 6, 0.0, 1.0, 0.0])
    with pytest.raises(RequestError, match="`overlap_with` must be one of"):
        SemanticGapOptions(overlap_with="description")


def retrieved() -> Space:
    """Nothing is judged: q0 finds d0 and d2, q1 finds d1 and d2; each at 1 and 2, d1 and d0 at 3."""
    found = {
        "example": np.array([0, 0, 0, 1, 1, 1]),
        "rank": np.array([2, 1, 3, 1, 2, 3]),
        "document": np.array(["d2", "d0", "d1", "d1", "d2", "d0"], dtype=object),
    }
    return replace(small([{}, {}]), searched=Outcomes(("q0", "q1"), {}, details={"results": found}))


def test_without_judgements_every_retrieved_result_has_a_gap() -> None:
    outcomes = run(retrieved(), SemanticGapOptions(k=2))
    pairs = outcomes.details["pairs"]
    assert list(zip(pairs["example"].tolist(), pairs["document"].tolist(), strict=True)) == [
        (0, "d0"),
        (0, "d2"),
        (1, "d1"),
        (1, "d2"),
    ]
    overlap, cosine = [2 / 6, 0.0, 0.0, 1.0], [1.0, 0.5**0.5, 1.0, 0.5**0.5]
    np.testing.assert_allclose(pairs["gap"], np.abs(np.subtract(overlap, cosine)), atol=1e-7)
    figures = {figure.name: figure for figure in read_figures(outcomes)}
    assert figures["semantic_gap"].value == pytest.approx(np.mean(pairs["gap"]))
    assert (figures["semantic_gap"].count, figures["semantic_gap"].unit) == (4, "result")
    assert figures["lexical_correlation"].value is not None
    for name in ("relevance_correlation", "beyond_lexical", "hallucination_excess"):
        assert "`qrels`" in (figures[name].reason or "")
    notes = [named.note for named in read_named(outcomes)]
    assert any(note.startswith("by association") for note in notes)
    assert not any("grade" in note for note in notes)


@pytest.mark.parametrize(("cosine", "warns"), [("overlap", "below 0.1"), ("one", "above 0.7"), ("noise", None)])
def test_the_level_of_the_gap(noisy: Space, cosine: str, warns: str | None) -> None:
    judged = semantic_gap.judge(noisy, OPTIONS)
    assert judged
    values = {"overlap": judged.overlap + 0.05, "one": np.ones(len(judged.query)), "noise": judged.cosine}
    figures, _ = semantic_gap.measure(replace(judged, cosine=values[cosine]), OPTIONS)
    assert (warns in (figures[0].warning or "")) if warns else figures[0].warning is None
    assert figures[0].level == "below 0.1 or above 0.7, with its interval"


def test_judgements_of_one_grade_leave_relevance_unknown() -> None:
    found = measure(small([{"d0": 3, "d1": 3}, {"d2": 3}]))
    assert found["semantic_gap"].value is not None
    assert "irrelevant documents are needed" in (found["meaning_correlation"].reason or "")
    assert "irrelevant" in (found["hallucination_rate"].reason or "")
    nothing = measure(small([{"d0": 0, "d1": 0}, {"d2": 0}]))
    assert "no cosine can be called close" in (nothing["hallucination_rate"].reason or "")


def test_one_query_has_no_interval() -> None:
    found = measure(small([{"d0": 3, "d1": 0, "d2": 0}, {}]))
    assert found["semantic_gap"].value is not None
    assert found["semantic_gap"].interval is None


def test_a_query_without_a_bigram_is_left_out() -> None:
    space = small()
    assert space.queries
    outcomes = run(replace(space, queries=replace(space.queries, texts=["r", "tea"])))
    assert outcomes.ids == ("q1/query",)


def test_many_pairs_are_sampled_by_query_and_say_so(noisy: Space, of_noise: Outcomes) -> None:
    outcomes = run(noisy, SemanticGapOptions(most_pairs=200))
    assert 0 < len(outcomes.details["pairs"]["grade"]) <= 200
    assert not read_figures(outcomes)[0].exact
    assert read_figures(of_noise)[0].exact
    assert len(run(noisy, SemanticGapOptions(most_pairs=1)).ids) == 1


def test_dead_vectors_and_wrong_options_are_refused() -> None:
    space = small()
    with pytest.raises(InvalidOutput, match="d1"):
        run(replace(space, corpus=replace(space.corpus, vectors=np.diag([1.0, 0.0, 1.0]).astype(np.float32)[:, :2])))
    with pytest.raises(RequestError, match="`relevant_from`"):
        SemanticGapOptions(relevant_from=0)
    with pytest.raises(RequestError, match="`most_pairs`"):
        SemanticGapOptions(most_pairs=0)


def test_potion_on_icecat_knows_more_than_letters(data: Callable[[str], Path], model: Callable[[str], Path]) -> None:
    from calipers import models
    from calipers.models import ModelOptions

    dataset = beir.load(str(data("icecat")), DataOptions(shuffle=False))
    judged = {id for grades in dataset.columns["qrels"] for id in grades}
    corpus = dataset.tables["corpus"]
    corpus = corpus.take([i for i, id in enumerate(corpus.ids) if id in judged])
    potion = models.load(models.find(f"static:{model('potion-base-4m-int8')}"), ModelOptions(), "encode")
    texts = Texts(corpus.ids, corpus.columns["text"], potion.encode(corpus.columns["text"]))  # type: ignore[attr-defined]
    asked = Texts(dataset.ids, dataset.columns["query"], potion.encode(dataset.columns["query"]))  # type: ignore[attr-defined]
    outcomes = run(Space(texts, asked, dataset.columns["qrels"]))
    found = {figure.name: figure for figure in read_figures(outcomes)}
    assert outcomes.notes == ()
    assert found["semantic_gap"].count == 3668
    assert found["lexical_correlation"].value == pytest.approx(0.666, abs=0.002)
    assert found["meaning_correlation"].value == pytest.approx(0.365, abs=0.002)


def test_pairs_that_are_named_as_meant_share_no_sub_word(
    model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the bilingual sample shop: neither a sub-word nor the unknown one, which all ten pairs once did."""
    source = models.find(f"static:{model('potion-base-4m-int8')}")
    encoder: Any = models.load(source, models.ModelOptions(), "encode")
    monkeypatch.setattr(semantic_gap, "_RESAMPLES", 10)
    space = make_space(encoder.encode, queries=100, products=800)
    assert space.queries is not None
    for which in (None, encoder):
        outcomes = semantic_gap.run(which, space, OPTIONS, SILENT)
        pairs = [named.id.split(" / ") for named in read_named(outcomes) if named.figure != "lexical_correlation"]
        queries = dict(zip(space.queries.ids, space.queries.texts, strict=True))
        documents = dict(zip(space.corpus.ids, space.corpus.texts, strict=True))
        shared = [
            not set.isdisjoint(*map(set, words.piece_sets(encoder, [queries[query], documents[document]])))
            for query, document in pairs
        ]
        assert any(shared) == (which is None)  # without the model only letters are compared


def test_a_pair_is_named_as_meant_only_where_it_is_closer_than_chance() -> None:
    """All texts are close to q0, so its cosine of 0.94 says nothing; q1 and q2 are one text and near one document."""
    around = np.tile([[1.0, 0.3, 0.0]], (30, 1)) + np.random.default_rng(0).normal(0, 0.02, (30, 3))
    texts = [f"thing {i}" for i in range(30)]
    documents = np.array([*around, [0.0, 0.0, 1.0]], np.float32)
    asked = np.array([[1.0, 0.0, 0.0], [0.0, 0.1, 1.0], [0.0, 0.1, 1.0]], np.float32)
    space = Space(
        Texts(tuple(f"d{i}" for i in range(31)), [*texts, "umbrella"], documents),
        Texts(("q0", "q1", "q2"), ["xyzzy", "傘 です", "傘 です"], asked),
        [{"d0": 3.0, "d30": 0.0}, {"d30": 3.0, "d0": 0.0}, {"d30": 3.0, "d0": 0.0}],
    )
    meant = [named.id for named in read_named(run(space)) if named.figure == "meaning_correlation"]
    assert meant == ["q1 / d30"]


def test_quarters_of_overlap_and_cosine_by_a_plain_loop(noisy: Space, of_noise: Outcomes) -> None:
    pairs, quarters = of_noise.details["pairs"], of_noise.details["quadrants"]
    middle, close = np.median(pairs["overlap"]), np.median(pairs["cosine"][pairs["grade"] >= 1])
    counts = dict.fromkeys(quarters["name"].tolist(), 0)
    names = {(False, True): 0, (True, True): 1, (False, False): 2, (True, False): 3}
    for overlap, cosine in zip(pairs["overlap"], pairs["cosine"], strict=True):
        counts[quarters["name"].tolist()[names[bool(overlap > middle), bool(cosine >= close)]]] += 1
    assert list(counts.values()) == quarters["pairs"].tolist()
    apart = (pairs["cosine"] - pairs["overlap"])[(pairs["overlap"] <= middle) & (pairs["cosine"] >= close)]
    assert quarters["cosine"][0] - quarters["overlap"][0] == pytest.approx(apart.max())
    assert noisy.queries is not None
    assert quarters["query"][0] in noisy.queries.texts
