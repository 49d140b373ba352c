"""trace(): one run of a user's program on fake tensors."""

import contextlib
import inspect
import time
import warnings

import torch

from . import attention, autocast, packed, recurrent, standin
from .changes import ChangedProgram, Changes
from .costs import Costs
from .errors import TraceError, refused_values
from .gpus import find_gpu
from .trace_file import write_trace
from .tracer import Tracer, unshared_counts


class Trace:
    """The allocations of a traced program; `save` writes them for `headroom replay`, `predict`, `fit`, `report`."""

    def __init__(self, program, settings, seconds):
        self.recorder = program.tracer.recorder
        self.gpu = program.tracer.gpu
        self.costs = program.tracer.costs
        self.changed = program.changed
        self.step = program.step
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
    def blocks(self):
        return [event[1] for event in self.recorder.events if event[0] == "a"]

    def save(self, path):
        write_trace(path, self.recorder, self.settings)


def _make_step(make_step, batch):
    """The step: what make_step(batch) returns, or make_step() if it takes nothing."""
    parameters = [
        p
        for p in inspect.signature(make_step).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    required = [p for p in parameters if p.default is p.empty]
    if len(required) > 1:
        others = " and ".join(f"'{p.name}'" for p in required[1:])
        raise TraceError(
            f"{make_step.__name__} is called with a batch size alone; give {others} a default"
        )
    if batch is None:
        if required:
            raise TraceError(f"{make_step.__name__} takes a batch size; pass --batch N")
        step = make_step()
    elif parameters:
        step = make_step(batch)
    else:
        raise TraceError(
            f"{make_step.__name__} takes no batch size; leave --batch out, or give it a parameter"
        )
    if not callable(step):
        returned = "None" if step is None else type(step).__name__
        raise TraceError(
            f"{make_step.__name__} must return a function that does one training step, not {returned}"
        )
    if isinstance(step, torch.nn.Module):
        raise TraceError(
            f"{make_step.__name__} must return a function that does one training step, "
            f"not the model ({type(step).__name__})"
        )
    return step


class LoadedProgram:
    """A program that is loaded on fake tensors, with PyTorch prepared for it as long as `stack` is open. `load` gives
    its function, which `run` calls, once.
    """

    def __init__(self, load, gpu, host_is_gpu, stack, compute=None):
        unshared_counts()
        self.tracer = tracer = Tracer(gpu, host_is_gpu, compute)
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
    def run(self, batch, steps, changes=None, speed=None, on_step=None):
        """Builds the program and does its steps, with changes (changes.py) and the times of ops on a GPU of that speed
        (costs.py).
        """
        tracer, changes = self.tracer, changes or Changes()
        tracer.costs = Costs(speed) if speed else None
        self.changed.change(changes)
        self.step = _make_step(self._make_step, batch)
        if on_step:
            on_step(0)
        for number in range(1, steps + 1):
            tracer.recorder.enter("forward", number)
            if tracer.costs:
                tracer.costs.begin_step()
            self.changed.run_step(self.step)
            if on_step:
                on_step(number)
            self._weights.clear()
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
    return trace_loaded(
        lambda: make_step,
        batch,
        steps,
        device,
        program or getattr(make_step, "__name__", "make_step"),
        compute=compute,
    )


def trace_loaded(
    load, batch, steps, device, program, changes=None, speed=None, on_step=None, compute=None
):
    """trace() for a function that `load` gives once PyTorch is prepared, with changes (changes.py) and the times of ops
    on a GPU of that speed (costs.py).
    """
    gpu = find_gpu(device)
    if steps < 1:
        raise ValueError("steps must be 1 or more")
    start = time.perf_counter()
    for host_is_gpu in (False, True):
        with contextlib.ExitStack() as stack:
            loaded = LoadedProgram(load, gpu, host_is_gpu, stack, compute)
            loaded.run(batch, steps, changes, speed, on_step)
        if loaded.tracer.recorder.count:
            break
        # The program names no device: trace it as if all of it were on the GPU.
    settings = settings_of(program, batch, steps, loaded.tracer)
    return Trace(loaded, settings, time.perf_counter() - start)


def settings_of(program, batch, steps, tracer):
    """Returns a trace's settings for its program."""
    settings = {
        "program": program,
        "framework": f"PyTorch {torch.__version__.split('+')[0]}",
        "device": tracer.gpu.name,
        "strategy": "caching",
    }
    assumed = [*tracer.assumed, *tracer.values.assumed()]
    if assumed:
        settings["assumed"] = "; ".join(assumed)
    if batch is not None:
        settings["batch"] = str(batch)
    settings["steps"] = str(steps)
    return settings
