"""A process that kills itself at a chosen point: on the path of the commands of a kill trial, Python imports it first.

KILL_AT is ROLE:SIDE:STEP:NUMBER, such as worker:before:rename:2 for the second rename of a worker. KILL_LOG is a file
that gets the name of every shard that is computed. KILL_ONCE is a file that the kill leaves: it happens once.
KILL_SIGNAL is another signal than SIGKILL, such as SIGINT for Ctrl-C.
"""

import os
import signal
import sqlite3
import sys

ROLE = "worker" if "calipers.sweeps.worker" in sys.orig_argv else "driver"
WANTED = os.environ.get("KILL_AT", ":::").split(":")
COUNTS = {}


def reach(side, step):
    if WANTED[:3] != [ROLE, side, step] or os.path.exists(os.environ["KILL_ONCE"]):
        return
    COUNTS[step] = COUNTS.get(step, 0) + 1
    if COUNTS[step] == int(WANTED[3]):
        with open(os.environ["KILL_ONCE"], "w"):
            pass
        os.kill(os.getpid(), getattr(signal, os.environ.get("KILL_SIGNAL", "SIGKILL")))


def around(function, step):
    def call(*args, **kwargs):
        if step == "fsync":
            reach("after", "write")  # all is written, and nothing flushed
        reach("before", step)
        result = function(*args, **kwargs)
        reach("after", step)
        return result

    return call


def listen(event, args):
    """Files that are to become whole are opened under a name that ends in .part."""
    if event == "open" and isinstance(args[0], (str, os.PathLike)) and str(args[0]).endswith(".part"):
        writes = isinstance(args[1], str) and ("w" in args[1] or "x" in args[1])
        if writes and ".npz." in str(args[0]):
            log = os.open(os.environ["KILL_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            folder, name = os.path.split(str(args[0]))
            os.write(log, f"{os.path.basename(folder)}/{name.split('.')[1]}\n".encode())
            os.close(log)
        if writes:
            reach("before", "write")


class Connection(sqlite3.Connection):
    def commit(self):
        around(super().commit, "commit")()

    def __exit__(self, *error):
        return around(super().__exit__, "commit")(*error)


if "KILL_LOG" in os.environ:
    sys.addaudithook(listen)
    os.fsync = around(os.fsync, "fsync")
    os.replace, os.rename = around(os.replace, "rename"), around(os.rename, "rename")
    connect = sqlite3.connect
    sqlite3.connect = lambda *args, **kwargs: connect(*args, **{"factory": Connection, **kwargs})
