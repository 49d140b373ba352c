"""The start-up hook of `headroom run` in a Python program: puts one of Headroom's strategies under PyTorch, CuPy or
Numba, and has PyTorch write its own snapshot when memory runs out."""

import importlib.machinery
import importlib.util
import json
import os
import sys

_STRATEGY = os.environ.get("HEADROOM_RUN_STRATEGY")
_SNAPSHOT = os.environ.get("HEADROOM_RUN_SNAPSHOT")
_here = os.path.dirname(os.path.abspath(__file__))


def _say(text):
    print("headroom:", text, file=sys.stderr)


def _use_strategy(name):
    try:
        module = importlib.import_module("headroom." + name)
    except ImportError as error:
        return _say("--strategy %s needs the Python package headroom: %s" % (_STRATEGY, error))
    try:
        module.use(_STRATEGY)
    except Exception as error:
        _say("--strategy %s: %s" % (_STRATEGY, error))


def _other_libraries():
    """Bytes on the GPU that libraries beside PyTorch hold in this process, by name."""
    held = {}
    if "cupy" in sys.modules:
        held["CuPy"] = sys.modules["cupy"].get_default_memory_pool().total_bytes()
    if "jax" in sys.modules:
        stats = sys.modules["jax"].local_devices()[0].memory_stats() or {}
        held["JAX"] = stats.get("pool_bytes") or stats.get("bytes_in_use", 0)
    return held


def _record_torch(torch):
    path = "%s.%d" % (_SNAPSHOT, os.getpid())
    times = 0

    def ran_out(*_):
        nonlocal times
        times += 1
        if times & (times - 1):  # a program may recover, and fail for another reason: the 1st, 2nd, 4th, 8th
            return
        torch.cuda.memory._dump_snapshot(path + ".pickle")
        try:
            held = _other_libraries()
        except Exception:
            held = {}
        if held:
            with open(path + ".json", "w") as file:
                json.dump(held, file)

    try:
        torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")
        torch._C._cuda_attach_out_of_memory_observer(ran_out)
    except Exception as error:
        _say("PyTorch records no history: %s" % error)


def _after_import(name, module):
    if _STRATEGY:
        _use_strategy(name)
    elif _SNAPSHOT and name == "torch":
        module.cuda._lazy_call(lambda: _record_torch(module))


class _Finder:
    """Finds a framework as the others would, and acts once it is loaded."""

    names = {"torch", "cupy", "numba"}

    def find_spec(self, name, path=None, target=None):
        if name not in self.names:
            return None
        self.names.discard(name)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_act(module):
            load(module)
            _after_import(name, module)

        spec.loader.exec_module = load_and_act
        return spec


if _STRATEGY or _SNAPSHOT:
    sys.meta_path.insert(0, _Finder())

# The program's own sitecustomize, which this file hides.
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != _here]
_own = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
if _own is not None and _own.loader is not None:
    _module = importlib.util.module_from_spec(_own)
    sys.modules["sitecustomize"] = _module
    _own.loader.exec_module(_module)
