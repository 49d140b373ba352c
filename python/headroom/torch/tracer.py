"""Runs a program on fake tensors and records what it would allocate on a GPU.

Every op reaches `Tracer.__torch_dispatch__` after autograd and autocast, so that the lifetimes of storages are those of
a real run. Further GPU memory (workspaces, temporaries, other kernels) comes from the tables in gpu_ops.py and
kernels.py.
"""

import bisect
import contextlib
import functools
import weakref

import torch
from torch.autograd import forward_ad
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from . import gpu_ops, in_place, kernels, sparse
from .conv_workspace import Workspaces
from .errors import refusal
from .recorder import (
    ACTIVATIONS,
    GRADIENTS,
    INPUTS,
    LIBRARY,
    OPTIMIZER_STATE,
    OTHER,
    WEIGHTS,
    WORKSPACE,
)
from .recorder import Recorder
from .results import Results, tensors_in
from .standin.compiled import Compiled
from .standin.distributed import Communicators, collective
from .values import KnownValues

_CPU = torch.device("cpu")
_aten = torch.ops.aten

# Questions about metadata, which make no tensor.
_SKIPPED = {torch.ops.prim.device.default}


@functools.lru_cache(maxsize=None)
def _is_composite(func):
    """Returns true if an op is made of others on every device; on tensors of inference mode, and in tensors of others, it
    comes as a whole.
    """
    keys = torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.CPU
    composite, own = (torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), k) for k in keys)
    return composite and not own


class Tracer(TorchDispatchMode):
    """The dispatch mode. `gpu` is the simulated GPU (a Gpu); `host_is_gpu` takes every tensor for one on the GPU, for
    programs that name no device.
    """

    def __init__(self, gpu, host_is_gpu=False, compute=None, not_compiled=""):
        super().__init__()
        self.gpu = gpu
        self.host_is_gpu = host_is_gpu
        self.recorder = Recorder()
        self.values = KnownValues(self, compute)
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.results = Results(self.fake_mode)
        self.depth = 0
        self.workspaces = Workspaces(gpu)  # of convolutions
        self.communicators = Communicators()
        self.compiled = Compiled(self, not_compiled)
        self.library = {}  # (thread, handle) -> block of a library's workspace
        self.target = None  # the device of a copy that the program makes
        self.node = None  # the autograd node that runs
        self.roots = {}  # id of a root module -> (module, {id of module: path})
        self.nodes = {}  # sequence number of an autograd node -> module path
        self.optimizers = []  # those that took a step
        self.phase_before_step = None  # of an optimizer
        self._paths = {}  # {id of module: path} of the root module that runs
        self.moved = weakref.WeakSet()  # modules that the program moved or converted
        self.copied = []  # (block, the block that it was copied from) of deep copies
        self.conversions = set()  # blocks made of others on the GPU, which are no inputs
        self.assumed = {}  # sentences about what a run on a GPU may do otherwise
        self.composites = {}  # op -> the function that composes it as on a GPU, where it comes as a whole
        self.composed = {}  # the same for ops of libraries, in every mode
        self.costs = None  # the times of ops (costs.py), where somebody wants them

    @classmethod
    def ignore_compile_internals(cls):
        """Has Dynamo compile under this mode, which then sees what compiled code does."""
        return True

    # Devices.

    def is_on_gpu(self, tensor):
        return self.host_is_gpu or tensor.untyped_storage()._cdata in self.recorder.blocks

    def device_of(self, tensor):
        return self.gpu.device if self.is_on_gpu(tensor) else _CPU

    # Dispatch.

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in _SKIPPED:
            return _CPU
        if self.depth > 0:
            return func(*args, **(kwargs or {}))
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a tensor of others takes its own ops apart
        if func in self.composed:
            with self:
                return self.composed[func](*args, **(kwargs or {}))
        if func in self.composites or _is_composite(func):
            with self:
                return self.composites.get(func, func.decompose)(*args, **(kwargs or {}))
        self.depth += 1
        try:
            with torch._C.DisableTorchFunction():
                return self._run(func, args, kwargs or {})
        finally:
            self.depth -= 1

    def _run(self, func, args, kwargs):
        if func.namespace in ("c10d", "_c10d_functional"):
            self.communicators.add(func, args)
        if func.namespace == "c10d":
            return collective(self, func, args)
        inputs = tensors_in(args)
        if kwargs:
            inputs += tensors_in(kwargs)
        if not inputs and self.results.is_view(func):
            return func(*args, **kwargs)  # of a number, on the CPU
        device = kwargs.get("device")
        if device is not None:
            kwargs = dict(kwargs, device=_CPU)
            if func is _aten._to_copy.default:
                del kwargs[
                    "device"
                ]  # a fake copy to the device that a tensor has is the tensor itself
            if device.type not in ("cuda", "cpu", "meta"):
                raise refusal(
                    f"the program uses a device of type '{device.type}': only 'cuda' is simulated; run it there"
                )
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = None
        recorder = self.recorder
        is_sparse = sparse.is_sparse_op(func, args, inputs)
        on_gpu = self._runs_on_gpu(func, device, sparse.parts_of(inputs) if is_sparse else inputs)
        if is_sparse:
            depth, self.depth = self.depth, 0
            try:
                with self:
                    return sparse.run(self, func, args, kwargs, on_gpu)
            finally:
                self.depth = depth
        if not on_gpu and self.values.are_data(inputs):
            return func(*args, **kwargs)
        if on_gpu and not self.host_is_gpu and self.target is None:
            self._require_one_device(func, inputs)
        if recorder.phase == "backward":
            self._enter_node()
        elif recorder.modules:
            self.nodes.setdefault(torch._C._autograd._get_sequence_nr() - 1, recorder.modules[-1])

        name = func.name()
        converts = func is _aten._to_copy.default and self._converts_on_gpu(inputs)
        if recorder.phase == "backward":
            func = in_place.form_of(func, args, kwargs, self.node, recorder)
        replace = gpu_ops.REPLACED.get(func) if on_gpu else None
        if on_gpu and replace is None and gpu_ops.only_overwrites(func):
            # It has no result of its own, so there is nothing to find out.
            self.values.follow(func, args, kwargs, inputs, None)
            if self.costs:
                self.costs.add(self, func, args, kwargs, inputs, None)
            return args[0] if func._schema.returns else None
        if replace is not None:
            with self.fake_mode:
                result = replace(self, func, args, kwargs)
            self.values.follow(func, args, kwargs, inputs, result)
        else:
            result = self.values.run(func, args, kwargs, inputs)
        if result is NotImplemented:
            return result

        if self.costs and (on_gpu or func is _aten.copy_.default):
            self.costs.add(self, func, args, kwargs, inputs, result)
        if on_gpu:
            with kernels.before_results(self, func, args, kwargs):
                for tensor in tensors_in(gpu_ops.on_gpu(func, result)):
                    self.track(tensor, name)
                    if converts:
                        self.conversions.add(self.recorder.find(tensor))
                kernels.take(self, func, args, kwargs, result)
        return result

    def _runs_on_gpu(self, func, device, inputs):
        """Returns true if an op's results are on the GPU. PyTorch's C++ code sees tensors on the GPU as being on the
        CPU, so a CPU as an op's device means nothing, unless the program itself copies (`copy_to`).
        """
        if self.host_is_gpu:
            return True
        if self.target is not None:
            return self.target.type == "cuda"
        if device is not None and device.type == "cuda":
            return True
        if not inputs:
            is_for_gradients = self.recorder.phase == "backward" or forward_ad._current_level >= 0
            return is_for_gradients and self.recorder.count > 0
        blocks = self.recorder.blocks
        if func is _aten.copy_.default:  # from the GPU, too
            return inputs[0].untyped_storage()._cdata in blocks
        return any(tensor.untyped_storage()._cdata in blocks for tensor in inputs)

    def _require_one_device(self, func, inputs):
        """Raises if inputs are on several devices, as PyTorch does for an op on a GPU; a single number may be on the
        CPU.
        """
        if len(inputs) < 2 or not gpu_ops.wants_one_device(func):
            return
        blocks = self.recorder.blocks
        for tensor in inputs:
            if tensor.dim() == 0 or tensor.numel() == 0:
                continue
            if tensor.untyped_storage()._cdata not in blocks:
                raise refusal(
                    "RuntimeError: Expected all tensors to be on the same device, but found at least two "
                    f"devices, {self.gpu.device} and cpu!"
                )

    def _converts_on_gpu(self, inputs):
        blocks = self.recorder.blocks
        return self.target is None and any(
            tensor.untyped_storage()._cdata in blocks for tensor in inputs
        )

    def copy_to(self, tensor, target, **options):
        """The program's own copy to another device."""
        with self.aimed_at(target):
            return _aten._to_copy(tensor, device=target, **options)

    @contextlib.contextmanager
    def aimed_at(self, device):
        """Gives the results of all ops of the body to a device."""
        outer, self.target = self.target, device
        try:
            yield
        finally:
            self.target = outer

    def track(self, tensor, name):
        """Follows the storage of a result on the GPU."""
        if not isinstance(tensor, FakeTensor):
            return
        storage = tensor.untyped_storage()
        block = self.recorder.blocks.get(storage._cdata)
        if block is None:
            self.recorder.track(storage, name)
        elif block.size != storage.nbytes():
            self.recorder.resize(storage)

    def _enter_node(self):
        node = torch._C._current_autograd_node()
        self.node = node
        self.recorder.node = None if node is None else node._sequence_nr()
        self.recorder.backward_module = None if node is None else self.nodes.get(self.recorder.node)

    # Memory of kernels and libraries.

    def temporaries(self, op, sizes, category=WORKSPACE):
        """Blocks that live no longer than the op that ran: all of them at once, freed in reverse."""
        with self.held(op, sizes, category):
            pass

    @contextlib.contextmanager
    def held(self, op, sizes, category=WORKSPACE):
        """Blocks that live while the body runs."""
        blocks = [self.recorder.allocate(size, op, category) for size in sizes if size > 0]
        yield blocks
        for block in reversed(blocks):
            self.recorder.free(block)

    def library_workspace(self, library, size):
        """Memory that a library takes at its first use by a thread and keeps."""
        thread = "backward" if self.recorder.phase == "backward" else "forward"
        key = (library, thread)
        if key not in self.library:
            block = self.recorder.allocate(size, library, LIBRARY)
            block.tensor = f"{library} workspace"
            self.library[key] = block

    # Modules and names.

    def enter_module(self, module):
        recorder = self.recorder
        if not recorder.modules or id(module) not in self._paths:
            paths = self.roots.get(id(module))
            if paths is None or paths[0] is not module:
                names = {
                    id(child): name for name, child in module.named_modules(remove_duplicate=True)
                }
                paths = self.roots[id(module)] = (module, names)
            if not recorder.modules:
                self._paths = paths[1]
                recorder.modules.append(type(module).__name__)
                return
        path = self._paths.get(id(module))
        recorder.modules.append(path or type(module).__name__)

    def leave_module(self, module):
        if self.recorder.modules:
            self.recorder.modules.pop()

    def note_weights(self, module):
        """Says what the weights of a module are that the program moves or converts: soon it may have others."""
        self.moved.add(module)
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.layout is torch.strided:
                self._label(self._find(tensor), WEIGHTS, "")

    def _find(self, tensor):
        return self.recorder.find(getattr(tensor, "_local_tensor", tensor))  # of a DTensor

    def name_tensors(self):
        """Names and categories of what modules and optimizers hold now."""
        find = self._find
        names = {}
        modules = [module for module, _ in self.roots.values()]
        for module in modules + [module for module in self.moved if module not in modules]:
            for name, parameter in module.named_parameters():
                names.setdefault(id(parameter), name)
                self._label(find(parameter), WEIGHTS, name)
                if parameter.grad is not None:
                    self._label(find(parameter.grad), GRADIENTS, name)
            for name, buffer in module.named_buffers():
                if isinstance(buffer, torch.Tensor):
                    self._label(find(buffer), WEIGHTS, name)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    name = names.get(id(parameter), "")
                    self._label(find(parameter), WEIGHTS, name)
                    if parameter.grad is not None:
                        self._label(find(parameter.grad), GRADIENTS, name)
                    for key, value in optimizer.state.get(parameter, {}).items():
                        if isinstance(value, torch.Tensor):
                            self._label(find(value), OPTIMIZER_STATE, f"{name} {key}".strip())

    @staticmethod
    def _label(block, category, name):
        if block is not None and block.category in (OTHER, category):
            block.category = category
            block.tensor = block.tensor or name

    def finish(self):
        """Categories of what modules and optimizers do not hold: by what it is a copy of, or when it was made and how
        long it lived.
        """
        for block, original in self.copied:
            if block.category == OTHER and original.category != OTHER:
                block.category, block.tensor = original.category, original.tensor
        freed = {}
        position = {}
        for index, event in enumerate(self.recorder.events):
            if event[0] == "a":
                position[event[1].number] = index
            elif event[0] == "f":
                freed[event[1].number] = index
        backward = [
            i
            for i, event in enumerate(self.recorder.events)
            if event[0] == "m" and event[2] == "backward"
        ]
        for event in self.recorder.events:
            if event[0] != "a" or event[1].category != OTHER:
                continue
            block = event[1]
            start = position[block.number]
            end = freed.get(block.number, len(self.recorder.events))
            if block.phase == "setup":
                block.category = INPUTS
            elif block.phase in ("forward", "evaluation"):
                next_backward = bisect.bisect_left(backward, start)
                is_saved = next_backward < len(backward) and end > backward[next_backward]
                is_input = not block.module and block.op in _SOURCES
                is_input = is_input and block not in self.conversions
                block.category = (
                    INPUTS if is_input else ACTIVATIONS if is_saved or block.module else WORKSPACE
                )
            elif block.phase == "backward":
                block.category = GRADIENTS if block.module is not None else WORKSPACE
            else:
                block.category = WORKSPACE


# Ops that make data: outside of modules their results are inputs.
_SOURCES = {
    "aten::_to_copy",
    "aten::randn",
    "aten::rand",
    "aten::randint",
    "aten::randint.low",
    "aten::zeros",
    "aten::ones",
    "aten::empty.memory_format",
    "aten::full",
    "aten::normal_",
    "aten::arange",
    "aten::randn.generator",
    "aten::rand.generator",
}
