"""Acts for `headroom run` in a Python program: puts one of Headroom's strategies under PyTorch, CuPy or Numba, and
when memory runs out has PyTorch write its own snapshot, and headroom_facts.py what the program keeps then."""

import importlib
import importlib.util
import linecache
import os
import re
import sys

_STRATEGY = os.environ.get("HEADROOM_RUN_STRATEGY")
_SNAPSHOT = os.environ.get("HEADROOM_RUN_SNAPSHOT")
_here = os.path.dirname(os.path.abspath(__file__))
_FULL = re.compile(r"RESOURCE_EXHAUSTED|out of memory|CU[A-Z]+_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)", re.I)
_HOST = re.compile(r"(can't|cannot|unable to) allocate", re.I)  # PyTorch, the system, NumPy


def _say(text):
    print("headroom:", text, file=sys.stderr)


def find(name):
    """The specification of a framework, which acts once the framework is loaded."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return spec
    load = spec.loader.exec_module

    def load_and_act(module):
        load(module)
        if _STRATEGY:
            _use_strategy(name)
        elif _SNAPSHOT and name == "torch":
            module.cuda._lazy_call(lambda: _record_torch(module))

    spec.loader.exec_module = load_and_act
    return spec


def _use_strategy(name):
    try:
        module = importlib.import_module("headroom." + name)
    except ImportError as error:
        return _say("--strategy %s needs the Python package headroom: %s" % (_STRATEGY, error))
    try:
        module.use(_STRATEGY)
    except Exception as error:
        _say("--strategy %s: %s" % (_STRATEGY, error))


def explain_end(error, trace):
    """Before Python tells of an error that ends the program: of JAX, CuPy or a library that found no room, as PyTorch's
    own allocator has an observer, or of the machine's memory."""
    path = "%s.%d" % (_SNAPSHOT, os.getpid())
    text = str(error)
    is_host = not _FULL.search(text) and (isinstance(error, MemoryError) or bool(_HOST.search(text)))
    if not (is_host or _FULL.search(text)) or os.path.exists(path + ".json"):
        return
    sizes = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
    number = re.search(r"allocat\w+ ([\d,.]+) ?([KMG]i)?[Bb]", text)
    asked = float(number[1].replace(",", "").rstrip(".")) * sizes[number[2] or ""] if number else 0
    try:
        if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
            sys.modules["torch"].cuda.memory._dump_snapshot(path + ".pickle")
    except Exception:  # the facts tell without it
        pass
    facts = _facts()
    frames = list(facts.objects.frames_of_trace(trace))
    line = linecache.getline(frames[-1].f_code.co_filename, frames[-1].f_lineno or 0) if frames else ""
    if is_host or "pin_memory" in line or "pin memory" in text:
        facts.objects.see_host()
    facts.write(path + ".json", frames, frames[::-1], asked, is_end=True)


def _facts():
    sys.path.insert(0, _here)
    try:
        import headroom_facts
    finally:
        sys.path.remove(_here)
    return headroom_facts


def _record_torch(torch):
    path = "%s.%d" % (_SNAPSHOT, os.getpid())
    times = 0

    def ran_out(device=0, asked=0, *_):
        nonlocal times
        times += 1
        if times & (times - 1):  # a program may recover, and fail for another reason: the 1st, 2nd, 4th, 8th
            return
        try:
            torch.cuda.memory._dump_snapshot(path + ".pickle")
            frames = [frame for inner in list(sys._current_frames().values()) for frame in _callers(inner)]
            _facts().write(path + ".json", frames, list(_callers(sys._getframe())), asked)
        except Exception as error:  # PyTorch would raise it in place of its own
            _say("what the program keeps is unknown: %s" % error)

    try:
        torch.cuda.memory._record_memory_history(max_entries=100_000, context="alloc", stacks="python")
        torch._C._cuda_attach_out_of_memory_observer(ran_out)
    except Exception as error:
        _say("PyTorch records no history: %s" % error)


def _callers(frame):
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_here):
            yield frame
        frame = frame.f_back
