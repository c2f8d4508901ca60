"""Flags of tasks are made for the lines that have one, and are there wherever they are named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from calipers.cli import options
from calipers.cli.grouped import GroupedCommand, is_plain
from calipers.core import RequestError


def command(body: Callable[..., None], made: list[str]) -> GroupedCommand:
    """One flag of each kind: `--usual`, and `--rare`, which is noted when it is made."""

    def rare() -> list[click.Parameter]:
        made.append("rare")
        return [click.Option(["--rare"], help="Seldom.")]

    decorated = options.option("Options", "--usual")(options.made_by(rare, rare=True)(body))
    built: GroupedCommand = click.command(cls=GroupedCommand)(click.argument("name")(decorated))
    return built


@pytest.mark.parametrize(
    ("line", "rare"),
    [
        (["x"], False),
        (["x", "--usual", "1"], False),
        (["x", "--usual=1"], False),
        (["x", "--rare", "1"], True),
        (["x", "--rare=1"], True),
        (["x", "--usual", "-1"], True),
    ],
)
def test_a_rare_flag_is_made_where_the_line_may_have_it(line: list[str], rare: bool) -> None:
    made: list[str] = []
    seen: list[bool] = []
    built = command(lambda **flags: seen.append("rare" in flags), made)
    built.main(line, standalone_mode=False)
    assert (bool(made), seen) == (rare, [rare])


def test_help_and_errors_name_a_rare_flag_after_a_plain_line() -> None:
    def fail(**flags: str) -> None:
        assert is_plain(click.get_current_context())
        raise RequestError("`rare` must be 1")

    built = command(fail, [])
    with pytest.raises(RequestError, match=r"^--rare must be 1$"):
        built.main(["x"], standalone_mode=False)
    assert "--rare" in built.get_help(click.Context(built))
    with pytest.raises(click.NoSuchOption, match="--unknown"):
        built.main(["x", "--unknown"], standalone_mode=False)


def test_a_line_without_a_flag_of_a_task_imports_no_task() -> None:
    code = (
        "import sys; from calipers.cli.compare import compare; compare.make_context('compare', ['a', 'b', '--json']);"
        "print('read', *(m for m in sys.modules if m.startswith('calipers.tasks')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["read"]
