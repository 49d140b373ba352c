"""The source of a Python program: where a function is, what it imports, and the lines that assign, call or keep."""

import ast
import os
import sys
import warnings

_here = os.path.dirname(os.path.abspath(__file__))
_trees, _found, _names = {}, {}, {}
_BINDING = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.AsyncFor)
_GROWS = (ast.Mult, ast.LShift, ast.Pow)
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)


def is_own(path):
    """True for a file of the program: not for a library's, or one that a library writes at run time."""
    main = getattr(sys.modules["__main__"], "__file__", None) or ""
    is_written = path.startswith("/tmp/") and not main.startswith("/tmp/")
    is_library = "-packages" in path or "/lib/python" in path or path.endswith(".pyx")
    return not (path.startswith(("<", _here)) or is_library or is_written)


def tree_of(path):
    """The syntax of a file of the program; empty for a library's, or one that cannot be read."""
    if path not in _trees:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    _trees[path] = ast.parse(file.read() if is_own(path) else "")
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            _trees[path] = ast.parse("")
    return _trees[path]


def nodes_in(tree, kind):
    """The nodes of that kind, in the order of their lines."""
    if (tree, kind) not in _found:
        nodes = [node for node in ast.walk(tree) if isinstance(node, kind)]
        _found[tree, kind] = sorted(nodes, key=lambda node: getattr(node, "lineno", 0))
    return _found[tree, kind]


def imports_of(path):
    """The modules that a file imports: what it calls them, and the line."""
    nodes = nodes_in(tree_of(path), (ast.Import, ast.ImportFrom))[::-1]  # the first one stays
    return {getattr(n, "module", None) or p.name: (p.asname or p.name, n.lineno) for n in nodes for p in n.names}


def names_in(node):
    if node not in _names:
        _names[node] = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node)}
    return _names[node]


def loop_around(path, line):
    """The innermost for or while of a file around a line, in the same function; None without one."""
    around = [node for node in nodes_in(tree_of(path), _LOOPS) if node.lineno <= line <= node.end_lineno]
    inner = max(around, key=lambda node: node.lineno, default=None)
    return None if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)) else inner


def function_around(path, line):
    """The innermost function of a file around a line, or else the file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    around = [node for node in nodes_in(tree_of(path), kinds) if node.lineno <= line <= node.end_lineno]
    return max(around, key=lambda node: node.lineno, default=tree_of(path))


def grows(path, line, name, frames):
    """False for what a line puts into a list of its own function, in a loop that has ended or in none."""
    loop, function = loop_around(path, line), function_around(path, line)
    at = [frame.f_lineno or 0 for frame in frames if frame.f_code.co_filename == path]
    if loop and any(loop.lineno <= number <= loop.end_lineno for number in at):
        return True
    return not any(name in targets_of(n) for n in nodes_in(function, (ast.Assign, ast.AnnAssign)) if n.lineno < line)


def is_of_step(path, line, name):
    """True if what a line adds to is made anew in the loop, or the function, that calls a backward below the line."""
    function = function_around(path, line)
    made = [n for n in nodes_in(function, ast.Assign) if n.lineno < line and name in targets_of(n)]
    loop = loop_around(path, made[-1].lineno) if made and name not in names_in(made[-1].value) else function
    calls = [n for n in nodes_in(function, ast.Call) if n.lineno > line and "backward" in name_of(n)]
    return bool(made) and any(loop_around(path, call.lineno) is loop for call in calls)


def is_bound_alone(path, node, name):
    """True if an assignment is in a loop in which nothing else binds that name."""
    loop = loop_around(path, node.lineno)
    inside = [n for n in nodes_in(tree_of(path), _BINDING) if loop and loop.lineno <= n.lineno <= loop.end_lineno]
    return [n for n in inside if name in targets_of(n)] == [node]


def _targets(node):
    return getattr(node, "targets", None) or [node.target]


def targets_of(node):
    """The names that an assignment, or a loop, binds."""
    return {name for target in _targets(node) for name in names_in(target)}


def assignments_of(frame, path, name, is_attribute):
    """Assignments that bind a variable in the function of a frame, up to the line where it is; or an attribute of that
    name, in all of a file."""
    if is_attribute:
        is_bound = lambda target: isinstance(target, ast.Attribute) and target.attr == name
        return [n for n in nodes_in(tree_of(path), ast.Assign) if any(map(is_bound, n.targets))]
    first, last = frame.f_code.co_firstlineno, frame.f_lineno or 0
    return [n for n in nodes_in(tree_of(path), ast.Assign) if first <= n.lineno <= last and name in targets_of(n)]


def line_that_gives_itself(node):
    """The line of a class where an object of it keeps itself or a method of its own in another's attribute, or hands
    one over; of a function of autograd, where its context keeps an array; 0: none."""
    methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    own = lambda value: getattr(value, "id", "") == "self" or (
        getattr(value, "attr", "") in methods and getattr(value.value, "id", "") == "self"
    )
    found = []
    for part in nodes_in(node, (ast.Assign, ast.Expr)):
        target = part.targets[0] if isinstance(part, ast.Assign) else None
        if isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "ctx":
            found.append((1, part.lineno))
        if isinstance(target, ast.Attribute) and own(part.value):
            found.append((0, part.lineno))
        if isinstance(target, ast.Attribute) and isinstance(part.value, ast.Lambda) and "self" in names_in(part.value):
            found.append((2, part.lineno))
        if isinstance(part.value, ast.Call) and any(map(own, part.value.args)):
            found.append((3, part.lineno))
    return min(found, default=(0, 0))[1]


def name_of(call):
    """The name that a call has: its last part."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def own_files(frames):
    files = [frame.f_code.co_filename for frame in frames] + [getattr(sys.modules["__main__"], "__file__", None) or ""]
    return [path for path in dict.fromkeys(files) if is_own(path)]


def calls_of(frames, names):
    """(line, call) of the calls of such names in the program's files."""
    for path in own_files(frames):
        for call in nodes_in(tree_of(path), ast.Call):
            if name_of(call) in names and "psutil" not in names_in(call.func):
                yield "%s:%d" % (path, call.lineno), call


def call_at(path, line, function):
    """Returns what a line calls, as it is written: a function of that name, or else the first; "" without any."""
    calls = [node for node in nodes_in(tree_of(path), ast.Call) if node.lineno <= line <= node.end_lineno]
    named = [node for node in calls if name_of(node) == function] or calls
    return ast.unparse(named[0].func)[:60] if named else ""


def line_of_parts(files, parts):
    """The first line of those files that assigns to an attribute of such a name; or else that has one as a text or as
    the name of an argument; or else as a variable; empty without one."""
    for path in files:
        tree = tree_of(path)
        targets = [target for node in nodes_in(tree, ast.Assign) for target in node.targets]
        texts = [node for node in nodes_in(tree, ast.Constant) if node.value in parts]
        texts += [word.value for word in nodes_in(tree, ast.keyword) if word.arg in parts]
        for found in (
            [target for target in targets if getattr(target, "attr", "") in parts],
            texts,
            [target for target in targets if getattr(target, "id", "") in parts],
        ):
            if found:
                return "%s:%d" % (path, min(node.lineno for node in found))
    return ""


def line_that_makes(name, text, frame):
    """The last line up to where a frame is that binds a variable, or the first that assigns an attribute of its object
    ("self.x"); the function's own line for an argument."""
    path, first = frame.f_code.co_filename, frame.f_code.co_firstlineno
    if name != text:
        return "%s:%d" % (path, line_of_attribute(path, name) or first)
    nodes = nodes_in(tree_of(path), _BINDING)
    lines = [n.lineno for n in nodes if first <= n.lineno <= (frame.f_lineno or 0) and name in targets_of(n)]
    return "%s:%d" % (path, lines[-1] if lines else first)


def line_of_attribute(path, name):
    """The first line of a file that assigns an attribute of that name; 0: none."""
    is_attribute = lambda part: isinstance(part, ast.Attribute) and part.attr == name
    nodes = nodes_in(tree_of(path), _BINDING)
    return next((n.lineno for n in nodes if any(is_attribute(p) for t in _targets(n) for p in ast.walk(t))), 0)


def line_that_calls(files, name):
    """The line of the call of that name with most arguments, which makes what is kept of a class; empty without one."""
    calls = [
        (len(n.args) + len(n.keywords), -n.lineno, p)
        for p in files
        for n in nodes_in(tree_of(p), ast.Call)
        if name_of(n) == name
    ]
    most = max(calls, default=None)
    return "%s:%d" % (most[2], -most[1]) if most else ""


def calls_backward_later(frame):
    """True if the innermost loop, or else the function, that a frame is in calls a backward below its line."""
    tree, line = tree_of(frame.f_code.co_filename), frame.f_lineno or 0
    around = [node for node in nodes_in(tree, _LOOPS) if node.lineno <= line <= node.end_lineno]
    if not around:
        return False
    body = min(around, key=lambda node: node.end_lineno - node.lineno)
    calls = [node for node in nodes_in(tree, ast.Call) if line < node.lineno <= body.end_lineno]
    return any(name_of(call) in ("backward", "manual_backward") for call in calls)


def _is_number(node):
    """True for what is one number of Python, or text: loss.item(), float(x), len(x), 0.5."""
    if isinstance(node, ast.Call):
        return name_of(node) in ("item", "float", "int", "len", "str", "tolist", "time")
    return isinstance(node, (ast.Constant, ast.JoinedStr))


def function_of(code):
    """The syntax of a function; None for a module's, or without one."""
    nodes = nodes_in(tree_of(code.co_filename), (ast.FunctionDef, ast.AsyncFunctionDef))
    return next((n for n in nodes if n.name == code.co_name and n.lineno >= code.co_firstlineno), None)


def line_that_keeps(name, path, owner, is_sum, key=None, where=None):
    """The first line of a file that adds up what has that name, or, if it is no sum, puts something into it, gives most
    to an object of a library, or makes an optimizer or an object made of others, numbers last, and what a dict has
    under `key` first, and before it what is in the function `where`, or of an attribute if that is "attribute"; 0:
    none. And whether the line puts something into a list or dict, and is in a loop."""
    lines = []  # (later ones tell less, line, puts)
    of_attributes = lambda node: {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    is_apart = lambda node: where is not None and (
        name not in of_attributes(node) if where == "attribute" else not where.lineno <= node.lineno <= where.end_lineno
    )
    has_no_key = lambda node: key is None or key not in {getattr(part, "value", None) for part in ast.walk(node)}
    for node in nodes_in(tree_of(path), (ast.Call, ast.AugAssign, ast.Assign)):
        if isinstance(node, ast.Call) and not is_sum:
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            puts = method in ("append", "appendleft", "add", "extend", "insert", "update", "setdefault")
            is_library = owner in ("library", "queue")
            uses = is_library and method and node.args and not method.startswith(("add", "set", "_"))
            pushes = name_of(node) in ("heappush", "heappushpop", "insort") and node.args
            if ((puts or uses) and name in names_in(node.func.value)) or (pushes and name in names_in(node.args[0])):
                is_number = bool(node.args) and all(map(_is_number, node.args))
                given = -len(node.args) if is_library else 0
                lines.append((is_apart(node), is_number, has_no_key(node), given, node.lineno, not is_library))
        elif isinstance(node, ast.AugAssign) and name in names_in(node.target):
            lines.append((is_apart(node), False, False, 0, node.lineno, False))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                adds = isinstance(node.value, ast.BinOp) and name in names_in(node.value)
                adds |= is_sum and isinstance(target, ast.Attribute) and name in names_in(node.value)
                adds |= owner in ("optimizer", "iterator") and isinstance(node.value, ast.Call)
                is_made = owner == "object" and not isinstance(node.value, ast.Constant)
                puts = isinstance(target, ast.Subscript)
                if name in names_in(target) and (adds or is_made or puts):
                    told = (is_apart(node), _is_number(node.value), has_no_key(node), is_made and not puts)
                    lines.append((*told, node.lineno, puts))
    line, puts = min(lines, default=(0, 0, 0, 0, 0, False))[4:]
    return line, puts, bool(line) and loop_around(path, line) is not None


def starts(frames):
    """Tells where the program puts one of several ranks on its card, or else where it starts processes."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    names = ("Process", "Popen", "Pool", "ProcessPoolExecutor", "spawn", "start_processes")
    lines = [line for line, _ in calls_of(frames, ("set_device",) if ranks > 1 else names)]
    for line, call in calls_of(frames, ("DataLoader",) if ranks == 1 else ()):
        lines += [line for word in call.keywords if word.arg == "num_workers" and getattr(word.value, "value", 1) != 0]
    imports = [name.partition(".")[0] for path in own_files(frames) for name in imports_of(path)]
    return {"line": (lines + [""])[0], "ranks": ranks, "jax": "jax" in imports}


def transform(frames, is_end):
    """The first vmap of a gradient of a program of JAX, or of PyTorch that is in one, or else the first scan of JAX:
    what they make of each example or step is no variable of a function. JAX tells of its failure at the end alone."""
    is_torch = any("/torch/_functorch/" in frame.f_code.co_filename for frame in frames)
    if not is_torch and not (is_end and "jax" in sys.modules):
        return {}
    for line, call in calls_of(frames, ("vmap",)):
        if call.args and "grad" in ast.unparse(call.args[0]):
            return {"name": "vmap", "line": line, "torch": is_torch}
    scans = calls_of(frames, ("scan",)) if is_end and "jax" in sys.modules else ()
    return {"name": "scan", "line": next((line for line, _ in scans), "")}


def growth(frames):
    """The first line that multiplies a size of a batch, picture or text by more than a step needs, and its name:
    "batch_size *= 2"; or that returns such a size, or scales a picture to one; empty without one."""
    found = []
    for path in own_files(frames):
        tree = tree_of(path)
        classes = [node for node in nodes_in(tree, ast.ClassDef) if "batch" in node.name.lower()]
        starts = [node for node in nodes_in(tree, (ast.FunctionDef,)) if node.name == "__init__"]
        for node in nodes_in(tree, (ast.AugAssign, ast.Assign)):
            is_within = lambda nodes: any(each.lineno <= node.lineno <= each.end_lineno for each in nodes)
            operations = [node.op] if isinstance(node, ast.AugAssign) else ast.walk(node.value)
            multiplies = any(isinstance(part, _GROWS) for part in operations)
            for name in sorted(targets_of(node)) if multiplies and not is_within(starts) else ():
                is_batch = "batch_size" in name or name in ("bs", "bsz") or (is_within(classes) and "size" in name)
                is_size = is_batch or any(part in name for part in ("size", "length", "seq_len", "resolution", "crop"))
                is_size &= not any(part in name for part in ("total", "loss", "num", "count"))
                if is_size and (isinstance(node, ast.AugAssign) or name in names_in(node.value)):
                    found.append((not is_batch, name, "%s:%d" % (path, node.lineno)))
        for function in nodes_in(tree, (ast.FunctionDef,)):
            is_size = any(part in function.name for part in ("size", "length", "seq_len", "resolution", "crop"))
            for node in ast.walk(function) if is_size else ():
                if isinstance(node, ast.Return) and any(isinstance(part, _GROWS) for part in ast.walk(node)):
                    found.append((2, function.name, "%s:%d" % (path, node.lineno)))
        for call in nodes_in(tree, ast.Call):
            sizes = [word.value for word in call.keywords if word.arg in ("size", "scale_factor")] or call.args[1:2]
            parts = [part for node in sizes for part in ast.walk(node)]
            is_fixed = all(isinstance(part, (ast.Constant, ast.Tuple, ast.Load)) for part in parts)
            if name_of(call) in ("interpolate", "resize") and not is_fixed:
                found.append((3, "the picture", "%s:%d" % (path, call.lineno)))
    return dict(zip(("name", "line"), min(found, default=(0, "", ""), key=lambda each: each[0])[1:]))


def settings(frames):
    """Lines of the program that decide how much its functions take: where a batch is sized, and where numbers of 8
    bytes are asked for."""
    files = own_files(frames)
    batch = [line_of_parts(files, ["--batch-size", "--batch_size", "--batch"])]
    batch += [line_of_parts(files, ["batch_size", "per_device_train_batch_size"])]
    double = [line for line, _ in calls_of(frames, ("double",))]
    double += [line for line, call in calls_of(frames, ("set_default_dtype",)) if "float64" in ast.unparse(call)]
    double += [line_of_parts(files, ["jax_enable_x64"])]
    return {"batch": batch[0] or batch[1], "double": double[0]}
