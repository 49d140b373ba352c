"""Decides which values of a model a trace computes on the CPU, and says before it does what that takes.

A value that follows from data by a few ops is always computed. One that the model computes is if `mode` is "auto" and
the host has the memory and the time, always if it is "all", and not at all if it is "never".
"""

import os
import sys
import time

import torch

from . import cpu_ops
from .recipes import Evaluation, Kept, NotComputable

_CHEAP_SECONDS = 0.1
_MOST_CHEAP_STEPS = 2000
_MOST_CHEAP_SECONDS = 20  # of all cheap values together
_MOST_SECONDS = 600  # of all values, unless "all" was said
_SAID_SECONDS = 2  # a computation that takes longer is announced
_FLOPS_PER_SECOND = 25e9  # of one core
_BYTES_PER_SECOND = 2e9
_KEPT_BYTES = 256 << 20


def available_bytes():
    """Memory of the host that a trace may take."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _size(count):
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _time(seconds):
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


class Computing:
    def __init__(self, mode="auto"):
        self.mode = mode
        self.kept = Kept(_KEPT_BYTES)
        self.seconds = 0.0  # that computations took
        self.has_computed = False  # what a model computes

    def cheap(self, values):
        """Computes values that cost next to nothing. Returns false if they cost more or are unknown."""
        if all(value.buffer is not None for value in values):
            return True
        evaluation = Evaluation(values, _MOST_CHEAP_STEPS)
        if evaluation.is_long or evaluation.is_lost or self._estimate(evaluation) > _CHEAP_SECONDS:
            return False
        if self.mode == "never" and evaluation.flops() > 0 or self.seconds > _MOST_CHEAP_SECONDS:
            return False
        try:
            self._run(evaluation)
        except NotComputable:
            return False
        return True

    def compute(self, values, most_seconds=_MOST_SECONDS):
        """Computes values. Returns "", or why it did not."""
        if all(value.buffer is not None for value in values):
            return ""
        evaluation = Evaluation(values)
        if evaluation.is_lost:
            return "a trace does not know it"
        seconds, size = self._estimate(evaluation), evaluation.peak_bytes()
        is_of_model = evaluation.flops() > 0
        if is_of_model and self.mode == "never":
            return "the model computes it; --compute auto computes it on the CPU"
        if self.mode != "all":
            if size > available_bytes() // 2:
                return (
                    f"computing it on the CPU takes about {_size(size)} of the host's memory; "
                    "--compute all does so"
                )
            if self.seconds + seconds > most_seconds:
                return (
                    f"computing it on the CPU takes about {_time(seconds)}; --compute all does so"
                )
        if seconds > _SAID_SECONDS:
            print(
                f"headroom: computes a value on the CPU: {_size(size)}, about {_time(seconds)}",
                file=sys.stderr,
                flush=True,
            )
        try:
            self._run(evaluation)
        except NotComputable as error:
            return f"the CPU cannot compute it: {error}"
        self.has_computed = self.has_computed or is_of_model
        return ""

    def run_step(self, step):
        """Runs one step whose arguments are all known."""

        def buffer_of(value, is_written):
            return value.buffer.clone() if is_written else value.buffer

        with cpu_ops.plain_torch():
            given = step.run(buffer_of)
        for value, buffer in given:
            value.buffer, value.step = buffer, None

    def _run(self, evaluation):
        start = time.perf_counter()
        with cpu_ops.plain_torch():
            evaluation.run(self.kept)
        self.seconds += time.perf_counter() - start

    def _estimate(self, evaluation):
        cores = torch.get_num_threads()
        flops, moved = evaluation.flops(), evaluation.moved_bytes()
        return (flops / _FLOPS_PER_SECOND + moved / _BYTES_PER_SECOND) / cores + 2e-5 * len(
            evaluation.steps
        )
