"""One rank of a distributed training, without the others: what DistributedDataParallel takes on its GPU."""

import contextlib
import os

import torch

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


def install(stack):
    patch(stack, torch.nn.parallel, "DistributedDataParallel", OneRank)
    patch(stack, torch.nn.parallel.distributed, "DistributedDataParallel", OneRank)
    if not torch.distributed.is_available():
        return
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    patch_all(
        stack,
        torch.distributed,
        {
            "init_process_group": lambda *_, **__: None,
            "destroy_process_group": lambda *_: None,
            "is_initialized": lambda: True,
            "get_rank": lambda *_: 0,
            "get_world_size": lambda *_: ranks,
            "barrier": lambda *_, **__: None,
            "all_reduce": lambda *_, **__: None,
            "broadcast": lambda *_, **__: None,
        },
    )
