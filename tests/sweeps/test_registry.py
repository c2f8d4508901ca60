"""Registries: every problem is one sentence with its line; globs, matrices and testsets of winml-cli are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calipers.core import RequestError
from calipers.sweeps.registry import check_registry, read_registry

ONE = "models:\n  - {id: a, reference: x}\n"
TASKS = "tasks:\n  - {id: sts, task: sentence-similarity, dataset: pairs.jsonl}\n"


def problems(folder: Path, text: str, name: str = "registry.yaml") -> list[str]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return [problem.removeprefix(f"{path} ") for problem in check_registry(path)[1]]


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ("- {id: a, reference: x, poling: cls}", "line 2: unknown key 'poling' of a model: did you mean 'pooling'?"),
        ("- {id: a, reference: x}\n- {id: a, reference: y}", "line 3: the id 'a' of a model is already used in line 2"),
        (
            "- {id: a, reference: x, precisions: [int9-dynamic]}",
            "line 2: there is no precision 'int9-dynamic': did you",
        ),
        ("- id: a\n  reference: x\n  precisions:\n  - w8a8\n  - wat", "line 6: there is no precision 'wat': expected"),
        ("- {id: a, reference: x, baseline: b}", "line 2: the baseline 'b' of 'a' is no model here"),
        ("- {id: a, reference: x, baseline: a}", "line 2: the baselines form a cycle: a → a"),
        (
            "- {id: a, reference: x, baseline: b}\n- {id: b, reference: y, baseline: c}\n"
            "- {id: c, reference: z, baseline: a}",
            "line 2: the baselines form a cycle: a → b → c → a",
        ),
        ("- {id: a}", "line 2: a model has no `reference`"),
        ("- {id: a, reference: x, max_length: long}", "line 2: `max_length` must be a whole number, found 'long'"),
        ("- {id: a, reference: x, max_length: 0}", "line 2: `max_length` must be at least 1, found 0"),
        ("- {id: a, reference: x, threads: 1000000000}", "line 2: `threads` must be at most 1,024, found 1000000000"),
        ("- {id: a, reference: x, pooling: middle}", "line 2: `pooling` must be one of mean, cls, max, last"),
        ("- {id: a, reference: 'no/such/*'}", "line 2: the glob 'no/such/*' matches no model"),
        ("- {id: a, reference: '/**/x'}", "line 2: the glob '/**/x' holds **: a * stands for one folder or name"),
        (
            f"- {{id: a, reference: x, matrix: {{max_length: &v {[*range(1, 300)]}, truncate_dim: *v, threads: *v}}}}",
            "line 2: a matrix of 26,730,899 combinations is more than the limit of 10,000",
        ),
        (
            "- {id: a, reference: x, tasks: [stz]}",
            "line 2: the model 'a' names a task 'stz' that is not there: did you",
        ),
        ("- 7", "line 2: a model must be a mapping, found 7"),
        ("- {id: float32, reference: x}", "line 2: a model cannot have the id 'float32'"),
        ("- {id: a, reference: x, precisions: W8A8}", "line 2: there is no precision 'W8A8': did you mean 'w8a8'?"),
        ("- {reference: x, precisions: [int8]}", "line 2: there is no precision 'int8': did you mean 'int8-dynamic'?"),
        ("- {reference: x, artifacts: 3}", "line 2: `artifacts` must hold lines NAME: REFERENCE, found 3"),
        ("- {reference: x, artifacts: {a: {b: c}}}", "line 2: `artifacts` must hold lines NAME: REFERENCE, found {"),
        ("- {id: [a], reference: x}", "line 2: `id` must be a text, found ['a']"),
    ],
)
def test_a_wrong_model_is_a_sentence_with_its_line(tmp_path: Path, models: str, expected: str) -> None:
    text = "models:\n" + "\n".join(f"  {line}" for line in models.splitlines()) + "\n" + TASKS
    found = problems(tmp_path, text)
    assert len(found) == 1, found
    assert found[0].startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("modles: []\n" + TASKS, "line 1: unknown key 'modles' of a registry: did you mean 'models'?"),
        (ONE + "tasks:\n  - {task: simlarity}\n", "line 4: unknown task 'simlarity'"),
        (ONE + "tasks:\n  - {task: fill-mask, top_k: 3}\n", "line 4: 'top_k' is not an option"),
        (ONE + TASKS + "thresholds:\n  ndgc@10: 5%,10%\n", "line 6: there is no metric"),
        (ONE + TASKS + "thresholds:\n  cosine_spearman: 4,2\n", "line 6: cosine_spearman"),
        (ONE + TASKS + "defaults:\n  sampels: 3\n", "line 6: unknown key 'sampels'"),
        (ONE + TASKS + "exclude:\n  - {modle: a}\n", "line 6: unknown key 'modle' of an exclusion"),
        (ONE + TASKS + "exclude:\n  - a\n  - [b, c]\n", "line 7: an exclusion is MODEL/TASK/PRECISION"),
        ("- just\n- a list\n", "line 1: a registry is a mapping"),
    ],
)  # fmt: skip
def test_a_wrong_section_is_a_sentence_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    assert any(problem.startswith(expected) for problem in problems(tmp_path, text)), problems(tmp_path, text)


@pytest.mark.parametrize("text", ["", "models: [", "a: 1\na: 2\n", "a: {b: 1, b: 2}", "\x00"])
def test_what_is_no_yaml_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "registry.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RequestError, match=r"registry\.yaml"):
        read_registry(path)


def test_a_reference_longer_than_a_name_can_be_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "registry.yaml"
    path.write_text(f"models: [{{id: a, reference: {'é' * 300}}}]\n" + TASKS, encoding="utf-8")
    assert read_registry(path).models[0].reference == "é" * 300


def test_json_that_is_none_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "registry.json"
    for text, line in (('{\n "models": [}\n}', 2), ('{"models": [1,],\n"tasks": []}', 1)):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(RequestError, match=rf"registry\.json line {line}: not JSON: "):
            read_registry(path)


def test_keys_that_are_merged_from_elsewhere_may_be_set_anew(tmp_path: Path) -> None:
    text = "models:\n  - &first {id: a, reference: x, pooling: cls}\n  - {<<: *first, id: b}\n" + TASKS
    assert problems(tmp_path, text) == []
    assert [(m.id, m.options.pooling) for m in read_registry(tmp_path / "registry.yaml").models] == [
        ("a", "cls"),
        ("b", "cls"),
    ]


def test_an_exclusion_that_matches_nothing_is_noted(tmp_path: Path) -> None:
    assert problems(tmp_path, ONE + TASKS + "exclude: ['a/*', 'minlm/*']\n") == []
    assert read_registry(tmp_path / "registry.yaml").notes == ("line 5: the exclusion 'minlm/*' matches no cell",)


def test_several_problems_are_all_listed_and_the_first_is_raised(tmp_path: Path) -> None:
    text = "models:\n  - {id: a, reference: x, poling: cls}\n  - {id: a, reference: y}\n" + TASKS
    assert len(problems(tmp_path, text)) == 2
    with pytest.raises(RequestError, match=r"line 2: unknown key 'poling'.*1 more"):
        read_registry(tmp_path / "registry.yaml")


def test_json_with_tabs_has_lines_too(tmp_path: Path) -> None:
    text = (
        '{\n\t"models": [\n\t\t{"reference": "x", "pooling": "middle"}\n\t],\n\t"tasks": [{"task": "fill-mask"}]\n}\n'
    )
    assert problems(tmp_path, text, "registry.json")[0].startswith("line 3: `pooling` must be one of")


def test_variables_lead_to_files_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry of someone else sends no variable to an address and shows none in an error."""
    monkeypatch.setenv("FLEET", str(tmp_path / "fleet"))
    monkeypatch.setenv("KEY", "S3CRET")
    (tmp_path / "fleet" / "one").mkdir(parents=True)
    references = ("$FLEET/one", "static:$FLEET/one", "$FLEET/*", "$FLEET/none", "http://h/$KEY", "$KEY/x")
    lines = "".join(f"  - {{id: m{i}, reference: '{reference}'}}\n" for i, reference in enumerate(references))
    (tmp_path / "registry.yaml").write_text(f"models:\n{lines}{TASKS}")
    one = str(tmp_path / "fleet" / "one")
    models = read_registry(tmp_path / "registry.yaml").models
    assert [model.reference for model in models] == [one, f"static:{one}", one, *references[3:]]


def test_globs_matrices_and_defaults_make_models(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "fleet" / name).mkdir(parents=True)
    (tmp_path / "registry.yaml").write_text(
        "defaults: {samples: 50, max-length: 128}\n"
        "models:\n"
        "  - {id: 'm-{name}', reference: fleet/*}\n"
        "  - {id: other, reference: org/name, matrix: {pooling: [mean, cls]}, max_length: 64}\n" + TASKS
    )
    registry = read_registry(tmp_path / "registry.yaml")
    assert [m.id for m in registry.models] == ["m-one", "m-two", "other,pooling=mean", "other,pooling=cls"]
    assert [m.options.max_length for m in registry.models] == [128, 128, 64, 64]
    assert registry.models[3].options.pooling == "cls"
    assert registry.tasks[0].data_options.samples == 50
    assert registry.models[0].reference == str(tmp_path / "fleet" / "one")


def test_a_baseline_is_by_default_the_own_float32_where_precisions_are_named(tmp_path: Path) -> None:
    (tmp_path / "registry.yaml").write_text(
        "models:\n"
        "  - {id: a, reference: x, precisions: [w8a8]}\n"
        "  - {id: b, reference: y}\n"
        "  - {id: c, reference: z, artifacts: {int8: c.onnx}}\n"
        "  - {id: d, reference: z, precisions: [w8a8], baseline: none}\n"
        "  - {id: e, reference: z, precisions: [w8a8], baseline: e}\n" + TASKS
    )
    models = read_registry(tmp_path / "registry.yaml").models
    assert [m.baseline for m in models] == ["float32", None, "float32", None, "float32"]
    assert [m.variants for m in models] == [
        ("float32", "w8a8"), ("float32",), ("float32", "int8"), ("w8a8",), ("float32", "w8a8"),
    ]  # fmt: skip


def test_a_testset_of_winml_is_read_as_it_is(tmp_path: Path) -> None:
    similarity = {
        "path": "mteb/stsbenchmark-sts",
        "split": "test",
        "metric": "cosine_spearman",
        "columns_mapping": {"input_column_1": "sentence1", "input_column_2": "sentence2", "score_column": "score"},
    }
    entries = [
        {"hf_id": "org/one", "group": "Top", "priority": "P1", "dataset_config": similarity},
        {"hf_id": "org/two", "task": "feature-extraction", "priority": "P0", "dataset_config": similarity},
        {"hf_id": "org/two", "task": "fill-mask", "dataset_config": {"path": "texts.txt", "samples": 7}},
        {"hf_id": "org/eyes", "task": "image-classification", "dataset_config": {"path": "timm/mini-imagenet"}},
    ]  # fmt: skip
    (tmp_path / "testset.json").write_text(json.dumps(entries))
    registry = read_registry(tmp_path / "testset.json")
    assert [(m.id, m.group, m.priority) for m in registry.models] == [("org/one", "Top", "P1"), ("org/two", "", "P0")]
    assert [(t.task, t.dataset, t.data_options.samples) for t in registry.tasks] == [
        ("feature-extraction", "mteb/stsbenchmark-sts", None),
        ("fill-mask", "texts.txt", 7),
    ]
    assert registry.models[1].tasks == tuple(t.id for t in registry.tasks)
    assert registry.tasks[0].columns["input_column_2"] == "sentence2"
    assert registry.notes == ("1 of the task image-classification skipped: it is not measured here",)
