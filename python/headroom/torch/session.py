"""trace(): one run of a user's program on fake tensors."""

import contextlib
import inspect
import time
import warnings

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import attention, autocast, packed, recurrent, standin
from .changes import ChangedProgram, Changes
from .costs import Costs
from .errors import TraceError, refused_values
from .gpus import find_gpu
from .in_place import unshared_counts
from .trace_file import write_trace
from .tracer import Tracer


_MUCH = 0.001  # by which steps may differ in memory


class Trace:
    """The allocations of a traced program; `save` writes them for `headroom replay`, `predict`, `fit`, `report`."""

    def __init__(self, program, settings, seconds):
        self.recorder = program.tracer.recorder
        self.gpu = program.tracer.gpu
        self.costs = program.tracer.costs
        self.changed = program.changed
        self.step = program.step
        self.drawn = program.tracer.values.computing.has_drawn  # computed values decided sizes, by random numbers
        self.settings = settings
        self.seconds = seconds

    @property
    def peak_bytes(self):
        """The most bytes that were requested and live at once."""
        peak = live = 0
        for event in self.recorder.events:
            if event[0] == "a":
                live += event[1].size
                peak = max(peak, live)
            elif event[0] == "f":
                live -= event[1].size
        return peak

    @property
    def requests(self):
        """Returns what tells traces of other requests apart, the peak of their bytes, and what NCCL takes beside them."""
        sizes = [event[1].size * (1 if event[0] == "a" else -1) for event in self.recorder.events if event[0] in "af"]
        return hash(tuple(sizes)), self.peak_bytes, int(self.settings["nccl_bytes"])

    @property
    def blocks(self):
        return [event[1] for event in self.recorder.events if event[0] == "a"]

    def save(self, path):
        write_trace(path, self.recorder, self.settings)


class TrainsByItself(BaseException):
    """A function makes optimizer steps instead of returning one step: it is a whole program."""


def call_with_batch(function, batch):
    """Returns function(batch), or function() if it takes nothing."""
    parameters = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    name = function.__name__
    required = [p for p in parameters if p.default is p.empty]
    if len(required) > 1:
        others = " and ".join(f"'{p.name}'" for p in required[1:])
        raise TraceError(f"{name} is called with a batch size alone; give {others} a default")
    if batch is None:
        if required:
            raise TraceError(f"{name} takes a batch size; pass --batch N")
        return function()
    if not parameters:
        raise TraceError(f"{name} takes no batch size; leave --batch out, or give it a parameter")
    return function(batch)


def _make_step(make_step, batch, most):
    """The step that a function returns. Raises TrainsByItself where it makes `most` steps itself, or some and returns."""
    count = 0

    def after_step(optimizer, args, kwargs):
        nonlocal count
        count += 1
        if count == most:
            raise TrainsByItself

    handle = register_optimizer_step_post_hook(after_step)
    try:
        step = call_with_batch(make_step, batch)
    finally:
        handle.remove()
    if callable(step) and not isinstance(step, torch.nn.Module):
        return step
    if count:
        raise TrainsByItself
    returned = "None" if step is None else type(step).__name__
    if callable(step):
        returned = f"the model ({returned})"
    raise TraceError(
        f"{make_step.__name__} must return a function that does one training step, not {returned}"
    )


class LoadedProgram:
    """A program that is loaded on fake tensors, with PyTorch prepared for it as long as `stack` is open. `load` gives
    its function, which `run` calls, once. `not_compiled` says why torch.compile is traced as eager; "": it is not.
    """

    def __init__(self, load, gpu, host_is_gpu, stack, compute=None, not_compiled=""):
        unshared_counts()
        self.tracer = tracer = Tracer(gpu, host_is_gpu, compute, not_compiled)
        self.step = None
        library = torch.library.Library("aten", "IMPL")
        stack.callback(library._destroy)
        with warnings.catch_warnings():  # about kernels that are replaced on purpose
            warnings.simplefilter("ignore")
            attention.install(tracer, library)
            self._weights = autocast.install(library, stack)
            recurrent.install(tracer, library, self._weights)
            packed.install(tracer, library)
        standin.install(tracer, stack)
        self.changed = ChangedProgram(tracer, stack)
        stack.enter_context(tracer)
        with refused_values():
            self._make_step = load()

    @refused_values()
    def run(self, batch, steps, changes=None, speed=None, on_step=None, seed=0):
        """Builds the program and does its steps, with changes (changes.py), the times of ops on a GPU of that speed
        (costs.py) and the random numbers of a seed.
        """
        tracer, changes = self.tracer, changes or Changes()
        self.begin(changes, speed, seed)
        self.step = _make_step(self._make_step, batch, steps)
        if on_step:
            on_step(0)
        for number in range(1, steps + 1):
            tracer.recorder.enter("forward", number)
            if tracer.costs:
                tracer.costs.begin_step()
            self.changed.run_step(self.step)
            if on_step:
                on_step(number)
            self.forget_casts()
        self.finish(changes)

    def forget_casts(self):
        """Drops the weights that autocast keeps; a step is done."""
        self._weights.clear()

    def begin(self, changes, speed, seed=0):
        """Prepares for one run with changes, the times of that speed and the numbers of that seed, which `finish` ends."""
        self.tracer.values.draws.begin(seed)
        self.tracer.values.computing.begin(seed)
        self.tracer.costs = Costs(speed) if speed else None
        self.changed.change(changes)

    def finish(self, changes):
        tracer = self.tracer
        tracer.recorder.enter("other")
        tracer.name_tensors()
        tracer.recorder.stop()
        tracer.finish()
        if tracer.costs:
            passes = changes.passes / changes.traced_passes
            tracer.costs.scale(("forward", "backward"), passes)


def trace(make_step, batch=None, steps=3, device="h200", program=None, compute=None):
    """Traces a training program without a GPU: make_step(batch) builds it and returns one training step. `compute` says
    which values of the model may be computed on the CPU where a size or a branch depends on them: "auto" (those that
    the host has the memory and time for), "all" or "never"; without it the environment variable HEADROOM_COMPUTE says so.

    Returns a Trace. Raises TraceError with one line if the program cannot be traced, ValueError for a device
    that is not known.
    """
    name = getattr(make_step, "__name__", "make_step")
    try:
        return trace_loaded(
            lambda: make_step, batch, steps, device, program or name, compute=compute
        )
    except TrainsByItself:
        raise TraceError(
            f"{name} trains by itself: return a function that does one training step, or trace the whole program "
            "by its command, as `headroom trace -- python train.py`"
        ) from None


def trace_loaded(
    load,
    batch,
    steps,
    device,
    program,
    changes=None,
    speed=None,
    on_step=None,
    compute=None,
    seed=0,
    seeds=1,
):
    """trace() for a function that `load` gives once PyTorch is prepared, with changes (changes.py), the times of ops on a
    GPU of that speed (costs.py) and the random numbers of a seed, one of `seeds` that may be asked for.
    """
    gpu = find_gpu(device)
    if steps < 1:
        raise ValueError("steps must be 1 or more")
    start = time.perf_counter()
    host_is_gpu, not_compiled = False, ""
    while True:
        with contextlib.ExitStack() as stack:
            loaded = LoadedProgram(load, gpu, host_is_gpu, stack, compute, not_compiled)
            compiled = loaded.tracer.compiled
            loaded.tracer.values.computing.seeds = seeds
            try:
                loaded.run(batch, steps, changes, speed, on_step, seed)
            except Exception as error:
                if not compiled.refuse(compiled.mark(error)):
                    raise
                not_compiled = compiled.refused
                continue
        if loaded.tracer.recorder.count or host_is_gpu:
            break
        host_is_gpu = True  # the program names no device: trace it as if all of it were on the GPU
    settings = settings_of(program, batch, steps, loaded.tracer)
    return Trace(loaded, settings, time.perf_counter() - start)


def _differing_steps(recorder):
    """A sentence where steps after the first, which makes what optimizers keep, take different amounts of memory."""
    peaks, step, live = {}, 0, 0
    for event in recorder.events:
        if event[0] == "m":
            step = event[1] if event[2] in ("forward", "backward", "optimizer") else 0
        elif event[0] in "af":
            live += event[1].size if event[0] == "a" else -event[1].size
            peaks[step] = max(peaks.get(step, 0), live)
    later = [peak for step, peak in peaks.items() if step > 1]
    more = max(later) / min(later) - 1 if len(later) > 1 else 0
    if more < _MUCH:
        return []
    return [
        f"steps differ: the largest of steps 2 to {len(later) + 1} takes {more:.1%} more than the smallest; others may "
        "take more yet: trace more of them (--steps)"
    ]


def settings_of(program, batch, steps, tracer):
    """Returns a trace's settings for its program."""
    settings = {
        "program": program,
        "framework": f"PyTorch {torch.__version__.split('+')[0]}",
        "device": tracer.gpu.name,
        "strategy": "caching",
    }
    assumed = [*tracer.assumed, *tracer.values.assumed()]
    if not any(sentence.startswith("batches differ") for sentence in assumed):
        assumed += _differing_steps(tracer.recorder)
    if assumed:
        settings["assumed"] = "; ".join(assumed)
    if batch is not None:
        settings["batch"] = str(batch)
    settings["steps"] = str(steps)
    handles = sum(library == "cuBLAS" for library, _ in tracer.library)
    settings["blas_handles"] = str(handles)
    settings["nccl_bytes"] = str(tracer.communicators.bytes())
    return settings
