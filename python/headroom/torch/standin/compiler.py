"""PyTorch's compiler on a machine without a GPU: what Dynamo, AOTAutograd and Inductor ask the GPU for.

Tensors are fake ones "on cuda", of which PyTorch's C++ code believes that they are on "meta": autograd's engine would
look for the streams of a GPU. Whatever else a trace changes in PyTorch is undone while it compiles.
"""

import contextlib
import functools
import logging
import os
import tempfile
import types
import warnings

import torch
from torch._dynamo import convert_frame, device_interface, trace_rules
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.variables.optimizer import OptimizerVariable
from torch._dynamo.types import FrameAction, FrameExecStrategy
from torch._inductor import async_compile, config
from torch._inductor.fx_passes import joint_graph, pad_mm
from torch._subclasses import fake_tensor, functional_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental import proxy_tensor
from torch.utils import _triton

from .. import attention, autocast
from ..recorder import is_own_file
from .compiled import unpatched, without_hooks
from .cuda import OneDevice
from .patch import patch, patch_all

_META = torch.device("meta")
_DEVICE_OF = torch.ops.prim.device.default
_SKIPPED = convert_frame.ConvertFrameReturn(FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))
_GUARDED = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.CodeType, types.ModuleType, type)


class Compiler:
    """Prepares PyTorch until the stack is closed. `compiled` (compiled.py) has what compiled code calls."""

    def __init__(self, tracer, stack, compiled):
        self._tracer = tracer
        self._compiled = compiled
        self._properties = torch.cuda.get_device_properties()
        library = torch.library.Library("aten", "IMPL")
        stack.callback(library._destroy)
        self._register(library)
        settings = dict(compile_threads=1, force_disable_caches=True, size_asserts=False, alignment_asserts=False)
        settings = {name: value for name, value in settings.items() if hasattr(config, name)}
        stack.enter_context(config.patch(settings))
        stack.enter_context(torch._functorch.config.patch(force_non_lazy_backward_lowering=True))
        patch(stack, torch.cuda, "_DeviceGuard", OneDevice)
        patch(stack, FakeTensor, "data_ptr", _data_ptr)
        torch._dynamo.reset()  # what is compiled belongs to this trace
        stack.callback(torch._dynamo.reset)

    def _register(self, library):
        """Makes the GPU's choices, for which PyTorch asks its C++ code about tensors; real tensors of the GPU, such as
        constants, are on the CPU.
        """
        for key in ("AutogradCUDA", "CUDA"):
            library.impl("scaled_dot_product_attention", attention.make_attention(self._tracer), key)
            library.impl("dropout", attention.dropout, key)
        autocast.register(library, "cuda", autocast.Autocast())

        def empty(size, *, dtype=None, **_):
            return torch.empty(size, dtype=dtype, device="cpu")

        def empty_strided(size, stride, *, dtype=None, **_):
            return torch.empty_strided(size, stride, dtype=dtype, device="cpu")

        library.impl("empty.memory_format", empty, "CUDA")
        library.impl("empty_strided", empty_strided, "CUDA")

    def convert(self, original, wrapper, frame, *args):
        """Returns what Dynamo makes of a frame; as it is written where that fails."""
        if trace_rules.check(frame.f_code):
            return original(wrapper, frame, *args)
        if is_own_file(frame.f_code.co_filename):
            return _SKIPPED
        reason = self._compiled.reason()
        if not reason:
            try:
                with self.compiling():
                    made = original(wrapper, frame, *args)
                self._compiled.is_used |= made.guarded_code is not None
                return made
            except Exception as error:
                reason = str(error).strip().split("\n")[0] or type(error).__name__
        self._compiled.as_eager(frame.f_code.co_name, reason)
        return _SKIPPED

    @contextlib.contextmanager
    def compiling(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(without_hooks())
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            if "TORCH_LOGS" not in os.environ:
                stack.callback(logging.disable, logging.root.manager.disable)
                logging.disable(logging.ERROR)
            running = stack.enter_context(unpatched())
            # The files are loaded at once.
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="torchinductor-"))
            old = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
            stack.callback(_set_variable, "TORCHINDUCTOR_CACHE_DIR", old)
            _set_variable("TORCHINDUCTOR_CACHE_DIR", folder)
            self._answer_for_gpu(stack)
            self._hide_gpu(stack)
            self._guard_no_functions(stack)
            self._follow_optimizers(stack, running)
            self._stop_before_kernels(stack)
            yield

    def _answer_for_gpu(self, stack):
        capability = self._tracer.gpu.capability
        zero = lambda *_: 0
        values = {
            "_lazy_init": lambda: None,
            "_initialized": True,
            "_DeviceGuard": OneDevice,
            "_exchange_device": zero,
            "_maybe_exchange_device": zero,
            "device_count": lambda: 1,
            "is_tf32_supported": lambda: capability >= (8, 0),
            "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
            "set_rng_state": lambda *_: None,
        }
        patch_all(stack, torch.cuda, values)
        patch(stack, torch.cuda, "_get_device_properties", lambda *_: self._properties)
        values = {
            "_cuda_getCurrentRawStream": zero,
            "_cuda_getDevice": zero,
            "_cuda_getDeviceCount": lambda: 1,
            "_cuda_setDevice": lambda *_: None,
            "_get_accelerator": lambda *_: self._tracer.gpu.device,
        }
        patch_all(stack, torch._C, values)
        if hasattr(torch, "accelerator"):
            patch_all(stack, torch.accelerator, {"is_available": lambda: False})
        properties = device_interface.caching_worker_device_properties
        stack.callback(properties.pop, "cuda", None)
        properties["cuda"] = [self._properties]
        patch(stack, fake_tensor, "init_gpu_context", lambda *_: None)
        patch(stack, FakeTensorMode, "avoid_device_init", property(lambda _: True))
        only_host = torch._C._only_lift_cpu_tensors()
        stack.callback(torch._C._set_only_lift_cpu_tensors, only_host)
        torch._C._set_only_lift_cpu_tensors(True)

    def _hide_gpu(self, stack):
        """PyTorch's C++ code sees tensors of the GPU on "meta"; what it makes there is for the GPU."""
        gpu = self._tracer.gpu.device
        original = FakeTensor.__dict__["__torch_dispatch__"].__func__

        def device_of(args):
            is_hidden = args[0].fake_mode.in_kernel_invocation or args[0].fake_device.type == "cuda"
            return _META if is_hidden else args[0].fake_device

        def dispatch(kind, func, types, args=(), kwargs=types.MappingProxyType({})):
            return device_of(args) if func is _DEVICE_OF else original(kind, func, types, args, kwargs)

        patch(stack, FakeTensor, "__torch_dispatch__", classmethod(dispatch))
        handlers = fake_tensor._DISPATCH_META_HANDLERS
        stack.callback(handlers.__setitem__, _DEVICE_OF, handlers[_DEVICE_OF])
        handlers[_DEVICE_OF] = device_of

        wrapper = functional_tensor.FunctionalTensor
        make = torch.Tensor._make_wrapper_subclass

        def make_wrapper(kind, *args, **kwargs):
            if kind is wrapper and args[6] == _META:  # its keys are the GPU's, and it is asked for its device
                args = (*args[:6], gpu, *args[7:10], True, *args[11:])
            return make(kind, *args, **kwargs)

        patch(stack, torch.Tensor, "_make_wrapper_subclass", staticmethod(make_wrapper))
        patch(stack, wrapper, "device", property(lambda tensor: torch._from_functional_tensor(tensor.elem).device))
        for name in ("cuda", "cpu", "meta", "xpu"):
            is_there = property(lambda tensor, name=name: tensor.device.type == name)
            patch(stack, FakeTensor, f"is_{name}", is_there)
            patch(stack, wrapper, f"is_{name}", is_there)

        def aimed(original):
            def run(mode, func, types, args=(), kwargs=None):
                device = kwargs.get("device") if kwargs else None
                if device is not None and torch.device(device) == _META:
                    kwargs = {**kwargs, "device": gpu}
                return original(mode, func, types, args, kwargs or {})

            return run

        for mode in (FakeTensorMode, functional_tensor.FunctionalTensorMode, proxy_tensor.ProxyTorchDispatchMode):
            patch(stack, mode, "__torch_dispatch__", aimed(mode.__torch_dispatch__))

    def _follow_optimizers(self, stack, running):
        """An optimizer's hooks run between what is compiled, and its states are made while the program runs."""
        for kind in _subclasses(torch.optim.Optimizer):
            if getattr(kind.step, "hooked", False):
                torch._dynamo.disable(kind.step, recursive=False)
        call_method = OptimizerVariable.call_method

        def call(variable, translator, name, args, kwargs):
            optimizer = variable.value
            if name != "_init_group" or not hasattr(optimizer, name):
                return call_method(variable, translator, name, args, kwargs)
            init_group = optimizer._init_group

            def init(*args, **kwargs):
                with running(), self._tracer:
                    return init_group(*args, **kwargs)

            optimizer._init_group = init
            try:
                return call_method(variable, translator, name, args, kwargs)
            finally:
                del optimizer._init_group

        patch(stack, OptimizerVariable, "call_method", call)

    def _guard_no_functions(self, stack):
        """A trace replaces functions of PyTorch, whose guards would refuse compiled code while the program runs."""

        def loose(original):
            @functools.wraps(original)
            def guard_on(builder, guard, *args, **kwargs):
                if not isinstance(builder.get(guard), _GUARDED):
                    original(builder, guard, *args, **kwargs)

            return guard_on

        for name in ("ID", "FUNCTION", "BUILTIN", "CLOSURE", "CLASS", "MODULE"):
            patch(stack, GuardBuilder, f"{name}_MATCH", loose(getattr(GuardBuilder, f"{name}_MATCH")))

    def _stop_before_kernels(self, stack):
        """Inductor's code is loaded, and no kernel is compiled or timed."""
        compiled = self._compiled

        def triton(_, name, source, *args, **kwargs):
            return compiled.kernel(name, source)

        patch(stack, async_compile.AsyncCompile, "triton", triton)
        guards = torch._C._dynamo.guards
        patch(stack, guards, "_empty_strided_cuda", compiled.empty_strided)
        patch(stack, guards, "_reinterpret_tensor", compiled.reinterpret)
        patch(stack, _triton, "triton_hash_with_backend", lambda: "none")
        lazy_init = joint_graph.lazy_init  # makes small tensors to trace patterns with
        patch(stack, joint_graph, "lazy_init", lambda *_: lazy_init(torch.device("cpu")))
        compile_graph = torch._TorchCompileInductorWrapper.__call__

        def announced(wrapper, graph, inputs):
            compiled.announce(len(graph.graph.nodes))
            return compile_graph(wrapper, graph, inputs)

        patch(stack, torch._TorchCompileInductorWrapper, "__call__", announced)

        def should_pad(match, mat1, mat2, op, input=None):
            return compiled.is_padded(mat1, mat2, op, pad_mm.get_padded_length, pad_mm.get_alignment_size)

        patch(stack, pad_mm, "_should_pad", should_pad)


def _subclasses(kind):
    return [kind, *(other for part in kind.__subclasses__() for other in _subclasses(part))]


def _set_variable(name, value):
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _data_ptr(tensor):
    """An address whose distance to the start of the storage is right: Inductor copies what is not aligned."""
    return (tensor.untyped_storage()._cdata << 9) + tensor.storage_offset() * tensor.element_size()
