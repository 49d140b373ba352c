"""Sides of the conditions of a program whose truth a trace does not know: a check that only raises is passed, and of an
`if` the side that does more is taken. And whether a program can do with fewer elements of an iterator. Reads the
program's source and bytecode; Python below 3.11 does not say where in a line it is.
"""

import ast
import dis
import functools
import inspect
import linecache

from .errors import call_in
from .recorder import is_user_file

_ENDS = {"exit", "_exit", "quit", "abort"}  # functions that end Python
_RETURNS = "returns"
_TURNS = 3  # of a loop whose condition is unknown
_MOST_STAYS = 200  # in a `while` whose `if` with an unknown condition leaves it
_BETWEEN = {"CACHE", "TO_BOOL", "NOT_TAKEN", "PRECALL", "EXTENDED_ARG"}


def passing(frame):
    """The truth that `frame` asks for now, if a side of its condition ends in an error: True or False, so that the
    program goes on. None where both sides go on.
    """
    return _truth(frame, _side_that_goes_on)


def larger_side(frame):
    """The truth that `frame` asks for now with which an `if` stays in its loop and function, or else does more; None
    where it decides no `if`. A `while` that is left so is left after many turns: nothing else might end it.
    """
    return _truth(frame, lambda node: _side_that_does_more(frame, node))


def next_turn(frame):
    """Returns the answer with which the `while` that `frame` evaluates ends after a few turns; None outside of one."""
    return _truth(frame, lambda node: _takes_turn(frame, node), (ast.While,))


def _takes_turn(frame, node, most=_TURNS):
    """Returns true the first times that it is asked by a run of a loop."""
    key = (id(frame), node.lineno, node.col_offset)
    turns = _turns[key] = _turns.get(key, 0) + 1
    if turns > most:
        del _turns[key]
    return turns <= most


def formats_text(frame):
    """Returns true while `frame` puts values into a text by `%`."""
    instructions, indices = _instructions(frame.f_code)
    now = instructions[indices[frame.f_lasti]] if frame.f_lasti in indices else None
    return now is not None and (now.opname == "BINARY_MODULO" or (now.opname, now.argrepr) == ("BINARY_OP", "%"))


def awaits_end(frame):
    """Returns true if the end of an iterator that `frame` asks for an element only ends loops; false where the program asks
    by next() and does not expect it.
    """
    while frame is not None:
        call = call_in(frame) if is_user_file(frame.f_code.co_filename) else None
        if call is not None and getattr(call.func, "id", getattr(call.func, "attr", "")) in ("next", "__next__"):
            return len(call.args) == 2 or _handles_errors(frame)
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:
            return True
        frame = frame.f_back  # which asks a generator that loops
    return True


def _handles_errors(frame):
    """Returns true if the line of a frame is in a `try` with handlers."""
    try:
        root = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError):
        return True
    bodies = [node.body for node in ast.walk(root) if isinstance(node, ast.Try) and node.handlers]
    return any(body[0].lineno <= frame.f_lineno <= body[-1].end_lineno for body in bodies)


_turns = {}  # (frame, place of a condition) -> how often it was unknown in this run of its loop


def _truth(frame, choose, kinds=(ast.If, ast.Assert)):
    jump, negated = _jump(frame.f_code, frame.f_lasti)
    while jump == _RETURNS and frame.f_back is not None:  # the caller asks
        frame = frame.f_back
        jump, again = _jump(frame.f_code, frame.f_lasti)
        negated = negated != again
    if jump == _RETURNS:
        return None
    tree = _tree(frame.f_code.co_filename) if jump is not None else None
    node = None if tree is None else _statement(tree, jump.positions, kinds)
    takes_body = None if node is None else choose(node)
    if takes_body is None:
        return None
    sides = {truth: _side(frame.f_code, jump, truth, node) for truth in (True, False)}
    for truth, side in sides.items():
        if side == takes_body:
            return truth != negated
    for truth, side in sides.items():  # another part of the condition decides then
        if side is None:
            return truth != negated
    return None


@functools.lru_cache(maxsize=4096)
def _instructions(code):
    instructions = list(dis.get_instructions(code))
    return instructions, {one.offset: index for index, one in enumerate(instructions)}


def _jump(code, offset):
    """The jump by a truth that an instruction asks for or gives, and if that is negated before; _RETURNS in the place
    of a jump where it is the result of the function; None.
    """
    instructions, indices = _instructions(code)
    negated = False
    while offset not in indices and offset > 0:  # in the cache after an instruction
        offset -= 2
    for one in instructions[indices.get(offset, len(instructions)) :]:
        if one.opname.startswith("POP_JUMP") and one.opname.endswith(("IF_TRUE", "IF_FALSE")):
            positions = getattr(one, "positions", None)
            is_placed = positions is not None and None not in positions
            return (one, negated) if is_placed else (None, False)
        if one.opname == "RETURN_VALUE":
            return _RETURNS, negated
        negated = negated != (one.opname == "UNARY_NOT")
        if one.offset != offset and one.opname not in _BETWEEN and one.opname != "UNARY_NOT":
            break
    return None, False


def _side(code, jump, truth, node):
    """The side that a jump with a truth goes to: True for the body of a statement, False for the other side, None for another
    part of its condition.
    """
    instructions, indices = _instructions(code)
    next_index = indices[jump.offset] + 1
    if jump.opname.endswith("IF_TRUE") == truth:
        next_index = indices[jump.argval]
    while instructions[next_index].opname in _BETWEEN:
        next_index += 1
    target = instructions[next_index]
    place = target.positions
    start = (0, 0) if place is None or place.lineno is None else (place.lineno, place.col_offset)
    if _is_in(start, [node.test]):
        return None
    if isinstance(node, ast.Assert):
        return target.opname != "LOAD_ASSERTION_ERROR"
    return _is_in(start, node.body)


def _is_in(place, nodes):
    first, last = nodes[0], nodes[-1]
    return (first.lineno, first.col_offset) <= place < (last.end_lineno, last.end_col_offset)


@functools.lru_cache(maxsize=None)
def _tree(path):
    """{line: its conditional statements} of a file."""
    try:
        root = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return None
    found = {}
    for loop in ast.walk(root):
        if isinstance(loop, ast.While):
            for node in ast.walk(loop):
                node.is_in_while = True
    for node in ast.walk(root):
        if isinstance(node, (ast.If, ast.Assert, ast.While)):
            for line in range(node.lineno, node.test.end_lineno + 1):
                found.setdefault(line, []).append(node)
    return found


def _statement(tree, place, kinds):
    """The conditional statement of some kinds whose test, or whose own place, is the place of a jump."""
    for node in reversed(tree.get(place.lineno, [])):
        if not isinstance(node, kinds):
            continue
        own = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
        start, end = (place.lineno, place.col_offset), (place.end_lineno, place.end_col_offset)
        test = node.test
        is_in_test = (test.lineno, test.col_offset) <= start and end <= (
            test.end_lineno,
            test.end_col_offset,
        )
        if own == (*start, *end) or is_in_test:
            return node
    return None


def _side_that_goes_on(node):
    if isinstance(node, ast.Assert):
        return True
    fails = _fails(node.body), _fails(node.orelse)
    return fails[1] if fails[0] != fails[1] else None


def _side_that_does_more(frame, node):
    if isinstance(node, ast.Assert):
        return True
    leaves = [_leaves(body) for body in (node.body, node.orelse)]
    if leaves[0] != leaves[1]:
        stays = not getattr(node, "is_in_while", False) or _takes_turn(frame, node, _MOST_STAYS)
        return leaves[1] == stays
    body, other = (sum(1 for s in side for _ in ast.walk(s)) for side in (node.body, node.orelse))
    return body >= other


def _leaves(body):
    """Returns true if statements end a loop or a function."""
    return isinstance(body[-1] if body else None, (ast.Break, ast.Return, ast.Continue))


def _fails(body):
    """Returns true if statements end in an error, whatever their conditions give."""
    last = body[-1] if body else None
    if isinstance(last, ast.Raise):
        return True
    if isinstance(last, ast.Assert):
        return isinstance(last.test, ast.Constant) and not last.test.value
    if isinstance(last, ast.If):
        return _fails(last.body) and _fails(last.orelse)
    if isinstance(last, ast.With):
        return _fails(last.body)
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        function = last.value.func
        name = getattr(function, "attr", getattr(function, "id", ""))
        first = last.value.args[0] if last.value.args else None
        is_false = isinstance(first, ast.Constant) and not first.value
        return name in _ENDS or (name == "_assert" and is_false)
    return False
