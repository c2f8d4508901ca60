"""Commands in processes of their own, without the wait for imports.

Most of a small command is the import of numpy, torch and transformers. A helper process imports them and forks a
process for each command. Its exit code, its stdout and stderr (with what native code writes) and its state are its own,
as if an interpreter had been started for it. The helper itself computes nothing, so that a fork loses no thread.

Nothing of calipers is imported here: `tests.support.gold` runs the commands of another source tree.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from typing import Any

TIMEOUT = 400  # seconds that one command may take

SHARED = (
    *("numpy", "onnxruntime", "pyarrow.parquet", "faiss", "bm25s", "yaml", "rich.table", "rich.progress", "jinja2"),
    *("tokenizers", "safetensors.numpy", "torch", "transformers", "transformers.models.bert.modeling_bert", "onnx"),
    *("onnxscript", "torch.onnx._internal.exporter._core", "sentence_transformers", "scipy.*"),
)


@dataclass(frozen=True)
class Request:
    """A command line, where it runs, and the files that its stdout and stderr go to.

    Without `python` in front it is one of calipers."""

    words: list[str]
    folder: str
    environment: dict[str, str]
    out: str
    err: str


Starter = Callable[[Request], int]


def start_fresh(request: Request) -> int:
    """Start an interpreter for the command. Its exit code."""
    own = request.words[1:] if request.words[:1] == ["python"] else ["-m", "calipers", *request.words]
    with open(request.out, "wb") as out, open(request.err, "wb") as err:
        settings: dict[str, Any] = {"cwd": request.folder, "env": request.environment, "stdout": out, "stderr": err}
        command = [sys.executable, *own]
        return subprocess.run(command, stdin=subprocess.DEVNULL, timeout=TIMEOUT, check=False, **settings).returncode


@contextlib.contextmanager
def helper(environment: Mapping[str, str], shared: Sequence[str] = SHARED) -> Iterator[Starter]:
    """A process that forks one for each request; modules that match `shared` are imported once."""
    command = [sys.executable, "-P", __file__, *shared]
    settings: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **settings) as process:
        assert process.stdin
        assert process.stdout
        sink, source = process.stdin, process.stdout

        def start(request: Request) -> int:
            print(json.dumps(asdict(request)), file=sink, flush=True)
            return int(source.readline())

        yield start
        sink.close()


def serve_requests(shared: Sequence[str]) -> None:
    """What the helper does. It imports what a command has imported, so that the next one need not."""
    for line in sys.stdin:
        source, sink = os.pipe()
        child = os.fork()
        if not child:
            code = become(Request(**json.loads(line)))
            names = [name for name in sys.modules if any(fnmatch(name, pattern) for pattern in shared)]
            os.write(sink, "\n".join(names).encode())
            os._exit(code)
        os.close(sink)
        with open(source, encoding="utf-8") as pipe:
            names = pipe.read().split("\n")
        _, status, used = os.wait4(child, 0)
        note_use(f"{json.loads(line)['err']}.used", used)
        print(os.waitstatus_to_exitcode(status), flush=True)
        for name in names:
            if name and name not in sys.modules:
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)


def note_use(path: str, used: Any) -> None:
    """Memory of a command in KB, beyond what the helper has imported, and its seconds of processor time."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as file:
        file.write(f"{max(0, used.ru_maxrss - own)} {used.ru_utime + used.ru_stime}")


def become(request: Request) -> int:
    """Run the command in this process. Its exit code."""
    signal.alarm(int(request.environment.get("CALIPERS_TEST_SECONDS", TIMEOUT)))
    if most := request.environment.get("CALIPERS_TEST_MEMORY"):  # bytes of address space
        resource.setrlimit(resource.RLIMIT_AS, (int(most), int(most)))
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    for number, file in enumerate((os.devnull, request.out, request.err)):
        os.dup2(os.open(file, os.O_CREAT | (os.O_WRONLY if number else os.O_RDONLY) | os.O_NOCTTY), number)
    code: Any = 0
    try:
        if request.words[:2] == ["python", "-m"]:
            sys.path.insert(0, request.folder)
            sys.argv = list(request.words[2:])
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        elif request.words[:1] == ["python"]:
            sys.argv = list(request.words[1:])
            runpy.run_path(sys.argv[0], run_name="__main__")
        else:
            sys.argv = ["calipers", *request.words]
            runpy.run_module("calipers", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    serve_requests(sys.argv[1:])
