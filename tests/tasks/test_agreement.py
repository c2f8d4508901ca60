"""Agreement of two models without gold labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import entropy, kendalltau

import calipers
from calipers.comparison import api as comparing
from calipers.core import DataError, InferenceError, RequestError
from calipers.metrics import agreement
from tests.support.cross_encoders import tiny
from tests.support.masked_models import make_model
from tests.support.samples import Run, write_jsonl

RNG = np.random.default_rng(0)
TEXTS = [
    f"The {colour} {thing} is new." for colour in ("red", "blue", "old", "tall") for thing in ["boat", "tree", "hat"]
]


def test_drift_is_one_minus_the_cosine() -> None:
    a, b = RNG.normal(size=(2, 20, 5))
    cosine = [x @ y / np.linalg.norm(x) / np.linalg.norm(y) for x, y in zip(a, b, strict=True)]
    assert agreement.cosine_drift(a, b) == pytest.approx(1 - np.array(cosine))
    assert agreement.cosine_drift(a, a * 3) == pytest.approx(np.zeros(20), abs=1e-15)


def test_overlap_is_that_of_a_plain_loop() -> None:
    a, b = RNG.normal(size=(2, 40, 6)).astype(np.float32)
    b = a + 0.5 * b

    def nearest(vectors: np.ndarray, i: int) -> set[int]:
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        order = sorted((j for j in range(len(unit)) if j != i), key=lambda j: -float(unit[i] @ unit[j]))
        return set(order[:7])

    expected = [len(nearest(a, i) & nearest(b, i)) / 7 for i in range(40)]
    assert agreement.neighbour_overlap(a, b, 7) == pytest.approx(expected)
    assert (agreement.neighbour_overlap(a, a, 7) == 1).all()
    with pytest.raises(ValueError, match="at least 9 texts"):
        agreement.neighbour_overlap(a[:8], b[:8], 7)


def test_cka_is_that_of_its_definition_by_centred_kernels() -> None:
    a, b = RNG.normal(size=(30, 4)), RNG.normal(size=(30, 7))
    centre = np.eye(30) - 1 / 30
    k, m = centre @ a @ a.T @ centre, centre @ b @ b.T @ centre
    expected = np.trace(k @ m) / np.sqrt(np.trace(k @ k) * np.trace(m @ m))
    assert agreement.cka(a, b).mean() == pytest.approx(expected)
    turned = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    assert agreement.cka(a, 2 * a @ turned + 5) == pytest.approx(np.ones(30))
    assert np.isnan(agreement.cka(a, np.ones((30, 2)))).all()


def test_the_spread_of_cka_parts_is_that_of_leaving_one_out() -> None:
    a = RNG.normal(size=(300, 4))
    b = a + RNG.normal(size=(300, 4))
    without = [agreement.cka(np.delete(a, i, 0), np.delete(b, i, 0)).mean() for i in range(300)]
    jackknife = np.sqrt(299 / 300 * np.square(without - np.mean(without)).sum())
    assert agreement.cka(a, b).std() / np.sqrt(300) == pytest.approx(jackknife, rel=0.1)


def test_divergence_is_scipys_relative_entropy() -> None:
    p, q = RNG.dirichlet(np.ones(9), size=(2, 5))
    assert agreement.divergence(np.log(p), np.log(q)) == pytest.approx(entropy(p, q, axis=1))


def test_a_model_agrees_with_itself_in_everything(minilm: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join([*TEXTS, TEXTS[0]]) + "\n")
    (found,) = comparing.compare(
        str(minilm), [str(minilm)], protocol=calipers.Protocol(dataset=str(texts)), unlabelled=True
    )
    assert {c.metric: c.candidate for c in found.comparisons} == pytest.approx(
        {"neighbour_overlap@10": 1.0, "cka": 1.0, "cosine_drift": 0.0}
    )
    assert (found.label, found.comparisons[0].examples) == ("PASS", len(TEXTS))


def test_too_few_texts_for_neighbours_are_refused(minilm: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("one\ntwo\ntwo\n")
    with pytest.raises(DataError, match="has 2 distinct texts: expected at least 12"):
        comparing.compare(str(minilm), [str(minilm)], protocol=calipers.Protocol(dataset=str(texts)), unlabelled=True)


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two random BERTs with one tokenizer."""
    folder = tmp_path_factory.mktemp("masked")
    return make_model("bert", folder / "a"), make_model("bert", folder / "b", initializer_range=0.3)


def test_masked_models_are_compared_by_their_whole_distributions(masked: tuple[Path, Path], tmp_path: Path) -> None:
    from calipers import models
    from calipers.core import MaskedTokens

    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS) + "\n")
    asked = calipers.Protocol(task="fill-mask", dataset=str(texts))
    (found,) = comparing.compare(str(masked[0]), [str(masked[1])], protocol=asked, unlabelled=True)
    total, same, tokens = 0.0, 0, 0
    a, b = (models.load(models.find(str(m)), models.ModelOptions(), "fill-mask") for m in masked)
    for text in a.tokenize(TEXTS):  # type: ignore[attr-defined]
        for place in text.scored:
            at = np.array([place], np.int32)
            question = MaskedTokens([text.ids], np.zeros(1, np.int32), at, at + 1)
            p, q = (np.exp(m.distributions(question)[0].astype(np.float64)) for m in (a, b))  # type: ignore[attr-defined]
            total, same, tokens = total + entropy(p, q), same + (p.argmax() == q.argmax()), tokens + 1
    by_name = {c.metric: c.candidate for c in found.comparisons}
    assert by_name["kl"] == pytest.approx(total / tokens, rel=1e-4)
    assert by_name["top1_agreement"] == pytest.approx(same / tokens)


def test_distributions_and_log_probabilities_are_the_same_model(masked: tuple[Path, Path]) -> None:
    from calipers import models
    from calipers.core import MaskedTokens

    model = models.load(models.find(str(masked[0])), models.ModelOptions(), "fill-mask")
    (text,) = model.tokenize([TEXTS[0]])  # type: ignore[attr-defined]
    rows = np.zeros(len(text.scored), np.int32)
    questions = MaskedTokens([text.ids], rows, text.scored, text.scored + 1)
    table = model.distributions(questions)  # type: ignore[attr-defined]
    log_prob, _ = model.log_probs(questions)  # type: ignore[attr-defined]
    assert table[np.arange(len(rows)), text.ids[text.scored]] == pytest.approx(log_prob, abs=1e-5)
    assert np.exp(table).sum(axis=1) == pytest.approx(1, abs=1e-4)


def test_other_tokenizers_are_refused(masked: tuple[Path, Path], tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS) + "\n")
    other = make_model("roberta", tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["pre_tokenizer"] = {"type": "WhitespaceSplit"}  # "new." is one word now, and unknown
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    asked = calipers.Protocol(task="fill-mask", dataset=str(texts))
    with pytest.raises(RequestError, match="into different tokens"):
        comparing.compare(str(masked[0]), [str(other)], protocol=asked, unlabelled=True)


def test_rankers_are_compared_by_order_through_the_command_line(calipers: Run, minilm: Path, tmp_path: Path) -> None:
    from calipers import models

    rows = [{"query": f"a {word}", "documents": TEXTS} for word in ("boat", "tree", "hat")]
    queries = write_jsonl(tmp_path / "queries.jsonl", rows)
    sides = [tiny(tmp_path / name, minilm, 1) for name in ("a", "b")]
    from safetensors.numpy import load_file, save_file

    weights = load_file(sides[1] / "model.safetensors")
    weights["classifier.weight"] = RNG.normal(size=weights["classifier.weight"].shape).astype(np.float32)
    save_file(weights, sides[1] / "model.safetensors", metadata={"format": "pt"})
    done = calipers(
        "compare", *sides, "--unlabelled", "--task", "reranking", "--dataset", queries, "--at-k", "3", "--json"
    )
    import json

    assert done.stdout, done.stderr
    found = {c["metric"]: c["candidate"] for c in json.loads(done.stdout)["comparisons"]}
    scorers = [models.load(models.find(str(side)), models.ModelOptions(), "score") for side in sides]
    taus = []
    for row in rows:
        a, b = (s.score([(str(row["query"]), text) for text in TEXTS]) for s in scorers)  # type: ignore[attr-defined]
        taus.append(kendalltau(a.ravel(), b.ravel()).statistic)
    assert found["kendall"] == pytest.approx(np.mean(taus), abs=1e-6)
    assert 0 <= found["overlap@k"] <= 1


def test_a_dead_candidate_is_invalid_and_a_dead_baseline_an_error(tmp_path: Path) -> None:
    table = np.random.default_rng(1).normal(size=(len(TEXTS), 3)).astype(np.float32)
    for name in ("alive", "dead"):
        np.save(tmp_path / f"{name}.npy", table)
        (tmp_path / f"{name}.txt").write_text("\n".join(TEXTS) + "\n")
        table[4] = np.nan
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS) + "\n")
    asked = calipers.Protocol(dataset=str(texts))
    sides = str(tmp_path / "alive.npy"), str(tmp_path / "dead.npy")
    (found,) = comparing.compare(sides[0], [sides[1]], protocol=asked, unlabelled=True)
    assert (found.label, found.candidate) == ("INVALID", None)
    assert "NaN or infinite numbers for 1 of 12 texts (rows 4)" in str(found.reason)
    with pytest.raises(InferenceError, match="the baseline"):
        comparing.compare(sides[1], [sides[0]], protocol=asked, unlabelled=True)


def test_vectors_by_id_serve_repeated_texts(tmp_path: Path) -> None:
    """20 texts, each twice, and vectors under the ids of the first half only."""
    rows = [{"id": f"r{i}", "text": f"text {i % 20}"} for i in range(40)]
    file = write_jsonl(tmp_path / "texts.jsonl", rows)
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32))
    (tmp_path / "v.ids").write_text("\n".join(f"r{i}" for i in range(20)))
    model = str(tmp_path / "v.npy")
    (found,) = comparing.compare(model, [model], protocol=calipers.Protocol(dataset=str(file)), unlabelled=True)
    assert (found.label, found.baseline.outcomes.counts["texts"]) == ("PASS", 20)
