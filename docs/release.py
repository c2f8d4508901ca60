"""May this tree be released? The version is stated alike everywhere, and the change log has a section for it.

python docs/release.py [FOLDER]
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def problems(root: Path) -> list[str]:
    """What keeps the tree in this folder from being released; nothing where it may be."""
    version = str(tomllib.loads(_read(root, "pyproject.toml"))["project"]["version"])
    stated = {
        "src/calipers/__init__.py": re.findall(
            r'^__version__ = "(.+)"$', _read(root, "src/calipers/__init__.py"), re.M
        ),
        "CITATION.cff": re.findall(r'^version: "?([^"\n]+)"?$', _read(root, "CITATION.cff"), re.M),
    }
    others = [
        f"{file} states version {' and '.join(versions) or 'none'}, pyproject.toml {version}"
        for file, versions in stated.items()
        if versions != [version]
    ]
    return [*others, *_changelog(_read(root, "CHANGELOG.md"), version)]


def _changelog(text: str, version: str) -> list[str]:
    parts = _SECTION.split(text)[1:]
    sections = {title.strip(): body.strip() for title, body in zip(parts[::2], parts[1::2], strict=True)}
    wrong = (
        [f"CHANGELOG.md: move what is under Unreleased to a section {version}"] if sections.get("Unreleased") else []
    )
    released = next((title for title in sections if title.split()[0].strip("[]") == version), None)
    if released is None:
        wrong.append(f"CHANGELOG.md has no section {version}")
    elif not sections[released]:
        wrong.append(f"CHANGELOG.md: the section {version} is empty")
    elif not re.search(r"\d{4}-\d{2}-\d{2}", released):
        wrong.append(f"CHANGELOG.md: the section {version} has no date: expected ## {version} (YYYY-MM-DD)")
    return wrong


def _read(root: Path, name: str) -> str:
    return (root / name).read_text(encoding="utf-8")


def main(arguments: list[str]) -> int:
    lines = problems(Path(arguments[0] if arguments else "."))
    print("\n".join(lines) or "The version and the change log agree.")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
