"""Work in a copy of this process, which leaves nothing behind here: what it imports, keeps or breaks goes with it."""

import ctypes
import json
import os
import signal
import sys
import traceback
import warnings

_PR_SET_PDEATHSIG = 1


class ChildError(Exception):
    """A copy of this process ended without a result; one line."""


def in_child(work):
    """What `work()` returns, which JSON must be able to hold. Raises ChildError where the copy ends before."""
    reader, writer = os.pipe()
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():  # about threads, of which the copy has this one alone
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(reader)
        _end(work, parent, writer)
    os.close(writer)
    try:
        with os.fdopen(reader) as results:
            line = results.readline()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    status = os.waitpid(child, 0)[1]
    if not line.endswith("\n"):
        raise ChildError(_describe(status))
    result = json.loads(line)
    if "failure" in result:
        raise ChildError(result["failure"])
    return result["result"]


def _end(work, parent, writer):
    """Runs in the copy, of which nothing may return to what runs in this process."""
    try:
        _die_with(parent)
        try:
            result = {"result": work()}
        except Exception as error:
            traceback.print_exc()
            result = {"failure": " ".join(f"{type(error).__name__}: {error}".split())}
        with os.fdopen(writer, "w") as results:
            results.write(json.dumps(result) + "\n")
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _die_with(parent):
    """Nobody would read the result of a copy whose process was killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _describe(status):
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"Python ended by signal {number} ({signal.strsignal(number)})"
    return f"Python ended with exit code {os.waitstatus_to_exitcode(status)}"
