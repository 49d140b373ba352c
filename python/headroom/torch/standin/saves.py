"""Files of tensors that a traced program saves and loads again: they hold what is known about tensors, not their bytes."""

import io
import os
import pickle
from multiprocessing.reduction import ForkingPickler

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..cpu_ops import plain_torch
from .libraries import after_import
from .patch import patch

_MARK = b"headroom: a traced program's file of tensors\n"


def _make(size, stride, dtype, device, requires_grad, is_parameter):
    """The tensor that was saved, on the device that `_Unpickler` was given."""
    tensor = torch.empty_strided(size, stride, dtype=dtype, device=_place(device))
    return torch.nn.Parameter(tensor, requires_grad) if is_parameter else tensor


def _make_data(saved, device="cpu"):
    """A tensor of known values, such as the counter of an optimizer's steps, on its device."""
    with plain_torch():
        tensor = _load(io.BytesIO(saved))
    place = torch.device(_place(device))
    return tensor if place.type == "cpu" else tensor.to(place)


_save, _load = torch.save, torch.load
_places = []  # of the files that are loaded now


def _place(device):
    place = _places[-1] if _places else None
    if isinstance(place, dict):
        place = place.get(device, device)
    return place if isinstance(place, (str, torch.device)) else device


def _reduce(value, known_of):
    """Pickle makes a tensor again of its values, or of what is known about it."""
    is_parameter = isinstance(value, torch.nn.Parameter)
    is_fake = isinstance(value, FakeTensor)
    known = known_of(value) if is_fake else value
    if known is not None and not (is_fake and is_parameter):
        saved = io.BytesIO()
        with plain_torch():
            _save(known.clone() if is_fake else known, saved)
        return _make_data, (saved.getvalue(), value.device.type)
    facts = (
        tuple(value.size()),
        value.stride(),
        value.dtype,
        value.device.type,
        value.requires_grad,
        is_parameter,
    )
    return _make, facts


class _Pickler(pickle.Pickler):
    def __init__(self, file, known_of):
        super().__init__(file)
        self.known_of = known_of

    def reducer_override(self, value):
        return _reduce(value, self.known_of) if isinstance(value, torch.Tensor) else NotImplemented


def install(tracer, stack):
    """Replaces torch.save and torch.load, and those of safetensors. The files go where `open` writes."""

    def write(value, file):
        file.write(_MARK)
        try:
            _Pickler(file, tracer.values.of_data).dump(value)
        except (pickle.PicklingError, TypeError, AttributeError):  # it cannot be loaded again, here
            pass

    def save(value, file, *_, **__):
        if hasattr(file, "write"):
            return write(value, file)
        with open(file, "wb") as opened:
            write(value, opened)

    def is_ours(file):
        if not hasattr(file, "read"):
            if not os.path.isfile(file):
                return False
            with open(file, "rb") as opened:
                return opened.read(len(_MARK)) == _MARK
        start = file.tell()
        head = file.read(len(_MARK))
        file.seek(start)
        return head == _MARK

    def read(file, place):
        if not hasattr(file, "read"):
            with open(file, "rb") as opened:
                return read(opened, place)
        file.seek(len(_MARK), os.SEEK_CUR)
        _places.append(place)
        try:
            return pickle.load(file)
        finally:
            _places.pop()

    original = torch.load

    def load(file, map_location=None, *args, **kwargs):
        if is_ours(file):
            return read(file, map_location)
        return original(file, map_location, *args, **kwargs)

    def safetensors(module):
        load_file = module.load_file
        patch(stack, module, "save_file", lambda tensors, file, *_, **__: save(tensors, file))
        patch(
            stack,
            module,
            "load_file",
            lambda file, device="cpu": (
                read(file, device) if is_ours(file) else load_file(file, device)
            ),
        )

    def torchvision(module):
        patch(stack, module, "save_image", lambda tensor, file, *_, **__: save(None, file))

    # Processes of the program send each other tensors.
    reducers = ForkingPickler._extra_reducers
    reducers[FakeTensor] = lambda tensor: _reduce(tensor, tracer.values.of_data)
    stack.callback(reducers.pop, FakeTensor, None)
    patch(stack, torch, "save", save)
    patch(stack, torch, "load", load)
    after_import(stack, {"safetensors.torch": safetensors, "torchvision.utils": torchvision})
