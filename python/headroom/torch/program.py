"""Programs given as "train.py:make_step"."""

import argparse
import contextlib
import importlib.util
import inspect
import os
import sys
import traceback
import types

from .errors import TraceError, one_line
from .gpus import find_gpu
from .recorder import is_user_file
from .session import call_with_batch, trace_loaded

_MOST_NAMES = 5


def _load(path, function):
    """The function of a file, whose folder is searched for its imports as when Python runs it."""
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, os.path.abspath(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        raise _without_arguments(error) or TraceError(
            f"{path} ended Python ({error.code}) while it was loaded; guard its main program with "
            'if __name__ == "__main__"'
        ) from error
    made = getattr(module, function, None)
    if made is None:
        found = [name for name, value in vars(module).items() if _may_build(value, name, module)]
        found.sort(key=lambda name: _likeness(name, vars(module)[name]))
        others = f"; it has {', '.join(found[:_MOST_NAMES])}" if found else ""
        if len(found) > _MOST_NAMES:
            others += f" and {len(found) - _MOST_NAMES} more"
        raise TraceError(f"{path} has no function '{function}'{others}")
    if not callable(made):
        raise TraceError(f"{function} in {path} is not a function")
    return made


def _likeness(name, function):
    """Sorts the functions of a file as `headroom trace train.py` does (tools/trace/program.cpp)."""
    first = next(iter(inspect.signature(function).parameters), "")
    return 0 if name == "make_step" else 1 if "batch" in first else 2


def _may_build(value, name, module):
    """Returns true for a function of the file that can be called with only a batch or with no arguments."""
    is_own = getattr(value, "__module__", None) == module.__name__
    if not isinstance(value, types.FunctionType) or not is_own or name.startswith("_"):
        return False
    required = [
        p
        for p in inspect.signature(value).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    return len(required) <= 1 and all(p.kind != p.KEYWORD_ONLY for p in required)


def place_of(error):
    """The user's innermost line that an exception came through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_user_file(frame.filename):
            return f"{os.path.basename(frame.filename)}:{frame.lineno}: "
    return ""


def _source_of(error):
    """The text of the user's innermost line that an exception came through, for one that says nothing itself."""
    lines = [frame.line for frame in traceback.extract_tb(error.__traceback__) if is_user_file(frame.filename)]
    return lines[-1] if lines else ""


def complaint_of(error):
    """Returns the complaint of a parser of arguments that ended Python, at the user's line; None for an exit of other
    code.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        is_parser = isinstance(frame.f_locals.get("self"), argparse.ArgumentParser)
        if is_parser and frame.f_code.co_name == "error" and "message" in frame.f_locals:
            return f"{place_of(error)}{frame.f_locals['message']}"
    return None


def describe_error(error):
    """An error of the program in one line, with the user's line that it came through."""
    return f"{place_of(error)}{type(error).__name__}: {one_line(error) or _source_of(error)}"


def _without_arguments(error):
    complaint = complaint_of(error)
    return complaint and TraceError(
        f"{complaint}; a traced function gets no arguments: trace its program by the command that you type, as "
        "headroom trace -- python train.py --data DATA"
    )


def _path_and_function(program):
    path, separator, function = program.rpartition(":")
    if not separator or not path.endswith(".py") or not function.isidentifier():
        raise TraceError(
            f"'{program}' is not a program; give a file and a function, as train.py:make_step"
        )
    if not os.path.isfile(path):
        raise TraceError(f"{path}: no such file")
    return path, function


def function_of(program):
    """The function of "train.py:make_step", whose file is run."""
    return _load(*_path_and_function(program))


def call_function(program, batch):
    """Calls the function of "train.py:main", which trains by itself, with a batch if there is one."""
    path, function = _path_and_function(program)
    sys.argv = [path]
    call_with_batch(_load(path, function), batch)


@contextlib.contextmanager
def running(program):
    """Runs the program in the body, without arguments. Raises a TraceError with one line, and the program's own line,
    for what it raises there.
    """
    path, function = _path_and_function(program)
    arguments, sys.argv = sys.argv, [path]
    try:
        yield
    except (TraceError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise _without_arguments(error) or TraceError(
            f"{place_of(error)}{function} or its step ended Python ({error.code}); leave the exit out of "
            "what is traced"
        ) from error
    except Exception as error:
        raise TraceError(describe_error(error)) from error
    finally:
        sys.argv = arguments


def trace_program(program, batch=None, steps=3, device="h200", **options):
    """Traces "train.py:make_step"; see headroom.torch.trace, and trace_loaded for the rest."""
    find_gpu(device)  # its error is not the program's
    with running(program):
        return trace_loaded(
            lambda: function_of(program), batch, steps, device, program, **options
        )
