"""Markdown that text from data cannot break out of, held against a Markdown parser."""

from __future__ import annotations

import pytest

from calipers.comparison import markdown
from tests.support import verdicts as made
from tests.support.markdown import ATTACKS, html_of, tokens


@pytest.mark.parametrize("attack", ATTACKS)
def test_data_stay_text(attack: str) -> None:
    """The same structure as with harmless names: no tag, link, image or heading comes from data."""
    verdict = made.passing(
        attack,
        baseline=made.result(attack),
        worst=(made.example(attack, {"text_1": attack}),),
        differences={"prompt": (None, attack)},
    )
    text = markdown.verdicts_markdown([verdict, made.invalid()])
    assert [h for h in html_of(text) if "details" not in h] == []
    assert sum("</details>" in h for h in html_of(text)) == 1
    assert not {"link_open", "image"} & {t.type for t in tokens(text)}
    assert sum(t.type == "heading_open" for t in tokens(text)) == 3
    assert sum(t.type == "table_open" for t in tokens(text)) == 3
    assert sum(t.type == "tr_open" for t in tokens(text)) == 4 + 3 + 2


def test_pipes_in_a_table_do_not_make_cells() -> None:
    text = markdown.verdicts_markdown([made.passing(comparisons=(made.comparison(), made.comparison("a|b")))])
    assert sum(t.type == "td_open" for t in tokens(text)) == 10 + 2 * 6
    assert "a|b" in [t.content for t in tokens(text) if t.type == "code_inline"]


def test_the_title_has_the_label() -> None:
    text = markdown.verdicts_markdown([made.passing()])
    assert text.splitlines()[0] == "## PASS: `model_quint8` against `all-MiniLM-L6-v2`"
    assert markdown.verdicts_markdown([made.passing(), made.regression()]).startswith("## REGRESSION: 2 candidates ")


def test_the_second_table_has_the_other_metrics_and_marks_what_decides() -> None:
    text = markdown.verdicts_markdown([made.passing()])
    assert "| `model_quint8` | 81.91 | -0.14 | -0.35 to +0.07 | 99.9/0/0.1 | PASS |" in text
    numbers = "82.05 | 81.91 | -0.14 | -0.2% | -0.35 to +0.07"
    assert f"| `dot_spearman` | {numbers} | AT_RISK | 99.9 / 0 / 0.1 % | 0.094 | 1,379 |" in text
    assert "Other metrics, which do not decide:" in text
    assert "| `cosine_spearman` |" not in text
    both = made.passing(comparisons=(made.comparison(), made.comparison("dot_spearman", decides=True)))
    text = markdown.verdicts_markdown([both])
    assert "Other metrics, those in bold decide, too:" in text
    assert f"| **`dot_spearman`** | {numbers} | **PASS** |" in text


def test_inconclusive_and_invalid_say_why() -> None:
    assert "about 420 pairs would settle it." in markdown.verdicts_markdown([made.inconclusive()])
    assert "(rows sts-1, sts-2 and 5 more)" in markdown.verdicts_markdown([made.invalid()])


def test_the_worst_examples_are_folded_away() -> None:
    text = markdown.verdicts_markdown([made.passing()])
    inside = text.partition("<details><summary>The 2 pairs that cost most</summary>\n\n")[2]
    assert inside.endswith("\n</details>\n")
    assert "1. `sts-42`, cost 0.031, `gold 3.8`, `cosine 0.81 → 0.324`\n" in inside
    assert "   - `text_1`: `A man is playing a flute.`\n" in inside


def test_the_texts_of_the_tenth_example_belong_to_it() -> None:
    text = markdown.verdicts_markdown([made.passing(worst=tuple(made.example(f"row {i}") for i in range(12)))])
    assert sum(t.type == "ordered_list_open" for t in tokens(text)) == 1
    assert sum(t.type == "bullet_list_open" for t in tokens(text)) == 12
