"""Processes that a program starts for its ranks: one of them runs in this one, the others do not."""

import os

import torch.multiprocessing
from torch.multiprocessing import spawn as spawning

from .patch import patch


class _Ended:
    """Processes that are done."""

    processes = ()

    def join(self, *_, **__):
        return True


def install(stack):
    def spawn(fn, args=(), nprocs=1, *_, join=True, **__):
        fn(int(os.environ.get("LOCAL_RANK", 0)), *args)
        return None if join else _Ended()

    for owner in (torch.multiprocessing, spawning):
        patch(stack, owner, "spawn", spawn)
    patch(stack, spawning, "start_processes", spawn)
    patch(stack, torch.multiprocessing, "start_processes", spawn)
