"""Processes that a program starts for its ranks: one of them runs in this one, the others do not."""

import functools
import inspect
import multiprocessing.process
import os

import torch.multiprocessing
from torch.multiprocessing import spawn as spawning

from ..recorder import is_user_file
from .patch import patch


class _Ended:
    """Processes that are done."""

    processes = ()

    def join(self, *_, **__):
        return True


def _run_first(stack):
    """The first of the processes that are given a model runs here when it starts, and the others do not. Returns a
    function that runs the first of the others here, for a program that ended without a tensor of its own.
    """
    kind = multiprocessing.process.BaseProcess
    original = {name: getattr(kind, name) for name in ("start", "join", "is_alive")}
    started, others = [], []

    def start(process):
        given = (*process._args, *process._kwargs.values())
        if not any(isinstance(value, torch.nn.Module) for value in given):
            code = getattr(inspect.unwrap(process._target), "__code__", None) if process._target else None
            if code and is_user_file(code.co_filename) and not process.daemon:
                others.append((process, functools.partial(process._target, *process._args, **process._kwargs)))
            return original["start"](process)
        started.append(process)
        if len(started) == 1:
            process.run()

    def of_started(name, answer):
        def method(process, *args):
            return answer if process in started else original[name](process, *args)

        patch(stack, kind, name, method)

    patch(stack, kind, "start", start)
    of_started("join", None)
    of_started("is_alive", False)

    def run_first_of_others():
        for process, _ in others:
            process.kill()
        for _, work in others[:1]:
            work()

    return run_first_of_others


def install(stack):
    """Returns a function that runs the first process that the program started, where it did not run here."""

    def spawn(fn, args=(), nprocs=1, *_, join=True, **__):
        fn(int(os.environ.get("LOCAL_RANK", 0)), *args)
        return None if join else _Ended()

    for owner in (torch.multiprocessing, spawning):
        patch(stack, owner, "spawn", spawn)
    patch(stack, spawning, "start_processes", spawn)
    patch(stack, torch.multiprocessing, "start_processes", spawn)
    return _run_first(stack)
