"""Processes that a program starts for its ranks: one of them runs in this one, the others do not."""

import multiprocessing.process
import os

import torch.multiprocessing
from torch.multiprocessing import spawn as spawning

from .patch import patch


class _Ended:
    """Processes that are done."""

    processes = ()

    def join(self, *_, **__):
        return True


def _run_first_with_model(stack):
    """The first of the processes that are given a model runs here when it starts, and the others do not."""
    kind = multiprocessing.process.BaseProcess
    original = {name: getattr(kind, name) for name in ("start", "join", "is_alive")}
    started = []

    def start(process):
        given = (*process._args, *process._kwargs.values())
        if not any(isinstance(value, torch.nn.Module) for value in given):
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


def install(stack):
    def spawn(fn, args=(), nprocs=1, *_, join=True, **__):
        fn(int(os.environ.get("LOCAL_RANK", 0)), *args)
        return None if join else _Ended()

    _run_first_with_model(stack)
    for owner in (torch.multiprocessing, spawning):
        patch(stack, owner, "spawn", spawn)
    patch(stack, spawning, "start_processes", spawn)
    patch(stack, torch.multiprocessing, "start_processes", spawn)
