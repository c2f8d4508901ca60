"""What `calipers compare` prints, at the widths that terminals have."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from calipers.comparison import text as verdict_text
from calipers.comparison import wording
from calipers.comparison.records import Label, Verdict
from tests.support import verdicts as made

ALL = [
    [made.passing()],
    [made.perplexity()],
    [made.perplexity("REGRESSION")],
    [made.inconclusive()],
    [made.invalid()],
    [made.passing(), made.regression(), made.inconclusive(), made.invalid()],
]


def show(verdicts: list[Verdict], width: int = 120, *, terminal: bool = True) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, highlight=False, record=True)
    verdict_text.show_verdicts(console, verdicts)
    return console.export_text()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("verdicts", ALL)
def test_nothing_is_wider_than_the_terminal(verdicts: list[Verdict], width: int) -> None:
    from rich.cells import cell_len

    assert max(cell_len(line) for line in show(verdicts, width).splitlines()) <= width


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_number_is_lost_to_the_width(width: int) -> None:
    shown = show([made.passing()], width)
    for part in ("82.05", "81.91", "-0.14", "-0.2%", "-0.35 to +0.07", "PASS", "99.9 / 0 / 0.1 %", "0.094", "1,379"):
        assert part in shown, part
    assert "…" not in shown.split("The 2 pairs")[0].replace("(sha256:01234567…)", "")


def test_at_120_every_fact_has_a_column() -> None:
    header = next(line for line in show([made.passing()]).splitlines() if "baseline" in line)
    columns = ["metric", "baseline", "candidate", "delta", "relative", "95% interval", "label", "chances", "pairs"]
    assert [c for c in columns if c not in header] == []


def test_at_80_what_belongs_together_shares_a_cell() -> None:
    lines = show([made.passing()], 80).splitlines()
    place = next(i for i, line in enumerate(lines) if "cosine_spearman *" in line)
    assert "-0.14  -0.35 to +0.07  PASS" in lines[place]
    assert re.search(r"-0\.2%\s+p 0\.094\s+99\.9 / 0 / 0\.1 %", lines[place + 1])


@pytest.mark.parametrize("label", ["INCONCLUSIVE", "REGRESSION"])
def test_long_labels_and_intervals_still_make_a_table_at_80(label: Label) -> None:
    row = made.comparison(label=label, interval=(-13.56, -14.48), digits=2)
    shown = show([made.passing(comparisons=(row, made.comparison()))], 80)
    assert "goes from" not in shown.split("The 2 pairs")[0]


def test_examples_that_differ_are_told_for_each_metric() -> None:
    few = replace(made.comparison("dot_pearson"), examples=12)
    verdict = replace(made.passing(), comparisons=(made.comparison(), few))
    assert "12 pairs\n" in re.sub(r"[ ]+\n", "\n", re.sub(r" {3,}.*", "", show([verdict], 80)))


def test_the_metrics_that_decide_are_marked() -> None:
    shown = show([made.passing()])
    assert "cosine_spearman *" in shown
    assert "cosine_pearson *" not in shown
    assert "* the verdict depends on it" in shown
    assert "depends on it" not in show([made.regression()])  # only one, and it decides


def test_a_log_has_one_line_a_metric_and_no_colour() -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=40, highlight=False)
    verdict_text.show_verdicts(console, [made.passing()])
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in shown
    row = next(line for line in shown.splitlines() if line.startswith("dot_spearman"))
    assert (
        " ".join(row.split())
        == "dot_spearman 82.05 81.91 -0.14 -0.2% -0.35 to +0.07 AT_RISK 99.9 / 0 / 0.1 % 0.094 1,379"
    )


def test_a_terminal_gets_colour_and_the_word() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="standard", width=120, highlight=False)
    verdict_text.show_verdicts(console, [made.regression()])
    assert re.search(r"\x1b\[[0-9;]*31m.*REGRESSION", file.getvalue())


def test_settings_that_differ_stand_in_the_heading() -> None:
    assert ("  differs in", "dtype float32 → uint8, batching 2048 tokens → row by row") in verdict_text.heading(
        [made.passing()]
    )


def test_control_characters_of_data_never_reach_the_terminal() -> None:
    shown = show([replace(made.passing(), candidate_name="evil\x1b]0;x\x07 name")], terminal=False)
    assert "\x1b" not in shown
    assert "\x00" not in shown
    assert "# not a heading" in shown  # on the same line as the rest of its text
    assert not re.search(r"^# not", shown, re.MULTILINE)


def test_markup_of_rich_in_data_is_plain_text() -> None:
    odd = made.example("[bold red]id[/]", {"text": "[link=http://x]a[/link] [/nonsense]"})
    assert "[bold red]id[/]" in show([made.passing(worst=(odd,))])


def test_worst_examples_have_their_values_and_texts() -> None:
    shown = show([made.passing()])
    assert "The 2 pairs that cost most, in cosine_spearman:" in shown
    assert "1  sts-42  cost 0.031  gold 3.8  cosine 0.81 → 0.324\n" in shown
    assert "dot 0.82" not in shown  # another metric's column
    assert "text_2  A man is playing a bamboo flute." in shown
    assert re.search(r"text_1  (犬が走る。)+.*…\n", shown)


def test_one_candidate_has_no_tally_and_several_have_one() -> None:
    assert "Of " not in show([made.passing()])
    last = show(ALL[-1], 200).strip().splitlines()[-1]
    assert last == (
        "Of 4 candidates: 1 PASS (model_quint8); 1 INCONCLUSIVE (model_quint8); 1 REGRESSION (int4); "
        "1 INVALID (broken)."
    )


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (
            made.passing(),
            "model_quint8 passes: cosine_spearman goes from 82.05 to 81.91 (-0.14, -0.2%), "
            "within the 2 points that pass.",
        ),
        (
            made.perplexity(),
            "distilbert-int8 is at risk: word_pseudo_perplexity goes from 3339.6635 to 3577.1015 (+237.4380, +7.1%), "
            "past the 5% that pass and short of the 10% of a regression.",
        ),
        (
            made.regression(),
            "int4 is a regression: cosine_spearman goes from 82.05 to 70.30 (-11.75, -14.3%), "
            "past the limit of 4 points.",
        ),
        (
            made.inconclusive(),
            "model_quint8 is undecided: cosine_spearman goes from 82.05 to 81.91 (-0.14, -0.2%), but the chance of "
            "a REGRESSION (a loss of 4 points or more) is 8.8%, where 5% at most passes and 95% at least fails; about "
            "420 pairs would settle it.",
        ),
        (
            made.invalid(),
            "broken cannot be compared: the model gives NaN or infinite numbers for 7 of 1379 pairs "
            "(rows sts-1, sts-2 and 5 more).",
        ),
    ],
)
def test_the_closing_sentence_is_what_a_person_would_write(verdict: Verdict, words: str) -> None:
    assert wording.sentence(verdict) == words
    assert f"{verdict.label}  {words}" in show([verdict], 400)


def test_the_reason_of_a_dead_candidate_is_said_once() -> None:
    assert show([made.invalid()], 400).count("NaN or infinite") == 1


def test_sentences_of_the_edges() -> None:
    same = made.comparison(delta=0.0, relative=0.0, candidate=82.0512, interval=(0.0, 0.0))
    assert wording.sentence(made.passing(comparisons=(same,))) == (
        "model_quint8 passes: cosine_spearman stays at 82.05."
    )
    better = made.comparison(delta=0.5, relative=0.006, candidate=82.5512)
    assert wording.sentence(made.passing(comparisons=(better,))).endswith("(+0.50, +0.6%), which is no loss.")
    surely = made.comparison(delta=0.5, relative=0.006, candidate=82.5512, interval=(0.2, 0.8))
    assert wording.sentence(made.passing(comparisons=(surely,))).endswith("(+0.50, +0.6%), which is a gain.")
    never = made.inconclusive(settled_by=None)
    assert wording.sentence(never).endswith("; how many pairs would settle it is unknown.")
    assert wording.sentence(made.passing(comparisons=())) == "model_quint8: PASS."


@pytest.mark.parametrize(
    ("delta", "interval", "higher", "effect"),
    [
        (0.038, (0.012, 0.063), False, "worse"),
        (0.038, (0.012, 0.063), True, "better"),
        (-0.038, (-0.063, -0.012), False, "better"),
        (0.01, (-0.01, 0.03), True, "no clear change"),
        (0.0, (-0.01, 0.01), True, "no clear change"),
        (0.0, (0.0, 0.0), True, "unchanged"),
        (0.0, None, True, "unchanged"),
        (0.1, None, True, "no clear change"),
        (None, None, True, "unknown"),
    ],
)
def test_an_effect_has_its_name_whatever_passes(
    delta: float | None, interval: tuple[float, float] | None, higher: bool, effect: str
) -> None:
    compared = made.comparison(delta=delta, interval=interval, higher_is_better=higher, label="PASS")
    assert wording.effect(compared) == effect


def test_the_worst_candidate_names_the_whole() -> None:
    assert wording.overall([made.passing(), made.inconclusive(), made.perplexity()]) == "INCONCLUSIVE"
    assert wording.overall([made.regression(), made.inconclusive()]) == "REGRESSION"
    assert wording.overall([made.regression(), made.invalid()]) == "INVALID"


def test_a_single_comparison_is_not_called_adjusted() -> None:
    assert "p (Holm)" not in show([made.regression()])
    assert "p (Holm)" in show([made.passing()])
