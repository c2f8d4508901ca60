"""What a figure is, and how figures travel through tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calipers.core import Figure, FigureKind, Named, Outcomes, Thresholds, figure_tables, read_figures, read_named

SHARE = FigureKind("dead", "share of dead ones", "The share.", False, "document", above=0.1, advice="mend", share=True)


def test_a_kind_makes_a_figure_that_warns_past_its_level() -> None:
    figure = SHARE.figure(0.25, 8, interval=(-0.1, 1.2), standard_error=0.05, exact=False)
    assert figure == Figure(
        name="dead",
        value=0.25,
        count=8,
        unit="document",
        higher_is_better=False,
        meaning="The share.",
        interval=(0.0, 1.0),  # of a share
        standard_error=0.05,
        level="above 0.1",
        warning="dead is 0.250, above 0.1: mend",
        exact=False,
    )


def test_at_the_level_nothing_warns() -> None:
    assert SHARE.figure(0.1, 8).warning is None
    assert SHARE.figure(0.2, 8, warns=False).warning is None
    below = replace(SHARE, above=None, below=0.95)
    assert (below.figure(0.95, 8).warning, below.level_text) == (None, "below 0.95")
    assert below.figure(0.949, 8).warning == "dead is 0.949, below 0.95: mend"
    assert replace(SHARE, above=1 / 3).level_text == "above 0.333"


def test_words_may_replace_level_and_warning() -> None:
    kind = replace(SHARE, above=None, level="above its interval")
    assert kind.figure(9.0, 8).level == "above its interval"
    assert kind.figure(9.0, 8).warning is None
    assert kind.figure(9.0, 8, warning="so many").warning == "so many"


def test_an_interval_of_what_is_no_share_is_kept() -> None:
    assert replace(SHARE, share=False).figure(0.0, 1, interval=(-1.0, 2.0)).interval == (-1.0, 2.0)


def test_an_error_that_is_not_finite_is_none() -> None:
    assert SHARE.figure(0.0, 1, standard_error=float("nan")).standard_error is None


def test_an_unknown_figure_says_why() -> None:
    figure = replace(SHARE, digits=2).unknown("nobody knows", unit="group")
    assert (figure.value, figure.count, figure.unit, figure.reason) == (None, 0, "group", "nobody knows")
    assert (figure.level, figure.warning, figure.digits) == ("above 0.1", None, 3)


def test_a_kind_without_a_direction_makes_a_minor_metric() -> None:
    thresholds = Thresholds(0.02, 0.05, relative=False)
    kind = replace(SHARE, higher_is_better=None, thresholds=thresholds, digits=4)
    metric = kind.metric(lambda columns: lambda counts: columns["dead"] @ counts / counts.sum(axis=0))
    assert (metric.name, metric.needs, metric.minor, metric.higher_is_better) == ("dead", ("dead",), True, False)
    assert (metric.thresholds, metric.digits) == (thresholds, 4)
    assert metric.value({"dead": np.array([0.0, 1.0])}) == 0.5
    assert not SHARE.metric(metric.statistic).minor


def test_figures_survive_their_tables() -> None:
    figures = (
        SHARE.figure(0.25, 8, interval=(0.1, 0.2)),
        SHARE.unknown("why"),
        replace(SHARE.figure(0.0, 3), digits=1),
    )
    named = (Named("dead", "d1", "a text", 0.5, "a note"),)
    outcomes = Outcomes((), {}, details=figure_tables(figures, named))
    assert read_figures(outcomes) == figures
    assert read_named(outcomes) == named
    assert read_figures(Outcomes((), {})) == read_named(Outcomes((), {})) == ()


def test_no_figures_are_tables_of_texts() -> None:
    tables = figure_tables([], [])
    assert tables["figures"]["name"].dtype.kind == tables["named"]["text"].dtype.kind == "U"
