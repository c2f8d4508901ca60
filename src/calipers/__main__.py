"""The `calipers` command, also as `python -m calipers`: Ctrl-C ends it with exit code 130 and one line, whenever."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import NoReturn

_GARBAGE = 100_000  # objects made between two searches for cycles among them: imports make many, and all of them stay


class Interruption(KeyboardInterrupt):
    """Ctrl-C. Once a plain KeyboardInterrupt has passed through Python's `exec` of a text (so a dataclass is made),
    `python -m` ends by the signal, whatever exit code is set; one of a class of its own leaves the exit code alone."""


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as behind nohup
        signal.signal(signal.SIGINT, _interrupt)
    gc.set_threshold(_GARBAGE)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # its own allocator keeps 25 MB that it has used once
    try:
        from calipers.cli import main as run_command

        run_command()
    except KeyboardInterrupt:  # before the command began, or after it
        print("calipers: interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        gc.freeze()  # the interpreter ends without a last search: with the above a tenth of a short command


def _interrupt(*_: object) -> NoReturn:
    raise Interruption


if __name__ == "__main__":
    main()
