"""Finds what the request that failed is made of, for the verdict of `headroom run`: arrays of the functions that ran,
their products, numbers that are sides of it, a step of what JAX compiled, or what is made of each example."""

import ast
import itertools
import math
import sys

import headroom_objects as objects
import headroom_source as source


def made_of(frames, asked):
    """Tells what makes the `asked` bytes for which one of `frames` asked, its own first; empty where nothing does."""
    return _arrays(frames, asked) or _compiled(frames, asked)


def has_shape(value):
    """True for an array of any library whose extents and bytes are known."""
    try:
        is_array = all(objects.has(value, name) for name in ("shape", "nbytes", "dtype"))
        return is_array and all(size >= 0 for size in value.shape) and value.nbytes >= 0
    except Exception:  # of sparse and nested ones
        return False


def _arrays(frames, asked):
    """Tells what the request that failed makes: an array as large as one in its functions, or made of two of them."""
    arrays, owned = [], []
    for frame in frames:
        owner = objects.variables(frame).get("self")
        weights = objects.of_module(owner, "_parameters")
        names = {**objects.variables(frame), **{"self." + name: weight for name, weight in weights.items()}}
        # A model returns a dict.
        parts = [(k, v) for k, v in names.items() if issubclass(type(v), dict) and dict.__len__(v) < 40]
        names |= {"%s.%s" % (k, part): value for k, v in parts for part, value in dict.items(v)}
        here = [(k, v) for k, v in names.items() if type(v) is not type and has_shape(v)]
        arrays = here[:40] + arrays  # the program's own first
        owned = [("self." + k, v) for k, v in objects.attributes(owner).items() if has_shape(v)] + owned
        if source.is_own(frame.f_code.co_filename):
            break
    fits = lambda size: _fits(size, asked)
    for name, array in arrays + owned:
        if fits(array.nbytes):
            return {"text": "it is as large as " + _text(name, array)}
    product = {}
    pairs = list(itertools.combinations(arrays, 2)) + [(each, each) for each in arrays]
    for (name, a), (other, b) in pairs:
        pair = (_text(name, a), "itself" if a is b else _text(other, b))
        n = max(len(a.shape), len(b.shape))
        left, right = ([1] * (n - len(each.shape)) + list(each.shape) for each in (a, b))
        if n == 0 or 0 in left + right:
            continue
        both, item = list(map(max, zip(left, right))), a.nbytes // math.prod(left)
        if all(x == y or 1 in (x, y) for x, y in zip(left, right)) and both not in (left, right):
            if fits(math.prod(both) * item):
                return {"text": "%s and %s make %s" % (*pair, " x ".join(map(str, both))), "pair": True}
        if "int" in str(a.dtype) or "int" in str(b.dtype):
            continue  # labels and words
        if n > 1 and left[-1] == right[-1] > 1 and fits(math.prod(left) // left[-1] * math.prod(right) * item):
            return {"text": "each row of %s is multiplied by each of %s, before a sum" % pair, "rows": True}
        for columns in right[-2:] if left[-1] in right[-2:] and n > 1 and not product else ():
            if fits(math.prod(left[:-1]) * columns * item):
                product = {"text": "it is the product of %s and %s" % pair}
    return product or _sizes(frames, asked)


def _sizes(frames, asked):
    """Tells two numbers of the function that asked whose product is the request."""
    own = next((frame for frame in frames if source.is_own(frame.f_code.co_filename)), None)
    named = [(text, value) for text, _, _, value in objects.variables_of(own) if type(value) is int] if own else []
    for (name, a), (other, b) in itertools.combinations([(k, v) for k, v in named if v > 1], 2):
        for item in (4, 2, 8):
            if _fits(a * b * item, asked):
                return {"text": "%s x %s (%d x %d) numbers of %d bytes" % (name, other, a, b, item)}
    return {}


def _compiled(frames, asked):
    """Tells which line of a function that JAX compiled, and that one of these functions called, makes an array as large
    as the request. JAX has the steps of that function from its first call."""
    simple = (ast.Name, ast.Attribute, ast.Constant, ast.expr_context)
    is_simple = lambda part, value: isinstance(part, simple) or (  # JAX's functions change nothing
        isinstance(part, ast.Call) and str(getattr(value(part.func), "__module__", "")).startswith("jax.")
    )
    for frame in (frame for frame in frames if source.is_own(frame.f_code.co_filename)):
        names = {**frame.f_globals, **objects.variables(frame)}
        value = lambda node: eval(compile(ast.Expression(node), "<call>", "eval"), names)
        for call in source.nodes_at(frame.f_code.co_filename, frame.f_lineno or 0):
            words = {word.arg: word.value for word in call.keywords}
            parts = [part for node in (call.func, *call.args, *words.values()) for part in ast.walk(node)]
            if None in words or not all(is_simple(part, value) for part in parts):
                continue
            function = value(call.func)
            if objects.library_of(function) in ("jax", "jaxlib") and hasattr(function, "trace"):
                words = {name: value(node) for name, node in words.items()}
                steps = list(_steps(function.trace(*map(value, call.args), **words).jaxpr.jaxpr))
                for shape, size, line in steps:
                    if _fits(size, asked) and line:
                        return {"text": "%s makes %s, at %s" % (source.name_of(call), shape, line), "line": line}
    return {}


def _steps(jaxpr):
    """(shape, bytes, line of the program) of what each step of a function makes that JAX compiled."""
    for step in jaxpr.eqns:
        at = [(each.file_name, each.line_num) for each in getattr(step.source_info.traceback, "frames", ())]
        line = next(("%s:%d" % each for each in at if source.is_own(each[0])), "")
        for made in (each.aval for each in step.outvars if hasattr(each.aval, "dtype")):
            yield str(made), math.prod(made.shape) * made.dtype.itemsize, line
        for part in step.params.values():
            for inner in part if isinstance(part, (list, tuple)) else (part,):
                inner = getattr(inner, "jaxpr", inner)
                yield from _steps(inner) if hasattr(inner, "eqns") else ()


def transform(frames, is_end):
    """The first vmap of a gradient, or matrix of derivatives, of a program of JAX, or of PyTorch that is in one, or
    else the first scan of JAX: what they make of each example or step is no variable of a function. JAX tells of its
    failure at the end alone."""
    parts = ("/torch/_functorch/", "/torch/autograd/functional.py")
    is_torch = any(part in frame.f_code.co_filename for frame in frames for part in parts)
    if not is_torch and not (is_end and "jax" in sys.modules):
        return {}
    for line, call in source.calls_of(frames, ("vmap", "jacrev", "jacfwd", "jacobian", "hessian")):
        if source.name_of(call) != "vmap" or (call.args and "grad" in ast.unparse(call.args[0])):
            return {"name": source.name_of(call), "line": line, "torch": is_torch}
    scans = source.calls_of(frames, ("scan",)) if is_end and "jax" in sys.modules else ()
    return {"name": "scan", "line": next((line for line, _ in scans), "")}


def _fits(size, asked):
    """True for an array that a request was for, which may be larger by its rounding."""
    return asked >= 1 << 20 and size <= asked * 1.01 and asked <= max(size * 1.01, size + (2 << 20))


def _text(name, array):
    return "%s (%s of %s)" % (name, " x ".join(map(str, array.shape)), str(array.dtype).rpartition(".")[2])
