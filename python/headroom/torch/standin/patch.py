"""Changes to PyTorch that last as long as an ExitStack."""

import contextlib

_MISSING = object()
_changes = []  # (owner, name, old value, new one), in order


def patch(stack, owner, name, value):
    """Sets an attribute of a class or module until the stack is closed."""
    old = owner.__dict__.get(name, _MISSING) if isinstance(owner, type) else getattr(owner, name, _MISSING)
    change = (owner, name, old, value)
    _set(owner, name, value)
    _changes.append(change)

    def undo():
        _changes.remove(change)
        _set(owner, name, old)

    stack.callback(undo)


def _set(owner, name, value):
    if value is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def patch_all(stack, owner, values):
    """Sets those attributes of {name: value} that this version of PyTorch has."""
    for name, value in values.items():
        if hasattr(owner, name):
            patch(stack, owner, name, value)


@contextlib.contextmanager
def without_patches(is_undone):
    """PyTorch without the changes for which `is_undone(owner, name)` is true, in the body. Gives a function that makes a
    context in which they are there again, in the place of those that the body has made.
    """
    undone, count = [change for change in _changes if is_undone(*change[:2])], len(_changes)

    @contextlib.contextmanager
    def again():
        made = _changes[count:]
        _undo(made)
        _redo(undone)
        try:
            yield
        finally:
            _undo(undone)
            _redo(made)

    _undo(undone)
    try:
        yield again
    finally:
        _redo(undone)


def _undo(changes):
    for owner, name, old, _ in reversed(changes):
        _set(owner, name, old)


def _redo(changes):
    for owner, name, _, value in changes:
        _set(owner, name, value)
