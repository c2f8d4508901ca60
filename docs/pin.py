"""Print constraints.txt anew from what is installed: every distribution, pinned.

make constraints
"""

from __future__ import annotations

from importlib import metadata

HEADER = "# The one constraints file: every set-up command installs with it. Regenerate with `make constraints`."
# pip itself is the venv's own; the project is not a dependency of itself.
LEFT_OUT = {"pip", "setuptools", "wheel", "calipers"}


def main() -> None:
    found = {d.name.lower().replace("_", "-"): d.version.partition("+")[0] for d in metadata.distributions()}
    print(HEADER)
    for name in sorted(found.keys() - LEFT_OUT):
        print(f"{name}=={found[name]}")


if __name__ == "__main__":
    main()
