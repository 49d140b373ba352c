"""Runs a PyTorch program as `headroom run --limit` would, without a GPU, and keeps what the verdict is told from:
bench/simulate_verdict.py HEADROOM FACTS LIMIT COMMAND...

The tensors are fake, as in a trace; simulated_allocator.py takes and refuses memory and writes snapshots; the hook of
`headroom run` and `headroom report` are the product's. `headroom run --failure FACTS` then tells the verdict. One rank
of several runs, and the others are taken to hold as much as it does. It cannot show the workspaces of cuBLAS and cuDNN,
JAX, CuPy, and other processes.

bench/check_verdicts.py --simulate FOLDER runs the scripts of tests/guard/verdicts in this way.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HOOK = os.path.join(ROOT, "tools", "run", "python")
PATHS = [os.path.join(ROOT, "python"), HOOK]
sys.path[:0] = PATHS
sys.dont_write_bytecode = True

import headroom_hook
import headroom_objects
import headroom_source
import simulated_allocator
import torch
from headroom.torch import command, recorder, tracer
from headroom.torch.changes import Changes
from headroom.torch.errors import TraceError
from headroom.torch.gpus import find_gpu
from headroom.torch.session import LoadedProgram
from headroom.torch.standin import processes, saves
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

del sys.path[: len(PATHS)]  # the program's own modules may have the same names

CONTEXT_BYTES = 560 << 20  # of CUDA in a process with PyTorch on an H200
UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
OWN_FILES = (os.path.abspath(__file__), os.path.abspath(simulated_allocator.__file__))
PROCESS = 7  # the number of the one that is refused, in the facts


def parse_size(text):
    return int(float(text[:-3]) * UNITS[text[-3:]])


def size_text(size):
    for unit, factor in UNITS.items():
        if size >= factor:
            return f"{size / factor:.2f} {unit}"
    return f"{size} bytes"


def is_hidden(path):
    """Returns true for files that a program on a GPU would not have among its frames."""
    return path in OWN_FILES or path.startswith(HOOK) or "runpy" in path or recorder.is_own_file(path)


def is_dispatch(code):
    """Returns true where PyTorch hands an op to the tracer; the frames inside belong to the tracer."""
    return code.co_name == "__torch_dispatch__" and code.co_filename == tracer.__file__


def program_frames(frame):
    """Returns the frames of the program from `frame` outward, the innermost first."""
    found = []
    while frame is not None:
        if is_dispatch(frame.f_code):
            found.clear()
        elif not is_hidden(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found


class Card:
    """A simulated GPU with a limit, of which one of `ranks` equal processes uses its share."""

    def __init__(self, limit, ranks):
        self.limit = limit
        self.ranks = ranks
        self.allocator = simulated_allocator.Allocator(limit // ranks - CONTEXT_BYTES)
        self.observers = []  # called before a request fails
        self.tracer = None
        self._is_observed = False

    @property
    def used_bytes(self):
        return self.allocator.reserved + CONTEXT_BYTES

    def allocate(self, block, frames):
        try:
            return self.allocator.allocate(block.size, block.stream, frames)
        except simulated_allocator.Refused:
            pass
        size = simulated_allocator.round_up(block.size, simulated_allocator.MIN_BLOCK)
        self._observe(size)
        raise torch.OutOfMemoryError(self._error_text(size))

    def _observe(self, size):
        """Calls the hook as PyTorch does: in a backward pass from a thread that has no frames of the program."""
        if self._is_observed:
            return

        def call():
            for observer in self.observers:
                observer(0, size, self.limit, self.allocator.free_bytes)

        in_backward = self.tracer.recorder.phase == "backward" and torch._C._current_autograd_node() is not None
        self._is_observed = True
        depth, self.tracer.depth = self.tracer.depth, 0
        try:
            with _disable_current_modes():
                if in_backward:
                    thread = threading.Thread(target=call)
                    thread.start()
                    thread.join()
                else:
                    call()
        finally:
            self.tracer.depth = depth
            self._is_observed = False

    def _error_text(self, size):
        allocator = self.allocator
        private = ""
        if allocator.private:
            private = f", with {size_text(allocator.private)} allocated in private pools (e.g., CUDA Graphs)"
        return (
            f"CUDA out of memory. Tried to allocate {size_text(size)}. GPU 0 has a total capacity of "
            f"{size_text(self.limit)} of which {size_text(allocator.free_bytes)} is free. Including "
            f"non-PyTorch memory, this process has {size_text(self.used_bytes)} memory in use. Of the allocated "
            f"memory {size_text(allocator.allocated)} is allocated by PyTorch{private}, and "
            f"{size_text(allocator.reserved - allocator.allocated)} is reserved by PyTorch but unallocated. "
            "If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to "
            "avoid fragmentation.  See documentation for Memory Management  "
            "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
        )


class SimulatedRecorder(recorder.Recorder):
    """Hands the allocations of a traced program to a card, and keeps no events."""

    def __init__(self, card):
        super().__init__()
        self._card = card
        self._frames = []  # of the allocation that is under way
        self._described = {}
        self._on_card = {}  # number of a block -> the allocator's

    def enter(self, phase, step=None):
        self.phase = phase
        self.step = self.step if step is None else step

    def empty_cache(self):
        self._card.allocator.release_cached()

    def stack(self):
        frames = program_frames(sys._getframe(2))
        if self.phase == "backward":  # which PyTorch runs in a thread of its own
            inside = [i for i, frame in enumerate(frames) if frame.f_code.co_name == "_engine_run_backward"]
            frames = frames[: inside[-1]] if inside else frames
        key = tuple((frame.f_code, frame.f_lineno) for frame in frames)
        if key not in self._described:
            self._described[key] = [
                {"name": code.co_name, "filename": code.co_filename, "line": line} for code, line in key
            ]
        self._frames = self._described[key]
        return "", ""

    def _add(self, block):
        self._on_card[block.number] = self._card.allocate(block, self._frames)
        super()._add(block)
        self.events.clear()
        return block

    def free(self, block):
        super().free(block)
        self.events.clear()
        taken = self._on_card.pop(block.number, None)
        if taken is not None:
            self._card.allocator.deallocate(taken)


def simulate_memory(card):
    """Has PyTorch's own functions about memory answer for the card."""
    allocator = card.allocator
    memory = torch.cuda.memory
    memory._record_memory_history = torch.cuda._record_memory_history = lambda *_, **__: None
    memory._dump_snapshot = allocator.write_snapshot
    torch._C._cuda_attach_out_of_memory_observer = card.observers.append
    for owner in (torch.cuda, memory):
        owner.memory_allocated = lambda *_, **__: allocator.allocated
        owner.memory_reserved = lambda *_, **__: allocator.reserved
        owner.mem_get_info = lambda *_, **__: (allocator.free_bytes, card.limit)
        owner.empty_cache = allocator.release_cached


def simulate_graphs(allocator):
    """Replaces CUDA graphs by private pools of the allocator: a capture runs its ops once, a replay does nothing."""
    numbers = iter(range(1, sys.maxsize))

    class CUDAGraph:
        def __init__(self, *_, **__):
            self._pool = next(numbers)

        def pool(self):
            return 0, self._pool

        def replay(self):
            pass

        def reset(self):
            pass

    @contextlib.contextmanager
    def capture(graph, pool=None, *_, **__):
        allocator.pool = (pool or graph.pool())[1]
        try:
            yield
        finally:
            allocator.pool = 0

    torch.cuda.CUDAGraph, torch.cuda.graph = CUDAGraph, capture
    torch.cuda.graph_pool_handle = lambda: (0, next(numbers))


def show_fake_tensors(objects, hook):
    """Has the hook take fake tensors for what they stand for: storages by their own address, weights for Parameters;
    and the tracer for a library."""
    storage, array_bytes, alive = objects.storage, objects.array_bytes, objects.alive
    is_own = headroom_source.is_own
    headroom_source.is_own = lambda path: is_own(path) and not is_hidden(path)

    def is_weight(value):
        return isinstance(value, FakeTensor) and getattr(value, "_is_param", False)

    def weight_bytes(value):
        if not is_weight(value) or not value.is_cuda:
            return 0
        return value.nbytes + (value.grad.nbytes if value.grad is not None else 0)

    def alive_of(kind):
        if kind is torch.nn.Parameter:
            return [value for value in alive(FakeTensor) if is_weight(value)]
        return alive(kind)

    objects.storage = lambda array: (
        array.untyped_storage()._cdata if isinstance(array, torch.Tensor) else storage(array)
    )
    objects.array_bytes = lambda value: 0 if is_weight(value) else array_bytes(value)
    objects.weight_bytes, objects.alive = weight_bytes, alive_of
    hook._callers = lambda frame: iter(program_frames(frame))


def error_text(error):
    """Returns the traceback that Python would print on a GPU: without the frames of the tracer."""
    told = traceback.TracebackException.from_exception(error)
    each = told
    while each is not None:
        names = [frame.name for frame in each.stack]
        end = names.index("__torch_dispatch__") if "__torch_dispatch__" in names else len(names)
        each.stack[:] = [frame for frame in each.stack[:end] if not is_hidden(frame.filename)]
        each = each.__cause__ or each.__context__
    return "".join(told.format())


def run_program(program, card, path):
    """Runs it to its end. Returns the text of the error that ended it, or "". Throws TraceError where a program cannot
    be simulated."""
    tracer.Recorder = lambda: SimulatedRecorder(card)
    with contextlib.ExitStack() as stack:
        loaded = LoadedProgram(lambda: None, find_gpu("h200"), False, stack)
        card.tracer = loaded.tracer
        simulate_memory(card)
        simulate_graphs(card.allocator)
        saves.install(loaded.tracer, stack)
        processes.install(stack)
        show_fake_tensors(headroom_objects, headroom_hook)
        headroom_hook._SNAPSHOT = path
        headroom_hook._record_torch(torch)
        loaded.begin(Changes(), None)
        try:
            program.run()
        except SystemExit as ended:
            return str(ended.code) if ended.code else ""
        except TraceError:
            raise
        except BaseException as error:
            text = error_text(error)
            loaded.tracer.depth = 0
            with _disable_current_modes():
                headroom_hook.explain_end(error, error.__traceback__)
            return text
    return ""


def read(path):
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def failure(headroom, program, card, errors, path):
    """Returns what `headroom run --failure` would keep; the hook wrote its files to `path`."""
    report = {}
    if os.path.exists(path + ".pickle"):
        told = subprocess.run([headroom, "report", "--json", path + ".pickle"], capture_output=True, text=True).stdout
        report = json.loads(told) if told else {}
    allocator = card.allocator
    others = card.used_bytes * (card.ranks - 1)
    refused = {"owner": PROCESS, "refusals": allocator.refusals, "refused": allocator.refused, "ns": 1}
    return {
        "headroom_failure": 1,
        "status": 256,
        "errors": errors[-60_000:],
        "killed_for_memory": False,
        "command": program.title,
        "first_refusal_of": PROCESS,
        "cards": [{"card": 0, "limit": card.limit, "peak": card.used_bytes + others, "context_refused": 0}],
        "slots": [{**refused, "others": others, "card": 0}] if allocator.refusals else [],
        "report": report,
        "facts": read(path + ".json"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("headroom", help="the command")
    parser.add_argument("facts", help="the file to write")
    parser.add_argument("limit", type=parse_size, help="of the card, such as 4GiB or 3072MiB")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="of the program, such as python train.py --lr 1e-4")
    options = parser.parse_args()
    headroom, facts = os.path.abspath(options.headroom), os.path.abspath(options.facts)
    torch.set_num_threads(1)
    sys.modules.update(dict.fromkeys(("jax", "cupy")))  # cannot be imported: their memory is not simulated
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"snapshot.{os.getpid()}")  # as the hook names its files
        try:
            program = command.parse(options.command)
            card = Card(options.limit, program.ranks)
            errors = run_program(program, card, os.path.join(folder, "snapshot"))
        except TraceError as error:
            return f"not simulated: {error}"
        if not errors:
            return f"the program ended without a failure, with a peak of {size_text(card.allocator.peak_reserved)}"
        if not card.allocator.refusals and not os.path.exists(path + ".json"):
            return f"the program ended for another reason: {errors.rstrip().splitlines()[-1]}"
        with open(facts, "w", encoding="utf-8") as file:
            json.dump(failure(headroom, program, card, errors, path), file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
