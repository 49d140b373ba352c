"""Results of ops on fake tensors that ran before with arguments of the same kinds. A training does the same ops again
and again, and FakeTensorMode takes several times as long to find out what they give.

Only for ops of PyTorch whose results follow from the shapes, strides and types of their arguments. The first run says
what the results are like; what cannot be made anew from that is always run.
"""

import torch
from torch._subclasses.fake_tensor import FakeTensor

_aten = torch.ops.aten

_ALWAYS_RUN = {_aten.lift_fresh.default, _aten.lift_fresh_copy.default}  # with values behind them
_TAGS = tuple(
    getattr(torch.Tag, name)
    for name in ("data_dependent_output", "dynamic_output_shape", "inplace_view")
    if hasattr(torch.Tag, name)
)
_MAX_RESULTS = 1 << 16
_CPU = torch.device("cpu")
_PLAIN = (int, float, bool, str, type(None))
_OTHER = (torch.dtype, torch.device, torch.layout, torch.memory_format)

# Views that lie at the same distance from the start of the tensor, wherever that is in its storage.
_MOVED_VIEWS = {
    _aten.select.int,
    _aten.slice.Tensor,
    _aten.view.default,
    _aten._unsafe_view.default,
    _aten.t.default,
    _aten.transpose.int,
    _aten.permute.default,
    _aten.unsqueeze.default,
    _aten.squeeze.dim,
    _aten.expand.default,
    _aten.detach.default,
    _aten.alias.default,
}

# Ops that fill with a number, as pointwise ones take it: its type alone decides what the results are like.
_FILLS = {_aten.full.default, _aten.full_like.default, _aten.new_full.default, _aten.fill_.Scalar}

_RUNS, _MAKES, _VIEWS, _WRITES = range(4)  # what an op does; the last two with its first argument
_FIRST = "first"  # what the result of an op is like that gives its first argument back


def tensors_in(value):
    """All tensors in what an op takes or gives, in order: pytrees are several times as slow."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    found = []
    for part in value:
        if isinstance(part, torch.Tensor):
            found.append(part)
        elif isinstance(part, (list, tuple, dict)):
            found += tensors_in(part)
    return found


class _Odd(Exception):
    """An argument of which too little is known."""


class Results:
    """The results of one FakeTensorMode."""

    def __init__(self, fake_mode):
        self._fake_mode = fake_mode
        self._ops = {}  # op -> its name, _RUNS, _MAKES or _VIEWS, and if its results depend on numbers by their type alone
        self._known = {}  # op's name and arguments -> what the results are like; None: to be run each time
        self._learned = []  # keys of _known that no other process has told

    def run(self, func, args, kwargs):
        """Returns the results of func on fake tensors; call it outside the mode."""
        name, kind, by_type = self._op(func)
        if kind == _RUNS:
            return self._run(func, args, kwargs)
        source, start, known_args = args[0] if kind == _VIEWS else None, 0, args
        if func in _MOVED_VIEWS and isinstance(source, torch.Tensor):
            start = source.storage_offset()
            if func is _aten.select.int and source.dim() and -source.size(args[1]) <= args[2] < source.size(args[1]):
                start += args[2] % source.size(args[1]) * source.stride(args[1])  # as the first of them
                known_args = (*args[:2], 0)
        try:
            key = [name, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
            if kind == _VIEWS and func not in _MOVED_VIEWS:
                key.append(source.storage_offset())
            self._add(key, known_args, by_type)
            key.extend(kwargs)
            self._add(key, kwargs.values(), by_type)
            key = tuple(key)
        except _Odd:
            return self._run(func, args, kwargs)
        if key not in self._known:
            result = self._run(func, args, kwargs)
            if len(self._known) < _MAX_RESULTS:
                if kind == _WRITES:
                    self._known[key] = _FIRST if result is args[0] else None
                else:
                    self._known[key] = self._describe(result, source, start, (args, kwargs))
                self._learned.append(key)
            return result
        made = self._known[key]
        if made is None:
            return self._run(func, args, kwargs)
        if made == _FIRST:
            return args[0]
        if type(made) is list:
            return tuple(None if part is None else self._make(part, source, start) for part in made)
        return self._make(made, source, start)

    def is_view(self, func):
        """Returns true for an op whose result is its first argument, seen otherwise."""
        return self._op(func)[1] == _VIEWS

    def _op(self, func):
        op = self._ops.get(func)
        if op is None:
            op = self._ops[func] = (func.name(), _kind_of(func), _wants_types(func))
        return op

    def learned(self):
        """Returns the results learned in this process, for `learn` in another."""
        return {key: self._known[key] for key in self._learned}

    def learn(self, known):
        self._known.update(known)

    def _run(self, func, args, kwargs):
        if func is _aten._to_copy.default and not isinstance(args[0], FakeTensor):
            # The mode would copy real data to find out what a copy is like.
            args = (self._fake_mode.from_tensor(args[0]), *args[1:])
        with self._fake_mode:
            return func(*args, **kwargs)

    def _add(self, key, values, by_type=False):
        """Adds all that results may depend on."""
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                if value.fake_mode is not self._fake_mode or not _is_plain(value):
                    raise _Odd
                key += (value.dtype, tuple(value.shape), value.stride())
            elif kind is torch.Tensor and key[0] == _aten._to_copy.default.name() and _is_usual(value):
                key += (value.dtype, tuple(value.shape), value.stride())  # data goes to the GPU
            elif kind is float and by_type:
                key.append(kind)
            elif kind in _PLAIN:
                key += (kind, value)  # 1, 1.0 and True are equal
            elif kind is list or kind is tuple:
                key.append(len(value))
                self._add(key, value, by_type)
            elif kind in _OTHER:
                key.append(value)
            else:
                raise _Odd

    def _make(self, made, source, start):
        size, stride, dtype, offset = made
        with torch._C._DisableTorchDispatch():
            tensor = torch.empty_strided(size, stride, dtype=dtype, device="meta")
            if source is not None:
                tensor.set_(source.untyped_storage(), start + offset, size, stride)
        return FakeTensor(self._fake_mode, tensor, _CPU)

    def _describe(self, result, source, start, arguments):
        if source is not None and type(source) is not FakeTensor:
            return None
        parts = result if type(result) is tuple else (result,)
        used = tensors_in(arguments) if source is None else [source]
        used = {tensor.untyped_storage()._cdata for tensor in used}
        made = []
        for part in parts:
            if part is None:
                made.append(None)
                continue
            if type(part) is not FakeTensor or not _is_plain(part):
                return None
            storage = part.untyped_storage()._cdata
            if (storage in used) != (source is not None):
                return None
            if source is None:
                used.add(storage)
            like = (tuple(part.shape), part.stride(), part.dtype, part.storage_offset() - start)
            if not _is_alike(part, self._make(like, source, start)):
                return None
            made.append(like)
        return made if type(result) is tuple else made[0]


def _wants_types(func):
    return torch.Tag.pointwise in func.tags or func in _FILLS


def _kind_of(func):
    schema = func._schema
    if func in _ALWAYS_RUN or func.namespace != "aten" or any(tag in func.tags for tag in _TAGS):
        return _RUNS
    if func is _aten._unsafe_view.default:  # declared as what it is not
        return _VIEWS
    written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    aliases = [value.alias_info for value in schema.returns if value.alias_info is not None]
    if not aliases and not written:
        return _MAKES
    first = schema.arguments[0] if schema.arguments else None
    if len(schema.returns) != 1 or str(schema.returns[0].type) != "Tensor" or not aliases:
        return _RUNS
    if first is None or first.alias_info is None or str(first.type) != "Tensor":
        return _RUNS
    if written:
        return _WRITES if written == [first] else _RUNS
    return _VIEWS


def _is_plain(tensor):
    return tensor.constant is None and tensor.fake_device == _CPU and _is_usual(tensor)


def _is_usual(tensor):
    is_strided = tensor.layout is torch.strided
    return is_strided and not tensor.dtype.is_complex and not tensor.is_neg() and not tensor.is_quantized


def _is_alike(a, b):
    return (
        a.untyped_storage().nbytes() == b.untyped_storage().nbytes()
        and a.storage_offset() == b.storage_offset()
        and torch._C._dispatch_key_set(a) == torch._C._dispatch_key_set(b)
    )


