"""The errors of a trace: one line that names the user's line and what to do."""

import os
import traceback

from .recorder import is_user_file


class TraceError(Exception):
    """The program cannot be traced, or is not a program."""


def user_line():
    """The innermost line of the user's own code that runs now: "train.py:31"."""
    for frame in reversed(traceback.extract_stack()):
        if is_user_file(frame.filename):
            return f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return ""


def refusal(what):
    """A TraceError that says of the user's line that runs now what cannot be traced, and why."""
    line = user_line()
    return TraceError(f"{line}: {what}" if line else what)


def _library_line():
    """The line of a library that the user's line led to: "torchvision/ops/boxes.py:85"."""
    for frame in reversed(traceback.extract_stack()):
        if is_user_file(frame.filename):
            return ""
        for folder in ("site-packages", "dist-packages"):
            before, found, path = frame.filename.replace(os.sep, "/").partition(f"/{folder}/")
            is_internal = path.startswith(("headroom/", "torch/_")) or path.count("/") == 0
            if found and not is_internal:
                return f"{path}:{frame.lineno}"
    return ""


def data_dependent(what):
    """A TraceError for a step that depends on values which a trace does not have."""
    line, inner = user_line(), _library_line()
    where = f"{line}: " if line else ""
    if inner:
        where += f"{inner}: "
    # item() gives a value that may be printed and summed up, and that nothing may depend on.
    instead = "take item() of a value that is only printed, " if what == "float()" else ""
    return TraceError(
        f"{where}{what} needs the value of a tensor, and a trace computes no values; {instead}"
        "make the shape or the branch independent of the data, for example with a fixed maximum and a mask "
        "(torch.where), or leave the line out of the traced step"
    )
