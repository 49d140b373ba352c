"""Changes to PyTorch that last as long as an ExitStack."""


def patch(stack, owner, name, value):
    """Sets an attribute of a class or module until the stack is closed."""
    missing = object()
    old = (
        owner.__dict__.get(name, missing)
        if isinstance(owner, type)
        else getattr(owner, name, missing)
    )
    setattr(owner, name, value)

    def undo():
        if old is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, old)

    stack.callback(undo)


def patch_all(stack, owner, values):
    """Sets those attributes of {name: value} that this version of PyTorch has."""
    for name, value in values.items():
        if hasattr(owner, name):
            patch(stack, owner, name, value)
