"""Work in a copy of this process, which leaves no trace here: its imports, objects and failures end with it."""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
import warnings

_PR_SET_PDEATHSIG = 1

_results = None  # in a copy: where its result goes


class ChildError(Exception):
    """A copy of this process ended without a result; one line."""


def in_child(work):
    """Returns the pickled result of `work()`. Raises ChildError if the copy ends before that."""
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
        with os.fdopen(reader, "rb") as results:
            result = _read(results)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    status = os.waitpid(child, 0)[1]
    if result is None:
        raise ChildError(_describe(status))
    value, failure = result
    if failure:
        raise ChildError(failure)
    return value


def _read(results):
    """None where they end before their end."""
    try:
        return pickle.load(results)
    except (EOFError, pickle.UnpicklingError):
        return None


def end_child(value):
    """In a copy: ends it with this result, whatever runs in it. No handler of an exception runs, and nothing that
    Python does at its end.
    """
    _send((value, None))


def _end(work, parent, writer):
    """Runs in the copy, of which nothing may return to what runs in this process."""
    global _results
    _results = writer
    try:
        _die_with(parent)
        try:
            result = (work(), None)
        except Exception as error:
            traceback.print_exc()
            result = (None, " ".join(f"{type(error).__name__}: {error}".split()))
        _send(result)
    finally:
        os._exit(0)


def _send(result):
    try:
        with os.fdopen(_results, "wb") as results:
            results.write(pickle.dumps(result))
        sys.stdout.flush()
        sys.stderr.flush()
        for process in multiprocessing.active_children():  # of the program, which may wait for it forever
            process.kill()
    finally:
        os._exit(0)


def _die_with(parent):
    """Ends this copy with its parent: its result would have no reader."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _describe(status):
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"Python ended by signal {number} ({signal.strsignal(number)})"
    return f"Python ended with exit code {os.waitstatus_to_exitcode(status)}"
