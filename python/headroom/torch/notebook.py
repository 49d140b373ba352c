"""Notebooks (.ipynb) run cell by cell as one main program. Lines of IPython's own are left out."""

import ast
import json
import linecache
import os
import re
import sys
import types

from .errors import TraceError

_MAGIC = re.compile(r"^(\s*)([%!?]|[\w.]+\?+\s*$)")
_ASSIGNED = re.compile(r"^(\s*[\w, .]+=\s*)[%!].*$")
_LANGUAGE = re.compile(r"^\s*%%(?!time\b|timeit\b|capture\b|prun\b)")


def cells(path):
    """The source of each cell of code, in order."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        made = [cell for cell in found["cells"] if cell.get("cell_type") == "code"]
        return ["".join(cell["source"]) for cell in made]
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{path} is no notebook: {error}") from error


def to_python(source):
    """The cell with `pass` in the place of commands of IPython and of the shell, line by line."""
    try:
        ast.parse(source)
        return source
    except SyntaxError:
        pass
    if _LANGUAGE.match(source):  # a cell in another language, or a file to write
        return ""
    changed, goes_on = [], False
    for line in source.split("\n"):
        magic, assigned = _MAGIC.match(line), _ASSIGNED.match(line)
        was_command, goes_on = goes_on, False
        if was_command or magic or assigned:
            goes_on = line.endswith("\\")
            line = assigned.group(1) + "[]" if assigned else magic.group(1) + "pass" if magic else ""
        changed.append(line)
    return "\n".join(changed)


def run(path):
    """Runs the notebook in its own folder, as Jupyter does."""
    path = os.path.abspath(path)
    os.chdir(os.path.dirname(path))
    sys.path[0] = os.path.dirname(path)
    module = types.ModuleType("__main__")
    module.display = print
    module.get_ipython = lambda: None
    sys.modules["__main__"] = module
    for number, source in enumerate(cells(path), start=1):
        name = f"{path} cell {number}"
        text = to_python(source)
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), module.__dict__)
