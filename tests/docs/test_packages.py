"""What the documents and messages say of packages is what pyproject.toml says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from calipers.core.errors import install

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\\[]", requirement)[0] for requirement in requirements}


def test_design_names_every_package_and_no_other() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    section = page.split("## Packages")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([\w, -]+) \|", section, re.MULTILINE)[1:]
    assert {name for row in rows for name in row.split(", ")} == names(PROJECT["dependencies"])
    for extra in PROJECT["optional-dependencies"].keys() - {"dev"}:
        assert f"`{extra}` brings" in section


def test_messages_install_what_an_extra_needs() -> None:
    extras = PROJECT["optional-dependencies"]
    for extra in ("torch", "hub", "mteb", "ray", "slurm"):
        wanted = names(extras[extra]) - {"calipers"}
        wanted |= names(extras["hub"]) if "calipers[hub]" in extras[extra] else set()
        assert set(install(extra).partition(" (")[0].split()[2:]) == wanted


def test_no_page_presumes_a_published_package() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    assert [p.name for p in pages if re.search(r"pip install '?calipers", p.read_text(encoding="utf-8"))] == []
