"""Values of tensors as recipes: the bytes of a storage at one moment are known, or the results of an op on others.

A program may ask for a value long after the op that gives it, or never: `Evaluation` runs the ops that a value needs
on real tensors of the CPU, and keeps none longer than it is used. Knows no fake tensors; values.py keeps the recipes of
a traced program.
"""

import collections
import weakref

import torch
from torch.utils.flop_counter import flop_registry

from . import cpu_ops
from .errors import one_line
from .results import tensors_in


class NotComputable(Exception):
    """The CPU cannot run an op of a recipe."""


class Value:
    """The bytes of a storage at one moment: `buffer`, or what `step` gives; of neither nothing is known any more."""

    __slots__ = ("buffer", "step", "size", "owner", "uses", "is_drawn", "__weakref__")

    def __init__(self, size, buffer=None, step=None):
        self.uses = 0  # by the parts of steps that exist
        self.size = size
        self.buffer = buffer
        self.step = step
        self.owner = None  # a weak reference to the storage
        self.is_drawn = step is not None and step.is_drawn

    def is_lost(self):
        return self.buffer is None and self.step is None

    def is_current(self):
        storage = self.owner and self.owner()
        return storage is not None and getattr(storage, "_headroom_value", None) is self


class Part:
    """A tensor over the bytes of a value; None for bytes that are overwritten before anything reads them."""

    __slots__ = ("value", "bytes", "dtype", "shape", "stride", "offset", "flips")

    def __init__(self, value, tensor):
        self.value = value
        self.bytes = tensor.untyped_storage().nbytes()
        self.dtype = tensor.dtype
        self.shape = tensor.shape
        self.stride = tensor.stride()
        self.offset = tensor.storage_offset()
        self.flips = (tensor.is_conj(), tensor.is_neg()) if self.dtype.is_complex else None

    @classmethod
    def whole(cls, value, size):
        """All bytes of a value."""
        part = cls.__new__(cls)
        part.value, part.bytes, part.dtype, part.flips = value, size, torch.uint8, None
        part.shape, part.stride, part.offset = (size,), (1,), 0
        return part

    def extent(self):
        """The end of the bytes that it may touch, and if it touches all before."""
        last, count = self.offset, 1
        for size, stride in zip(self.shape, self.stride):
            last += (size - 1) * stride
            count *= size
        item = self.dtype.itemsize
        return (last + 1) * item, count > 0 and last + 1 - self.offset == count and 0 not in self.stride

    def over(self, buffer):
        """The real tensor over a buffer."""
        tensor = torch.empty(0, dtype=self.dtype, device="cpu")
        tensor.set_(buffer, self.offset, self.shape, self.stride)
        if self.flips is not None:
            tensor = tensor.conj() if self.flips[0] else tensor
            tensor = torch._neg_view(tensor) if self.flips[1] else tensor
        return tensor

    def buffer_of(self, real):
        """The bytes of a real tensor, laid out as this tensor."""
        if real.shape != self.shape:
            raise NotComputable(f"gives {tuple(real.shape)} in place of {tuple(self.shape)}")
        storage = real.untyped_storage()
        if (
            real.dtype == self.dtype
            and real.stride() == self.stride
            and real.storage_offset() == self.offset
            and storage.nbytes() == self.bytes
            and not real.is_conj()
            and not real.is_neg()
        ):
            return storage
        buffer = torch.UntypedStorage(self.bytes)
        self.over(buffer).copy_(real)
        return buffer


def parts_in(value):
    """All parts in the arguments of a step, in the order of `tensors_in`."""
    if type(value) is Part:
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)) or type(value) is _Copies:
        return []
    return [part for inner in value for part in parts_in(inner)]


def replace(value, parts):
    """Arguments with what an iterator gives in the place of their tensors or parts."""
    if isinstance(value, (torch.Tensor, Part)):
        return next(parts)
    if isinstance(value, dict):
        return {name: replace(inner, parts) for name, inner in value.items()}
    if isinstance(value, (list, tuple)) and type(value) is not _Copies:
        return [replace(inner, parts) for inner in value]
    return value


class Step:
    """One run of an op. `results` has (index among the tensors of its result, Part without a value, weak reference to
    the Value) and `writes` has (index among the parts of its arguments, weak reference to the new Value).
    """

    __slots__ = ("func", "args", "kwargs", "results", "writes", "draw", "is_drawn", "_parts", "_flops")
    count = 0  # of those that exist

    def __init__(self, func, args, kwargs, draw=None):
        self.func, self.args, self.kwargs = func, args, kwargs
        self._parts, self._flops = parts_in(args) + parts_in(kwargs), None
        self.draw = draw  # for random numbers: sets the state of the generator while a function runs
        self.results, self.writes = [], []
        self.is_drawn = draw is not None  # it or one before it draws random numbers
        Step.count += 1
        for value in self.values():
            value.uses += 1
            self.is_drawn = self.is_drawn or value.is_drawn

    def __del__(self):
        Step.count -= 1
        for value in self.values():
            value.uses -= 1

    def parts(self):
        return self._parts

    def values(self):
        return [part.value for part in self._parts if part.value is not None]

    def gives(self, part):
        """A new value, which the step writes as a result like `part`."""
        return Value(part.bytes, step=self)

    def flops(self):
        """Those of the op, once it has results."""
        if self._flops is None:
            self._flops = self._count()
        return self._flops

    def _count(self):
        count = flop_registry.get(getattr(self.func, "_overloadpacket", None), getattr(self.func, "flops", None))
        if count is None:
            return 0
        parts = self.parts()
        args = replace(self.args, iter([part.shape for part in parts]))
        out = [spec.shape for _, spec, _ in self.results]
        try:
            return count(*args, out_val=out[0] if len(out) == 1 else out)
        except Exception:  # a formula that this version of PyTorch has for other arguments
            return 0

    def moved_bytes(self):
        return sum(part.bytes for part in self._parts) + sum(part.bytes for _, part, _ in self.results)

    def run(self, buffer_of):
        """Gives [(Value, buffer)]. `buffer_of(value, is_written)` gives the bytes of a part's value; those that are
        written must be a copy.
        """
        parts = self.parts()
        written = {id(parts[index].value): index for index, _ in self.writes}
        buffers = {}
        keys = [id(part if part.value is None else part.value) for part in parts]
        for key, part in zip(keys, parts):
            if part.value is None:
                buffers[key] = torch.UntypedStorage(part.bytes)
            elif key not in buffers:
                buffers[key] = buffer_of(part.value, key in written)
        reals = [part.over(buffers[key]) for key, part in zip(keys, parts)]
        reals = iter(reals)
        args, kwargs = replace(self.args, reals), replace(self.kwargs, reals)

        def work():
            return cpu_ops.run(self.func, args, kwargs)

        try:
            result = self.draw(work) if self.draw else work()
        except (RuntimeError, NotImplementedError, IndexError, ValueError, TypeError) as error:
            raise NotComputable(f"{self.name()}: {one_line(error)}") from error
        given = []
        found = tensors_in(result)
        used = {buffer.data_ptr() for buffer in buffers.values()}
        for index, spec, reference in self.results:
            value = reference()
            if value is not None:
                buffer = spec.buffer_of(found[index])
                given.append((value, buffer.clone() if buffer.data_ptr() in used else buffer))
        for index, reference in self.writes:
            value = reference()
            if value is not None:
                given.append((value, buffers[keys[index]]))
        return given

    def name(self):
        name = getattr(self.func, "_schema", None)
        return name.name.partition("::")[2].strip("_") if name else self.func.__name__.strip("_")


_MOST_COPIES = 128  # in one step


class _Copies(list):
    """(first byte, end, if it has no gaps, part) of the targets of copies into one storage, which are no arguments."""

    def covers(self, size):
        end = 0
        for start, last, is_dense, _ in sorted(self, key=lambda copy: copy[0]):
            if is_dense and start <= end:
                end = max(end, last)
        return end >= size


def copy_into(value, target, source):
    """The step that copies the part `source` into the part `target` of a value. It takes the place of copies before it
    that it overwrites: a buffer that is filled again and again keeps its last contents alone.
    """
    start = target.offset * target.dtype.itemsize
    end, is_dense = target.extent()
    targets, sources, base = _Copies(), [], value
    last = value.step if value.buffer is None else None
    if last is not None and last.func is _copy_all and len(last.args[1]) < _MOST_COPIES:
        base = last.args[0].value
        for copy, part in zip(last.args[1], last.args[2]):
            if not (is_dense and start <= copy[0] and copy[1] <= end):
                targets.append(copy)
                sources.append(part)
    targets.append((start, end, is_dense, target))
    sources.append(source)
    if base is not None and targets.covers(value.size):
        base = None
    return Step(_copy_all, [Part.whole(base, value.size), targets, sources], {})


def _copy_all(base, targets, sources):
    for (*_, part), source in zip(targets, sources):
        part.over(base.untyped_storage()).copy_(source)
    return []


class Kept:
    """Bounds the bytes of values that can be computed again, or of data: the oldest are dropped first."""

    def __init__(self, limit, are_data=False):
        self._limit = limit
        self._are_data = are_data
        self._bytes = 0
        self._sizes = {}  # weak reference to a Value -> its bytes, the oldest first

    def add(self, value, buffer):
        if value.size > self._limit:
            return
        value.buffer = buffer
        reference = weakref.ref(value, self._drop)
        self._drop(reference)
        self._sizes[reference] = value.size
        self._bytes += value.size
        while self._bytes > self._limit:
            oldest = next(iter(self._sizes))
            value = oldest()
            self._drop(oldest)
            if value is not None and (self._are_data or value.step is not None):
                value.buffer = None

    def end_recipes(self):
        """The values that are computed now have no recipes any more."""
        for reference in self._sizes:
            value = reference()
            if value is not None and value.buffer is not None:
                value.step = None

    def _drop(self, reference):
        self._bytes -= self._sizes.pop(reference, 0)


class Evaluation:
    """The steps that values need, in order, what they cost, and their run."""

    def __init__(self, targets, most_steps=1 << 30):
        self.targets = targets
        self.steps = _order([value.step for value in targets if value.buffer is None], most_steps)
        self.is_long = len(self.steps) > most_steps
        self.is_lost = any(value.is_lost() for value in targets)
        uses = collections.Counter(id(value) for value in targets)
        for step in self.steps:
            for value in step.values():
                uses[id(value)] += 1
                self.is_lost = self.is_lost or value.is_lost()
        self._uses = uses

    def _is_needed_later(self, value):
        """Returns true if no step has read a value that the program has yet, or one that does not run now reads it."""
        return value.uses == 0 or value.uses > self._uses[id(value)]

    def flops(self):
        return sum(step.flops() for step in self.steps)

    def moved_bytes(self):
        """The bytes that the steps read and write."""
        return sum(step.moved_bytes() for step in self.steps)

    def peak_bytes(self):
        """The most bytes that the run holds at once."""
        uses, sizes, live, peak = dict(self._uses), {}, 0, 0
        for step in self.steps:
            made = [(ref(), part.bytes) for _, part, ref in step.results]
            made += [(ref(), step.parts()[index].bytes) for index, ref in step.writes]
            for value, size in made:
                if value is not None and id(value) not in sizes:
                    sizes[id(value)] = size
                    live += size
            peak = max(peak, live)
            for value in step.values():
                uses[id(value)] -= 1
                if uses[id(value)] == 0:
                    live -= sizes.get(id(value), 0)
        return peak

    def run(self, kept, rest, before=lambda step: None):
        """Computes the targets, whose recipes end with it. What is surely read again goes to `kept`, and all else that the
        program still has to `rest`. Calls `before` with each step.
        """
        uses, targets = dict(self._uses), {id(value) for value in self.targets}
        known = [value for step in self.steps for value in step.values()]
        buffers = {id(value): value.buffer for value in known if value.buffer is not None}
        del known

        def buffer_of(value, is_written):
            key = id(value)
            if not is_written:
                return buffers[key]
            is_last = uses[key] == 1 and value.buffer is None and not value.is_current()
            if is_last and key not in targets:
                return buffers.pop(key)
            return buffers[key].clone()

        for step in self.steps:
            before(step)
            for value, buffer in step.run(buffer_of):
                if uses.get(id(value)):
                    buffers[id(value)] = buffer
                if id(value) not in targets and value.is_current():
                    (kept if self._is_needed_later(value) else rest).add(value, buffer)
            for value in step.values():
                uses[id(value)] -= 1
                if uses[id(value)] == 0:
                    buffers.pop(id(value), None)
        for value in self.targets:
            if value.buffer is None:
                value.buffer = buffers[id(value)]
            value.step = None


def _order(last, most):
    """The steps that some steps need, each once and after those that it needs; more than `most` if there are more."""
    order, seen = [], set()
    stack = [(step, None) for step in last if step is not None]
    while stack:
        step, needed = stack.pop()
        if needed is None:
            if id(step) in seen:
                continue
            seen.add(id(step))
            if len(seen) > most:
                return [step] * len(seen)
            needed = [
                value.step
                for value in step.values()
                if value.buffer is None and value.step is not None
            ]
            stack.append((step, needed))
            stack.extend((inner, None) for inner in needed if id(inner) not in seen)
        else:
            order.append(step)
    return order
