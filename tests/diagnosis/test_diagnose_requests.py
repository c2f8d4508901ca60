"""What a newcomer asks of `calipers diagnose` by mistake: one sentence and exit code 2, or a note that says it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calipers import cli
from calipers.diagnosis import adaptation, api, findings
from calipers.diagnosis import html as diagnosis_html
from calipers.diagnosis import text as diagnosis_text
from calipers.diagnosis.options import DiagnosisOptions
from calipers.diagnosis.records import Diagnosis, Scorecard
from calipers.metrics import bootstrap
from calipers.models import ModelOptions
from calipers.runs.embedding import CorpusInputs
from calipers.runs.store import Store
from tests.support.diagnoses import Letters
from tests.support.samples import write_jsonl

WORDS = ("apple", "banana", "cherry", "date", "elder", "fig", "grape", "iris")
JUDGED = tuple(f"q{i} 0 d{i} 1" for i in range(len(WORDS)))


def write(folder: Path, judged: tuple[str, ...] = JUDGED) -> dict[str, str]:
    write_jsonl(folder / "corpus.jsonl", [{"_id": f"d{i}", "text": f"{w} {w[::-1]}"} for i, w in enumerate(WORDS)])
    write_jsonl(folder / "queries.jsonl", [{"_id": f"q{i}", "text": w} for i, w in enumerate(WORDS)])
    (folder / "qrels.txt").write_text("\n".join(judged) + "\n")
    names = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels.txt"}
    return {name: str(folder / file) for name, file in names.items()}


def diagnose(files: dict[str, str], *layers: str, baseline: Letters | None = None) -> Diagnosis:
    options = DiagnosisOptions(layers=layers, **({"resamples": 200} if baseline else {}))
    return api.diagnose(Letters(), CorpusInputs(**files), baseline=baseline, options=options)


def refuse(capsys: Any, vectors: Path, files: dict[str, str], *flags: str) -> str:
    given = [word for name, file in files.items() for word in (f"--{name}", file)]
    code = cli.run(["diagnose", str(vectors), *given, "--no-store", *flags])
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert len(told.err.strip().splitlines()) == 1
    return str(told.err)


def test_more_results_than_documents_are_refused(tmp_path: Path, vectors: Path, capsys: Any) -> None:
    told = refuse(capsys, vectors, write(tmp_path), "--layers", "retrieval", "--k", "5000")
    assert "--k must be at most the number of documents, 8, found 5,000" in told


def test_as_many_results_as_documents_are_not(tmp_path: Path) -> None:
    """Every document is then found by every query: chance has no skewness, and a run must still be stored."""
    options = DiagnosisOptions(layers=("geometry", "retrieval"), layer_options={"k": len(WORDS)})
    inputs = CorpusInputs(**write(tmp_path))
    found = api.diagnose(Letters(), inputs, options=options, store=Store(tmp_path / "store"))
    assert found.findings[1].result
    assert found.findings[1].result.metrics["recall@8"] == 1.0


def test_judgements_of_another_corpus_are_refused(tmp_path: Path, vectors: Path, capsys: Any) -> None:
    told = refuse(capsys, vectors, write(tmp_path, ("q0 0 x0 1", "q1 0 x1 1")))
    assert "none of the 2 documents that" in told
    assert "it judges x0, x1, and the corpus has d0, d1, d2 and 5 more" in told


@pytest.mark.parametrize(("name", "left_out"), [("arguana", True), ("shop", False)])
def test_documents_that_mteb_leaves_out_are_noted(name: str, left_out: bool, tmp_path: Path) -> None:
    (folder := tmp_path / name / "qrels").mkdir(parents=True)
    for file in ("corpus", "queries"):
        write_jsonl(tmp_path / name / f"{file}.jsonl", [{"_id": f"x{i}", "text": w} for i, w in enumerate(WORDS)])
    (folder / "test.tsv").write_text("x0\tx1\t1\nx2\tx3\t1\n")
    options = DiagnosisOptions(layers=("retrieval",))
    made = api.diagnose(Letters(), CorpusInputs(dataset=str(tmp_path / name)), options=options)
    assert ("a document with the id of its query is left out, as mteb does for these data" in made.notes) is left_out


def test_judged_texts_that_are_absent_are_counted(tmp_path: Path) -> None:
    found = diagnose(write(tmp_path, (*JUDGED, "q0 0 x0 1", "q1 0 x1 1", "other 0 d1 1")), "retrieval")
    notes = [note for note in found.notes if "judge" in note]
    assert notes[0].startswith("2 of 10 judged documents are not in the corpus")
    assert notes[1].startswith("1 of the queries that")
    assert findings.document(found)["notes"][: len(notes)] == notes
    assert findings.document(found)["dataset"]["judged_documents_missing"] == 2
    assert "2 of 10 judged documents" in diagnosis_html.page(found)
    assert "2 judged documents missing" in dict(diagnosis_text.facts(found))["Texts"]


def test_complete_judgements_give_no_note(tmp_path: Path) -> None:
    assert not any("judge" in note for note in diagnose(write(tmp_path), "retrieval").notes)


def test_judgements_that_were_given_are_not_asked_for(tmp_path: Path) -> None:
    """A query of one letter has no bigram to share."""
    files = write(tmp_path)
    write_jsonl(tmp_path / "queries.jsonl", [{"_id": f"q{i}", "text": w[0]} for i, w in enumerate(WORDS)])
    reasons = {finding.layer: finding.reason or "" for finding in diagnose(files).findings}
    assert "two letters" in reasons["semantic_gap"]
    assert "`qrels`" not in reasons["semantic_gap"]


def test_the_scorecard_speaks_first_for_its_label_is_the_exit_code(tmp_path: Path) -> None:
    plain = diagnose(write(tmp_path), "retrieval", baseline=Letters())
    assert findings.label_of(plain) == "PASS"
    card = Scorecard("mlm", "old", "new", (), "INCONCLUSIVE", None, "Nothing is known.")
    told = findings.document(replace(plain, scorecard=card))
    assert told["label"] == "INCONCLUSIVE"
    first = next(line for line in told["headlines"] if line["tone"] != "plain")
    assert (first["tone"], first["layer"]) == ("warning", "scorecard")
    assert first["sentence"].startswith("INCONCLUSIVE: these data do not show")
    assert not any(line["sentence"].startswith("PASS") for line in told["headlines"])
    assert any("retrieval by itself: PASS" in line["sentence"] for line in told["headlines"])


@pytest.mark.parametrize("judged", [True, False])
def test_an_empty_file_of_queries_is_told_as_such(tmp_path: Path, vectors: Path, capsys: Any, judged: bool) -> None:
    files = write(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    files = {**files, "queries": str(tmp_path / "empty.txt")}
    told = refuse(capsys, vectors, files if judged else {n: f for n, f in files.items() if n != "qrels"})
    assert "empty.txt holds no query" in told


@pytest.mark.parametrize("names", ["", " , "])
def test_no_layer_at_all_is_refused(tmp_path: Path, vectors: Path, capsys: Any, names: str) -> None:
    assert "--layers names nothing" in refuse(capsys, vectors, write(tmp_path), "--layers", names)


def test_a_head_is_not_advised_where_none_can_be_put_on(model: Any) -> None:
    static = f"static:{model('potion-base-4m-int8')}"
    assert "`mlm_head`" not in adaptation._no_head(static, static)
    assert "`mlm_head`" in adaptation._no_head("torch:a/b", "torch:a/c")


def test_a_layer_records_the_resamples_that_its_intervals_rest_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def count(*given: Any, resamples: int, **more: Any) -> Any:
        drawn.append(resamples)
        return distribution(*given, resamples=resamples, **more)

    distribution = bootstrap.distribution
    monkeypatch.setattr(bootstrap, "distribution", count)
    files = write(tmp_path)
    for layer in ("geometry", "retrieval", "semantic_gap", "certainty"):
        drawn.clear()
        [finding] = diagnose(files, layer).findings
        assert finding.result is not None
        assert set(drawn) == {finding.result.bootstrap["resamples"]}, layer


def test_a_seed_of_0_is_a_seed() -> None:
    assert DiagnosisOptions(layer_options={"seed": 0}).seed == 0
    assert DiagnosisOptions().seed == 42


def test_relevant_from_decides_every_figure(tmp_path: Path) -> None:
    """Grades 1 and 2: from 2 on, only even documents are relevant, and all figures agree with the retrieval task."""
    from calipers import evaluate

    files = write(tmp_path, tuple(f"q{i} 0 d{j} {1 + (j % 2 == 0)}" for i in range(8) for j in (i, (i + 1) % 8)))
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text((tmp_path / "qrels.txt").read_text())
    options = DiagnosisOptions(layers=("retrieval",), layer_options={"relevant_from": 2.0})
    found = api.diagnose(Letters(), CorpusInputs(**files), options=options).findings[0].result
    task = evaluate(Letters(), task="retrieval", dataset=str(tmp_path), task_options={"relevant_from": 2.0})
    assert found
    for name in ("ndcg@10", "mrr@10", "map@10", "recall@10"):
        if name in task.metrics and name in found.metrics:
            assert found.metrics[name] == pytest.approx(task.metrics[name]), name
    default = evaluate(Letters(), task="retrieval", dataset=str(tmp_path))
    assert found.metrics["mrr@10"] == pytest.approx(task.metrics["mrr@10"]) != default.metrics["mrr@10"]


def test_negative_grades_are_as_bad_as_0(tmp_path: Path) -> None:
    judged = [f"q{i} 0 d{j} {{}}" if j != i else f"q{i} 0 d{i} 1" for i in range(8) for j in (i, (i + 1) % 8)]
    metrics = []
    for grade in (0, -1):
        files = write(tmp_path, tuple(line.format(grade) for line in judged))
        finding = diagnose(files, "semantic_gap").findings[0]
        assert finding.result
        metrics.append(finding.result.metrics)
    assert metrics[0] == metrics[1]


def test_trust_and_diagnose_number_rows_alike(tmp_path: Path) -> None:
    from calipers.data import corpora
    from calipers.data.texts import load_texts

    (tmp_path / "queries.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "corpus.txt").write_text("a\nb\nc\n")
    place = {name: str(tmp_path / f"{name}.txt") for name in ("corpus", "queries")}
    assert corpora.load(**place).ids == load_texts(place["queries"], "queries").ids == ("0", "1", "2")  # type: ignore[arg-type]


def test_model_id_names_the_candidate_only(tmp_path: Path, model: Any) -> None:
    """Both were called MiniLM where the baseline is potion."""
    potion, inputs = str(model("potion-base-4m-int8")), CorpusInputs(**write(tmp_path))
    options = DiagnosisOptions(layers=("retrieval",), resamples=200, adaptation="contrastive")
    both = api.diagnose(potion, inputs, baseline=potion, options=options, model_options=ModelOptions(model_id="mine"))
    assert both.baseline is not None
    assert (both.model.model_id, both.baseline.model_id) == ("mine", "potion-base-4m-int8")
    assert both.scorecard is not None
    assert (both.scorecard.candidate, both.scorecard.baseline) == ("mine", "potion-base-4m-int8")


def test_changes_of_figures_have_names_and_only_what_decides_a_label(tmp_path: Path) -> None:
    same = diagnose(write(tmp_path), "geometry", "retrieval", baseline=Letters())
    header, rows = diagnosis_text.figure_rows(same.findings[1])
    change, label = header.index("change"), header.index("label")
    by_name = {str(row[0].text if hasattr(row[0], "text") else row[0]): row for row in rows}
    ndcg = by_name["ndcg@10"]
    assert (str(ndcg[change]), ndcg[label].text) == ("unchanged", "PASS")  # type: ignore[union-attr]
    assert by_name["recall@10"][label].text == "–"  # type: ignore[union-attr]


def test_without_judgements_nothing_decides(tmp_path: Path) -> None:
    """It was PASS, for the share of queries without a direction stayed the same."""
    files = {name: file for name, file in write(tmp_path).items() if name != "qrels"}
    both = diagnose(files, "retrieval", baseline=Letters())
    assert findings.label_of(both) is None
    assert findings.headlines(both)[0].sentence.startswith("How good the search is, is unknown")
    assert not any("PASS" in line.sentence for line in findings.headlines(both))


def test_the_level_of_a_figure_names_flags_as_its_reason_does(tmp_path: Path, model: Any, capsys: Any) -> None:
    files = write(tmp_path)
    queries = [{"_id": f"q{i}", "text": f"red {word}"} for i, word in enumerate(WORDS)]
    write_jsonl(tmp_path / "queries.jsonl", queries)
    given = ["--corpus", files["corpus"], "--queries", files["queries"], "--layers", "attributes", "--no-store"]
    assert cli.run(["diagnose", str(model("potion-base-4m-int8")), *given]) == 0
    printed = capsys.readouterr().out
    assert "there is no floor" in printed
    assert "`" not in printed
