"""What a Python program has when memory runs out, for the verdict of `headroom run`: arrays that it keeps and where,
what the request that failed is made of, what libraries and cycles of objects hold."""

import ast
import collections
import difflib
import gc
import json
import math
import os
import sys
import time
import types

_here = os.path.dirname(os.path.abspath(__file__))
_trees, _found = {}, {}


def _other_libraries(frames):
    """Bytes on the GPU that libraries beside PyTorch hold in this process, by name, and where CuPy is used."""
    held = {}
    if "torch" not in sys.modules:
        return held
    if "cupy" in sys.modules:
        held["CuPy"] = sys.modules["cupy"].get_default_memory_pool().total_bytes()
        for path in _own_files(frames):
            uses = [node for node in _nodes(_tree(path), ast.Name) if node.id == _imports(path).get("cupy")]
            held = {"line": "%s:%d" % (path, uses[0].lineno), **held} if uses else held
    if "jax" in sys.modules:
        stats = sys.modules["jax"].local_devices()[0].memory_stats() or {}
        held["JAX"] = stats.get("pool_bytes") or stats.get("bytes_in_use", 0)
    return held


def _array_bytes(value):
    """The bytes that an array of PyTorch, JAX or CuPy takes on a GPU; 0 for anything else, weights among it."""
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


def _own_file(value):
    """The program's file that has the class of a value; empty for a library's."""
    path = getattr(sys.modules.get(type(value).__module__), "__file__", None) or "<>"
    return path if _is_own(path) else ""


def _tree(path):
    """The syntax of a file of the program; empty for a library's, or one that cannot be read."""
    if path not in _trees:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                _trees[path] = ast.parse(file.read() if _is_own(path) else "")
        except (OSError, SyntaxError, ValueError):
            _trees[path] = ast.parse("")
    return _trees[path]


def _nodes(tree, kind):
    """The nodes of that kind, in the order of their lines."""
    if (tree, kind) not in _found:
        nodes = [node for node in ast.walk(tree) if isinstance(node, kind)]
        _found[tree, kind] = sorted(nodes, key=lambda node: getattr(node, "lineno", 0))
    return _found[tree, kind]


def _imports(path):
    """The modules that a file imports, and what it calls them."""
    nodes = _nodes(_tree(path), (ast.Import, ast.ImportFrom))
    return {getattr(n, "module", None) or p.name: p.asname or p.name for n in nodes for p in n.names}


def _names(node):
    return {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node)}


def _assignments(frame):
    """Assignments of the function of a frame, up to the line where it is."""
    first, last = frame.f_code.co_firstlineno, frame.f_lineno
    return [n for n in _nodes(_tree(frame.f_code.co_filename), ast.Assign) if first <= n.lineno <= last]


def _is_optimizer(value):
    return hasattr(value, "param_groups") and isinstance(getattr(value, "state", None), dict)


def _buffers(module):
    return getattr(module, "_buffers", {})


def _children(value):
    """(name, value) of what an object holds; a name is empty where the object's own is the better one."""
    if type(value).__name__ == "_lru_cache_wrapper":
        return [("", part) for part in gc.get_referents(value)]
    if isinstance(value, dict):
        return [("", part) for part in list(value.values())]
    if _is_list(value):
        return [("", part) for part in list(value)]
    if isinstance(value, BaseException):  # its traceback holds what the functions had
        frames = list(frames_of_trace(value.__traceback__))
        return [("", part) for frame in frames for part in frame.f_locals.values()]
    library = type(value).__module__.partition(".")[0]
    if _is_optimizer(value):  # what it keeps of each step, as L-BFGS does, but not its state of one step
        states = [part for state in value.state.values() for part in state.values()]
        return [("", part) for part in states if isinstance(part, list)]
    if hasattr(value, "_modules") and hasattr(value, "_parameters"):  # a module of PyTorch
        parts = list(value._modules.items())
        own = [(k, v) for k, v in vars(value).items() if not k.startswith("_")]
        return parts + own + [(k, v) for k, v in _buffers(value).items() if getattr(v, "grad_fn", None)]
    if library in ("builtins", "torch", "jax", "jaxlib", "cupy", "numpy", "types") or isinstance(value, type):
        return []
    names = [name for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)]
    return [(name, getattr(value, name)) for name in names] + list(getattr(value, "__dict__", {}).items())


def _line_that_keeps(name, path, owner, is_sum):
    """The first line of a file that adds up what has that name, or, if it is no sum, puts something into it, first uses
    an object of a library, or makes an optimizer or an object made of others; 0: none."""
    lines = []
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not is_sum:
            puts = node.func.attr in ("append", "appendleft", "add", "extend", "insert", "update", "setdefault")
            is_library = owner in ("library", "queue")
            uses = is_library and node.args and not node.func.attr.startswith(("add", "set", "_"))
            if (puts or uses) and name in _names(node.func.value):
                lines.append(node.lineno)
        elif isinstance(node, ast.AugAssign) and name in _names(node.target):
            lines.append(node.lineno)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                adds = isinstance(node.value, ast.BinOp) and name in _names(node.value)
                adds |= owner in ("optimizer", "object") and isinstance(node.value, ast.Call)
                if name in _names(target) and (adds or isinstance(target, ast.Subscript)):
                    lines.append(node.lineno)
    return min(lines, default=0)


def _is_list(value):
    return isinstance(value, (list, tuple, set, dict, collections.deque))


def _is_sum(array):
    """True for one number with the graph that computed it."""
    return getattr(array, "grad_fn", None) is not None and array.numel() == 1


def _kept(frames, seconds=2.0):
    """Names in the program's own frames, and in those of a library that it calls, under which three arrays, models or
    optimizers are kept, or a sum or a module's buffer with its graph: what verdicts tell of each, most bytes first."""
    roots = _roots()
    ends = time.monotonic() + seconds
    found, seen, queue, lines = {}, set(), collections.deque(), {}

    def note(place, value, parts=None, kind="tensor"):
        entry = found.setdefault((place, kind), {"count": 0, "bytes": 0, "graphs": False, "kind": kind})
        entry["count"] += 1
        entry["graphs"] |= getattr(value, "grad_fn", None) is not None
        for part in (value,) if parts is None else parts:
            storages = entry.setdefault("storages", set())
            if _storage(part) not in storages:
                storages.add(_storage(part))
                entry["bytes"] += _array_bytes(part) or part.nbytes  # of a weight

    # A place is a name, the file that has it, and whose object holds the arrays, or what kind of object; "": none.
    later = [[], []]  # what is seen after the program's own lists: its other objects, and what those do not reach
    for frame in frames:
        path, caller = frame.f_code.co_filename, frame
        while caller is not None and not _is_own(caller.f_code.co_filename):
            caller = caller.f_back
        if caller is None or path.startswith(("<", _here)) or (caller is not frame and "-packages/torch/" in path):
            continue
        for name, value in list(frame.f_locals.items()):
            place = (name, caller.f_code.co_filename, "" if caller is frame else "call")
            if caller is not frame:
                if isinstance(value, (list, tuple)):
                    lines.setdefault(place, caller.f_lineno)
                    later[1].append((place, value, None))
            elif not _array_bytes(value):
                (queue if _is_list(value) else later[0]).append((place, value, None))
            elif _is_sum(value):
                note(place, value)
    while (queue or later) and len(seen) < 200_000 and time.monotonic() < ends:
        if not queue:
            queue.extend(later.pop(0))
            continue
        place, value, listed = queue.popleft()  # listed: the place of the list whose element has this as a part
        if id(value) in seen or isinstance(value, (str, bytes, int, float, type(None), types.ModuleType)):
            continue
        seen.add(id(value))
        code = getattr(getattr(value, "__wrapped__", None), "__code__", None)
        if code is not None and type(value).__name__ == "_lru_cache_wrapper" and _is_own(code.co_filename):
            place = (code.co_name, code.co_filename, "")
            lines[place] = code.co_firstlineno
        own = _own_file(value)
        is_own = own or type(value).__module__ in ("builtins", "__main__", "functools")
        for part, child in _children(value):
            inner = (part, own or place[1], "") if part and is_own else place
            if _is_optimizer(value):
                inner = place[:2] + ("optimizer",)
            elif isinstance(value, BaseException):
                inner = place[:2] + ("error",)
            elif part and not is_own and not hasattr(value, "_modules"):
                is_endless = hasattr(value, "put") and getattr(value, "maxsize", 1) == 0
                inner = place[:2] + ("queue" if is_endless else "library",)
            within = listed if part else inner if _is_list(value) else None
            if id(child) in roots and within:
                note(within, child, [weight for weight in child.parameters() if weight.is_cuda], "model")
            elif _is_optimizer(child) and within:
                states = [part for state in child.state.values() for part in state.values()]
                note(within, child, [part for part in states if _array_bytes(part)], "optimizer")
            if not _array_bytes(child):
                queue.append((inner, child, within))
            elif not part or _is_sum(child):  # an attribute that is one array is no collection
                note(inner, child)
            elif part in _buffers(value):
                note((part, own or place[1], "buffer"), child)
            elif inner[2] == "library":  # of an object that is made of others, as a cache of layers
                note(place[:2] + ("object",), child)
            elif listed:
                note(listed, child)
    kept = []
    for (place, kind), entry in found.items():
        entry.pop("storages", None)
        if kind == "model" and (place, "optimizer") in found:
            entry["bytes"] += found[place, "optimizer"]["bytes"]
        is_sum = entry["count"] < 3
        line = lines.get(place) or (_line_that_keeps(*place, is_sum) if not is_sum or entry["graphs"] else 0)
        if line and (not is_sum or entry["graphs"]):
            kept.append({"name": place[0], "file": place[1], "line": line, "owner": place[2], **entry})
    return sorted(kept, key=lambda entry: (entry["bytes"], entry["count"]), reverse=True)[:8]


def _request(frames, asked):
    """What the request that failed makes: an array of the size of one in its functions, or made of two of them."""
    arrays = []
    for frame in frames:
        weights = getattr(frame.f_locals.get("self"), "_parameters", {})
        names = {**frame.f_locals, **{"self." + name: weight for name, weight in weights.items()}}
        here = [(k, v) for k, v in names.items() if all(hasattr(v, part) for part in ("shape", "nbytes", "dtype"))]
        arrays = here[:40] + arrays  # the program's own first
        if _is_own(frame.f_code.co_filename):
            break
    fits = lambda size: asked >= 1 << 20 and size <= asked * 1.01 and asked <= max(size * 1.01, size + (2 << 20))
    for name, array in arrays:
        if fits(array.nbytes):
            return {"text": "it is as large as " + _text(name, array)}
    product = {}
    for i, (name, a) in enumerate(arrays):
        for other, b in arrays[i + 1 :]:
            pair, n = "%s and %s" % (_text(name, a), _text(other, b)), max(len(a.shape), len(b.shape))
            left, right = ([1] * (n - len(each.shape)) + list(each.shape) for each in (a, b))
            if n == 0 or 0 in left + right:
                continue
            both, item = list(map(max, zip(left, right))), a.nbytes // math.prod(left)
            if all(x == y or 1 in (x, y) for x, y in zip(left, right)) and both not in (left, right):
                if fits(math.prod(both) * item):
                    return {"text": pair + " make " + " x ".join(map(str, both)), "pair": True}
            for columns in right[-2:] if left[-1] in right[-2:] and n > 1 and not product else ():
                if fits(math.prod(left[:-1]) * columns * item):
                    product = {"text": "it is the product of " + pair}
    return product


def _optimizers():
    """PyTorch's optimizers, and the weights that they train, by identity."""
    torch = sys.modules.get("torch")
    found = _alive(torch.optim.Optimizer) if torch else []
    return found, {id(weight) for each in found for group in each.param_groups for weight in group["params"]}


def _untrained(frames):
    """The weights on a GPU that require gradients though no optimizer has them: their bytes, the bytes of their
    gradients, and the class of a model made of them that runs with gradients; empty where no optimizer is alive."""
    torch = sys.modules.get("torch")
    optimizers, trained = _optimizers()
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
    facts = {"bytes": sum(w.nbytes for w in left.values()), "gradients": gradients, "runs": runs}
    set_names = {name for w in left.values() for name in vars(w)}
    for name in difflib.get_close_matches("requires_grad", set_names, 1, 0.8):
        for path in {frame.f_code.co_filename for frame in frames}:
            targets = [target for node in _nodes(_tree(path), ast.Assign) for target in node.targets]
            for target in targets:
                if getattr(target, "attr", "") == name:
                    facts["misspelt"] = {"name": name, "line": "%s:%d" % (path, target.lineno)}
    return facts


def _doubles(frames):
    """Bytes of the arrays in the program's functions, of those with numbers of 8 or 16 bytes, and the first line."""
    arrays, line = {}, ""
    for frame in frames:
        if not _is_own(frame.f_code.co_filename):
            continue
        first = None
        for name, value in frame.f_locals.items():
            if not _array_bytes(value):
                continue
            arrays[_storage(value)] = value
            if _is_double(value):
                made = [n for n in _assignments(frame) if any(name in _names(target) for target in n.targets)]
                first = min([first] + made[-1:], key=lambda node: node.lineno if node else math.inf)
        line = "%s:%d" % (frame.f_code.co_filename, first.lineno) if first else line  # the outermost stays
    doubles = [value for value in arrays.values() if _is_double(value)]
    sizes = {"bytes": sum(map(_array_bytes, arrays.values())), "doubles": sum(map(_array_bytes, doubles))}
    return {**sizes, "line": line}


def _is_double(array):
    return str(array.dtype).endswith(("float64", "complex128"))


def _text(name, array):
    shape = " x ".join(map(str, array.shape))
    return "%s (%s of %s)" % (name, shape, str(array.dtype).rpartition(".")[2])


def _replaced(frames):
    """The name that holds most bytes while the line that a function of the program is at makes its next value."""
    most = {"bytes": 0}
    for frame in frames:
        if not _is_own(frame.f_code.co_filename):
            continue
        for node in _assignments(frame):
            if not node.lineno <= frame.f_lineno <= node.end_lineno:
                continue
            names = {name for target in node.targets for name in _names(target)} - _names(node.value)
            size = sum(_array_bytes(frame.f_locals.get(name)) for name in names)
            if size > most["bytes"]:
                line = "%s:%d" % (frame.f_code.co_filename, node.lineno)
                most = {"name": ", ".join(sorted(names & set(frame.f_locals))), "line": line, "bytes": size}
    return most


def _loaded(frames):
    """The name that still holds most bytes of arrays that a call such as torch.load returned."""
    torch = sys.modules.get("torch")
    weights = {_storage(weight) for weight in _alive(torch.nn.Parameter)} if torch else ()
    most = {"bytes": 0}
    for frame in filter(lambda frame: _is_own(frame.f_code.co_filename), frames):
        for node in _assignments(frame):
            if not isinstance(node.value, ast.Call) or not _called(node.value).startswith("load"):
                continue
            for name in {name for target in node.targets for name in _names(target)} & set(frame.f_locals):
                arrays = {_storage(array): array for array in _arrays_in(frame.f_locals[name])}
                size = sum(_array_bytes(array) for key, array in arrays.items() if key not in weights)
                if size > most["bytes"]:
                    line = "%s:%d" % (frame.f_code.co_filename, node.lineno)
                    most = {"name": name, "line": line, "bytes": size, "call": ast.unparse(node.value.func)}
    return most


def _arrays_in(value, depth=6):
    """The arrays in nested dictionaries and lists."""
    if isinstance(value, (dict, list, tuple)) and depth:
        for part in list(value.values()) if isinstance(value, dict) else value:
            yield from _arrays_in(part, depth - 1)
    elif _array_bytes(value):
        yield value


def _called(call):
    """The name that a call has: its last part."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _own_files(frames):
    files = [frame.f_code.co_filename for frame in frames] + [getattr(sys.modules["__main__"], "__file__", None) or ""]
    return [path for path in dict.fromkeys(files) if _is_own(path)]


def _calls(frames, names):
    """(line, call) of the calls of such names in the program's files."""
    for path in _own_files(frames):
        for call in _nodes(_tree(path), ast.Call):
            if _called(call) in names and "psutil" not in _names(call.func):
                yield "%s:%d" % (path, call.lineno), call


def _starts(frames):
    """Where the program puts one of several ranks on its card, or else where it starts processes."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    names = ("Process", "Popen", "Pool", "ProcessPoolExecutor", "spawn", "start_processes")
    lines = [line for line, _ in _calls(frames, ("set_device",) if ranks > 1 else names)]
    for line, call in _calls(frames, ("DataLoader",) if ranks == 1 else ()):
        lines += [line for word in call.keywords if word.arg == "num_workers" and getattr(word.value, "value", 1) != 0]
    imports = [name.partition(".")[0] for path in _own_files(frames) for name in _imports(path)]
    return {"line": (lines + [""])[0], "ranks": ranks, "jax": "jax" in imports}


def _scan(frames):
    """The first scan of a program of JAX: what it stores of each step is no variable of a function."""
    return next((line for line, _ in _calls(frames, ("scan",))), "") if "jax" in sys.modules else ""


def _evaluating(frames):
    """A part of a model in training that is in evaluation mode, though an optimizer trains it: its class, the bytes of
    its weights, and the line that makes an optimizer."""
    optimizers, trained = _optimizers()
    most = {"bytes": 0}
    for module in _alive(sys.modules["torch"].nn.Module) if trained else []:
        for part in module._modules.values() if module.training else ():
            if part is not None and not part.training:
                size = sum(weight.nbytes for weight in part.parameters() if weight.is_cuda and id(weight) in trained)
                if size > most["bytes"]:
                    line = next((line for line, _ in _calls(frames, [type(each).__name__ for each in optimizers])), "")
                    most = {"name": type(part).__name__, "bytes": size, "line": line}
    return most


def _cycles():
    """Collects objects that refer to each other alone: bytes of their arrays, the program's class that most have, and
    the line where one of it is given to another, or where it is."""
    flags, before = gc.get_debug(), list(gc.garbage)
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
    finally:
        gc.set_debug(flags)
    garbage, gc.garbage[:] = gc.garbage[len(before) :], before
    arrays = {_storage(value): value for value in garbage if _array_bytes(value)}
    classes = collections.Counter((_own_file(value), type(value).__name__) for value in garbage if _own_file(value))
    facts = {"bytes": sum(map(_array_bytes, arrays.values())), "name": "", "line": ""}
    for (path, name), _ in classes.most_common(1):
        lines = []
        for node in (node for node in _nodes(_tree(path), ast.ClassDef) if node.name == name):
            assigned = [n for n in _nodes(node, ast.Assign) if isinstance(n.targets[0], ast.Attribute)]
            lines = [n.lineno for n in assigned if getattr(n.value, "id", "") == "self"] + [node.lineno]
        facts |= {"name": name, "line": "%s:%d" % (path, lines[0]) if lines else ""}
    return facts


def _padding():
    """The line of a function of the program that pads the items of a batch to the longest of them."""
    data = sys.modules.get("torch.utils.data")
    for code in [getattr(loader.collate_fn, "__code__", None) for loader in (_alive(data.DataLoader) if data else [])]:
        for node in _nodes(_tree(code.co_filename), ast.Call) if code else []:
            is_inside = code.co_firstlineno <= node.lineno <= code.co_firstlineno + 100
            if is_inside and "pad" in ast.unparse(node.func):
                return "%s:%d" % (code.co_filename, node.lineno)
    return ""


def write(path, frames, failed, asked):
    """Writes down what `frames`, of all threads, have; `failed` are those of the request, the innermost first."""
    facts = {}
    of_frames = {"libraries": _other_libraries, "kept": _kept, "untrained": _untrained, "arrays": _doubles}
    of_frames |= {"loaded": _loaded, "starts": _starts, "scan": _scan, "evaluating": _evaluating}
    asked_for = {name: lambda ask=ask: ask(frames) for name, ask in of_frames.items()} | {"padding": _padding}
    asked_for |= {"request": lambda: _request(failed, asked), "replaced": lambda: _replaced(failed)}
    for name, ask in {**asked_for, "cycles": _cycles}.items():  # last: it ends objects
        try:
            facts[name] = ask()
        except Exception as error:
            facts[name + "_error"] = str(error)
    text = json.dumps(facts, default=str, ensure_ascii=False).encode("utf-8", "replace")
    with open(path, "wb") as file:
        file.write(text)


def frames_of_trace(trace):
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
