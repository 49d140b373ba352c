"""The errors of a trace: one line that names the user's line and what to do."""

import ast
import contextlib
import itertools
import linecache
import os
import re
import sys
import traceback

from .recorder import is_user_file

# The user's line and the text of the last refusal of a value, which C code that looks for a whole number drops. Not the
# error: it would keep the tensors of all functions that it came through.
_latest = ("", "")
_MOST_TEXT = 400  # of an error of the program
NO_NETWORK = "no network for a traced program: {} (run it once to download what it needs)"
_NO_NETWORK = re.compile(re.escape(NO_NETWORK).replace(r"\{\}", r"\S+"))


class TraceError(Exception):
    """The program cannot be traced, or is not a program."""


def one_line(error):
    """The text of an error in one line, which may be cut; of one that came of a connection, what the sandbox says of it."""
    text = " ".join(str(error).split())
    refused = _NO_NETWORK.search(text)
    if refused:
        return refused[0]
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "..."


def line_in(frames):
    """The innermost line of the user's own code in a stack: "train.py:31"."""
    for frame in reversed(frames):
        if is_user_file(frame.filename):
            return f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return ""


def user_line():
    """The innermost line of the user's own code that runs now."""
    return line_in(traceback.extract_stack())


def called_function():
    """The function that the user's own code calls now, as "arange()"; "" where Python (below 3.11) does not say."""
    frame = sys._getframe()
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    called = getattr(call_in(frame), "func", None)
    name = getattr(called, "attr", getattr(called, "id", ""))
    return f"{name}()" if name else ""


def call_in(frame):
    """The call that a frame does now, in one line of its source; None where it does something else or Python (below 3.11)
    does not say.
    """
    if frame is None or not hasattr(frame.f_code, "co_positions"):
        return None
    positions = itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    line, last_line, start, end = next(positions)
    if line is None or line != last_line:
        return None
    text = linecache.getline(frame.f_code.co_filename, line).encode()[start:end]
    with contextlib.suppress(SyntaxError):
        expression = ast.parse(text, mode="eval").body
        return expression if isinstance(expression, ast.Call) else None
    return None


def refusal(what):
    """A TraceError that says of the user's line that runs now what cannot be traced, and why."""
    line = user_line()
    return TraceError(f"{line}: {what}" if line else what)


def _library_line(frames):
    """The line of a library that the user's line led to: "torchvision/ops/boxes.py:85"."""
    for frame in reversed(frames):
        if is_user_file(frame.filename):
            return ""
        for folder in ("site-packages", "dist-packages"):
            before, found, path = frame.filename.replace(os.sep, "/").partition(f"/{folder}/")
            is_internal = path.startswith(("headroom/", "torch/_")) or path.count("/") == 0
            if found and not is_internal:
                return f"{path}:{frame.lineno}"
    return ""


def data_dependent(what, frames=None, reason="a trace does not know it"):
    """A TraceError for a step that depends on a value which a trace does not have for a reason, at the user's line in
    `frames`, or the one that runs now."""
    global _latest
    frames = frames or traceback.extract_stack()
    line, inner = line_in(frames), _library_line(frames)
    where = f"{line}: " if line else ""
    if inner:
        where += f"{inner}: "
    # item() gives a value that may be printed and summed up, and that nothing may depend on.
    instead = "take item() of a value that is only printed, " if what == "float()" else ""
    text = (
        f"{where}{what} needs the value of a tensor, and {reason}; {instead}"
        "make the shape or the branch independent of the data, for example with a fixed maximum and a mask "
        "(torch.where), or leave the line out of the traced step"
    )
    _latest = (line, text)
    return TraceError(text)


def forget_refusal():
    """The last refusal of a value is done with: something else was taken in its place."""
    global _latest
    _latest = ("", "")


def left_out():
    """A sentence on a refusal of a value that the program handled itself; "" where there was none."""
    return f"the program went on without a part: {_latest[1]}" if _latest[1] else ""


@contextlib.contextmanager
def refused_values():
    """Raises the refusal of a value in place of what C code says that dropped it: that it was given no whole number."""
    forget_refusal()
    try:
        yield
    except (TypeError, RuntimeError, ValueError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        line, text = _latest
        if isinstance(error, TypeError) and line and line == line_in(frames):
            raise TraceError(text) from error
        if re.search(r"\bUnknownNumber\b|\bNaN to integer|without overflow", str(error)):
            raise data_dependent("item()", frames) from error
        raise
