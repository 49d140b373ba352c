"""Fake tensors as a program sees them: their device, their moves between devices, the values they have."""

import builtins
import math
import numbers
import sys

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _device as default_device

from .. import finite
from ..branches import larger_side, next_turn, passing
from ..cpu_ops import plain_torch
from ..errors import TraceError, forget_refusal, user_line
from ..unknown import ENDS_LOOP, MOST_SECONDS, UnknownNumber, unknown_among, without_unknown
from ..values import mark_mapped
from . import lbfgs, transformers
from .patch import patch, patch_all

_CPU = torch.device("cpu")


def _is_plain(index):
    return type(index) in (int, slice) or isinstance(index, numbers.Integral) and type(index) is not bool


def install(tracer, stack):
    _install_devices(tracer, stack)
    _install_moves(tracer, stack)
    _install_values(tracer, stack)
    # Tensors on a GPU are written through the host; a trace has nothing to write.
    patch(stack, torch, "save", lambda *args, **kwargs: None)
    # Libraries take other paths when they see a fake tensor; a trace wants the paths of a real run.
    patch(stack, torch._subclasses, "FakeTensor", type("FakeTensor", (), {}))
    patch(
        stack,
        torch.utils,
        "swap_tensors",
        lambda left, right: setattr(left, "data", right.detach()),
    )


def _install_devices(tracer, stack):
    """A fake tensor says that it is on the GPU, though PyTorch has it on the CPU."""
    old_device = FakeTensor.device

    def device(tensor):
        if tracer.depth > 0 or tensor.fake_mode is not tracer.fake_mode:
            return old_device.fget(tensor)
        return tracer.device_of(tensor)

    patch_all(
        stack,
        FakeTensor,
        {
            "device": property(device),
            "is_cuda": property(lambda tensor: device(tensor).type == "cuda"),
            "is_cpu": property(lambda tensor: device(tensor).type == "cpu"),
            "get_device": lambda tensor: tracer.gpu.index if device(tensor).type == "cuda" else -1,
            "is_pinned": lambda tensor, *_, **__: False,
            "pin_memory": lambda tensor, *_, **__: tensor,
            "record_stream": lambda tensor, *_: None,
            "share_memory_": lambda tensor: tensor,  # with processes of the program, of which one is traced
        },
    )
    patch(stack, torch.Tensor, "pin_memory", lambda tensor, *_, **__: tensor)  # of data


def _install_moves(tracer, stack):
    """`to`, `cuda` and `cpu` move tensors, and torch.tensor(data, device="cuda") copies its data there."""
    original_to = torch.Tensor.to

    def move(tensor, target, dtype, non_blocking, copy, memory_format):
        """A tensor on another device; where it is already there, what `to` without a device gives."""
        if tracer.host_is_gpu or target is None or target.type == tracer.device_of(tensor).type:
            arguments = {"copy": copy, "non_blocking": non_blocking}
            if memory_format is not None:
                arguments["memory_format"] = memory_format
            return original_to(tensor, dtype or tensor.dtype, **arguments)
        return tracer.copy_to(
            tensor, target, dtype=dtype, non_blocking=non_blocking, memory_format=memory_format
        )

    def to(tensor, *args, **kwargs):
        kwargs = dict(kwargs)
        other = kwargs.pop("other", None)
        if args and isinstance(args[0], torch.Tensor):
            other, args = args[0], args[1:]
        copy = kwargs.pop("copy", False)
        if other is not None:
            target, dtype = other.device, other.dtype
            non_blocking = args[0] if args else kwargs.pop("non_blocking", False)
            copy = args[1] if len(args) > 1 else copy
            memory_format = kwargs.pop("memory_format", None)
        else:
            args = list(args)
            booleans = [value for value in args if isinstance(value, bool)]
            args = [value for value in args if not isinstance(value, bool)]
            if len(booleans) > 1:
                copy = booleans[1]
            if booleans:
                kwargs.setdefault("non_blocking", booleans[0])
            target, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        return move(tensor, target, dtype, non_blocking, copy, memory_format)

    def cuda(tensor, device=None, non_blocking=False, memory_format=None):
        return move(tensor, tracer.gpu.device, None, non_blocking, False, memory_format)

    def cpu(tensor, memory_format=None):
        return move(tensor, _CPU, None, False, False, memory_format)

    patch_all(stack, FakeTensor, {"to": to, "cuda": cuda, "cpu": cpu})

    # Real data: PyTorch would ask the driver which GPU is meant by "cuda".
    def numbered(value):
        if not isinstance(value, (str, torch.device)):
            return value
        device = torch.device(value)
        return tracer.gpu.device if device.type == "cuda" and device.index is None else device

    def data_to(tensor, *args, **kwargs):
        kwargs = {name: numbered(value) for name, value in kwargs.items()}
        return original_to(tensor, *map(numbered, args), **kwargs)

    def data_cuda(tensor, device=None, non_blocking=False, **kwargs):
        return original_to(tensor, tracer.gpu.device, non_blocking=non_blocking, **kwargs)

    patch_all(stack, torch.Tensor, {"to": data_to, "cuda": data_cuda})

    # The bytes of real data are copied, by deepcopy too, into a tensor that PyTorch makes for it.
    copy_bytes = torch.UntypedStorage.copy_

    def copy_storage(storage, *args, **kwargs):
        with torch.utils._python_dispatch._disable_current_modes():
            return copy_bytes(storage, *args, **kwargs)

    patch(stack, torch.UntypedStorage, "copy_", copy_storage)

    # Data that a program reads and fills element by element would take a hundred times as long.
    get_item, set_item = torch.Tensor.__getitem__, torch.Tensor.__setitem__

    def is_of_host(tensor, index):
        is_plain = all(map(_is_plain, index)) if type(index) is tuple else _is_plain(index)
        return is_plain and tracer.depth == 0 and not tracer.is_on_gpu(tensor)

    def get_element(tensor, index):
        count = len(index) if type(index) is tuple else 1
        element = None
        if count == tensor.dim() and slice not in map(type, index if count > 1 else ()) and is_of_host(tensor, index):
            element = tracer.values.element(tensor, index)
        return get_item(tensor, index) if element is None else element

    def set_element(tensor, index, value):
        is_number = isinstance(value, numbers.Real) and not isinstance(value, UnknownNumber)
        is_known = is_number or type(value) is torch.Tensor and tracer.values.are_data([value])
        is_done = is_known and is_of_host(tensor, index) and tracer.values.set_elements(tensor, index, value)
        return None if is_done else set_item(tensor, index, value)

    patch_all(stack, FakeTensor, {"__getitem__": get_element, "__setitem__": set_element})

    # Data goes to the GPU by a copy, as in PyTorch, which would look for a real one.
    def make(name):
        original = getattr(torch, name)

        def function(data, *args, **kwargs):
            if isinstance(data, (torch.UntypedStorage, torch.TypedStorage)):  # of a mapped file
                with torch.utils._python_dispatch._disable_current_modes():
                    tensor = original(data, *args, **kwargs)
                mark_mapped(tensor.untyped_storage())
                return tensor
            device = kwargs.pop("device", None)
            if device is None:
                device = default_device.CURRENT_DEVICE
            requires_grad = kwargs.pop("requires_grad", False)
            if isinstance(data, FakeTensor):
                result = data.to(kwargs.get("dtype") or data.dtype)
            else:
                data, is_unknown = without_unknown(data)
                result = original(data, *args, **kwargs)
                if is_unknown:
                    tracer.values.forget(result)
            if device is not None and torch.device(device).type == "cuda":
                result = move(result, tracer.gpu.device, None, False, False, None)
            return result.requires_grad_() if requires_grad else result

        # For functions that torch.jit.script compiles.
        torch.jit._builtins._register_builtin(function, f"aten::{name}")
        return function

    for name in ("tensor", "as_tensor", "asarray"):
        patch(stack, torch, name, make(name))


def _install_values(tracer, stack):
    """Values are known or computed where they follow from data (values.py); others are not."""
    values = tracer.values

    def tell(said):
        tracer.assumed[f"{user_line()}: {said}"] = True

    def known(tensor):
        return values.of(tensor) if tracer.depth > 0 else values.cheap(tensor)

    def item(tensor):
        value = known(tensor)
        if value is not None:
            return value.item()
        if tensor.numel() != 1:
            raise RuntimeError(
                f"a Tensor with {tensor.numel()} elements cannot be converted to Scalar"
            )
        answer = finite.answer_of(tensor)
        is_whole = not tensor.is_floating_point() and tensor.dtype is not torch.bool
        return UnknownNumber("item()", _number(tensor), is_whole) if answer is None else answer

    def _number(tensor):
        compute = values.later(tensor, "item()")
        return compute and (lambda *limit: compute(*limit).item())

    def read(name, what):
        def method(tensor, *args, **kwargs):
            with torch.utils._python_dispatch._disable_current_modes():
                value = values.ask(tensor, what).detach()
                return getattr(value.clone() if "numpy" in what else value, name)(*args, **kwargs)

        return method

    def print_of(name, what, stands_in):
        """A method that gives numbers which a program mostly prints: others stand in for floats that are not cheap."""
        asked = read(name, what)

        def method(tensor, *args, **kwargs):
            if tensor.is_floating_point() and known(tensor) is None:
                return stands_in(tensor)
            return asked(tensor, *args, **kwargs)

        return method

    def unknown_numbers(tensor):
        compute = values.later(tensor, "tolist()")

        def at(index):
            number = compute and (lambda *limit: compute(*limit)[index].item())
            return UnknownNumber("tolist()", number)

        def part(index):
            if len(index) == tensor.dim():
                return at(index)
            return [part((*index, i)) for i in range(tensor.size(len(index)))]

        return part(())

    def no_numbers(tensor):
        with plain_torch():
            value = 0 if tensor.dim() else math.nan  # functions of arrays refuse NaN
            return torch.full(tensor.shape, value, dtype=tensor.dtype, device="cpu").numpy()

    patch(stack, FakeTensor, "item", item)
    patch(stack, UnknownNumber, "tell", staticmethod(tell))
    contains = read("__contains__", "a test for an element")

    def is_true(tensor):
        if tensor.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        if known(tensor) is None:
            frame = sys._getframe(1)
            for answer in (
                finite.answer_of(tensor),
                passing(frame),
                transformers.answer(frame),
                lbfgs.answer(frame),
            ):
                if answer is not None:
                    return answer
            answer = larger_side(frame)
            if answer is None and values.recipe(tensor) is None:
                answer = next_turn(frame)
                if answer is not None:
                    tell(ENDS_LOOP)
                    return answer
            if answer is None:
                return condition(tensor)
            try:
                real = values.ask(tensor, "a condition on a tensor", MOST_SECONDS)
                with plain_torch():
                    return bool(real)
            except TraceError:
                forget_refusal()
                tell("the condition is on a value that a trace does not know; the side that does more is taken")
                return answer
        return condition(tensor)

    def has_element(tensor, element):
        answer = transformers.answer(sys._getframe(1)) if known(tensor) is None else None
        return contains(tensor, element) if answer is None else answer

    condition = read("__bool__", "a condition on a tensor")
    patch(stack, FakeTensor, "__bool__", is_true)
    patch(stack, FakeTensor, "__contains__", has_element)
    tests = finite.tests()
    for owner in (torch, FakeTensor):
        patch_all(stack, owner, tests)
    for name, what in {
        "__int__": "int()",
        "__index__": "an index that is a tensor",
        "__complex__": "complex()",
    }.items():
        patch(stack, FakeTensor, name, read(name, what))
    for name, what, stands_in in (
        ("tolist", "tolist()", unknown_numbers),
        ("__float__", "float()", lambda tensor: math.nan),
        ("numpy", "numpy()", no_numbers),
        ("__array__", "numpy()", no_numbers),
    ):
        patch(stack, FakeTensor, name, print_of(name, what, stands_in))
    patch(
        stack,
        FakeTensor,
        "__format__",
        lambda tensor, form: (
            format(item(tensor), form) if tensor.dim() == 0 else object.__format__(tensor, form)
        ),
    )

    def deepcopy(tensor, memo):
        found = memo.get(id(tensor))
        if found is None:
            with torch.no_grad():
                found = tensor.detach().clone()
            blocks = (tracer.recorder.find(found), tracer.recorder.find(tensor))
            if None not in blocks:
                tracer.copied.append(blocks)
            if getattr(tensor, "_is_param", False):
                found = torch.nn.Parameter(found, requires_grad=tensor.requires_grad)
            elif tensor.requires_grad:
                found.requires_grad_()
            memo[id(tensor)] = found
        return found

    patch(stack, FakeTensor, "__deepcopy__", deepcopy)

    def equal(left, right):
        if left.shape != right.shape or left.dtype != right.dtype:
            return False
        left, right = values.ask(left, "torch.equal()"), values.ask(right, "torch.equal()")
        with plain_torch():
            return original_equal(left, right)

    original_equal = torch.equal
    patch(stack, torch, "equal", equal)

    def choose(original):
        def function(*args, **kwargs):
            try:
                return original(*args, **kwargs)
            except TraceError:
                # Adafactor clips its factors this way. A choice among unknown values is unknown.
                values = args if len(args) > 1 else args[0]
                found = unknown_among(known, values) if isinstance(values, (list, tuple)) else None
                if found is None:
                    raise
                forget_refusal()
                return found

        return function

    for name in ("max", "min"):
        patch(stack, builtins, name, choose(getattr(builtins, name)))
