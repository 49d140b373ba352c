"""One rank of a distributed training, without the others: what DistributedDataParallel takes on its GPU."""

import contextlib
import os

import torch

from ..errors import refusal
from .patch import patch, patch_all

_MIB = 1 << 20


class OneRank(torch.nn.Module):
    """Takes the place of DistributedDataParallel. Gradients are copied into buckets for the sum between
    ranks: a first one of 1 MiB and others of `bucket_cap_mb`, in the reverse order of the parameters
    (Reducer in torch/csrc/distributed/c10d/reducer.cpp). With gradient_as_bucket_view they lie there.
    """

    def __init__(self, module, *args, bucket_cap_mb=None, gradient_as_bucket_view=False, **kwargs):
        super().__init__()
        self.module = module
        parameters = [p for p in module.parameters() if p.requires_grad]
        self._buckets = []
        with torch.no_grad():
            for group in _split(reversed(parameters), _MIB, int((bucket_cap_mb or 25) * _MIB)):
                first = group[0]
                bucket = torch.empty(
                    sum(p.numel() for p in group), dtype=first.dtype, device=first.device
                )
                self._buckets.append(bucket)
                if gradient_as_bucket_view:
                    _put_gradients(group, bucket)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def no_sync(self):
        return contextlib.nullcontext()


def _split(parameters, first_bytes, bytes_each):
    """Groups of parameters of one type, each closed once it has reached its size."""
    groups, open_groups = [], {}
    for parameter in parameters:
        group = open_groups.setdefault(parameter.dtype, [])
        group.append(parameter)
        limit = first_bytes if not groups else bytes_each
        if sum(p.numel() * p.element_size() for p in group) >= limit:
            groups.append(open_groups.pop(parameter.dtype))
    return groups + [group for group in open_groups.values() if group]


def _put_gradients(group, bucket):
    offset = 0
    for parameter in group:
        view = bucket[offset : offset + parameter.numel()].view(parameter.size())
        offset += parameter.numel()

        def use_view(p, view=view):
            p.grad = view

        parameter.register_post_accumulate_grad_hook(use_view)


class _Work:
    """A collective that is done: what it sums up over ranks takes no memory here."""

    def __init__(self, *_, **__):
        pass

    def wait(self, *_, **__):
        return True

    is_completed = wait


_COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "monitored_barrier",
    "new_group",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
)

# Environment variables that torchrun sets.
_ENVIRONMENT = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}


def _refuse_shards(*_, **__):
    raise refusal(
        "FullyShardedDataParallel, fully_shard and device meshes cannot be traced: how they spread weights over "
        "ranks is not modeled; trace the model without them (an upper bound of what a rank takes)"
    )


class _Group:
    """The group of all ranks, of which this process is one, once the program has started it."""

    def __init__(self):
        self.is_started = False
        self.environment = dict(_ENVIRONMENT)

    def start(self, *_, world_size=-1, rank=-1, **__):
        self.is_started = True
        for name, value in (("WORLD_SIZE", world_size), ("RANK", rank)):
            if value >= 0:
                self.environment[name] = str(value)

    def end(self, *_):
        self.is_started = False


def install(stack):
    # Covers code that has imported the name before.
    made = staticmethod(lambda _, *args, **kwargs: OneRank(*args, **kwargs))
    patch(stack, torch.nn.parallel.DistributedDataParallel, "__new__", made)
    patch(stack, torch.nn.parallel, "DistributedDataParallel", OneRank)
    patch(stack, torch.nn.parallel.distributed, "DistributedDataParallel", OneRank)
    if not torch.distributed.is_available():
        return
    from torch.distributed import device_mesh, fsdp

    group = _Group()
    _give_environment(stack, group)
    values = {
        **dict.fromkeys(_COLLECTIVES, _Work),
        "init_process_group": group.start,
        "destroy_process_group": group.end,
        "is_initialized": lambda: group.is_started,
        "get_backend": lambda *_: "nccl",
        "get_rank": lambda *_: int(os.environ["RANK"]),
        "get_world_size": lambda *_: int(os.environ["WORLD_SIZE"]),
        "_get_default_group": _refuse_shards,
        "init_device_mesh": _refuse_shards,
    }
    for owner in (torch.distributed, torch.distributed.distributed_c10d, device_mesh):
        patch_all(stack, owner, values)
    patch(stack, fsdp.FullyShardedDataParallel, "__init__", _refuse_shards)


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
            return (find if group.is_started else original)(environment, name)
        except KeyError:
            return default

    def contains(environment, name):
        return get(environment, name, contains) is not contains

    for name, function in {"__getitem__": find, "get": get, "__contains__": contains}.items():
        patch(stack, kind, name, function)
