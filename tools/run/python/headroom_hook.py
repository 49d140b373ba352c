"""What `headroom run` does in a Python program: puts one of Headroom's strategies under PyTorch, CuPy or Numba, has
PyTorch write its own snapshot when memory runs out, and writes down what the program keeps at that moment."""

import ast
import collections
import gc
import importlib
import importlib.util
import json
import os
import sys
import time
import types

_STRATEGY = os.environ.get("HEADROOM_RUN_STRATEGY")
_SNAPSHOT = os.environ.get("HEADROOM_RUN_SNAPSHOT")
_here = os.path.dirname(os.path.abspath(__file__))


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
    """Before Python tells of an error of JAX or CuPy that ends the program: PyTorch has an observer of its own."""
    path = "%s.%d.json" % (_SNAPSHOT, os.getpid())
    text = str(error)
    if ("RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower()) and not os.path.exists(path):
        _write_facts(path, _frames_of_trace(trace))


def _record_torch(torch):
    path = "%s.%d" % (_SNAPSHOT, os.getpid())
    times = 0

    def ran_out(*_):
        nonlocal times
        times += 1
        if times & (times - 1):  # a program may recover, and fail for another reason: the 1st, 2nd, 4th, 8th
            return
        torch.cuda.memory._dump_snapshot(path + ".pickle")
        _write_facts(path + ".json", _frames_of_threads())

    try:
        torch.cuda.memory._record_memory_history(max_entries=100_000, context="alloc", stacks="python")
        torch._C._cuda_attach_out_of_memory_observer(ran_out)
    except Exception as error:
        _say("PyTorch records no history: %s" % error)


def _other_libraries():
    """Bytes on the GPU that libraries beside PyTorch hold in this process, by name."""
    held = {}
    if "torch" not in sys.modules:
        return held
    if "cupy" in sys.modules:
        held["CuPy"] = sys.modules["cupy"].get_default_memory_pool().total_bytes()
    if "jax" in sys.modules:
        stats = sys.modules["jax"].local_devices()[0].memory_stats() or {}
        held["JAX"] = stats.get("pool_bytes") or stats.get("bytes_in_use", 0)
    return held


def _array_bytes(value):
    """What an array of PyTorch, JAX or CuPy takes on a GPU; 0 for anything else, weights among it."""
    library = type(value).__module__.partition(".")[0]
    if library == "torch":
        torch = sys.modules["torch"]
        is_array = isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)
        return value.untyped_storage().nbytes() if is_array and value.is_cuda else 0
    if library in ("jax", "jaxlib"):
        try:
            return value.nbytes if next(iter(value.devices())).platform == "gpu" else 0
        except Exception:  # no array, or one that is traced or deleted
            return 0
    return value.nbytes if library == "cupy" and hasattr(value, "nbytes") else 0


def _storage(array):
    return array.untyped_storage().data_ptr() if hasattr(array, "untyped_storage") else id(array)


def _alive(kind):
    return [value for value in gc.get_objects() if issubclass(type(value), kind)]


def _roots():
    """The modules of PyTorch that are part of no other."""
    modules = _alive(sys.modules["torch"].nn.Module) if "torch" in sys.modules else []
    parts = {id(part) for module in modules for part in module._modules.values()}
    return {id(module) for module in modules} - parts


def _is_own(path):
    return not (path.startswith(("<", _here)) or "-packages" in path or "/lib/python" in path)


def _is_optimizer(value):
    return hasattr(value, "param_groups") and isinstance(getattr(value, "state", None), dict)


def _children(value):
    """(name, value) of what an object holds; a name is empty where the object's own is the better one."""
    if type(value).__name__ == "_lru_cache_wrapper":
        return [("", part) for part in gc.get_referents(value)]
    if isinstance(value, dict):
        return [("", part) for part in list(value.values())]
    if isinstance(value, (list, tuple, set)) or type(value).__name__ == "deque":
        return [("", part) for part in list(value)]
    if isinstance(value, BaseException):  # its traceback holds what the functions had
        frames = list(_frames_of_trace(value.__traceback__))
        return [("", part) for frame in frames for part in frame.f_locals.values()]
    library = type(value).__module__.partition(".")[0]
    if _is_optimizer(value):  # what it keeps of each step, as L-BFGS does, but not its state of one step
        states = [part for state in value.state.values() for part in state.values()]
        return [("", part) for part in states if isinstance(part, list)]
    if hasattr(value, "_modules") and hasattr(value, "_parameters"):  # a module of PyTorch
        parts = list(value._modules.items())
        own = [(k, v) for k, v in vars(value).items() if not k.startswith("_")]
        return parts + own
    if library in ("builtins", "torch", "jax", "jaxlib", "cupy", "numpy", "types") or isinstance(value, type):
        return []
    return list(getattr(value, "__dict__", {}).items())


def _line_that_keeps(name, path, owner, is_sum):
    """The first line of a file that adds up what has that name, or, if it is no sum, puts something into it; of an
    object of a library, the first call of it that is no setting; of an optimizer, the line that makes it; 0: none."""
    with open(path, encoding="utf-8", errors="replace") as file:
        tree = ast.parse(file.read())

    def names(node):
        return {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node)}

    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not is_sum:
            puts = node.func.attr in ("append", "appendleft", "add", "extend", "insert", "update", "setdefault")
            uses = owner == "library" and node.args and not node.func.attr.startswith(("add", "set", "_"))
            if (puts or uses) and name in names(node.func.value):
                lines.append(node.lineno)
        elif isinstance(node, ast.AugAssign) and name in names(node.target):
            lines.append(node.lineno)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                adds = isinstance(node.value, ast.BinOp) and name in names(node.value)
                adds |= owner == "optimizer" and isinstance(node.value, ast.Call)
                if name in names(target) and (adds or isinstance(target, ast.Subscript)):
                    lines.append(node.lineno)
    return min(lines, default=0)


def _is_sum(array):
    """True for one number with the graph that computed it."""
    return getattr(array, "grad_fn", None) is not None and array.numel() == 1


def _kept(frames, seconds=2.0):
    """Names in the program's own frames under which three arrays, models or more are kept, or a sum with its graph: a
    list of name, file, line, count, bytes and whether they hold graphs; the most bytes first."""
    roots = _roots()
    ends = time.monotonic() + seconds
    found, seen, queue, lines = {}, set(), collections.deque(), {}

    def note(place, value, parts=None):
        entry = found.setdefault(place, [0, 0, False, set(), False])
        entry[0] += 1
        entry[2] |= getattr(value, "grad_fn", None) is not None
        entry[4] |= parts is not None
        for part in (value,) if parts is None else parts:
            storage = _storage(part)
            if storage not in entry[3]:
                entry[3].add(storage)
                entry[1] += _array_bytes(part) if parts is None else part.nbytes

    # A place is a name, the file that has it, and whose object holds the arrays: "library", "optimizer" or "".
    for frame in frames:
        path = frame.f_code.co_filename
        if not _is_own(path):
            continue
        for name, value in list(frame.f_locals.items()):
            if not _array_bytes(value):
                queue.append(((name, path, ""), value))
            elif _is_sum(value):
                note((name, path, ""), value)
    while queue and len(seen) < 200_000 and time.monotonic() < ends:
        place, value = queue.popleft()
        if id(value) in seen or isinstance(value, (str, bytes, int, float, type(None), types.ModuleType)):
            continue
        seen.add(id(value))
        code = getattr(getattr(value, "__wrapped__", None), "__code__", None)
        if code is not None and type(value).__name__ == "_lru_cache_wrapper" and _is_own(code.co_filename):
            place = (code.co_name, code.co_filename, "")
            lines[place] = code.co_firstlineno
        own = getattr(sys.modules.get(type(value).__module__), "__file__", None)
        is_own = bool(own and _is_own(own)) or type(value).__module__ in ("builtins", "__main__", "functools")
        for part, child in _children(value):
            inner = (part, own if own and _is_own(own) else place[1], "") if part and is_own else place
            if _is_optimizer(value):
                inner = place[:2] + ("optimizer",)
            elif part and not is_own and not hasattr(value, "_modules"):
                inner = place[:2] + ("library",)
            if id(child) in roots and not part and isinstance(value, (list, tuple, dict)):
                note(inner, child, [weight for weight in child.parameters() if weight.is_cuda])
            if not _array_bytes(child):
                queue.append((inner, child))
            elif not part or _is_sum(child):  # an attribute that is one array is no collection
                note(inner, child)
    kept = []
    for place, (count, size, graphs, _, models) in found.items():
        try:
            line = lines.get(place) or (_line_that_keeps(*place, count < 3) if count >= 3 or graphs else 0)
        except (OSError, SyntaxError, ValueError):
            line = 0
        if line:
            entry = {"name": place[0], "file": place[1], "line": line, "count": count, "bytes": size, "graphs": graphs}
            kept.append({**entry, "owner": place[2], "models": models})
    return sorted(kept, key=lambda entry: (entry["bytes"], entry["count"]), reverse=True)[:8]


def _untrained(frames):
    """The weights on a GPU that require gradients though no optimizer has them: their bytes, the bytes of their
    gradients, and the class of a model made of them that runs with gradients; empty where no optimizer is alive."""
    torch = sys.modules.get("torch")
    optimizers = _alive(torch.optim.Optimizer) if torch else []
    trained = {id(weight) for each in optimizers for group in each.param_groups for weight in group["params"]}
    if not trained:
        return {}
    modules = _alive(torch.nn.Module)
    weights = {id(w): w for module in modules for w in module._parameters.values() if w is not None}
    left = {key: w for key, w in weights.items() if w.is_cuda and w.requires_grad and key not in trained}
    runs = ""
    for module in (frame.f_locals.get("self") for frame in frames if torch.is_grad_enabled()):
        own = [id(w) for w in module.parameters()] if isinstance(module, torch.nn.Module) else []
        if own and all(key in left for key in own):
            runs = type(module).__name__  # the outermost one stays
    gradients = sum(w.grad.nbytes for w in left.values() if w.grad is not None)
    return {"bytes": sum(w.nbytes for w in left.values()), "gradients": gradients, "runs": runs}


def _doubles(frames):
    """Bytes of the arrays in the program's own functions, and of those among them with numbers of 8 bytes, or 16."""
    arrays = {}
    for frame in frames:
        if _is_own(frame.f_code.co_filename):
            arrays.update((_storage(value), value) for value in frame.f_locals.values() if _array_bytes(value))
    doubles = [value for value in arrays.values() if str(value.dtype).endswith(("float64", "complex128"))]
    return {"bytes": sum(map(_array_bytes, arrays.values())), "doubles": sum(map(_array_bytes, doubles))}


def _write_facts(path, frames):
    facts, frames = {}, list(frames)
    asked = {"libraries": _other_libraries, "kept": lambda: _kept(frames)}
    asked |= {"untrained": lambda: _untrained(frames), "arrays": lambda: _doubles(frames)}
    for name, ask in asked.items():
        try:
            facts[name] = ask()
        except Exception as error:
            facts[name + "_error"] = str(error)
    with open(path, "w") as file:
        json.dump(facts, file)


def _frames_of_threads():
    for frame in list(sys._current_frames().values()):
        while frame is not None:
            yield frame
            frame = frame.f_back


def _frames_of_trace(trace):
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
