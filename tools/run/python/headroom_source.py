"""The source of a Python program: where a function is, what it imports, and the lines that assign, call or keep."""

import ast
import os
import sys
import warnings

_here = os.path.dirname(os.path.abspath(__file__))
_trees, _found, _names = {}, {}, {}
_BINDING = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.AsyncFor)
_POWERS = (ast.LShift, ast.Pow)
_GROWS = (ast.Mult, *_POWERS)
_SIZES, _NO_SIZES = ("size", "length", "seq_len", "resolution", "crop"), ("total", "loss", "num", "count")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While, *_FUNCTIONS)


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


def nodes_at(path, line, kinds=ast.Call):
    """The nodes of those kinds that a line of a file is in, the innermost last."""
    return [node for node in nodes_in(tree_of(path), kinds) if node.lineno <= line <= node.end_lineno]


def loop_around(path, line):
    """The innermost for or while of a file around a line, in the same function; None without one."""
    inner = ([None] + nodes_at(path, line, _LOOPS))[-1]
    return None if isinstance(inner, _FUNCTIONS) else inner


def function_around(path, line):
    """The innermost function of a file around a line, or else the file."""
    return ([tree_of(path)] + nodes_at(path, line, (*_FUNCTIONS, ast.Lambda)))[-1]


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


def given_once(path, line, bound):
    """The names that are given to a statement under way that binds others, none of which is bound: it never ended, so
    what it put into these came from one call."""
    node = ([None] + nodes_at(path, line, (ast.Assign, ast.AnnAssign)))[-1]
    return names_in(node.value) if node is not None and node.value and targets_of(node).isdisjoint(bound) else set()


def is_bound_alone(path, node, name):
    """True if an assignment is in a loop in which nothing else binds that name."""
    loop = loop_around(path, node.lineno)
    inside = [n for n in nodes_in(tree_of(path), _BINDING) if loop and loop.lineno <= n.lineno <= loop.end_lineno]
    return [n for n in inside if name in targets_of(n)] == [node]


def comprehension_at(path, line):
    """The name that a list gets, or what makes it, and its line, where a line is in a comprehension, or in a list() of
    what a function gives; ("", 0) else."""
    for node in nodes_at(path, line, (ast.ListComp, ast.GeneratorExp, ast.Call)):
        makes = [isinstance(part, (ast.Call, ast.GeneratorExp)) for part in getattr(node, "args", ())]
        if not isinstance(node, ast.Call) or (name_of(node) in ("list", "tuple") and any(makes)):
            names = [name for n in nodes_at(path, line, ast.Assign) for name in sorted(targets_of(n)) if name]
            return (names + [ast.unparse(node)[:60]])[0], node.lineno
    return "", 0


def is_carried(path, node, name):
    """True for an assignment of what a call returns that was given the same, to an attribute or to what nothing else in
    the loop binds: out, state = model(x, state)."""
    call = node.value
    given = _given(call) if isinstance(call, ast.Call) else ()
    parts = [part for target in _targets(node) for part in ast.walk(target)]
    is_attribute = any(isinstance(part, ast.Attribute) and part.attr == name for part in parts)
    is_same = name in targets_of(node) and any(name in names_in(each) for each in given)
    return is_same and (is_attribute or is_bound_alone(path, node, name))


def carried_over_backward(frame, name):
    """The line of a loop that carries a variable on while nothing else in the loop binds it, though the loop calls a
    backward; 0: none."""
    path = frame.f_code.co_filename
    nodes = [node for node in assignments_of(frame, path, name, False) if is_carried(path, node, name)]
    calls = lambda node: nodes_in(loop_around(path, node.lineno), ast.Call)
    return next((n.lineno for n in nodes if any("backward" in name_of(call) for call in calls(n))), 0)


def is_join(call):
    kinds = ("cat", "concat", "concatenate", "append", "hstack", "vstack", "stack")
    return isinstance(call, ast.Call) and name_of(call) in kinds


def joins(call, name):
    """True for a call that joins what has a name with more: torch.cat([x, y])."""
    return is_join(call) and name in names_in(call)


def _whole_parts(node):
    """The expressions in one, less those that it takes a slice of."""
    index = getattr(node, "slice", None)
    if isinstance(node, ast.expr) and not (index and any(isinstance(part, ast.Slice) for part in ast.walk(index))):
        yield node
        for part in ast.iter_child_nodes(node):
            yield from _whole_parts(part)


def joins_in_place(path):
    """(target, call) of each join of an entry with more that becomes the entry, of what a function was given, or of an
    object, or in a loop, by a variable or at once: state["k"] = torch.cat([state["k"], k])."""
    for function in nodes_in(tree_of(path), _FUNCTIONS):
        pairs = [(target, n.value) for n in nodes_in(function, ast.Assign) for target in n.targets]
        for target, value in [each for each in pairs if type(each[0]) is type(each[1]) is ast.Tuple]:
            pairs += zip(target.elts, value.elts)
        pairs.sort(key=lambda each: each[0].lineno)
        of_name = lambda name: [(t.lineno, value) for t, value in pairs if getattr(t, "id", "") == name]

        def reached(node):
            for part in _whole_parts(node):
                before = [value for line, value in of_name(getattr(part, "id", "-")) if line < node.lineno]
                yield part
                yield from _whole_parts(before[-1]) if before else ()

        for target, value in pairs:
            root, loop = target, loop_around(path, target.lineno)
            while isinstance(root, (ast.Attribute, ast.Subscript)):
                root = root.value
            lines = [line for line, _ in of_name(getattr(root, "id", "-"))]
            is_new = any(not loop or loop.lineno <= line <= loop.end_lineno for line in lines)
            calls = [part for part in reached(value) if is_join(part)] if root is not target and not is_new else ()
            yield from [(target, c) for c in calls if ast.unparse(target) in map(ast.unparse, reached(c))][:1]


def call_that_loads(files, call):
    """(file, call) of the loading call that a call is, or whose result a function of that name returns; None: none."""
    if name_of(call).startswith("load"):
        return None, call
    for path in files:
        for function in nodes_in(tree_of(path), ast.FunctionDef):
            returned = [n.value for n in nodes_in(function, ast.Return) if n.value] * (function.name == name_of(call))
            names = set().union(*map(names_in, returned))
            nodes = [n for n in nodes_in(function, ast.Assign) if isinstance(n.value, ast.Call)] if returned else ()
            for node in nodes:
                if name_of(node.value).startswith("load") and targets_of(node) & names:
                    return path, node.value
    return None, None


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
        is_attribute, is_lambda = isinstance(target, ast.Attribute), isinstance(part.value, ast.Lambda)
        kinds = (
            is_attribute and own(part.value),
            is_attribute and getattr(target.value, "id", "") == "ctx",
            is_attribute and is_lambda and "self" in names_in(part.value),
            isinstance(part.value, ast.Call) and any(map(own, part.value.args)),
        )
        found += [(kind, part.lineno) for kind, holds in enumerate(kinds) if holds]
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
    calls = nodes_at(path, line)
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
        of = lambda kind: [target for target in targets if getattr(target, kind, "") in parts]
        found = of("attr") or texts or of("id")
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


def _given(call):
    return [*call.args, *(word.value for word in call.keywords)]


def line_that_calls(files, name):
    """The line of the call of that name with most arguments, which makes what is kept of a class, or else of one that
    is given what has the name, as a hook is; empty without one."""
    calls = [(n, path) for path in files for n in nodes_in(tree_of(path), ast.Call)]
    is_name = lambda node: getattr(node, "attr", getattr(node, "id", "")) == name
    calls = [each for each in calls if is_name(each[0].func)] or [
        each for each in calls if any(map(is_name, _given(each[0])))
    ]
    most = max(((len(n.args) + len(n.keywords), -n.lineno, path) for n, path in calls), default=None)
    return "%s:%d" % (most[2], -most[1]) if most else ""


def line_that_registers(files, code):
    """The line of the call that registers a function as a hook, one that names it first, and the name of the call."""
    found = []
    for path in dict.fromkeys([code.co_filename, *files]):
        for call in nodes_in(tree_of(path), ast.Call):
            if name_of(call).startswith("register") and "hook" in name_of(call):
                is_given = call.lineno <= code.co_firstlineno <= call.end_lineno  # a lambda
                is_given |= any(code.co_name in names_in(each) for each in _given(call))
                found.append((not is_given, "%s:%d" % (path, call.lineno), name_of(call)))
    return min(found, key=lambda each: each[0], default=("", "", ""))[1:]


def calls_backward_later(frame):
    """True if the innermost loop, or else the function, that a frame is in calls a backward below its line."""
    path, line = frame.f_code.co_filename, frame.f_lineno or 0
    calls = [call for body in nodes_at(path, line, _LOOPS)[-1:] for call in nodes_in(body, ast.Call)]
    return any(call.lineno > line and name_of(call) in ("backward", "manual_backward") for call in calls)


def _is_number(node):
    """True for what is one number of Python, or text: loss.item(), float(x), len(x), 0.5."""
    if isinstance(node, ast.Call):
        return name_of(node) in ("item", "float", "int", "len", "str", "tolist", "time")
    return isinstance(node, (ast.Constant, ast.JoinedStr))


def function_of(code):
    """The syntax of a function; None for a module's, or without one."""
    nodes = nodes_in(tree_of(code.co_filename), _FUNCTIONS)
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
                is_made |= not is_sum and "jax" not in sys.modules and is_carried(path, node, name)
                puts = isinstance(target, ast.Subscript)
                if name in names_in(target) and (adds or is_made or puts):
                    told = (is_apart(node), _is_number(node.value), has_no_key(node), is_made and not puts)
                    words = getattr(node.value, "keywords", ()) if owner == "optimizer" else ()
                    sizes = [word.value.lineno for word in words if word.arg == "history_size"]
                    lines.append((*told, (sizes or [node.lineno])[0], puts))
    line, puts = min(lines, default=(0, 0, 0, 0, 0, False))[4:]
    return line, puts, bool(line) and loop_around(path, line) is not None


def line_of_class_that_keeps(path, kind, is_sum):
    """line_that_keeps() of a class of lists, which its own methods fill."""
    node = next((node for node in nodes_in(tree_of(path), ast.ClassDef) if node.name == kind), None)
    found = line_that_keeps("self", path, "", is_sum, None, node) if node else (0, False, False)
    return found if node and node.lineno <= found[0] <= node.end_lineno else (0, False, False)


def starts(frames):
    """Tells where the program puts one of several ranks on its card, or else where it starts processes."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    names = ("Process", "Popen", "Pool", "ProcessPoolExecutor", "spawn", "start_processes", "Parallel", "fork")
    lines = [line for line, _ in calls_of(frames, ("set_device",) if ranks > 1 else names)]
    for line, call in calls_of(frames, ("DataLoader",) if ranks == 1 else ()):
        lines += [line for word in call.keywords if word.arg == "num_workers" and getattr(word.value, "value", 1) != 0]
    imports = [name.partition(".")[0] for path in own_files(frames) for name in imports_of(path)]
    return {"line": (lines + [""])[0], "ranks": ranks, "jax": "jax" in imports}


def growth(frames, sized):
    """The first line that makes a size of a batch, picture or text larger, and the size's name: one of `sized`, (file,
    name) of what is as large as an array's side, true if the first, before what is only called like a size.
    "batch_size *= 2", "64 << epoch", a function that returns such a size, or a list of sizes; empty without one."""
    found = []
    for path in own_files(frames):
        tree = tree_of(path)
        starts = [node for node in nodes_in(tree, (ast.FunctionDef,)) if node.name == "__init__"]

        def may_repeat(node):
            around = function_around(path, node.lineno)
            runs = any(frame.f_code.co_name == getattr(around, "name", "<module>") for frame in frames)
            return loop_around(path, node.lineno) is not None or not runs

        def tell(kind, name, node):
            is_called = any(part in name for part in _SIZES) and not any(part in name for part in _NO_SIZES)
            is_at_start = any(each.lineno <= node.lineno <= each.end_lineno for each in starts)
            if (is_called or name in ("bs", "bsz") or (path, name) in sized) and not is_at_start:
                rank = ((path, name) not in sized, not sized.get((path, name)), kind)
                found.append((rank, name, "%s:%d" % (path, node.lineno)))

        for node in nodes_in(tree, (ast.AugAssign, ast.Assign)):
            for name in sorted(targets_of(node)):
                is_sized = (path, name) in sized
                if isinstance(node, ast.AugAssign):
                    if isinstance(node.op, _GROWS) or (is_sized and isinstance(node.op, ast.Add)):
                        tell(int(isinstance(node.op, ast.Add)), name, node)
                elif name in names_in(node.value) and _multiplies(node.value, is_sized):
                    tell(0, name, node)
                elif _raises(node.value):
                    tell(1, name, node)
                elif joins(node.value, name) and is_bound_alone(path, node, name):  # data that grows
                    found.append(((True, True, 2), name, "%s:%d" % (path, node.lineno)))
                elif is_sized and isinstance(node.value, ast.Subscript) and may_repeat(node):
                    tell(1, name, _list_of(path, node.value.value) or node)
        for function in nodes_in(tree, (ast.FunctionDef,)):
            for node in nodes_in(function, ast.Return):
                if node.value and _multiplies(node.value):
                    tell(1, function.name, node)
        lines = [frame.f_lineno or 0 for frame in frames if frame.f_code.co_filename == path]
        for node in nodes_in(tree, ast.For):
            runs = any(node.lineno <= line <= node.end_lineno for line in lines)
            is_range = isinstance(node.iter, ast.Call) and len(node.iter.args) > 1 and name_of(node.iter) == "range"
            for name in sorted(targets_of(node)) if runs and (is_range or not isinstance(node.iter, ast.Call)) else ():
                if (path, name) in sized:
                    tell(1, name, _list_of(path, node.iter) or node)
        for call in nodes_in(tree, ast.Call):
            size = {word.arg: word.value for word in call.keywords}.get("batch_size")
            for node in [size, *_values_of(path, size)] if size else ():
                if _raises(node) or isinstance(node, ast.Subscript):
                    tell(1, "batch_size", _list_of(path, getattr(node, "value", node)) or node)
    rank, name, line = min(found, default=((True,), "", ""), key=lambda each: each[0])
    return {"name": "the size" if name == "__call__" else name, "line": line, "sized": not rank[0]}


def _list_of(path, node):
    """The assignment of a list, as it is written, to the name that a node is; None without one."""
    nodes = [n for n in nodes_in(tree_of(path), ast.Assign) if targets_of(n) & names_in(node)]
    return next((n for n in nodes if isinstance(n.value, (ast.List, ast.Tuple, ast.Dict))), None)


def _multiplies(node, or_adds=False):
    kinds = (*_GROWS, ast.Add) if or_adds else _GROWS
    return any(isinstance(part, kinds) for part in ast.walk(node))


def _raises(node):
    """True for a power, or a shift, by what is no number: 2 ** epoch."""
    powers = [part.right for part in ast.walk(node) if isinstance(part, ast.BinOp) and isinstance(part.op, _POWERS)]
    return any(not isinstance(part, ast.Constant) for part in powers)


def _values_of(path, node):
    """The values that the function around a node assigns to the names in it before."""
    nodes = nodes_in(function_around(path, node.lineno), ast.Assign)
    return [each.value for each in nodes if each.lineno < node.lineno and targets_of(each) & names_in(node)]


def settings(frames):
    """Lines of the program that decide how much its functions take: where a batch is sized, where numbers of 8 bytes
    are asked for, or a limit of its own, and where a backward is to keep its graph."""
    files = own_files(frames)
    part = lambda *names: line_of_parts(files, names)
    batch = part("--batch-size", "--batch_size", "--batch") or part("batch_size", "per_device_train_batch_size")
    double = [line for line, _ in calls_of(frames, ("double",))]
    double += [line for line, call in calls_of(frames, ("set_default_dtype",)) if "float64" in ast.unparse(call)]
    fraction = [line for line, _ in calls_of(frames, ("set_per_process_memory_fraction",))]
    asked_for = {"double": double + [part("jax_enable_x64")], "graphs": [part("create_graph", "retain_graph")]}
    asked_for["fraction"] = fraction + [part("XLA_PYTHON_CLIENT_MEM_FRACTION")]
    return {"batch": batch, **{name: lines[0] for name, lines in asked_for.items()}}
