"""What `calipers compare` prints, at the widths that terminals have."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from calipers.comparison import settings, wording
from calipers.comparison import text as verdict_text
from calipers.comparison.records import GateOptions, Verdict
from calipers.core import DataSource, Result, Speed
from tests.support import verdicts as made
from tests.support.shown import shown as text_of

ALL = [
    [made.passing()],
    [made.perplexity()],
    [made.perplexity("REGRESSION")],
    [made.inconclusive()],
    [made.invalid()],
    [made.passing(), made.regression(), made.inconclusive(), made.invalid()],
]


def show(verdicts: list[Verdict], width: int = 120, *, terminal: bool = True, every_metric: bool = False) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, highlight=False, record=True)
    verdict_text.show_verdicts(console, verdicts, every_metric=every_metric)
    return console.export_text()


def timed(verdict: Verdict, size: int = 23_000_000) -> Verdict:
    """With sizes and speeds of both models, as if they had taken turns."""

    def costs(result: Result, size: int, p50: float) -> Result:
        speed = Speed(p50, 6.0, 900.0, 64, 1.0)
        return replace(result, model=replace(result.model, size=size), timing={**result.timing, **vars(speed)})

    assert verdict.candidate
    return replace(
        verdict, baseline=costs(verdict.baseline, 90_900_000, 9.8), candidate=costs(verdict.candidate, size, 4.1)
    )


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("verdicts", ALL)
def test_nothing_is_wider_than_the_terminal(verdicts: list[Verdict], width: int) -> None:
    from rich.cells import cell_len

    assert max(cell_len(line) for line in show(verdicts, width).splitlines()) <= width


@pytest.mark.parametrize("width", [50, 60, 80, 100, 120, 200])
def test_no_number_is_lost_to_the_width(width: int) -> None:
    shown = (
        " ".join(show([timed(made.passing())], width).split()) if width < 80 else show([timed(made.passing())], width)
    )
    table = shown.split("Metrics that do not decide")[0]
    costs = ("23.0", "4.1/6.0") if "p50/p95 ms" in table else ("23.0 MB", "4.1 ms", "6.0 ms")
    ends = "-0.35…+0.07" if "p50/p95 ms" in table else "-0.35 to +0.07"
    cells = ("82.05", "81.91", "-0.14", ends, "PASS", "99.9/0/0.1", *costs, "900")
    assert [part for part in cells if part not in table] == []
    rest = shown.split("The 2 pairs")[0]
    assert [part for part in ("0.094", "1,379") if part not in rest] == []
    assert "…" not in rest.replace("-0.35…+0.07", "")


def test_at_200_every_fact_has_a_column_and_every_model_a_line() -> None:
    lines = show([timed(made.passing()), timed(made.regression())], 200).splitlines()
    header = next(line for line in lines if line.startswith("model"))
    assert " ".join(header.split()) == "model value change 95% interval chances, % label size p50 p95 texts/s"
    row = next(line for line in lines if line.startswith("model_quint8"))
    assert " ".join(row.split()) == (
        "model_quint8 81.91 -0.14 -0.35 to +0.07 99.9/0/0.1 PASS 23.0 MB 4.1 ms 6.0 ms 900 smallest, best"
    )


def test_at_100_every_model_has_one_line_with_all_facts() -> None:
    smallest = replace(timed(made.passing()), candidate_name="minilm/quint8/model_quantized.onnx")
    for other in (made.passing("bge-small-int8/model.onnx"), made.regression(), made.inconclusive()):
        shown = show([smallest, timed(other, size=34_000_000)], 100)
        lines = shown.split("Metrics that do not decide")[0].split("Other metrics")[0].splitlines()
        start = next(place for place, line in enumerate(lines) if line.startswith("model"))
        header, *rows = lines[start : start + 4]
        assert " ".join(header.split()) == "model value change 95% interval chances, % label MB p50/p95 ms texts/s"
        assert re.search(r"model_quantized +81.91 .*PASS smallest.* 23.0 +4.1/6.0 +900", rows[1])
        assert re.search(r" 34.0 +4.1/6.0 +900", rows[2])
        assert max(map(len, lines)) <= 100


def test_the_verdict_is_the_first_line_and_the_rule_the_last() -> None:
    for verdicts in ALL:
        lines = show(verdicts, 400).strip().splitlines()
        assert lines[0].startswith(wording.overall(verdicts))
        assert lines[-1].startswith("Exit code ")


def test_metrics_that_do_not_decide_stand_apart() -> None:
    shown = show([made.passing()], 200)
    main, rest = shown.split("Metrics that do not decide:")
    assert "cosine_spearman decides: PASS below 2 points lost, REGRESSION from 4 points" in main
    assert "cosine_pearson" in rest
    assert "Metrics that do not decide" not in show([made.regression()])  # only one, and it decides


def test_of_several_candidates_other_metrics_are_named_where_they_do_not_pass() -> None:
    shown = show([made.passing(), made.passing("other")], 200)
    assert "dot_spearman" in shown
    assert "cosine_pearson" not in shown
    full = show([made.passing(), made.passing("other")], 200, every_metric=True)
    assert full.count("cosine_pearson") == 2


def test_a_sample_of_the_rows_is_called_one() -> None:
    source = DataSource("data/stsb/test.jsonl", requested=300, rows_read=1379)
    baseline = made.result(dataset=source)
    shown = show([made.passing(baseline=baseline)], 200)
    assert "stsb/test.jsonl, 1,379 pairs (a random sample of 1,379 rows, seed 42); cosine_spearman decides" in shown
    first = made.result(dataset=replace(source, shuffle=False))
    assert "(the first 300 rows)" in show([made.passing(baseline=first)], 200)
    assert "sample" not in show([made.passing()], 200).split("Chances")[0]


def test_a_log_has_one_line_a_model_and_no_colour() -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=40, highlight=False)
    verdict_text.show_verdicts(console, [timed(made.passing())])
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in shown
    row = next(line for line in shown.splitlines() if line.startswith("model_quint8"))
    assert " ".join(row.split()) == (
        "model_quint8 81.91 -0.14 -0.35 to +0.07 99.9/0/0.1 PASS 23.0 MB 4.1 ms 6.0 ms 900"
    )


def test_columns_bound_a_log_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    console = Console(file=io.StringIO(), force_terminal=False, highlight=False)
    verdict_text.show_verdicts(console, [timed(made.passing())])
    assert max(map(len, console.file.getvalue().splitlines())) <= 80  # type: ignore[attr-defined]


def test_a_terminal_gets_colour_and_the_word() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="standard", width=120, highlight=False)
    verdict_text.show_verdicts(console, [made.regression()])
    assert re.search(r"\x1b\[[0-9;]*31m.*REGRESSION", file.getvalue())


def test_settings_that_can_change_a_number_are_put_in_words() -> None:
    differences = {"max_length": (256, 512), "batching": ("2048 tokens a batch", "one row at a time"), "device": (1, 2)}
    shown = show([made.passing(differences={**differences, "shape": (None, "[any, any]")})], 200)
    assert "Settings that differ: model_quint8: reads 512 tokens (the baseline 256)\n" in shown
    prompt = {"prompt": ("", "query: "), "normalize": (True, False), "version of torch": ("2.1", "2.2")}
    assert settings.in_words(prompt) == (
        "prompt 'query: ' (the baseline none), its vectors are not normalised (those of the baseline are), "
        "was measured with other versions of torch"
    )


def test_an_execution_provider_can_change_a_number_and_is_named() -> None:
    provider = "OpenVINOExecutionProvider"
    words = f"provider '{provider}' (the baseline 'CPUExecutionProvider')"
    assert settings.in_words({"provider": ("CPUExecutionProvider", provider)}) == words
    assert settings.in_words({"provider": (None, "CPUExecutionProvider")}) == ""
    places = {provider: f"onnx, cpu, {provider}", "CPUExecutionProvider": "onnx, cpu", None: "onnx, cpu"}
    info = made.result().model
    for name, place in places.items():
        model = replace(info, settings={**info.settings, "provider": name})
        assert re.search(rf"Runs on +{place}\s*\n", text_of(made.result(model=model, timing={})))


def test_what_is_assumed_of_a_model_is_a_warning_on_a_pass_too() -> None:
    info = replace(made.result().model, settings={"pooling": "mean", "pooling_assumed": True, "normalize": False})
    candidate = made.result(model=info)
    words = "warning: the pooling (mean) and the normalisation (none) of model_quint8 are assumed: its files name none"
    assert words in show([made.passing(candidate=candidate)], 200)
    assert "assumed" not in show([made.passing()], 200)


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


def test_several_candidates_are_counted_and_the_rule_is_named() -> None:
    first, *_, last = show(ALL[-1], 400).strip().splitlines()
    assert first == (
        "INVALID  1 of 4 candidates passes; 1 INCONCLUSIVE (model_quint8), 1 REGRESSION (int4), 1 INVALID (broken)."
    )
    assert last == (
        "Exit code 1: the worst of 4 candidates decides, broken (INVALID); --any requires only one that does not fail."
    )
    both = [timed(made.passing()), timed(made.passing("smaller"), size=11_000_000), timed(made.regression(), size=5)]
    assert wording.headline(both, GateOptions(any=True)).endswith(" Smallest: smaller (11.0 MB, 2.4 × as fast).")
    assert wording.rule(both, GateOptions(any=True), 0) == (
        "Exit code 0: --any, and 2 of 3 candidates pass, the smallest is smaller."
    )
    assert wording.outcome(both, GateOptions(any=True)) == "PASS"
    assert wording.outcome(both, GateOptions()) == "REGRESSION"


def test_what_is_at_risk_does_not_count_as_a_pass() -> None:
    risky = replace(timed(made.passing("risky"), size=5), label="AT_RISK")
    both, gate = [timed(made.passing("safe")), risky], GateOptions(any=True)
    assert wording.headline(both, gate).startswith("1 of 2 candidates passes; 1 AT_RISK (risky). Smallest: safe ")
    assert wording.rule(both, gate, 0) == "Exit code 0: --any, and 1 of 2 candidates passes, the smallest is safe."
    assert wording.rule([risky, risky], gate, 0) == (
        "Exit code 0: --any, and no candidate passes, but AT_RISK does not fail without --fail-on at-risk, "
        "the smallest is risky."
    )


@pytest.mark.parametrize(
    ("verdict", "fail_on", "words"),
    [
        (made.inconclusive(), "inconclusive", "Exit code 1: INCONCLUSIVE fails, by --fail-on inconclusive."),
        (made.perplexity(), "at-risk", "Exit code 1: AT_RISK fails, by --fail-on at-risk."),
        (made.perplexity(), "regression", "Exit code 0: AT_RISK does not fail without --fail-on at-risk."),
        (made.regression(), "regression", "Exit code 1: REGRESSION fails."),
    ],
)
def test_the_last_line_explains_the_exit_code(verdict: Verdict, fail_on: str, words: str) -> None:
    gate = GateOptions(fail_on)
    assert wording.rule([verdict], gate, gate.exit_code([verdict.label])) == words


def test_times_of_two_occasions_make_no_ratio() -> None:
    verdict = timed(made.passing())
    assert "2.4 × as fast" in show([verdict], 200)
    later = replace(verdict, baseline=replace(verdict.baseline, timing={**verdict.baseline.timing, "timed_at": 2.0}))
    assert "as fast" not in show([later], 200)
    assert "Timed when each run was made, not by turns." in show([later], 200)


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
    ("source", "words"),
    [
        (DataSource("a", rows_read=1379), "about 3,600 pairs would settle it, and the data has 1,379: add data or set"),
        (
            DataSource("a", requested=1379, rows_read=2001, rows_blank=1),
            "would settle it, and the data has 2,000: measure them all, add data or set a wider --threshold.",
        ),
        (DataSource("a", requested=1379, rows_read=1379, shuffle=False), "about 3,600 pairs would settle it."),
        (DataSource("a", requested=1379, rows_read=5000), "about 3,600 pairs would settle it."),
        (DataSource("a"), "about 3,600 pairs would settle it."),
    ],
)
def test_data_that_cannot_settle_it_is_said(source: DataSource, words: str) -> None:
    open_ = made.inconclusive(3541)
    verdict = replace(
        open_,
        baseline=replace(open_.baseline, dataset=source),
        comparisons=(replace(open_.comparisons[0], examples=1379),),
    )
    assert words in wording.sentence(verdict)


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
