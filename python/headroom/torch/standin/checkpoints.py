"""Files of tensors that a traced program loads: of large ones the headers are read, not the weights.

A small file is data, and is read. Of a larger one the tensors that may be weights get memory without values; indices and
small tensors keep theirs. torch.load maps such a file, so that what is not looked at is never read.
"""

import os
import zipfile

import torch

from ..cpu_ops import plain_torch
from .patch import patch

_DATA_FILE = 256 << 20  # bytes of a file that is read as a whole
_DATA_TENSOR = 1 << 20  # bytes of a tensor in a larger one that is read
_CPU = torch.device("cpu")


def _is_weight(dtype, size, file_size):
    if file_size <= _DATA_FILE or size <= _DATA_TENSOR:
        return False
    return dtype.is_floating_point or dtype.is_complex or size > _DATA_FILE


class _Place:
    """A storage as a function for `map_location` sees it: it says where the storage goes."""

    def __init__(self, device):
        self.device = device

    def cuda(self, device=None, **_):
        return _Place(torch.device("cuda", device if isinstance(device, int) else 0))

    def cpu(self):
        return _Place(_CPU)


def _place(map_location, location):
    """The device of a storage that was saved on `location`, as torch.load finds it."""
    found = map_location
    if isinstance(map_location, dict):
        found = map_location.get(location, location)
    elif callable(map_location):
        found = map_location(_Place(_CPU), location)
    if isinstance(found, _Place):
        found = found.device
    return torch.device(location if found is None else found)


def _empty(tracer, size, dtype, device):
    """A tensor without values on a device."""
    with tracer, torch.no_grad():
        tensor = torch.empty(size, dtype=dtype, device=device)
    tracer.values.forget(tensor)
    return tensor


def install(tracer, stack):
    """Replaces torch.load."""
    sizes = []  # of the files that are loaded now
    rebuild = torch._utils._rebuild_tensor

    def bytes_of(storage, dtype, place):
        """The bytes of a storage of a file as a tensor on their device, the same one for all views of the storage."""
        known = getattr(storage, "_headroom_loaded", None)
        if known is None:
            if _is_weight(dtype, storage.nbytes(), sizes[-1]):
                known = _empty(tracer, storage.nbytes(), torch.uint8, place)
            else:
                real = torch.empty(0, dtype=torch.uint8).set_(storage)
                with tracer:
                    known = tracer.copy_to(real, place)
            storage._headroom_loaded = known
        return known

    def rebuild_tensor(storage, offset, size, stride):
        untyped = storage._untyped_storage
        place = getattr(untyped, "_headroom_place", None)
        is_data = not sizes or not _is_weight(storage.dtype, untyped.nbytes(), sizes[-1])
        if place is None or (place.type == "cpu" and is_data):
            return rebuild(storage, offset, size, stride)
        base = bytes_of(untyped, storage.dtype, place)
        with tracer, torch.no_grad():
            empty = torch.empty(0, dtype=storage.dtype, device=place)
            return empty.set_(base.untyped_storage(), offset, size, stride)

    original = torch.load

    def load(file, map_location=None, *args, **kwargs):
        if str(map_location) == "meta":
            with plain_torch():
                return original(file, map_location, *args, **kwargs)

        def place(storage, location):
            storage._headroom_place = _place(map_location, location)
            return storage

        is_path = isinstance(file, (str, os.PathLike))
        sizes.append(os.path.getsize(file) if is_path and os.path.exists(file) else 0)
        try:
            if sizes[-1] > _DATA_FILE and zipfile.is_zipfile(file):
                file, kwargs = os.fspath(file), {**kwargs, "mmap": True}
            with plain_torch():
                return original(file, place, *args, **kwargs)
        finally:
            sizes.pop()

    patch(stack, torch._utils, "_rebuild_tensor", rebuild_tensor)
    patch(stack, torch, "load", load)
