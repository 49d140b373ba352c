"""Decides which values of a model a trace computes on the CPU, and says before it does what that takes.

A value that follows from data by a few ops is always computed. One that the model computes is if `mode` is "auto" and
the host has the memory and the time, always if it is "all", and not at all if it is "never".
"""

import os
import sys
import time

import torch

from . import choices, cpu_ops
from .recipes import Evaluation, Kept, NotComputable, Step

MODES = ("auto", "never", "all")
_VARIABLE = "HEADROOM_COMPUTE"
_CHEAP_SECONDS = 0.1
_MOST_CHEAP_STEPS = 2000
_MOST_CHEAP_SECONDS = 20  # of all cheap values together
_MOST_SECONDS = 600  # of all values, unless "all" was said
_MOST_SECONDS_OF_CHOICES = 10  # after which what a model chooses is drawn
_SAID_SECONDS = 2  # a computation that takes longer is announced
_FLOPS_PER_SECOND = 50e9  # of one core
_BYTES_PER_SECOND = 4e9
_SHARED_SECONDS = 2e-3  # an op that takes longer runs on all cores
_KEPT_BYTES = 256 << 20
MANY_STEPS = 100_000  # that exist: half of those that are kept


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


def _say(text):
    print(f"headroom: {text}", file=sys.stderr, flush=True)


def _seconds(work):
    """What one core takes for a step, or for an evaluation."""
    return work.flops() / _FLOPS_PER_SECOND + work.moved_bytes() / _BYTES_PER_SECOND


def _choose_threads(step):
    """Threads that wait for each other at small ops take longer than one."""
    torch.set_num_threads(1 if _seconds(step) < _SHARED_SECONDS else os.cpu_count() or 1)


class Computing:
    """`say` is called with one line before a computation that takes long."""

    say = staticmethod(_say)

    def __init__(self, mode=None):
        self.mode = mode or os.environ.get(_VARIABLE) or "auto"
        if self.mode not in MODES:
            raise ValueError(f"{_VARIABLE} is '{self.mode}': give auto, all or never")
        self.is_quiet = False
        self.seeds = 1  # that the program is traced with where a computed value decides sizes
        self.kept = Kept(_KEPT_BYTES), Kept(_KEPT_BYTES)
        self._factor = 1.0  # of the last real time to its estimate
        self.seconds = 0.0  # that computations take by estimates, which are the same in each run
        self.has_decided = False  # a computed value of the model, on a size or a branch
        self.has_drawn = False  # such a value follows from random numbers
        self.draws_choices = False  # it drew places that the model would have chosen
        self._said = 0.0  # the seconds of the last announcement
        self._generator = torch.Generator()

    def begin(self, seed):
        self.is_quiet = seed > 0  # the first seed has said it for all
        self._generator.manual_seed(seed)

    def begin_choices(self):
        """The generator of places that are drawn in the place of those that a model would choose."""
        self.draws_choices = self.has_decided = self.has_drawn = True
        return self._generator

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

    def compute(self, values, most_seconds=None, decides=False):
        """Computes values. Returns "", or why it did not. With `most_seconds` the program could do without them, though
        they may decide sizes.
        """
        if all(value.buffer is not None for value in values):
            return ""
        evaluation = Evaluation(values)
        if evaluation.is_lost:
            return f"a trace keeps {_KEPT_BYTES >> 20} MiB of data, which it is not among"
        is_of_model = evaluation.flops() > 0
        seconds = self._estimate(evaluation)
        is_long = self.seconds + seconds > _MOST_SECONDS_OF_CHOICES
        if is_of_model and self.mode == "auto" and most_seconds is None and is_long:
            if choices.draw(evaluation, self._generator):
                self.begin_choices()
                return self.compute(values, most_seconds, decides)
        size = evaluation.peak_bytes()
        if is_of_model and self.mode == "never":
            return "the model computes it; --compute auto computes it on the CPU"
        if self.mode != "all":
            if size > available_bytes() // 2:
                return (
                    f"computing it on the CPU takes about {_size(size)} of the host's memory, of which "
                    f"{_size(available_bytes())} are free; --compute all does so"
                )
            most = _MOST_SECONDS if most_seconds is None else min(most_seconds, _MOST_SECONDS_OF_CHOICES)
            if self.seconds + seconds > most:
                return f"computing it on the CPU takes about {_time(seconds)}; --compute all does so"
        decides = is_of_model and (decides or most_seconds is None)
        is_drawn = decides and any(value.is_drawn for value in values)
        self._announce(size, self.seconds + seconds, is_drawn)
        try:
            self._run(evaluation)
        except NotComputable as error:
            return f"the CPU cannot compute it: {error}"
        self.has_decided = self.has_decided or decides
        self.has_drawn = self.has_drawn or is_drawn
        return ""

    def _announce(self, size, seconds, is_drawn):
        """Says what all computations so far and the next one take, where that is long, and twice what was said."""
        seconds *= self._factor
        if self.is_quiet or seconds < _SAID_SECONDS or seconds < 2 * self._said:
            return
        self._said = seconds
        times = f", for each of {self.seeds} seeds" if is_drawn and self.seeds > 1 else ""
        self.say(f"computes {_size(size)} on the CPU, about {_time(seconds)}{times}")

    def run_step(self, step):
        """Runs one step whose arguments are all known."""

        def buffer_of(value, is_written):
            return value.buffer.clone() if is_written else value.buffer

        with cpu_ops.plain_torch():
            given = step.run(buffer_of)
        for value, buffer in given:
            value.buffer, value.step = buffer, None

    def _run(self, evaluation):
        estimate, start = self._estimate(evaluation), time.perf_counter()
        self.seconds += estimate
        with cpu_ops.plain_torch():
            evaluation.run(*self.kept, _choose_threads)
        if Step.count > MANY_STEPS:
            for kept in self.kept:
                kept.end_recipes()
        seconds = time.perf_counter() - start
        if estimate > _CHEAP_SECONDS:
            self._factor = min(max(seconds / estimate, 0.1), 10)

    def _estimate(self, evaluation):
        return _seconds(evaluation) + 2e-5 * len(evaluation.steps)
