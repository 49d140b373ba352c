"""Real files of tensors that a traced program loads: checkpoints of torch.save and safetensors. Tensors for the CPU are
mapped from the file, so that a weight is read when somebody asks for its values; those for a GPU are copies like any
other.
"""

import os
import zipfile

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from ..values import mark_mapped
from .libraries import after_import
from .patch import patch


class _Probe:
    """Tells where a map_location that is a function moves a storage."""

    def __init__(self, storage):
        self._storage = storage

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def cuda(self, *_, **__):
        return "cuda"

    def cpu(self):
        return self


def _place(map_location, storage, saved):
    """The device of a storage, which was on the device `saved`, after it is loaded: "cuda:0"."""
    if isinstance(map_location, dict):
        map_location = map_location.get(saved, saved)
    elif callable(map_location):
        place = map_location(_Probe(storage), saved)
        return saved if place is None else place if isinstance(place, str) else "cpu"
    return saved if map_location is None else str(map_location)


class _Load:
    """One call of torch.load."""

    def __init__(self, tracer, map_location, is_mapped):
        self.tracer = tracer
        self.is_mapped = is_mapped
        self.map_location = map_location
        self.places = {}  # address -> device of a storage that goes to a GPU
        self.copies = {}  # (address, type) -> the copy of a whole storage

    def locate(self, storage, saved):
        place = _place(self.map_location, storage, saved)
        if place.startswith("cuda") and storage.nbytes() > 0:
            self.places[storage.data_ptr()] = torch.device(place)
        return storage

    def rebuild(self, original, storage, offset, size, stride):
        tensor = original(storage, offset, size, stride)
        if isinstance(tensor, FakeTensor):  # a program's own object that is made of others
            return tensor
        if self.is_mapped:
            mark_mapped(tensor.untyped_storage())
        address = tensor.untyped_storage().data_ptr()
        place = self.places.get(address)
        if place is None:
            return tensor
        outer, self.tracer.depth = self.tracer.depth, 0
        try:
            with self.tracer:
                return self._on_gpu(tensor, place, size, stride, offset)
        finally:
            self.tracer.depth = outer

    def _on_gpu(self, tensor, place, size, stride, offset):
        key = tensor.untyped_storage().data_ptr(), tensor.dtype
        if key not in self.copies:
            with _disable_current_modes():
                whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
            self.copies[key] = self.tracer.copy_to(whole, place)
        return self.copies[key].as_strided(size, stride, offset)


def _path_of(file):
    """The path of a file that PyTorch can map, or None."""
    name = file
    if hasattr(file, "read"):
        name = getattr(file, "name", None)
        if file.tell() != 0:
            return None
    is_path = isinstance(name, (str, os.PathLike)) and os.path.isfile(name)
    return os.fspath(name) if is_path and zipfile.is_zipfile(name) else None


def load(tracer, original, file, map_location=None, *args, **kwargs):
    """torch.load for a file that PyTorch wrote."""
    path = _path_of(file)
    if path is not None and kwargs.get("mmap") is None:
        kwargs["mmap"] = True
        file = path
    call = _Load(tracer, map_location, bool(kwargs.get("mmap")))
    rebuild = torch._utils._rebuild_tensor
    torch._utils._rebuild_tensor = lambda *parts: call.rebuild(rebuild, *parts)
    tracer.depth += 1  # PyTorch's own code: parameters are made of tensors as it has them, on the CPU
    try:
        with _disable_current_modes():
            is_meta = str(map_location) == "meta"
            return original(file, "meta" if is_meta else call.locate, *args, **kwargs)
    finally:
        tracer.depth -= 1
        torch._utils._rebuild_tensor = rebuild


class _FileForGpu:
    """A file of safetensors, or a slice of one of its tensors, whose tensors go to a GPU."""

    def __init__(self, file, device):
        self._file = file
        self._device = device

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        self._file.__enter__()
        return self

    def __exit__(self, *error):
        return self._file.__exit__(*error)

    def __getitem__(self, index):
        return self._file[index].to(self._device)

    def get_tensor(self, name):
        return self._file.get_tensor(name).to(self._device)

    def get_slice(self, name):
        return _FileForGpu(self._file.get_slice(name), self._device)


def install(tracer, stack):
    original, make = torch.load, torch._utils._rebuild_tensor

    def rebuild(storage, *layout):
        """A tensor over the bytes of a file that a library reads by itself is data."""
        if getattr(storage, "_untyped_storage", storage).device.type != "cpu":
            return make(storage, *layout)
        with _disable_current_modes():
            return make(storage, *layout)

    patch(stack, torch._utils, "_rebuild_tensor", rebuild)

    def load_mapped_file(file, *args, **kwargs):
        return load(tracer, original, file, *args, **kwargs)

    patch(stack, torch, "load", load_mapped_file)

    def safetensors(module):
        load_file = module.load_file

        def load_mapped(file, device="cpu", **kwargs):
            tensors = load_file(file, **kwargs)
            if torch.device(device).type == "cpu":
                return tensors
            return {name: tensor.to(device) for name, tensor in tensors.items()}

        patch(stack, module, "load_file", load_mapped)

    def safetensors_files(module):
        safe_open = module.safe_open

        def open_mapped(filename, framework="pt", device="cpu", **kwargs):
            file = safe_open(filename, framework, device="cpu", **kwargs)
            return file if torch.device(device).type == "cpu" else _FileForGpu(file, device)

        patch(stack, module, "safe_open", open_mapped)

    after_import(stack, {"safetensors": safetensors_files, "safetensors.torch": safetensors})
