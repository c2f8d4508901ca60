"""Vectors already computed: by text and by id, from .npy and from .parquet."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calipers import models
from calipers.core import CalipersError, Encoder, InferenceError, InvalidOutput, ModelError, RequestError, Result
from calipers.models import ModelOptions, vectors
from calipers.runs import api
from tests.support.samples import Run, write_jsonl

# Cosines 1, 0, 0.96, -1 have the ranks 4, 2, 3, 1 and gold has 4, 3, 2, 1: Spearman is 1 - 6·(0+1+1+0) / (4·15) = 0.8.
# Dot products 1, 0, 24, -1 have the ranks 3, 2, 4, 1: Spearman is 1 - 6·(1+1+4+0) / 60 = 0.4.
ROWS = [
    {"id": "p", "sentence1": "one", "sentence2": "two", "score": 5},
    {"id": "q", "sentence1": "three", "sentence2": "four", "score": 3},
    {"id": "r", "sentence1": "five", "sentence2": "six", "score": 2},
    {"id": "s", "sentence1": "seven", "sentence2": "eight", "score": 1},
]
TEXTS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
IDS = ["p/1", "p/2", "q/1", "q/2", "r/1", "r/2", "s/1", "s/2"]
TABLE = np.array([(1, 0), (1, 0), (1, 0), (0, 1), (3, 4), (4, 3), (1, 0), (-1, 0)], dtype=np.float32)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "rows.jsonl", ROWS)


def save_npy(folder: Path, keys: list[str], suffix: str, table: np.ndarray = TABLE) -> Path:
    np.save(folder / "model.npy", table)
    (folder / f"model{suffix}").write_text("".join(f"{key}\n" for key in keys), encoding="utf-8")
    return folder / "model.npy"


def save_parquet(folder: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), folder / "model.parquet")
    return folder / "model.parquet"


def load(reference: object, **options: Any) -> Encoder:
    return models.load(models.find(str(reference)), ModelOptions(**options))


def evaluate(reference: object, rows: Path) -> Result:
    return api.evaluate(str(reference), dataset=str(rows), resamples=10)


def assert_as_by_hand(result: Result) -> None:
    np.testing.assert_allclose(result.outcomes.columns["cosine"], [1, 0, 0.96, -1], atol=1e-7)
    np.testing.assert_allclose(result.outcomes.columns["dot"], [1, 0, 24, -1])
    assert result.metrics["cosine_spearman"] == pytest.approx(80)
    assert result.metrics["dot_spearman"] == pytest.approx(40)


# --- the four ways ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keys", "suffix"), [(TEXTS, ".txt"), (IDS, ".ids")], ids=["txt", "ids"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_npy_measures_as_by_hand(tmp_path: Path, rows: Path, keys: list[str], suffix: str, dtype: type) -> None:
    assert_as_by_hand(evaluate(save_npy(tmp_path, keys, suffix, TABLE.astype(dtype)), rows))


@pytest.mark.parametrize(("key", "keys"), [("text", TEXTS), ("id", IDS)])
@pytest.mark.parametrize("value", ["vector", "embedding"])
def test_parquet_measures_as_by_hand(tmp_path: Path, rows: Path, key: str, keys: list[str], value: str) -> None:
    file = save_parquet(tmp_path, **{"note": ["-"] * 8, key: keys, value: TABLE.tolist()})
    assert_as_by_hand(evaluate(file, rows))


@pytest.mark.parametrize(("content", "fault"), [("", "is empty"), ("one\n", "has 1 lines for 8 vectors")])
def test_a_stray_file_of_texts_beside_ids_is_named(tmp_path: Path, rows: Path, content: str, fault: str) -> None:
    file = save_npy(tmp_path, IDS, ".ids")
    file.with_suffix(".txt").write_text(content)
    with pytest.raises(ModelError, match=rf"model\.txt {fault} and stands beside model\.ids: remove it"):
        load(file)
    file.with_suffix(".txt").unlink()
    assert_as_by_hand(evaluate(file, rows))


def test_the_order_of_the_file_does_not_matter(tmp_path: Path, rows: Path) -> None:
    assert_as_by_hand(evaluate(save_npy(tmp_path, IDS[::-1], ".ids", TABLE[::-1]), rows))


def test_the_command_line_measures_as_by_hand(calipers: Run, tmp_path: Path, rows: Path) -> None:
    file = save_npy(tmp_path, TEXTS, ".txt")
    done = calipers("eval", "-m", f"vectors:{file}", "--dataset", rows, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["metrics"]["cosine_spearman"] == pytest.approx(80)
    assert (found["model_id"], found["model"]["backend"], found["model"]["by"]) == ("model", "vectors", "text")


def test_vectors_come_as_float32_in_the_order_asked_repeats_included(tmp_path: Path) -> None:
    found = load(save_npy(tmp_path, TEXTS, ".txt", TABLE.astype(np.float64))).encode(["five", "four", "five"])
    assert found.dtype == np.float32
    assert found.tolist() == [[3, 4], [0, 1], [3, 4]]


def test_a_text_may_hold_a_line_separator_that_is_no_line_end(tmp_path: Path) -> None:
    texts = ["before\u2028after", "a\x85b", "c\x0cd"]
    assert load(save_npy(tmp_path, texts, ".txt", TABLE[:3])).encode(texts[::-1]).tolist() == TABLE[:3][::-1].tolist()


def test_windows_line_ends_and_a_byte_order_mark_are_no_part_of_a_text(tmp_path: Path) -> None:
    file = save_npy(tmp_path, [], ".txt", TABLE[3:5])
    file.with_suffix(".txt").write_bytes(b"\xef\xbb\xbffour\r\nfive\r\n")
    assert load(file).encode(["five", "four"]).tolist() == [[3, 4], [0, 1]]


def test_one_text_in_both_places_of_a_pair_keeps_the_vectors_of_both_ids(tmp_path: Path) -> None:
    """An encoder with prompts may have two vectors for one text: use both, or refuse, but do not drop one."""
    same = write_jsonl(tmp_path / "same.jsonl", [*ROWS[:3], {**ROWS[3], "sentence2": "seven"}])
    with contextlib.suppress(CalipersError):
        assert evaluate(save_npy(tmp_path, IDS, ".ids"), same).outcomes.columns["cosine"][3] == pytest.approx(-1)


# --- what identifies them --------------------------------------------------------------------------------------


def test_the_fingerprint_changes_with_the_vectors_and_with_the_keys(tmp_path: Path) -> None:
    first = load(save_npy(tmp_path, TEXTS, ".txt")).info.fingerprint
    assert load(save_npy(tmp_path, TEXTS, ".txt", TABLE * 2)).info.fingerprint != first
    assert load(save_npy(tmp_path, TEXTS[::-1], ".txt")).info.fingerprint != first
    assert load(save_npy(tmp_path, TEXTS, ".txt")).info.fingerprint == first


def test_the_fingerprint_does_not_change_with_another_file_beside(tmp_path: Path) -> None:
    file = save_npy(tmp_path, TEXTS, ".txt")
    before = load(file).info.fingerprint
    (tmp_path / "model.log").write_text("how they were made")
    assert load(file).info.fingerprint == before


def test_the_fingerprint_of_a_name_with_brackets_is_that_of_its_content(tmp_path: Path) -> None:
    plain = save_parquet(tmp_path, text=TEXTS, vector=TABLE.tolist())
    expected = load(plain).info.fingerprint
    assert load(plain.rename(tmp_path / "model[1].parquet")).info.fingerprint == expected


# --- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "suffix", "said"),
    [
        (["one", "two", "three", "x", "five", "y", "seven", "z"], ".txt", "3 of 8 texts: four, six, eight$"),
        ([*IDS[:-1], "s/3"], ".ids", "1 of 8 ids: s/2$"),
    ],
    ids=["text", "id"],
)
def test_a_missing_vector_is_named(tmp_path: Path, rows: Path, keys: list[str], suffix: str, said: str) -> None:
    with pytest.raises(InferenceError, match=f"model.npy has no vector for {said}"):
        evaluate(save_npy(tmp_path, keys, suffix), rows)


@pytest.mark.parametrize(("dead", "said"), [(np.nan, "NaN or infinite"), (0.0, "zero vectors")])
def test_a_dead_vector_is_invalid_with_its_row(tmp_path: Path, rows: Path, dead: float, said: str) -> None:
    table = TABLE.copy()
    table[5] = dead
    with pytest.raises(InvalidOutput, match=rf"INVALID.*{said}.*1 of 4 pairs.*\(rows r\)") as caught:
        evaluate(save_npy(tmp_path, IDS, ".ids", table), rows)
    assert caught.value.rows == ("r",)


def test_a_null_in_a_parquet_vector_is_invalid_with_its_row(tmp_path: Path, rows: Path) -> None:
    vectors = TABLE.tolist()
    vectors[2] = [1.0, None]
    with pytest.raises(InvalidOutput, match=r"1 of 4 pairs \(rows q\)"):
        evaluate(save_parquet(tmp_path, id=IDS, vector=vectors), rows)


@pytest.mark.parametrize(("key", "suffix"), [("text", ".txt"), ("id", ".ids")])
def test_two_vectors_for_one_key_are_refused(tmp_path: Path, key: str, suffix: str) -> None:
    with pytest.raises(ModelError, match=f"more than one vector for the same {key}: b, c$"):
        load(save_npy(tmp_path, ["b", "a", "c", "b", "c"], suffix, TABLE[:5]))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (TABLE[:7], r"array \[7, 2\] for 8 texts"),
        (TABLE[:, 0], r"array \[8\] for 8 texts"),
        (TABLE[:, :, None], r"array \[8, 2, 1\] for 8 texts"),
        (TABLE.astype(np.int8), "holds int8, expected floating point"),
        (TABLE.astype(np.complex64), "holds complex64, expected floating point"),
        (TABLE.astype(object), "Python objects"),
    ],
    ids=["too few", "flat", "deep", "integers", "complex", "objects"],
)
def test_an_array_that_is_no_table_of_vectors_is_refused(tmp_path: Path, table: np.ndarray, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        load(save_npy(tmp_path, TEXTS, ".txt", table))


def npz(folder: Path) -> bytes:
    np.savez(folder / "several.npz", a=TABLE)
    return (folder / "several.npz").read_bytes()


@pytest.mark.parametrize("kind", ["empty", "cut", "text", "pickle", "npz"])
def test_a_file_that_is_no_npy_is_refused(tmp_path: Path, kind: str) -> None:
    file = save_npy(tmp_path, TEXTS, ".txt")
    whole = file.read_bytes()
    contents = {"empty": b"", "cut": whole[:-4], "text": b"hello", "pickle": TABLE.dumps(), "npz": npz(tmp_path)}
    file.write_bytes(contents[kind])
    with pytest.raises(ModelError, match=r"model\.npy cannot be read as an array"):
        load(file)


class Trap:
    """Its pickle makes a folder when it is read."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "in an npy"])
def test_a_pickle_is_never_run(tmp_path: Path, wrapped: bool) -> None:
    file = save_npy(tmp_path, TEXTS, ".txt", np.array([Trap(tmp_path / "sprung")], dtype=object))
    if not wrapped:
        file.write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(ModelError, match=r"model\.npy cannot be read as an array"):
        load(file)
    assert not (tmp_path / "sprung").exists()
    np.load(file, allow_pickle=True)
    assert (tmp_path / "sprung").exists()  # so the trap was a real one


def test_an_npy_without_its_keys_says_which_file_to_write(tmp_path: Path) -> None:
    np.save(tmp_path / "alone.npy", TABLE)
    with pytest.raises(ModelError, match=r"alone\.txt with one text per line, or alone\.ids with one id per line"):
        load(tmp_path / "alone.npy")


def test_keys_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    file = save_npy(tmp_path, [], ".txt")
    file.with_suffix(".txt").write_bytes(b"caf\xe9\n" * 8)
    with pytest.raises(ModelError, match=r"model\.txt.*UTF-8"):
        load(file)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"vector": [[1.0]]}, "needs a column 'vector' and a column 'text' or 'id': it has vector"),
        ({"text": ["a"], "values": [[1.0]]}, "it has text, values"),
        ({"text": ["a", "b"], "vector": [[1.0], [1.0, 2.0]]}, "column 'vector' are not lists of numbers of one length"),
        ({"text": ["a", "b"], "vector": [[1.0], None]}, "column 'vector' are not lists of numbers of one length"),
        ({"text": ["a", "b"], "vector": [["1"], ["2"]]}, "column 'vector' are not lists of numbers of one length"),
        ({"text": ["a", "b"], "vector": [1.0, 2.0]}, r"array \[2\] for 2 texts"),
        ({"text": ["a", "a"], "vector": [[1.0], [2.0]]}, "more than one vector for the same text: a$"),
        ({"text": ["a", None], "vector": [[1.0], [2.0]]}, "column 'text'"),
        ({"text": ["a", "b"], "vector": [[1], [2]]}, "expected floating point"),
    ],
    ids=["no key", "no vectors", "ragged", "null", "strings", "scalars", "repeated", "null key", "integers"],
)
def test_a_parquet_that_is_no_table_of_vectors_is_refused(tmp_path: Path, columns: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        load(save_parquet(tmp_path, **columns))


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float16(), 4)])
def test_parquet_of_every_kind_of_list_is_read_from_its_buffers(tmp_path: Path, kind: pa.DataType) -> None:
    """Row groups of 7 rows and batches of 5, so that lists begin in the middle of a buffer."""
    table = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float16)
    columns = {"id": [f"{i}" for i in range(40)], "vector": pa.array(list(table.astype(np.float64)), kind)}
    pq.write_table(pa.table(columns), tmp_path / "model.parquet", row_group_size=7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_PARQUET_ROWS", 5)
        model = load(tmp_path / "model.parquet")
    np.testing.assert_array_equal(model.table, table.astype(np.float32))


def test_parquet_costs_little_more_memory_than_its_vectors(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(20_000, 64)).astype(np.float32)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(table.reshape(-1)), 64)
    save_parquet(tmp_path, id=[f"{i}" for i in range(20_000)], vector=flat)
    tracemalloc.start()
    model = load(tmp_path / "model.parquet")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(model.table, table)
    assert peak < 3 * table.nbytes  # 9 times with a Python number for each


def test_a_parquet_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ModelError, match=r"model\.parquet cannot be read as parquet"):
        load(tmp_path / "model.parquet")


@pytest.mark.parametrize("name", ["model.csv", "folder"])
def test_the_prefix_takes_nothing_but_npy_and_parquet(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "model.csv").write_text("1,2\n")
    with pytest.raises(ModelError, match=rf"vectors come from an \.npy or \.parquet file, found .*{name}"):
        load(f"vectors:{tmp_path / name}")


def test_a_file_that_is_not_there_is_said(calipers: Run, rows: Path, tmp_path: Path) -> None:
    done = calipers("eval", "-m", f"vectors:{tmp_path / 'gone.npy'}", "--dataset", rows)
    assert (done.returncode, done.stdout) == (3, "")
    assert "gone.npy': no such file" in done.stderr


@pytest.mark.parametrize("wish", [{"prompt": "query: "}, {"pooling": "cls"}, {"max_length": 8}], ids=str)
def test_a_wish_that_comes_too_late_is_refused(tmp_path: Path, wish: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=f"`{next(iter(wish))}` is not supported for"):
        load(save_npy(tmp_path, TEXTS, ".txt"), **wish)


def test_a_query_worded_as_a_document_has_a_vector_of_its_own(tmp_path: Path) -> None:
    from calipers import evaluate

    shop = tmp_path / "shop"
    (shop / "qrels").mkdir(parents=True)
    (shop / "corpus.jsonl").write_text('{"_id": "d1", "text": "bread"}\n{"_id": "d2", "text": "wine"}\n')
    (shop / "queries.jsonl").write_text('{"_id": "q1", "text": "bread"}\n')
    (shop / "qrels" / "test.tsv").write_text("q1\td1\t1\n")
    np.save(tmp_path / "v.npy", np.array([[1, 0], [0.1, 0.9], [0.9, 0.1]], np.float32))
    (tmp_path / "v.ids").write_text("q1/query\nd1/document\nd2/document\n")
    result = evaluate(str(tmp_path / "v.npy"), task="retrieval", dataset=str(shop))
    assert result.metrics["mrr@10"] == 0.5  # by the query's own vector the other document is nearer


@pytest.mark.parametrize(("query", "enough"), [("q1", True), ("d1", False)])
def test_plain_ids_are_enough_where_one_text_has_them(tmp_path: Path, query: str, enough: bool) -> None:
    np.save(tmp_path / "v.npy", np.eye(2, dtype=np.float32))
    (tmp_path / "v.ids").write_text(f"d1\n{query}\n" if enough else "d1\nd2\n")
    model: Any = load(tmp_path / "v.npy")
    bound = model.bind({"bread": ["d1/document"], "loaf": [f"{query}/query"]})
    if enough:
        assert bound.encode(["loaf", "bread"]).tolist() == [[0, 1], [1, 0]]
    else:
        with pytest.raises(InferenceError, match=r"d1 is the id of several texts: write d1/document"):
            bound.encode(["bread", "loaf"])
