"""Stands in for the GPU that a traced program talks to: torch.cuda, devices of tensors, copies, values.

All changes to PyTorch are made by `install` and undone by the ExitStack that it is given. Nothing is
changed while no trace runs.
"""

import types

import torch
from torch._subclasses.fake_tensor import FakeTensor

from . import distributed
from .errors import TraceError, data_dependent, user_line
from .values import Unknown

_CPU = torch.device("cpu")


class _Nothing:
    """A stream, event, graph pool or handle: takes every call and does nothing."""

    def __init__(self, *args, **kwargs):
        self.device = torch.device("cuda", 0)
        self.device_index = 0
        self.cuda_stream = 0
        self.priority = 0

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False

    def query(self):
        return True

    def elapsed_time(self, other):
        return Unknown("the time of an event")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def _patch(stack, owner, name, value):
    """Sets an attribute until the stack is closed."""
    missing = object()
    old = (
        owner.__dict__.get(name, missing)
        if isinstance(owner, type)
        else getattr(owner, name, missing)
    )
    setattr(owner, name, value)

    def undo():
        if old is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, old)

    stack.callback(undo)


def install(tracer, stack):
    _install_cuda(tracer, stack)
    _install_tensors(tracer, stack)
    _install_modules(tracer, stack)
    _install_training(tracer, stack)
    distributed.install(_patch, stack)
    _install_refusals(stack)


def _install_cuda(tracer, stack):
    gpu = tracer.gpu
    recorder = tracer.recorder
    cuda = torch.cuda
    properties = types.SimpleNamespace(
        name=gpu.title,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        total_memory=gpu.total_bytes,
        multi_processor_count=gpu.processors,
        max_threads_per_multi_processor=gpu.threads,
        warp_size=32,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName="",
        L2_cache_size=50 << 20,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
    )

    def statistics(*_):
        stats = {}
        for kind in ("allocated_bytes", "requested_bytes", "active_bytes", "reserved_bytes"):
            stats[f"{kind}.all.current"] = recorder.live_bytes
            stats[f"{kind}.all.peak"] = recorder.peak_bytes
        stats["num_alloc_retries"] = stats["num_ooms"] = 0
        return stats

    def reset_peak(*_):
        recorder.peak_bytes = recorder.live_bytes

    values = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "get_device_name": lambda *_: gpu.title,
        "get_device_capability": lambda *_: gpu.capability,
        "get_device_properties": lambda *_: properties,
        "set_device": lambda *_: None,
        "is_bf16_supported": lambda *_, **__: gpu.capability >= (8, 0),
        "is_current_stream_capturing": lambda: False,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "memory_allocated": lambda *_: recorder.live_bytes,
        "memory_reserved": lambda *_: recorder.live_bytes,
        "max_memory_allocated": lambda *_: recorder.peak_bytes,
        "max_memory_reserved": lambda *_: recorder.peak_bytes,
        "reset_peak_memory_stats": reset_peak,
        "reset_max_memory_allocated": reset_peak,
        "reset_accumulated_memory_stats": lambda *_: None,
        "memory_stats": statistics,
        "memory_summary": lambda *_, **__: "",
        "set_per_process_memory_fraction": lambda *_, **__: None,
        "mem_get_info": lambda *_: (gpu.total_bytes - recorder.live_bytes, gpu.total_bytes),
        "Stream": _Nothing,
        "Event": _Nothing,
        "ExternalStream": _Nothing,
        "stream": _Nothing,
        "StreamContext": _Nothing,
        "current_stream": _Nothing,
        "default_stream": _Nothing,
        "set_stream": lambda *_: None,
        "device": _Nothing,
        "device_of": _Nothing,
        "manual_seed": lambda *_: None,
        "manual_seed_all": lambda *_: None,
        "seed": lambda: None,
        "seed_all": lambda: None,
        "initial_seed": lambda: 0,
        "get_rng_state": lambda *_: None,
        "set_rng_state": lambda *_, **__: None,
        "get_rng_state_all": lambda: [],
        "set_rng_state_all": lambda *_: None,
        "get_arch_list": lambda: [f"sm_{gpu.capability[0]}{gpu.capability[1]}"],
        "utilization": lambda *_: 0,
    }
    for name, value in values.items():
        if hasattr(cuda, name):
            _patch(stack, cuda, name, value)
    for name in (
        "memory_allocated",
        "memory_reserved",
        "max_memory_allocated",
        "max_memory_reserved",
        "memory_stats",
        "reset_peak_memory_stats",
        "empty_cache",
        "mem_get_info",
    ):
        _patch(stack, cuda.memory, name, values[name])
    for name in ("_record_memory_history", "_dump_snapshot"):
        if hasattr(cuda.memory, name):
            _patch(stack, cuda.memory, name, lambda *_, **__: None)
    if hasattr(torch, "accelerator"):
        for name, value in {
            "is_available": lambda: True,
            "current_accelerator": lambda *_, **__: gpu.device,
            "device_count": lambda: 1,
            "synchronize": lambda *_: None,
            "current_device_index": lambda: 0,
        }.items():
            if hasattr(torch.accelerator, name):
                _patch(stack, torch.accelerator, name, value)
    if hasattr(torch.cuda, "nvtx"):
        for name in ("range_push", "range_pop", "mark"):
            _patch(stack, torch.cuda.nvtx, name, lambda *_, **__: None)


def _install_tensors(tracer, stack):
    """Fake tensors say which device they are on, move between devices, and know what values they have."""

    old_device = FakeTensor.device

    def device(tensor):
        if tracer.depth > 0 or tensor.fake_mode is not tracer.fake_mode:
            return old_device.fget(tensor)
        return tracer.device_of(tensor)

    _patch(stack, FakeTensor, "device", property(device))
    _patch(stack, FakeTensor, "is_cuda", property(lambda tensor: device(tensor).type == "cuda"))
    _patch(stack, FakeTensor, "is_cpu", property(lambda tensor: device(tensor).type == "cpu"))
    _patch(
        stack, FakeTensor, "get_device", lambda tensor: 0 if device(tensor).type == "cuda" else -1
    )
    _patch(stack, FakeTensor, "is_pinned", lambda tensor, *_: False)
    _patch(stack, FakeTensor, "pin_memory", lambda tensor, *_: tensor)
    _patch(stack, FakeTensor, "record_stream", lambda tensor, *_: None)

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

    _patch(stack, FakeTensor, "to", to)
    _patch(
        stack,
        FakeTensor,
        "cuda",
        lambda tensor, device=None, non_blocking=False, memory_format=None: move(
            tensor, torch.device("cuda", 0), None, non_blocking, False, memory_format
        ),
    )
    _patch(
        stack,
        FakeTensor,
        "cpu",
        lambda tensor, memory_format=None: move(tensor, _CPU, None, False, False, memory_format),
    )

    # Data goes to the GPU by a copy, as in PyTorch, which would look for a real one.
    def make(name):
        original = getattr(torch, name)

        def function(data, *args, **kwargs):
            device = kwargs.pop("device", None)
            requires_grad = kwargs.pop("requires_grad", False)
            if isinstance(data, FakeTensor):
                result = data.to(kwargs.get("dtype") or data.dtype)
            else:
                result = original(data, *args, **kwargs)
            if device is not None and torch.device(device).type == "cuda":
                result = move(result, torch.device("cuda", 0), None, False, False, None)
            return result.requires_grad_() if requires_grad else result

        return function

    for name in ("tensor", "as_tensor", "asarray"):
        _patch(stack, torch, name, make(name))

    def known(tensor):
        return tracer.values.of(tensor)

    def item(tensor):
        value = known(tensor)
        if value is not None:
            return value.item()
        if tensor.numel() != 1:
            raise RuntimeError(
                f"a Tensor with {tensor.numel()} elements cannot be converted to Scalar"
            )
        return Unknown("item()") if tensor.is_floating_point() else _unknown("item()")

    def _unknown(what):
        return Unknown(what)

    def read(name, what):
        def method(tensor, *args, **kwargs):
            value = known(tensor)
            if value is None:
                raise data_dependent(what)
            with torch.utils._python_dispatch._disable_current_modes():
                return getattr(value.detach(), name)(*args, **kwargs)

        return method

    _patch(stack, FakeTensor, "item", item)
    for name, what in {
        "tolist": "tolist()",
        "__bool__": "a condition on a tensor",
        "__int__": "int()",
        "__index__": "an index that is a tensor",
        "__float__": "float()",
        "numpy": "numpy()",
        "__array__": "numpy()",
        "__complex__": "complex()",
        "__contains__": "a test for an element",
    }.items():
        _patch(stack, FakeTensor, name, read(name, what))
    _patch(
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
            if getattr(tensor, "_is_param", False):
                found = torch.nn.Parameter(found, requires_grad=tensor.requires_grad)
            elif tensor.requires_grad:
                found.requires_grad_()
            memo[id(tensor)] = found
        return found

    _patch(stack, FakeTensor, "__deepcopy__", deepcopy)

    def equal(left, right):
        left, right = known(left), known(right)
        if left is None or right is None:
            raise data_dependent("torch.equal()")
        return original_equal(left, right)

    original_equal = torch.equal
    _patch(stack, torch, "equal", equal)
    # Libraries take other paths when they see a fake tensor; a trace wants the paths of a real run.
    _patch(stack, torch._subclasses, "FakeTensor", type("FakeTensor", (), {}))
    _patch(
        stack,
        torch.utils,
        "swap_tensors",
        lambda left, right: setattr(left, "data", right.detach()),
    )


def _install_modules(tracer, stack):
    module = torch.nn.modules.module
    before = module.register_module_forward_pre_hook(lambda m, args: tracer.enter_module(m))
    after = module.register_module_forward_hook(
        lambda m, args, output: tracer.leave_module(m), always_call=True
    )
    stack.callback(before.remove)
    stack.callback(after.remove)


def _install_training(tracer, stack):
    recorder = tracer.recorder

    # Backward.
    original = torch.autograd._engine_run_backward

    def run_backward(*args, **kwargs):
        if recorder.phase == "backward":  # nested: checkpointing
            return original(*args, **kwargs)
        phase = recorder.phase
        recorder.enter("backward")
        modules, recorder.modules = recorder.modules, []
        try:
            return original(*args, **kwargs)
        finally:
            recorder.modules = modules
            recorder.backward_module = None
            tracer.name_tensors(tracer.optimizers)
            recorder.enter(phase)

    _patch(stack, torch.autograd, "_engine_run_backward", run_backward)

    # Optimizers.
    from torch.optim import optimizer as optimizers

    tracer.optimizers = []

    def before_step(optimizer, args, kwargs):
        if not any(optimizer is known for known in tracer.optimizers):
            tracer.optimizers.append(optimizer)
        tracer.phase_before_step = recorder.phase
        recorder.enter("optimizer")

    def after_step(optimizer, args, kwargs):
        tracer.name_tensors(tracer.optimizers)
        recorder.enter(tracer.phase_before_step)

    handles = [
        optimizers.register_optimizer_step_pre_hook(before_step),
        optimizers.register_optimizer_step_post_hook(after_step),
    ]
    for handle in handles:
        stack.callback(handle.remove)

    # On a GPU optimizers and gradient clipping take lists of tensors; fake tensors are tensors to them.
    from torch.utils import _foreach_utils

    for owner in (optimizers, _foreach_utils):
        if hasattr(owner, "_foreach_supported_types"):
            _patch(
                stack,
                owner,
                "_foreach_supported_types",
                list(owner._foreach_supported_types) + [FakeTensor],
            )

    # A scaler of gradients looks at a flag whether to take the step: take it.
    from torch.amp import grad_scaler

    def maybe_step(scaler, optimizer, optimizer_state, *args, **kwargs):
        return optimizer.step(*args, **kwargs)

    _patch(stack, grad_scaler.GradScaler, "_maybe_opt_step", maybe_step)
    _patch(
        stack,
        grad_scaler.GradScaler,
        "get_scale",
        lambda scaler: Unknown("the scale of a GradScaler"),
    )

    # The data loader stays in this process: its workers would have real tensors.
    loader = torch.utils.data.DataLoader
    original_init = loader.__init__

    def init(self, *args, **kwargs):
        if len(args) > 5:
            args = args[:5] + (0,) + args[6:]
        kwargs.pop("num_workers", None)
        for name in (
            "pin_memory",
            "pin_memory_device",
            "prefetch_factor",
            "persistent_workers",
            "timeout",
            "multiprocessing_context",
        ):
            kwargs.pop(name, None)
        original_init(self, *args, **kwargs)

    _patch(stack, loader, "__init__", init)

    # Autocast: the GPU's state is the CPU's, whose rules are the GPU's (autocast.py).
    amp = torch.amp.autocast_mode.autocast
    original_autocast = amp.__init__

    def autocast_init(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if device_type == "cuda":
            dtype = dtype or torch.get_autocast_dtype("cuda")
            device_type = "cpu"
        original_autocast(
            self, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled
        )

    _patch(stack, amp, "__init__", autocast_init)
    enabled, get_dtype = torch.is_autocast_enabled, torch.get_autocast_dtype

    def is_enabled(device_type="cuda"):
        return enabled("cpu" if device_type == "cuda" else device_type)

    def current_dtype(device_type):
        return (
            get_dtype("cpu")
            if device_type == "cuda" and enabled("cpu")
            else get_dtype(device_type)
        )

    _patch(stack, torch, "is_autocast_enabled", is_enabled)
    _patch(stack, torch, "get_autocast_dtype", current_dtype)
    _patch(stack, torch, "get_autocast_gpu_dtype", lambda: current_dtype("cuda"))
    clear = torch.clear_autocast_cache

    def clear_cache():
        tracer.autocast.clear()
        clear()

    _patch(stack, torch, "clear_autocast_cache", clear_cache)


def _install_refusals(stack):
    def refuse_compile(*args, **kwargs):
        line = user_line()
        raise TraceError(
            f"{line + ': ' if line else ''}torch.compile cannot be traced: which buffers its kernels "
            "take is decided when they are compiled for a real GPU; trace the program without it "
            "(an upper bound for most models)"
        )

    _patch(stack, torch, "compile", refuse_compile)
    _patch(stack, torch.nn.Module, "compile", refuse_compile)
