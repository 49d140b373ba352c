"""Finds what a Python program has when memory runs out, for the verdict of `headroom run`: arrays that it keeps and
where, what libraries and cycles of objects hold. headroom_request.py tells what the request that failed is made of."""

import ast
import collections
import gc
import itertools
import json
import os
import sys
import time
import warnings

import headroom_models as models
import headroom_objects as objects
import headroom_request as request
import headroom_source as source

_here = os.path.dirname(os.path.abspath(__file__))


def _other_libraries(frames):
    """Bytes on the GPU that libraries beside PyTorch hold in this process, by name; where CuPy is first used, and where
    JAX is imported."""
    held, lines = {}, {}
    if "torch" not in sys.modules:
        return held
    if sys.modules.get("cupy"):
        held["CuPy"] = sys.modules["cupy"].get_default_memory_pool().total_bytes()
    if getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None):  # asking would start JAX
        stats = sys.modules["jax"].local_devices()[0].memory_stats() or {}
        held["JAX"] = stats.get("pool_bytes") or stats.get("bytes_in_use", 0)
    for path in source.own_files(frames):
        imports = source.imports_of(path)
        cupy = imports.get("cupy", ("", 0))[0]
        uses = [node.lineno for node in source.nodes_in(source.tree_of(path), ast.Name) if node.id == cupy]
        jax = [line for name, (_, line) in imports.items() if name.partition(".")[0] == "jax"]
        lines |= {name: "%s:%d" % (path, at[0]) for name, at in (("CuPy", uses), ("JAX", jax)) if at}
    return {**held, "lines": lines}


def _threads(frames):
    """The number of threads, or of CUDA's streams if it is larger, where one is made, and the bytes of arrays that are
    as large as cuBLAS's workspaces."""
    torch = sys.modules.get("torch")
    sizes = objects.sizes(objects.alive(torch.Tensor) if torch else ()).values()
    streams = {each.cuda_stream for each in objects.alive(getattr(getattr(torch, "cuda", None), "Stream", ()))}
    kinds = [(len(streams), "streams", ("Stream", "ExternalStream"))]
    kinds += [(len(sys._current_frames()), "threads", ("ThreadPoolExecutor", "ThreadPool", "Thread"))]
    count, kind, names = max(kinds)
    line = next((line for line, _ in source.calls_of(frames, names)), "")
    sized = sum(size for size in sizes if size in (32 << 20, (4096 * 2 + 16 * 8) << 10))
    return {"count": count, "call": kind, "line": line, "bytes": sized}


def _plans(frames):
    """Bytes of the work areas that CuPy's cache of FFT plans keeps, for how many plans, and where one is made."""
    cupy = sys.modules.get("cupy")
    cache = cupy.fft.config.get_plan_cache() if cupy else None
    names = [name for name in dir(cupy.fft) if "fft" in name] if cache else ()
    line = next((line for line, call in source.calls_of(frames, names)), "")
    return {"bytes": cache.get_curr_memsize(), "count": cache.get_curr_size(), "line": line} if cache else {}


def _kept(frames, seconds=4.0):
    """Names in the program's own frames, and in those of a library that it calls, under which three arrays, models or
    optimizers are kept, or a sum or a module's buffer with its graph: what verdicts tell of each, most bytes first."""
    roots = objects.roots()
    ends = time.thread_time() + seconds
    found, seen, queue = {}, set(), collections.deque()
    lines, texts, dicts, classes, scopes, selves, of_forward = {}, {}, {}, {}, {}, {}, {}

    def note(place, value, parts=None, kind="tensor"):
        nothing = {"count": 0, "bytes": 0, "own": 0, "graphs": False, "kind": kind}
        entry = found.setdefault((place, kind), nothing)
        known = entry.setdefault("known", set())
        if kind != "tensor" and id(value) in known:  # an object that several names have
            return
        known.add(id(value))
        entry["count"] += 1
        entry["graphs"] |= objects.grad_fn(value) is not None
        for part in (value,) if parts is None else parts:
            entry["kind"] = "object" if type(part) in objects.RAW else kind
            storages = entry.setdefault("storages", set())
            if objects.storage(part) not in storages:
                storages.add(objects.storage(part))
                entry["bytes"] += objects.array_bytes(part) or part.nbytes  # of a weight
            entry["own"] += getattr(part, "nbytes", None) or objects.array_bytes(part)  # less, where it is a view

    # A place is a name, the file that has it, and whose object holds the arrays, or what kind of object; "": none.
    # What is seen after the program's own lists: its other objects, then those that no variable has, then libraries'.
    later, once = [[], [], []], set()
    for frame in frames:
        path, caller, called = frame.f_code.co_filename, frame, [""]  # the library's functions, the innermost first
        while caller is not None and not source.is_own(caller.f_code.co_filename):
            caller, called = caller.f_back, called + [caller.f_code.co_name]
        if caller is None or path.startswith(("<", _here)) or (caller is not frame and "-packages/torch/" in path):
            continue
        call = "" if caller is frame else source.call_at(caller.f_code.co_filename, caller.f_lineno or 0, called[-1])
        function = source.function_of(frame.f_code) if caller is frame else None
        for name, value in list(objects.variables(frame).items()):
            place = (name, caller.f_code.co_filename, call and "call")
            if caller is not frame:
                if call and isinstance(value, (list, tuple)):
                    lines.setdefault(place, caller.f_lineno)
                    phase = [name for name in called[:-1] if "eval" in name or "valid" in name][-1:]
                    texts[place] = call + "".join(", in %s," % name for name in phase)
                    later[2].append((place, value, None))
                continue
            scopes.setdefault(place, function)
            if name in source.given_once(path, frame.f_lineno or 0, objects.variables(frame)):
                once.add(place[:2])
            if frame.f_code.co_name == "forward" and objects.has(objects.variables(frame).get("self"), "_modules"):
                of_forward[place] = function
            if not objects.array_bytes(value):
                others = later[0] if objects.own_file(value) else later[2]
                (queue if objects.is_list(value) else others).append((place, value, None))
            elif objects.is_sum(value):
                note(place, value)
            elif objects.grad_fn(value) is not None and source.carried_over_backward(frame, name):
                note(place, value)
                lines[place] = source.carried_over_backward(frame, name)
    for name, path, value in objects.globals_of_modules():
        is_first = objects.own_file(value) or objects.is_list(value)
        later[0 if is_first else 2].append(((name, path, ""), value, None))
    own = itertools.islice(objects.of_program(), 50_000)
    later[1] += [((_name_of(value), objects.own_file(value), ""), value, None) for value in own]
    while (queue or later) and len(seen) < 200_000 and time.thread_time() < ends:
        if not queue:
            queue.extend(later.pop(0))
            continue
        place, value, listed = queue.popleft()  # listed: the place of the list whose element has this as a part
        if id(value) in seen or type(value) in objects.PLAIN:
            continue
        seen.add(id(value))
        is_cache = type(value).__name__ == "_lru_cache_wrapper"
        code = getattr(value.__wrapped__, "__code__", None) if is_cache else None
        if code is not None and source.is_own(code.co_filename):
            place = (code.co_name, code.co_filename, "")
            lines[place] = code.co_firstlineno
        own, is_list, is_module = objects.own_file(value), objects.is_list(value), objects.has(value, "_modules")
        is_own = own or type(value).__module__ in ("builtins", "__main__", "functools")
        owner = place[2]
        if objects.is_optimizer(value):
            owner = "optimizer"
        elif type(value).__module__ == "itertools":
            owner = "iterator"
        elif issubclass(type(value), BaseException):
            owner = "error"
        elif not is_own and not is_list and not is_module:
            is_queue = objects.has(value, "put") and objects.has(value, "get")
            owner = "queue" if is_queue and not getattr(value, "maxsize", 0) else "library"
        buffers = objects.of_module(value, "_buffers")
        for part, child in objects.children(value):
            if type(child) in objects.PLAIN:
                continue
            if time.thread_time() > ends:
                break
            inner = place[:2] + (owner,)
            if part and is_own and owner == place[2]:
                inner = (part, own or place[1], "")
            if is_list and own:  # a list of the program's own class may be filled by its methods
                selves.setdefault(inner, (own, type(value).__name__))
            if part and own:
                scopes.setdefault(inner, None if objects.is_named(value) else "attribute")
                classes.setdefault(inner, [_name_of(value), 0])[1] += 1
            within = inner if is_list else listed
            if is_list and not part and issubclass(type(value), dict):
                dicts.setdefault(inner, value)
            if within and id(child) in roots:
                note(within, child, [weight for weight in child.parameters() if weight.is_cuda], "model")
            elif within and objects.is_optimizer(child):
                states = [part for part in objects.states_of(child) if objects.array_bytes(part)]
                note(within, child, states, "optimizer")
            if not objects.array_bytes(child):
                if id(child) not in seen:
                    queue.append((inner, child, within))
            elif not part or objects.is_sum(child):  # an attribute that is one array is no collection
                note(inner, child)
            elif part in buffers:
                note((part, own or place[1], "buffer"), child)
            elif own and objects.grad_fn(child) is not None:  # an average of what has graphs
                note(inner, child)
            elif owner == "library":  # of an object that is made of others, as a cache of layers
                note(place[:2] + ("object",), child)
            elif listed or own:  # many objects may have one each
                note(listed or inner, child)
    at = {(frame.f_code.co_filename, frame.f_lineno or 0) for frame in frames}
    for path, (name, line) in {(path, source.comprehension_at(path, line)) for path, line in at}:
        unknown = [value for value in objects.alive(list) if id(value) not in seen] if line else ()
        for part in (part for value in unknown for part in value if objects.array_bytes(part)):
            lines[name, path, ""] = line
            note((name, path, ""), part)
    kept = []
    # Those that may be told: looking for the line of each of thousands would take minutes.
    most = sorted(found.items(), key=lambda each: (each[1]["graphs"], each[1]["bytes"]), reverse=True)[:16]
    most += [each for each in sorted(found.items(), key=lambda each: -each[1]["bytes"])[:16] if each not in most]
    for (place, kind), entry in most:
        entry.pop("storages", None), entry.pop("known", None)
        if kind == "model" and (place, "optimizer") in found:
            entry["bytes"] += found[place, "optimizer"]["bytes"]
        is_sum = entry["count"] < 3 and kind == "tensor" and place[2] != "call"
        line, puts, in_loop = lines.get(place, 0), False, False
        if not line and (not is_sum or entry["graphs"]):
            key = _fullest_key(dicts.get(place, {}))
            line, puts, in_loop = source.line_that_keeps(*place, is_sum, key, scopes.get(place))
            if not line and place in selves:
                line, puts, in_loop = source.line_of_class_that_keeps(*selves[place], is_sum)
            kind_of_owner, owners = classes.get(place, ("", 0))
            if not line and owners > 2 and not is_sum:  # what many objects were made with
                call = source.line_that_calls([place[1]], kind_of_owner)
                line, texts[place] = int(call.rpartition(":")[2] or 0), kind_of_owner + "." + place[0]
        # A list that has two models from the start needs both: one that grows in a loop may not.
        grows = bool(line) and source.grows(place[1], line, place[0], frames)
        is_many = entry["count"] >= (3 if kind == "tensor" or not in_loop else 2) and (grows or kind == "tensor")
        if line and (is_many or (is_sum and entry["graphs"])):
            owner = "" if puts and place[2] == "object" else place[2]
            name = texts.get(place, place[0])
            in_step = is_sum and source.is_of_step(place[1], line, place[0])
            forward = of_forward.get(place)
            is_of_pass = forward is not None and forward.lineno <= line <= forward.end_lineno
            is_once = owner in ("object", "library") and place[:2] in once
            entry |= {"grows": grows and not is_sum and not is_of_pass, "in_step": in_step, "once": is_once}
            kept.append({"name": name, "file": place[1], "line": line, "owner": owner, **entry})
    return sorted(kept, key=lambda entry: (entry["bytes"], entry["count"]), reverse=True)[:24]


def _name_of(value):
    return value.__name__ if objects.is_named(value) else type(value).__name__


def _fullest_key(values):
    """The text under which a dict has most arrays, those with graphs first; None if it has one alone."""
    texts = [key for key in list(values)[:100] if isinstance(key, str)]
    arrays = {key: list(objects.arrays_under(values[key], {}, 1000)) for key in texts}
    size = lambda key: (sum(objects.grad_fn(array) is not None for array in arrays[key]), len(arrays[key]))
    return max(texts, key=size) if len(texts) > 1 else None


def _growth(frames):
    """source.growth() for the variables and attributes that are as large as a side of an array, or as a list of arrays,
    that functions have, and for the functions that returned one."""
    own = [frame for frame in frames if source.is_own(frame.f_code.co_filename)]
    values = [value for frame in own for value in objects.variables(frame).values()]
    values = [part for value in values if objects.is_list(value) for _, part in objects.children(value)[:40]]
    values += [value for frame in frames for value in objects.variables(frame).values()]
    values = [value for value in values if type(value) is not type and request.has_shape(value)]
    sides = {side for value in values for side in value.shape}
    first = {value.shape[0] for value in values if len(value.shape) and not objects.weight_bytes(value)}
    for frame in own:  # the rounds of a loop that runs
        around = source.loop_around(frame.f_code.co_filename, frame.f_lineno or 0)
        names = source.names_in(around.iter) if isinstance(around, ast.For) else ()
        sides |= {value for name, value in objects.variables(frame).items() if name in names and type(value) is int}
    for value in (value for frame in own for value in objects.variables(frame).values() if objects.is_list(value)):
        sides |= {len(value)} if any(request.has_shape(part) for _, part in objects.children(value)[:1]) else set()
    is_side = lambda value: type(value) is int and value > 4 and value in sides
    sized = {}  # whether as large as the first side: a batch's
    for frame in own:
        for name, value in [each for each in objects.variables(frame).items() if is_side(each[1])]:
            path = frame.f_code.co_filename
            calls = [node.value for node in source.assignments_of(frame, path, name, False)]
            names = [source.name_of(call) for call in calls if isinstance(call, ast.Call)] + ["__call__"] * len(calls)
            sized |= {(path, name): value in first}
            sized |= {(each, name): value in first for each in source.own_files(frames) for name in names}
    for value in itertools.islice(objects.of_program(), 50_000):
        path = objects.own_file(value)
        own = list(objects.attributes(value).items())
        sized |= {(path, name): part in first for name, part in own if is_side(part)}
    return source.growth(frames, sized)


def _is_double(array):
    return str(getattr(array, "dtype", "")).endswith(("float64", "complex128"))


def _variables(frames, failed):
    """The bytes that variables of the program's functions, and attributes of their objects, have. The largest of each
    kind, which the line tells that assigns it: "replaced", which holds its old value while that line makes the
    next; "loaded", by a call such as torch.load; "grown", by joining itself with more (what a model joins in its
    forward pass does not grow); and "largest", with all that is reached through it and through none before it.
    "arrays" has the bytes of all in these functions, of those with numbers of 8 or 16 bytes, and the line that
    first makes one of them."""
    found = {name: {"bytes": 0} for name in ("replaced", "loaded", "grown", "largest")}
    torch = sys.modules.get("torch")
    weights = {objects.storage(weight) for weight in (objects.alive(torch.nn.Parameter) if torch else ())}
    seen, storages, arrays, doubles = {}, set(), {}, []
    files = source.own_files(frames)

    def tell(how, size, name, line, call=""):
        if size > found[how]["bytes"]:
            found[how] = {"name": name, "bytes": size, "line": line, "call": call}

    for depth, frame in enumerate(frame for frame in frames if source.is_own(frame.f_code.co_filename)):
        variables = objects.variables(frame)
        for text, name, path, value in objects.variables_of(frame):
            is_attribute, own = text != name, objects.array_bytes(value)
            nodes = source.assignments_of(frame, path, name, is_attribute)
            if own and not is_attribute:
                arrays[objects.storage(value)] = value
            if own and _is_double(value) and nodes:
                made = nodes[0] if is_attribute else nodes[-1]
                doubles.append((not is_attribute, -depth, made.lineno, "%s:%d" % (path, made.lineno)))
            for node in nodes:
                line = "%s:%d" % (path, node.lineno)
                call = node.value if isinstance(node.value, ast.Call) else None
                text_of_call = ast.unparse(call.func)[:40] if call else ""
                if not is_attribute and frame in failed and node.lineno <= frame.f_lineno <= node.end_lineno:
                    names = sorted((source.targets_of(node) - source.names_in(node.value)) & set(variables))
                    size = sum(objects.array_bytes(variables[each]) for each in names)
                    tell("replaced", size, ", ".join(names), line)
                where, loads = source.call_that_loads(files, call) if call else (None, None)
                if loads:
                    at = "%s:%d" % (where, loads.lineno) if where else line
                    tell("loaded", _reached(value, {}, set(weights)), text, at, ast.unparse(loads.func)[:40])
                is_bound_alone = is_attribute or source.is_bound_alone(path, node, name)
                if call and own and source.joins(call, name) and is_bound_alone:
                    tell("grown", own, text, line, text_of_call)
            if name == "self" or objects.has(value, "_modules") or objects.is_optimizer(value):
                continue
            size = _reached(value, seen, storages)
            if size > found["largest"]["bytes"]:
                made = source.line_that_makes(name, text, frame)
                tell("largest", size, *_largest_part(text, made, value, size))
    for how in _joined_in_place(frames, files):
        tell("grown", *how)
    large = [value for value in arrays.values() if _is_double(value)]
    sizes = {"bytes": sum(map(objects.array_bytes, arrays.values())), "doubles": sum(map(objects.array_bytes, large))}
    asked_for = source.line_of_parts(files, ["jax_enable_x64"]) if large else ""
    return {**found, "arrays": {**sizes, "line": asked_for or min(doubles, default=("",))[-1]}}


def _joined_in_place(frames, files):
    """(bytes, name, line, call) of the entries that source.joins_in_place() tells of, those of one object together,
    without arrays that have a graph: what a model joins in its forward pass does not grow."""
    found, entries = {}, {}
    for path in files:
        for target, call in source.joins_in_place(path):
            is_entry = isinstance(target, ast.Subscript)
            name = getattr(target.slice, "value", None) if is_entry else target.attr
            if not isinstance(name, str):
                name = getattr(target.value, "attr", getattr(target.value, "id", ""))
            base = ast.unparse(target.value if is_entry else target)
            told = (base, "%s:%d" % (path, call.lineno), ast.unparse(call.func)[:40])
            entries.setdefault(name, found.setdefault((path, ast.unparse(target.value)), (told, {})))
    dicts = [objects.attributes(value) for value in objects.of_program()] if entries else []
    dicts += [objects.variables(frame) for frame in frames] + objects.alive(dict) if entries else []
    for name, (_, arrays) in entries.items():
        for value in [dict.get(each, name) for each in dicts if isinstance(each, dict) and name in each]:
            every = objects.arrays_under(value, {}, 10_000)
            arrays |= objects.sizes(array for array in every if objects.grad_fn(array) is None)
    return [(sum(arrays.values()), *told) for told, arrays in found.values()]


def _loading(failed):
    """The call of the program that reads a file and has not returned: its line, and bytes of the arrays that it has."""
    inner = list(itertools.takewhile(lambda frame: not source.is_own(frame.f_code.co_filename), failed))
    path, line = ([(f.f_code.co_filename, f.f_lineno or 0) for f in failed[len(inner) :]] + [("", 0)])[0]
    calls = [call for call in source.nodes_at(path, line) if source.name_of(call).startswith("load")]
    if not calls or not inner:
        return {}
    values, seen, storages = [objects.variables(frame) for frame in inner], {}, set()
    size = sum(_reached(value, seen, storages) for each in values for value in each.values())
    return {"bytes": size, "line": "%s:%d" % (path, line), "call": ast.unparse(calls[0].func)[:40]}


def _reached(value, seen, storages):
    """Bytes of the arrays that are reached through a value and not through `seen`, less those of `storages`, to which
    they are added."""
    sizes = objects.sizes(objects.arrays_under(value, seen))
    size = sum(sizes[key] for key in sizes.keys() - storages)
    storages |= sizes.keys()
    return size


def _largest_part(text, line, value, size):
    """The attribute of an object of the program's class that has nearly all of its bytes, if there is one."""
    path = objects.own_file(value)
    for name, part in list(objects.attributes(value).items()) if path else ():
        if not objects.has(part, "_modules") and _reached(part, {}, set()) >= 0.8 * size:
            assigned = source.line_of_attribute(path, name)
            return text + "." + name, "%s:%d" % (path, assigned) if assigned else line
    return text, line


def _moment(failed, kept):
    """Tells where the request that failed is, by the program's own functions; whether one of them calls a backward
    below that line, for which all graphs are that are kept; and where CUDA graphs are recorded."""
    own = [frame for frame in failed if source.is_own(frame.f_code.co_filename)]
    lines = ["%s:%d in %s" % (f.f_code.co_filename, f.f_lineno, f.f_code.co_name) for f in own]
    graphs = [line for line, _ in source.calls_of(failed, ("graph", "make_graphed_callables"))]
    graphs += [source.line_of_parts(source.own_files(failed), ["reduce-overhead", "max-autotune"])]
    before = list(itertools.takewhile(lambda frame: not source.calls_backward_later(frame), own))
    names = {name for frame in before for name in objects.variables(frame)}
    with_graphs = {entry["name"] for entry in kept if entry["graphs"] and entry["owner"] != "call"}
    backward = len(before) < len(own) and with_graphs <= names
    makes_model = models.are_being_made(failed)
    return {"lines": lines[:4], "backward": backward, "graphs": graphs[0], "makes_model": makes_model}


def _cycles():
    """Objects that refer to each other alone: bytes of their arrays and weights, the program's class that has most, and
    the line where one of it gives itself to another, or where it is."""
    garbage, sizes = objects.collect(), {}
    parts = (part for value in garbage for part in gc.get_referents(value) if not gc.is_tracked(part))
    for value in itertools.chain(garbage, parts):
        size = objects.array_bytes(value) or objects.weight_bytes(value)
        sizes |= {objects.storage(value): size} if size else {}
    kinds = [vars(type(value)).get("_forward_cls", type(value)) for value in garbage]  # the program's of a ctx
    own = [(objects.file_of(kind), kind.__name__) for kind in kinds]
    found = []
    for (path, name), count in collections.Counter(entry for entry in own if entry[0]).items():
        for node in (node for node in source.nodes_in(source.tree_of(path), ast.ClassDef) if node.name == name):
            line = source.line_that_gives_itself(node)
            found.append((line > 0, count, name, "%s:%d" % (path, line or node.lineno)))
    name, line = max(found, default=(0, 0, "", ""))[2:]
    return {"bytes": sum(sizes.values()), "name": name, "line": line}


def _padding(frames):
    """The line of a function of the program, or of a class with __call__, that pads the items of a batch to the longest
    of them, or that makes a library's object that does."""
    data = sys.modules.get("torch.utils.data")
    loaders = objects.alive(data.DataLoader) if data else []
    collators = [loader.collate_fn for loader in loaders]
    iterators = sys.modules.get("torch.utils.data.dataloader")  # their loaders may be gone
    collators += [each._collate_fn for each in objects.alive(iterators._BaseDataLoaderIter)] if iterators else []
    collators += [part for each in collators for part in objects.attributes(each).values() if callable(part)]
    for function in collators:
        function = getattr(function, "func", function)  # of functools.partial
        code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
        if code and not source.is_own(code.co_filename) and objects.has(function, "tokenizer"):  # of Transformers
            files = source.own_files(frames)
            line = source.line_that_calls(files, type(function).__name__) or source.line_of_parts(files, ["padding"])
            if line:
                return line
        nodes = source.nodes_in(source.tree_of(code.co_filename), ast.Call) if code else []
        nodes = [node for node in nodes if code.co_firstlineno <= node.lineno <= code.co_firstlineno + 100]
        nodes = [n for n in nodes if "pad" in ast.unparse(n.func)] or [n for n in nodes if source.name_of(n) == "max"]
        if nodes:
            return "%s:%d" % (code.co_filename, nodes[0].lineno)
    return ""


def write(path, frames, failed, asked, is_end=False):
    """Writes down what `frames`, of all threads, have; `failed` are those of the request, the innermost first. With
    `is_end` an error ends the program that no allocator of PyTorch told of before."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of arrays that are asked for their bytes
            facts = _facts(frames, failed, asked, is_end)
    finally:
        objects.release()
    text = json.dumps(facts, default=str, ensure_ascii=False).encode("utf-8", "replace")
    with open(path, "wb") as file:
        file.write(text)


def _facts(frames, failed, asked, is_end):
    facts = {"asked": asked}
    if not any(source.is_own(frame.f_code.co_filename) for frame in failed):  # of a backward, in a thread of its own
        failed = frames
    of_frames = {"libraries": _other_libraries, "kept": _kept, "growth": _growth, "padding": _padding}
    of_frames |= {"starts": source.starts, "plans": _plans, "threads": _threads}
    of_frames |= {"transform": lambda frames: request.transform(frames, is_end), "weights": models.weights}
    of_frames |= {"untrained": models.untrained, "trained": models.trained, "evaluating": models.evaluating}
    of_frames |= {"hooks": models.hooks, "outputs": models.outputs}
    asked_for = {"cycles": _cycles}  # first: what is garbage is nobody's
    asked_for |= {name: lambda ask=ask: ask(frames) for name, ask in of_frames.items()}
    asked_for |= {"request": lambda: request.made_of(failed, asked), "loading": lambda: _loading(failed)}
    asked_for |= {"settings": lambda: source.settings(frames)}
    asked_for |= {"variables": lambda: _variables(frames, failed)}
    asked_for["moment"] = lambda: _moment(failed, facts.get("kept", []))
    for name, ask in asked_for.items():
        try:
            facts[name] = ask()
        except Exception as error:
            facts[name + "_error"] = str(error)
    return facts.pop("variables", {}) | facts
