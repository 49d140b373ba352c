"""Looks at the objects of a Python program: arrays and their bytes, modules, optimizers, and what an object holds."""

import collections
import functools
import gc
import inspect
import itertools
import sys
import types

import headroom_source as source

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
_OF_MODULES = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook"}
PLAIN = {str, bytes, int, float, bool, type(None), types.ModuleType}
_MOST_PARTS = 100_000  # of one list
_files, _frames = {}, {}  # of classes; those whose variables were looked at
_alive = {}  # by class: what forget_alive() drops


def array_bytes(value):
    """The bytes that an array of PyTorch, JAX or CuPy takes on a GPU; 0 for anything else, weights among it."""
    library = library_of(value)
    try:
        if library == "torch" or (library not in ("jax", "jaxlib", "cupy") and "torch" in sys.modules):
            torch = sys.modules["torch"]
            is_array = issubclass(type(value), torch.Tensor) and not issubclass(type(value), torch.nn.Parameter)
            return value.untyped_storage().nbytes() if is_array and value.is_cuda else 0
        if library in ("jax", "jaxlib"):
            return value.nbytes if next(iter(value.devices())).platform == "gpu" else 0
        return value.nbytes if library == "cupy" and hasattr(value, "nbytes") else 0
    except Exception:  # a sparse one, one of a subclass that refuses, or of JAX one that is traced or deleted
        return 0


def storage(array):
    try:
        return array.untyped_storage().data_ptr() if hasattr(array, "untyped_storage") else id(array)
    except Exception:  # of a subclass that has none
        return id(array)


def grad_fn(array):
    """The graph that computed an array; None without one, and for a view that refuses to tell."""
    try:
        return getattr(array, "grad_fn", None)
    except Exception:
        return None


def alive(kind):
    if kind not in _alive:
        _alive[kind] = [value for value in gc.get_objects() if issubclass(type(value), kind)]
    return _alive[kind]


def forget_alive():
    """Before cycles are collected, which must not be held from here."""
    _alive.clear()


def modules_of_torch():
    """The modules of PyTorch; not those that are still being made."""
    modules = alive(sys.modules["torch"].nn.Module) if "torch" in sys.modules else []
    return [module for module in modules if "_modules" in vars(module)]


def roots():
    """The modules of PyTorch that are part of no other."""
    modules = modules_of_torch()
    parts = {id(part) for module in modules for part in module._modules.values()}
    return {id(module) for module in modules} - parts


def repeated_hooks():
    """Of the modules, the most hooks of one that are the same function of the program: how many, and the function."""
    most = (0, None)
    for module in modules_of_torch():
        for kind in _HOOKS:
            hooks = [getattr(hook, "__func__", hook) for hook in _of_module(module, kind).values()]
            codes = collections.Counter(getattr(hook, "__code__", None) for hook in hooks)
            own = [(n, code) for code, n in codes.items() if code is not None and source.is_own(code.co_filename)]
            most = max([most] + own, key=lambda each: each[0])
    return most


def library_of(value):
    """The name of the package that has the class of a value."""
    module = type(value).__module__
    return module.partition(".")[0] if isinstance(module, str) else ""


def own_file(value):
    """The program's file that has the class of a value, or the function that it is; empty for a library's."""
    if type(value) is types.FunctionType:  # some objects warn, or act, when they are asked for their class
        path = value.__code__.co_filename
        return path if source.is_own(path) else ""
    return file_of(type(value))


def globals_of_modules():
    """(name, file, value) of the variables of the program's modules."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py") and source.is_own(path):
            yield from ((name, path, value) for name, value in list(vars(module).items()))


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
    _frames[id(frame)] = frame
    return frame.f_locals


def variables_of(frame):
    """(text, name, value) of the variables of a function of the program, and of the attributes of its object."""
    found = [(name, name, value) for name, value in variables(frame).items()]
    owner = variables(frame).get("self")
    if owner is not None and own_file(owner) and not has(owner, "_modules"):
        found += [("self." + name, name, value) for name, value in attributes(owner).items()]
    return found


def release():
    """Before Python 3.13 a frame keeps the dict of its variables that somebody asked for, and with it what the program
    deletes later: takes the variables out again, unless the program has the dict as well."""
    for frame in _frames.values() if sys.version_info < (3, 13) else ():
        code, variables = frame.f_code, frame.f_locals
        if code.co_flags & inspect.CO_OPTIMIZED and sys.getrefcount(variables) <= 3:
            for name in code.co_varnames + code.co_cellvars + code.co_freevars:
                variables.pop(name, None)
    _frames.clear()
    _files.clear()
    _alive.clear()


def is_optimizer(value):
    return has(value, "param_groups") and has(value, "state") and isinstance(value.state, dict)


def states_of(optimizer):
    return [part for state in dict.values(optimizer.state) if isinstance(state, dict) for part in dict.values(state)]


def buffers(module):
    return _of_module(module, "_buffers")


def _of_module(module, name):
    """A dict of a module of PyTorch; empty for any other object, which is not asked."""
    found = vars(module).get(name) if has(module, "_modules") and hasattr(type(module), "parameters") else None
    return found if isinstance(found, dict) else {}


def weights(module):
    return _of_module(module, "_parameters")


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
    if type(value).__name__ == "_lru_cache_wrapper":
        return [("", part) for part in gc.get_referents(value)]
    for kind in (dict, list, tuple, set, collections.deque):  # not by a method of a class of theirs, which may act
        if issubclass(type(value), kind):
            parts = dict.values(value) if kind is dict else kind.__iter__(value)
            return [("", part) for part in itertools.islice(parts, _MOST_PARTS) if type(part) not in PLAIN]
    if isinstance(value, types.FunctionType):
        return _children_of_function(value) if own_file(value) else []
    if isinstance(value, types.MethodType):
        return [("", value.__self__), ("", value.__func__)]
    if type(value).__module__ == "itertools":  # cycle keeps all that it gave, and tee what one has not taken
        return [("", part) for part in gc.get_referents(value)]
    if library_of(value) in ("jax", "jaxlib") and has(value, "__wrapped__"):  # a function that JAX compiles
        return [("", value.__wrapped__)]
    if isinstance(value, functools.partial):
        return [("", part) for part in (value.func, *value.args, *value.keywords.values())]
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        is_own = frame is not None and source.is_own(frame.f_code.co_filename)
        return list(variables(frame).items()) if is_own else []
    if isinstance(value, BaseException):  # its traceback holds what the functions had
        frames = list(frames_of_trace(value.__traceback__))
        return [("", part) for frame in frames for part in variables(frame).values()]
    library = library_of(value)
    if is_optimizer(value):  # what it keeps of each step, as L-BFGS does, but not its state of one step
        return [("", part) for part in states_of(value) if isinstance(part, list)]
    if has(value, "_modules") and has(value, "_parameters"):  # a module of PyTorch
        parts = list(value._modules.items())
        own = [(k, v) for k, v in vars(value).items() if k not in _OF_MODULES and not k.endswith(("hooks", "_kwargs"))]
        own += [("", hook) for k in _HOOKS for hook in list(_of_module(value, k).values())]
        return parts + own + [(k, v) for k, v in buffers(value).items() if grad_fn(v)]
    is_looked_into = str(type(value).__module__).startswith(("torch.utils.data", "torch.optim.lr_scheduler"))
    if library in ("builtins", "torch", "jax", "jaxlib", "cupy", "numpy", "types") and not is_looked_into:
        return []
    if isinstance(value, type):
        return []
    names = [name for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)]
    return [(name, getattr(value, name)) for name in names] + list(attributes(value).items())


def _children_of_function(value):
    """What a function of the program keeps: variables of the functions around it, values of its arguments that are not
    given, and its attributes."""
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
