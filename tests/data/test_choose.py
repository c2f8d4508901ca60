"""Which rows are measured: the same ones streaming or not, uniformly drawn, in their order, in little memory."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers import data, tasks
from calipers.core import DataSource, RequestError
from calipers.data import DataOptions
from calipers.data.choose import Chosen
from calipers.data.choose import choose as choose_by
from calipers.data.columns import Record
from tests.support.samples import PAIRS, Run, write_jsonl

COLUMNS = tasks.find("sentence-similarity").columns


def record(number: int, *, blank: bool = False) -> Record:
    return Record(id=str(number), id_column="id", where=f"row {number}", values={}, blank=blank)


def choose(rows: Iterable[Record], samples: int | None, *, seed: int | None) -> Chosen:
    return choose_by(rows, DataSource("", requested=samples, shuffle=seed is not None, seed=seed or 0))


def chosen(rows: int, samples: int | None, *, seed: int | None) -> list[int]:
    return [int(r.id) for r in choose(map(record, range(rows)), samples, seed=seed).kept]


def test_the_same_seed_chooses_the_same_rows_from_a_generator_and_a_list() -> None:
    rows = [record(i) for i in range(10_000)]
    listed, generated = choose(rows, 50, seed=7), choose((row for row in rows), 50, seed=7)
    assert listed == generated
    assert len(listed.kept) == 50


def test_the_rows_of_a_seed_never_change() -> None:
    """Runs of different days are compared only if they took the same rows: the places of the five smallest numbers
    of numpy.random.default_rng(42).random(20)."""
    assert chosen(20, 5, seed=42) == [4, 8, 10, 15, 17]


def test_another_seed_chooses_other_rows() -> None:
    assert len({tuple(chosen(1000, 10, seed=seed)) for seed in range(50)}) == 50


def test_chosen_rows_stay_in_the_order_of_the_source() -> None:
    found = chosen(1000, 100, seed=3)
    assert found == sorted(found)
    assert found != list(range(100))


@pytest.mark.parametrize("seed", [None, 42], ids=["first", "random"])
@pytest.mark.parametrize("samples", [5, 6, None])
def test_as_many_samples_as_rows_or_more_takes_all(samples: int | None, seed: int | None) -> None:
    assert chosen(5, samples, seed=seed) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", [None, 42], ids=["first", "random"])
def test_blank_rows_do_not_use_up_samples(seed: int | None) -> None:
    found = choose([record(i, blank=i % 2 == 0) for i in range(10)], 5, seed=seed)
    assert [r.id for r in found.kept] == ["1", "3", "5", "7", "9"]
    assert (found.seen, found.blank) == (10, 5)


def test_no_shuffle_takes_the_first_rows_and_stops_reading() -> None:
    def rows() -> Iterator[Record]:
        yield record(0, blank=True)
        yield from (record(1), record(2))
        pytest.fail("it reads on after it has what was asked for")

    found = choose(rows(), 2, seed=None)
    assert [r.id for r in found.kept] == ["1", "2"]
    assert (found.seen, found.blank) == (3, 1)


def test_every_row_is_chosen_equally_often() -> None:
    """5 of 20 over 2,000 seeds: each row 500 times, standard deviation √(2000 · ¼ · ¾) = 19.4; 80 is four of them."""
    counts = [0] * 20
    for seed in range(2000):
        for number in chosen(20, 5, seed=seed):
            counts[number] += 1
    assert sum(counts) == 10_000
    assert max(abs(count - 500) for count in counts) < 80


def test_rows_past_a_block_of_random_numbers_are_chosen_as_often_as_those_before() -> None:
    """Numbers are drawn in blocks: a block that came again would choose rows in step, 4,096 apart."""
    found = chosen(8192, 1000, seed=1)
    assert 420 < sum(number < 4096 for number in found) < 580  # 500, standard deviation 14.8
    assert len({number % 4096 for number in found}) > 900  # in step it would be 500


@given(blanks=st.lists(st.booleans(), max_size=40), samples=st.integers(1, 45), seed=st.integers(0, 2**32))
def test_blank_rows_change_nothing_about_which_others_are_chosen(blanks: list[bool], samples: int, seed: int) -> None:
    filled = [i for i, blank in enumerate(blanks) if not blank]
    found = choose([record(i, blank=blank) for i, blank in enumerate(blanks)], samples, seed=seed)
    assert [int(r.id) for r in found.kept] == [filled[i] for i in chosen(len(filled), samples, seed=seed)]
    assert len(found.kept) == min(samples, len(filled))


@given(rows=st.integers(1, 60), samples=st.integers(1, 60), seed=st.integers(0, 2**32))
def test_a_larger_sample_holds_the_smaller_one_of_the_same_seed(rows: int, samples: int, seed: int) -> None:
    assert set(chosen(rows, samples, seed=seed)) <= set(chosen(rows, samples + 1, seed=seed))


def test_memory_holds_the_sample_and_not_the_source() -> None:
    alive: weakref.WeakSet[Watched] = weakref.WeakSet()
    most = 0

    def rows() -> Iterator[Record]:
        nonlocal most
        for i in range(2000):
            most = max(most, len(alive))
            row = Watched(id=str(i), id_column="id", where="", values={}, blank=False)
            alive.add(row)
            yield row

    gc.disable()  # what is let go must go at once, not at the next collection
    try:
        assert len(choose(rows(), 10, seed=0).kept) == 10
    finally:
        gc.enable()
    assert 10 <= most <= 12  # the sample, and the row that is passing in the hands of each side


class Watched(Record):
    """A record without equality, so that a set counts every one."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def load(path: Path, **options: object) -> tuple[str, ...]:
    return data.load_rows(str(path), COLUMNS, mapping={}, options=DataOptions(**options)).ids  # type: ignore[arg-type]


def test_shuffling_decides_which_rows_and_leaves_the_fingerprint_of_all_rows_alone(pairs: Path) -> None:
    first, second = (
        data.load_rows(str(pairs), COLUMNS, mapping={}, options=DataOptions(samples=5, seed=seed)) for seed in (1, 2)
    )
    assert first.fingerprint == second.fingerprint
    assert (first.source.seed, second.source.seed) == (1, 2)


def test_no_shuffle_does_not_read_a_file_past_what_it_needs(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "broken-later.jsonl", PAIRS)
    with path.open("a") as file:
        file.write("this line is not JSON\n")
    assert load(path, samples=2, shuffle=False) == ("a", "b")


@pytest.mark.parametrize("options", [{"samples": 0}, {"samples": -1}, {"seed": -1}], ids=str)
def test_numbers_that_make_no_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(RequestError, match=f"`{next(iter(options))}` must"):
        DataOptions(**options)  # type: ignore[arg-type]


def test_streaming_from_the_hub_samples_the_same_rows_on_the_command_line(
    calipers: Run, vectors: Path, tmp_path: Path
) -> None:
    pytest.importorskip("datasets", reason="the package datasets is not installed")
    (tmp_path / "hub").mkdir()
    blank = {"id": "z", "sentence1": "", "sentence2": "x", "score": 1.0}
    file = write_jsonl(tmp_path / "hub" / "test.jsonl", [blank, *PAIRS])
    command = ["eval", "-m", vectors, "--samples", "3", "--json", "--dataset"]
    ways = [[f"hub:{file.parent}"], [f"hub:{file.parent}", "--streaming"], [str(file)]]
    runs = [calipers(*command, *way, env={"HF_HOME": str(tmp_path / "home")}) for way in ways]
    found = [json.loads(run.stdout)["dataset"] for run in runs]
    assert [source["streaming"] for source in found] == [False, True, False]
    assert len({source["fingerprint"] for source in found}) == 1
    assert {(source["samples"], source["rows_read"], source["rows_blank"]) for source in found} == {(3, 6, 1)}
