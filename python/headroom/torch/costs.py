"""About how long the ops of a step take on a GPU: the longer of arithmetic and memory traffic, and a launch.

It ranks programs by their time; it does not replace a measurement.
"""

from dataclasses import dataclass

import torch
from torch.utils.flop_counter import flop_registry

from .results import tensors_in

_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Speed:
    """The throughput of a GPU's kernels. `link_bytes_per_us` is that of its copies from and to the host."""

    flops_per_us: float
    half_flops_per_us: float
    bytes_per_us: float
    link_bytes_per_us: float
    launch_us: float


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


class Costs:
    """Sums up the times of a step, those of its forward pass by module."""

    def __init__(self, speed):
        self.speed = speed
        self.begin_step()

    def begin_step(self):
        self.phases = {}  # phase -> us
        self.modules = {}  # path -> us in the forward pass, without the modules inside it

    def scale(self, phases, factor):
        """Counts phases as if they had run that many times as often."""
        for phase in phases:
            if phase in self.phases:
                self.phases[phase] *= factor

    def total_us(self):
        return sum(self.phases.values())

    def add(self, tracer, func, args, kwargs, inputs, result):
        outputs = tensors_in(result)
        storages = {tensor.untyped_storage()._cdata for tensor in inputs}
        new = [tensor for tensor in outputs if tensor.untyped_storage()._cdata not in storages]
        if not new and not func._schema.is_mutable:
            return  # a view
        speed = self.speed
        traffic = sum(map(_bytes, inputs)) + sum(map(_bytes, new))
        us = self._copy_us(tracer, func, args, outputs)
        if us is None:
            if func._schema.is_mutable and args:
                traffic += sum(map(_bytes, tensors_in(args[0])))
            arithmetic_us = self._arithmetic_us(func, args, kwargs, inputs, result)
            us = max(arithmetic_us, traffic / speed.bytes_per_us)
        us += speed.launch_us
        recorder = tracer.recorder
        self.phases[recorder.phase] = self.phases.get(recorder.phase, 0) + us
        if recorder.phase == "forward":
            module = recorder.module()
            self.modules[module] = self.modules.get(module, 0) + us

    def _copy_us(self, tracer, func, args, outputs):
        """The time of a copy between host and GPU; None for all else."""
        if func is torch.ops.aten._to_copy.default:
            source, target = args[0], outputs[0]
            is_target_on_gpu = tracer.target is None or tracer.target.type == "cuda"
        elif func is torch.ops.aten.copy_.default:
            source, target = args[1], args[0]
            is_target_on_gpu = tracer.is_on_gpu(target)
        else:
            return None
        if is_target_on_gpu == tracer.is_on_gpu(source):
            return None
        return _bytes(target) / self.speed.link_bytes_per_us

    def _arithmetic_us(self, func, args, kwargs, inputs, result):
        count = flop_registry.get(func._overloadpacket)
        if count is None:
            return 0
        try:
            flops = count(*args, **kwargs, out_val=result)
        except Exception:  # a formula that this version of PyTorch has for other arguments
            return 0
        is_half = any(tensor.dtype in _HALF for tensor in inputs)
        speed = self.speed
        return flops / (speed.half_flops_per_us if is_half else speed.flops_per_us)
