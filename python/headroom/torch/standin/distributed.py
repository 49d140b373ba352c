"""One rank of a distributed training, without the others: groups of processes are PyTorch's own fake ones, in which a
collective is done at once and gives nothing. What a collective takes on this rank's GPU is recorded as for one of NCCL.
"""

import os

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..results import tensors_in
from .patch import patch, patch_all

_aten = torch.ops.aten

# Environment variables that torchrun sets.
_ENVIRONMENT = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}


class _Group:
    """Starts the group of all ranks, of which this process is one."""

    def __init__(self):
        from torch.testing._internal.distributed import fake_pg

        self._new_store = fake_pg.FakeStore
        self._init = torch.distributed.init_process_group
        self.environment = dict(_ENVIRONMENT)

    def start(self, *_, world_size=-1, rank=-1, **__):
        for name, value in (("WORLD_SIZE", world_size), ("RANK", rank)):
            if value >= 0:
                self.environment[name] = str(value)
        # Everything else that a program names is about how the processes find each other.
        self._init(
            "fake",
            store=self._new_store(),
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
        )


def _of_one_group(original):
    """A function that makes a group, without the backend that the program names for it."""

    def make(*args, backend=None, pg_options=None, device_id=None, **kwargs):
        return original(*args, **kwargs)

    return make


def _all_gather_object(object_list, obj, group=None):
    object_list[:] = [obj] * len(object_list)


def _gather_object(obj, object_gather_list=None, *_, **__):
    if object_gather_list is not None:
        object_gather_list[:] = [obj] * len(object_gather_list)


def _scatter_object_list(output, inputs=None, *_, **__):
    if inputs:
        output[0] = inputs[torch.distributed.get_rank()]


_OBJECTS = {
    "all_gather_object": _all_gather_object,
    "gather_object": _gather_object,
    "scatter_object_list": _scatter_object_list,
    "broadcast_object_list": lambda *_, **__: None,
}


def install(tracer, stack):
    if not torch.distributed.is_available():
        return
    group = _Group()
    _give_environment(stack, group)
    c10d = torch.distributed.distributed_c10d
    values = {
        **_OBJECTS,
        "init_process_group": group.start,
        "new_group": _of_one_group(c10d.new_group),
        "get_backend": lambda *_: "nccl",
        "is_nccl_available": lambda: True,
        "is_torchelastic_launched": lambda: False,
        "_verify_params_across_processes": lambda *_: None,
    }
    from torch.distributed import device_mesh

    for owner in (torch.distributed, c10d, device_mesh):
        patch_all(stack, owner, values)

    def destroy():
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    stack.callback(destroy)
    _follow_storages(tracer, stack)
    _make_buckets_on_gpu(tracer, stack)
    _show_devices_of_shards(stack)


def _follow_storages(tracer, stack):
    """Shards are gathered into storages that get their bytes back, and lose them again."""
    original = torch.UntypedStorage.resize_

    def resize(storage, size):
        result = original(storage, size)
        if storage._cdata in tracer.recorder.blocks:
            tracer.recorder.resize(storage)
            storage._headroom_value = None
        return result

    patch(stack, torch.UntypedStorage, "resize_", resize)


class _Indices(TorchDispatchMode):
    """Makes the whole numbers of a reducer real, which C++ reads: which parameter is in which bucket, and which is used."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if (kwargs or {}).get("dtype") is not torch.int32:
            return func(*args, **(kwargs or {}))
        with _disable_current_modes():
            return func(*args, **kwargs)


def _make_buckets_on_gpu(tracer, stack):
    """The reducer of DistributedDataParallel makes its buckets where its parameters are: for C++ on the CPU."""
    original = torch.distributed.Reducer

    def make(parameters, *args, **kwargs):
        with tracer.aimed_at(parameters[0].device), _Indices():
            return original(parameters, *args, **kwargs)

    patch(stack, torch.distributed, "Reducer", make)
    rebuild = original._rebuild_buckets

    def rebuild_buckets(reducer):
        with tracer.aimed_at(tracer.gpu.device), _Indices():
            return rebuild(reducer)

    patch(stack, original, "_rebuild_buckets", rebuild_buckets)


def _show_devices_of_shards(stack):
    """A DTensor is on the device of its part, which PyTorch's C++ code sees on the CPU."""
    if not hasattr(torch.distributed, "tensor"):
        return
    kind = torch.distributed.tensor.DTensor

    def device(tensor):
        return tensor._local_tensor.device

    patch_all(
        stack,
        kind,
        {
            "device": property(device),
            "is_cuda": property(lambda tensor: device(tensor).type == "cuda"),
            "is_cpu": property(lambda tensor: device(tensor).type == "cpu"),
        },
    )


# Collectives that give what other ranks have. The others leave a rank with its own part, or sum up what all have alike.
_FROM_OTHERS = ("alltoall", "recv", "reduce_scatter", "scatter")
_BARRIER_BYTES = 4  # a number that ProcessGroupNCCL::barrier sums up


# Memory of NCCL outside PyTorch's allocator: its code, once, and what each communicator takes for its channels. Measured
# with NCCL 2.28.9 on two H200 without NVLink multicast (docs/notes/pytorch-memory.md). A scatter sends from one rank.
_NCCL_CODE_BYTES = 356 << 20
_NCCL_BYTES = {
    "ring": 484 << 20,
    "alltoall": 442 << 20,
    "scatter": 104 << 20,
    "scattered": 360 << 20,
    "send": 262 << 20,
    "recv": 262 << 20,
}


class Communicators:
    """The groups of processes that exchanged something, and what NCCL takes for them."""

    def __init__(self):
        self._kinds = set()

    def add(self, func, args):
        name = func._schema.name.partition("::")[2].strip("_")
        kind = next((kind for kind in _NCCL_BYTES if name.replace("_", "").startswith(kind)), "ring")
        for arg in args:
            if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in str(arg._type()):
                group = torch._C._distributed_c10d.ProcessGroup.unbox(arg)
                if group.size() > 1:
                    receives = kind == "scatter" and not tensors_in(args[1])
                    self._add(group.group_name, "scattered" if receives else kind)
        names = [arg for arg in args if isinstance(arg, str)]  # of functional collectives, the group's is the last
        if names:
            self._add(names[-1], kind)

    def _add(self, group, kind):
        self._kinds.update({(group, "ring"), (group, kind)})

    def bytes(self):
        taken = sum(_NCCL_BYTES[kind] for _, kind in self._kinds)
        return taken + _NCCL_CODE_BYTES if taken else 0


def collective(tracer, func, args):
    """Runs an op of c10d: it gives its first tensors as they are, and a work that is done. The other ranks are taken to
    have the values that this one has.
    """
    name = func._schema.name.partition("::")[2].strip("_")
    outputs = tensors_in(args[0]) if args else []
    if name == "barrier":
        tracer.temporaries("c10d::barrier", [_BARRIER_BYTES])
    elif name == "allgather":
        for output in outputs:
            if output.shape == args[1][0].shape:
                tracer.values.run(_aten.copy_.default, (output, args[1][0]), {}, [output, args[1][0]])
    elif name.startswith(_FROM_OTHERS):
        for output in outputs:
            tracer.values.forget(output)
    done = torch.futures.Future()
    done.set_result(outputs)
    work = torch._C._distributed_c10d._create_work_from_future(done).boxed()
    return (args[0], work) if len(func._schema.returns) > 1 else work


def _give_environment(stack, group):
    """A program that demands a variable of torchrun gets it. One that asks whether it is there, to choose between one
    GPU and several, is told so once it has chosen several.
    """
    kind = type(os.environ)
    original = kind.__getitem__

    def find(environment, name):
        try:
            return original(environment, name)
        except KeyError:
            if environment is os.environ and name in group.environment:
                return group.environment[name]
            raise

    def get(environment, name, default=None):
        try:
            is_started = torch.distributed.is_initialized()
            return (find if is_started else original)(environment, name)
        except KeyError:
            return default

    def contains(environment, name):
        return get(environment, name, contains) is not contains

    for name, function in {"__getitem__": find, "get": get, "__contains__": contains}.items():
        patch(stack, kind, name, function)
