"""Looks at the objects of a Python program: arrays and their bytes, modules, optimizers, and what an object holds."""

import collections
import contextvars
import gc
import inspect
import itertools
import sys
import types
import weakref

import headroom_source as source

_OF_MODULES = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook"}
PLAIN = {str, bytes, int, float, bool, type(None), types.ModuleType}
_MOST_PARTS = 100_000  # of one list
_CLOSED = ("jax", "jaxlib", "cupy", "numpy")  # what their objects hold is no list of the program's
_CODES = {types.FunctionType: "__code__", types.GeneratorType: "gi_code"}
_CODES |= {types.CoroutineType: "cr_code", types.AsyncGeneratorType: "ag_code"}
RAW = (bytes, bytearray, str, list)
_files, _frames = {}, {}  # of classes; those whose variables were looked at
on_host = False  # arrays in the machine's memory are asked for, in place of those on a GPU
_alive, _garbage = {}, {}  # by class; by identity


def array_bytes(value):
    """The bytes that an array of PyTorch, JAX or CuPy takes on a GPU; 0 for anything else, weights among it. `on_host`:
    those that one of PyTorch or NumPy takes in the machine's memory, or bytes, a text or a list of numbers."""
    library = library_of(value)
    try:
        if on_host and type(value) in RAW:
            are_numbers = type(value) is list and type(value[0]) in (int, float)
            return 32 * len(value) if are_numbers else sys.getsizeof(value) * (type(value) is not list)
        if on_host and library != "torch":
            return _base(value).nbytes if library == "numpy" and hasattr(value, "nbytes") else 0
        if library == "torch" or (library not in ("jax", "jaxlib", "cupy") and "torch" in sys.modules):
            torch = sys.modules["torch"]
            is_array = issubclass(type(value), torch.Tensor) and not issubclass(type(value), torch.nn.Parameter)
            return value.untyped_storage().nbytes() if is_array and value.is_cuda != on_host else 0
        if library in ("jax", "jaxlib"):
            return value.nbytes if next(iter(value.devices())).platform == "gpu" else 0
        return _base(value).nbytes if library == "cupy" and hasattr(value, "nbytes") else 0
    except Exception:  # a sparse one, one of a subclass that refuses, or of JAX one that is traced or deleted
        return 0


def see_host():
    """From here on arrays in the machine's memory are asked for."""
    global on_host
    on_host = True
    PLAIN.difference_update(RAW)


def _base(array):
    """The array of CuPy or NumPy that a view shows a part of, and keeps; any other array itself."""
    base = getattr(array, "base", None) if library_of(array) in ("cupy", "numpy") else None
    return base if hasattr(base, "nbytes") else array


def storage(array):
    try:
        return array.untyped_storage().data_ptr() if hasattr(array, "untyped_storage") else id(_base(array))
    except Exception:  # of a subclass that has none
        return id(array)


def sizes(values):
    """The bytes of the arrays among some values, by what stores them."""
    return {storage(value): array_bytes(value) for value in values if array_bytes(value)}


def weight_bytes(value):
    """The bytes of a weight on a GPU with its gradient; 0 for anything else."""
    try:
        if not issubclass(type(value), sys.modules["torch"].nn.Parameter) or not value.is_cuda:
            return 0
        return value.nbytes + (value.grad.nbytes if value.grad is not None else 0)
    except Exception:
        return 0


def grad_fn(array):
    """The graph that computed an array; None without one, and for a view that refuses to tell."""
    try:
        return getattr(array, "grad_fn", None)
    except Exception:
        return None


def weights_in_graphs(frames, most=50_000):
    """The weights, by identity, that the graphs of variables of the program's functions lead to."""
    frames = [frame for frame in frames if source.is_own(frame.f_code.co_filename)]
    nodes = [grad_fn(value) for frame in frames for value in variables(frame).values()]
    seen = {}
    while nodes and len(seen) < most:
        node = nodes.pop()
        if node is not None and id(node) not in seen:
            seen[id(node)] = node
            nodes += [before for before, _ in getattr(node, "next_functions", ())]
    return {id(getattr(node, "variable", None)) for node in seen.values()}


def collect():
    """Collects objects that refer to each other alone, which are in no answer from then on; release() ends them."""
    flags, before = gc.get_debug(), list(gc.garbage)
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
    finally:
        gc.set_debug(flags)
    _garbage.update((id(value), value) for value in gc.garbage[len(before) :])
    gc.garbage[:] = before
    return list(_garbage.values())


def _tracked():
    """By class the objects that Python's collector knows, less what it found to be garbage."""
    if not _alive:
        for value in gc.get_objects():
            if id(value) not in _garbage:
                _alive.setdefault(type(value), []).append(value)
    return _alive


def alive(kind):
    return [value for each, values in _tracked().items() if issubclass(each, kind) for value in values]


def of_program():
    """The objects of the program's classes, its classes, functions and generators."""
    for kind, values in list(_tracked().items()):
        if kind in _CODES or issubclass(kind, type):
            yield from filter(own_file, values)
        elif file_of(kind):
            yield from values


def modules_of_torch():
    """The modules of PyTorch; not those that are still being made."""
    modules = alive(sys.modules["torch"].nn.Module) if "torch" in sys.modules else []
    return [module for module in modules if "_modules" in vars(module)]


def roots():
    """The modules of PyTorch that are part of no other."""
    modules = modules_of_torch()
    parts = {id(part) for module in modules for part in module._modules.values()}
    return {id(module) for module in modules} - parts


def library_of(value):
    """The name of the package that has the class of a value."""
    module = type(value).__module__
    return module.partition(".")[0] if isinstance(module, str) else ""


def own_file(value):
    """The program's file that has the class of a value, or the class, function or generator that it is; empty for a
    library's."""
    kind = type(value)  # some objects warn, or act, when they are asked for their class
    if kind in _CODES:
        path = getattr(value, _CODES[kind]).co_filename
        return path if source.is_own(path) else ""
    return file_of(value if issubclass(kind, type) else kind)


def is_named(value):
    """True for a class, a function or a generator."""
    return type(value) in _CODES or issubclass(type(value), type)


def globals_of_modules():
    """(name, file, value) of the variables of the program's modules."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py") and source.is_own(path):
            named = list(vars(module).items())
            yield from ((name, path, value) for name, value in named if not name.startswith("__"))
    for variable, value in contextvars.copy_context().items():
        yield variable.name, getattr(sys.modules["__main__"], "__file__", None) or "", value


def file_of(kind):
    """The program's file that has a class; empty for a library's."""
    if id(kind) not in _files:
        module = kind.__module__ if isinstance(kind.__module__, str) else ""
        path = getattr(sys.modules.get(module), "__file__", None) or "<>"
        _files[id(kind)] = (kind, path if source.is_own(path) else "")
    return _files[id(kind)][1]


def has(value, name):
    """True if a value has an attribute. The value is not asked, as some make what they are asked for."""
    try:
        if name in vars(value):
            return True
    except Exception:  # without a dict, or a stand-in whose object is gone
        pass
    return any(name in vars(kind) for kind in type(value).__mro__)


def variables(frame):
    """The variables of a function; of a module without those that Python puts there, as __builtins__."""
    _frames[id(frame)] = frame
    variables = frame.f_locals
    if variables is not frame.f_globals:
        return variables
    return {name: value for name, value in list(variables.items()) if not name.startswith("__")}


def variables_of(frame):
    """(text, name, file, value) of the variables of a function of the program, and of the attributes of its objects."""
    values = list(variables(frame).items())
    yield from ((name, name, frame.f_code.co_filename, value) for name, value in values)
    for owner, value in values:
        path = own_file(value) if not is_named(value) else ""
        parts = {**attributes(value), **of_module(value, "_buffers")} if path else {}
        yield from ((owner + "." + k, k, path, part) for k, part in parts.items() if k not in _OF_MODULES)


def release():
    """Before Python 3.13 a frame keeps the dict of its variables that somebody asked for, and with it what the program
    deletes later: takes the variables out again, unless the program has the dict as well."""
    for frame in _frames.values() if sys.version_info < (3, 13) else ():
        code, variables = frame.f_code, frame.f_locals
        if code.co_flags & inspect.CO_OPTIMIZED and sys.getrefcount(variables) <= 3:
            for name in code.co_varnames + code.co_cellvars + code.co_freevars:
                variables.pop(name, None)
    _frames.clear()
    _garbage.clear()
    _files.clear()
    _alive.clear()


def is_optimizer(value):
    return has(value, "param_groups") and has(value, "state") and isinstance(value.state, dict)


def states_of(optimizer):
    return [part for state in dict.values(optimizer.state) if isinstance(state, dict) for part in dict.values(state)]


def of_module(module, name):
    """A dict of a module of PyTorch; empty for any other object, which is not asked."""
    found = vars(module).get(name) if has(module, "_modules") and hasattr(type(module), "parameters") else None
    return found if isinstance(found, dict) else {}


def hooks_of(owner):
    """("", hook) of what is called at a step of a module, an optimizer, a tensor, or, where `owner` is a module of
    Python that has such lists, of all of them."""
    names = [*attributes(owner), "_backward_hooks", "_post_accumulate_grad_hooks"]
    lists = [getattr(owner, name, None) for name in dict.fromkeys(names) if name.endswith("hooks")]
    return [("", hook) for hooks in lists if isinstance(hooks, dict) for hook in list(dict.values(hooks))]


def attributes(value):
    """The dict of an object; empty without one, or where it refuses."""
    try:
        return vars(value)
    except Exception:
        return {}


def children(value):
    """(name, value) of what an object holds; a name is empty where the object's own is the better one."""
    try:
        return _children(value)
    except Exception:  # of an object that refuses to be looked at
        return []


def _children(value):
    kind, library = type(value), library_of(value)
    if kind in weakref.ProxyTypes:  # it looks like the object that it does not keep
        return []
    for container in (dict, list, tuple, set, frozenset, collections.deque):  # by no method of a class, which may act
        if issubclass(kind, container):
            parts = dict.values(value) if container is dict else container.__iter__(value)
            own = attributes(value).items() if own_file(value) else ()
            return [("", part) for part in itertools.islice(parts, _MOST_PARTS) if type(part) not in PLAIN] + list(own)
    if kind is types.FunctionType or issubclass(kind, type):
        return _children_of_code(value) if own_file(value) else []
    if issubclass(kind, getattr(sys.modules.get("torch"), "Tensor", ())) or library in _CLOSED:
        if library in ("jax", "jaxlib") and has(value, "__wrapped__"):  # a function that is compiled
            return [("", value.__wrapped__)]
        return [("", part) for part in value.flat] if library == "numpy" and value.dtype == object else []
    if issubclass(kind, (BaseException, types.TracebackType)):  # a traceback holds what the functions had
        trace = value if kind is types.TracebackType else value.__traceback__
        return [("", part) for frame in frames_of_trace(trace) for part in variables(frame).values()]
    if kind in _CODES or kind is types.FrameType:  # of a generator or a coroutine that waits
        frame = getattr(value, _CODES[kind].replace("code", "frame")) if kind in _CODES and own_file(value) else None
        return list(variables(frame).items()) if frame is not None else []
    if is_optimizer(value):  # what it keeps of each step, as L-BFGS does, but not its state of one step
        return [("", part) for part in states_of(value) if isinstance(part, list)] + hooks_of(value)
    if has(value, "_modules") and has(value, "_parameters"):  # a module of PyTorch
        own = [(k, v) for k, v in vars(value).items() if k not in _OF_MODULES and not k.endswith(("hooks", "_kwargs"))]
        own += hooks_of(value) + [(k, v) for k, v in of_module(value, "_buffers").items() if grad_fn(v)]
        return list(value._modules.items()) + own
    slots = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    slots = [name for each in slots for name in ([each] if isinstance(each, str) else each) if hasattr(value, name)]
    named = [(name, getattr(value, name)) for name in slots] + list(attributes(value).items())
    # All else that keeps objects alive says so to Python's collector: what C holds, closures, caches, bound methods.
    known = {id(part) for _, part in named} | {id(attributes(value)), id(kind)}
    parts = [part for part in gc.get_referents(value) if id(part) not in known and not isinstance(part, type)]
    return named + [("", part) for part in parts[:_MOST_PARTS] if type(part) not in PLAIN]


def _children_of_code(value):
    """What a function or a class of the program keeps: variables of the functions around it, values of its arguments
    that are not given, and its attributes."""
    if issubclass(type(value), type):
        return [(k, v) for k, v in vars(value).items() if not k.startswith("__")]
    code, defaults = value.__code__, value.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    kept = list(zip(names, defaults)) + list((value.__kwdefaults__ or {}).items()) + list(vars(value).items())
    for name, cell in zip(code.co_freevars, value.__closure__ or ()):
        try:
            kept.append((name, cell.cell_contents))
        except ValueError:  # not assigned yet
            pass
    return kept


def is_list(value):
    return issubclass(type(value), (list, tuple, set, dict, collections.deque))


def is_sum(array):
    """True for one number with the graph that computed it."""
    return grad_fn(array) is not None and array.numel() == 1


def arrays_under(value, seen, most=50_000):
    """The arrays that are reached through a value, by its lists and objects."""
    values = [value]
    for _ in range(most):
        if not values:
            return
        value = values.pop()
        if id(value) in seen or type(value) in PLAIN:
            continue
        seen[id(value)] = value  # it stays: another object could get its number
        if array_bytes(value):
            yield value
        else:
            values.extend(child for _, child in children(value))


def frames_of_trace(trace):
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
