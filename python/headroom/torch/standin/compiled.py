"""torch.compile without a GPU: PyTorch's own compiler chooses buffers, and their code runs on fake tensors.

Dynamo, AOTAutograd and Inductor run as on the GPU (compiler.py) up to the code that allocates, calls kernels and frees.
That code runs then: its kernels do nothing, and what it calls of libraries is recorded as any other op. What cannot be
compiled runs as it is written.
"""

import ast
import contextlib
import copy
import math
import warnings

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import one_line
from .patch import patch, without_patches

_LESS = "compiled kernels usually take less"
# Modes, and what of them is left out.
_LEFT_OUT = {
    "reduce-overhead": "what a pool of CUDA graphs keeps",
    "max-autotune": "what a pool of CUDA graphs keeps, and what its chosen kernels take",
    "max-autotune-no-cudagraphs": "what its chosen kernels take",
}
_OPTIONS_LEFT_OUT = ("triton.cudagraphs", "max_autotune", "max_autotune_gemm")
_MOST_REASON = 160
# Multiplications for each element that a product reads or writes, above which an H200 is bound by computing: half of
# those that it does while it moves an element (is_mm_compute_bound in pad_mm.py).
_BALANCE_OF_HALF, _BALANCE_OF_TF32 = 100, 50
_NODES_PER_SECOND = 15  # of a graph that is compiled
_SAID_SECONDS = 2
_DEVICES_OF_TENSORS = ("device", "is_cuda", "is_cpu", "get_device")


def _is_undone(owner, name):
    """Returns true for changes to PyTorch, without the devices of fake tensors, and for those to max() and min()."""
    if owner is FakeTensor:
        return name not in _DEVICES_OF_TENSORS
    where = getattr(owner, "__module__" if isinstance(owner, type) else "__name__", None) or ""
    return where.partition(".")[0] == "torch" or (where == "builtins" and name in ("max", "min"))


def unpatched():
    """PyTorch as it is, in the body."""
    return without_patches(_is_undone)


class Compiled:
    """Compiles functions of a traced program. `refused` says why nothing is compiled, where it is not empty."""

    def __init__(self, tracer, refused=""):
        self._tracer = tracer
        self._compiler = None
        self.refused = refused
        self.is_used = False  # something that was compiled has run

    def mark(self, error):
        """Says of an error that ends a trace that something compiled ran before it: it is to be traced once more."""
        if self.is_used and not self.refused:
            error.after_compiling = one_line(error)
        return error

    def refuse(self, error):
        """Compiles nothing more if an error says so. Returns true if the program is to be traced once more."""
        self.refused = self.refused or getattr(error, "after_compiling", "")
        return hasattr(error, "after_compiling")

    def reason(self):
        """Returns why nothing is compiled; "" where it is."""
        return self.refused or ("the times of its kernels are wanted" if self._tracer.costs else "")

    def as_eager(self, what, reason=""):
        reason = " ".join(reason.split())
        if len(reason) > _MOST_REASON:
            reason = reason[:_MOST_REASON] + "..."
        because = f" ({reason})" if reason else ""
        self._tracer.assumed[f"{what} is traced as eager; {_LESS}{because}"] = True

    def install(self, stack):
        original = torch.compile

        def compile(model=None, *, backend="inductor", disable=False, **options):
            if model is None:  # a decorator with options
                return lambda function: compile(function, backend=backend, disable=disable, **options)
            if disable:
                return model
            reason = self.reason()
            if not reason and backend != "inductor":
                reason = f"backend {getattr(backend, '__name__', backend)}"
            if not reason:
                try:
                    return self._compile(original, getattr(model, "compiled_form", model), **options)
                except Exception as error:  # another version of PyTorch
                    reason = one_line(error)
            self.as_eager("torch.compile", reason)
            if isinstance(model, torch.nn.Module):
                vars(model).setdefault("_orig_mod", model)  # as programs ask a compiled module for
            return model

        patch(stack, torch, "compile", compile)

    def hooks(self, stack):
        """Returns the hook of Dynamo's module, for what the program compiles, whenever it says so."""

        def convert_frames(module):
            original = module.CatchErrorsWrapper.__call__

            def convert(wrapper, *args):
                if self._compiler is None:
                    with unpatched():
                        from .compiler import Compiler
                    self._compiler = Compiler(self._tracer, stack, self)
                return self._compiler.convert(original, wrapper, *args)

            patch(stack, module.CatchErrorsWrapper, "__call__", convert)

        return {"torch._dynamo.convert_frame": convert_frames}

    def _compile(self, original, model, fullgraph=False, dynamic=None, mode=None, options=None):
        if mode in _LEFT_OUT:
            self._tracer.assumed[f"torch.compile(mode='{mode}') is traced without {_LEFT_OUT[mode]}"] = True
            mode = None
        options = {name: value for name, value in (options or {}).items() if name not in _OPTIONS_LEFT_OUT}
        warnings.filterwarnings("ignore", "Using `torch.compile.module.` when there are global hooks")  # of the trace
        with unpatched(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if mode is not None:
                options = {**torch._inductor.list_mode_options(mode, dynamic), **options}
            return original(model, fullgraph=fullgraph, dynamic=dynamic, options=options or None)

    def announce(self, nodes):
        """Says what compiling a graph takes, where that is long."""
        computing, seconds = self._tracer.values.computing, nodes / _NODES_PER_SECOND
        if seconds > _SAID_SECONDS and not computing.is_quiet:
            computing.say(f"compiles a graph of {nodes} nodes without a GPU, about {seconds:.0f} s")

    # Functions that compiled code calls.

    def empty_strided(self, size, stride, dtype):
        return torch.empty_strided(size, stride, dtype=dtype, device=self._tracer.gpu.device)

    def reinterpret(self, tensor, size, stride, offset=0):
        return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)

    def is_padded(self, mat1, mat2, op, padded_length, alignment_of):
        """Returns true if a product of odd sizes is padded, which PyTorch decides by timing both where it is bound by
        computing. The padded one takes less time in half precision, and in single precision where the sums are odd.
        """
        *batch, m, k, n = (_known(size) for size in (*mat1.shape, mat2.shape[-1]))
        is_half = mat1.dtype in (torch.float16, torch.bfloat16)
        is_tf32 = mat1.dtype is torch.float32 and torch.backends.cuda.matmul.allow_tf32
        if m * n * k <= (_BALANCE_OF_HALF if is_half else _BALANCE_OF_TF32 if is_tf32 else 7) * (m * k + k * n + m * n):
            return False
        padded = [size + padded_length(size, alignment_of(mat1)) for size in (m, k, n)]
        count = math.prod(batch) * mat1.element_size()
        tracer, name = self._tracer, str(op)
        with tracer.held(name, [m * k * count, k * n * count]):
            tracer.library_workspace("cuBLAS", tracer.gpu.blas_workspace_bytes)
            for sizes in ([m * n], [padded[0] * padded[1], padded[1] * padded[2], padded[0] * padded[2]]):
                sizes = [size * count for size in sizes]
                tracer.temporaries(name, sizes)
                with tracer.held(name, [tracer.gpu.cache_bytes]):
                    tracer.temporaries(name, sizes)
        return is_half or padded[1] > k

    def kernel(self, name, source):
        return _Kernel(self._tracer, name, source)


def _known(size):
    """A size, or that which stands for all sizes of a dimension."""
    return size.node.hint if isinstance(size, torch.SymInt) else size


class _Kernel:
    """A kernel that Inductor has written in Triton. `run` writes unknown values; the first one times its configurations
    (CachingAutotuner.benchmark_all_configs), where it has several.
    """

    def __init__(self, tracer, name, source):
        self._tracer, self._name = tracer, f"triton::{name}"
        functions = [part for part in ast.parse(source).body if isinstance(part, ast.FunctionDef)]
        # Others are its parts.
        function = next(part for part in functions if isinstance(part.decorator_list[0], ast.Call))
        names = [argument.arg for argument in function.args.args]
        self._written = [index for index, name in enumerate(names) if name.startswith(("out_ptr", "in_out_ptr"))]
        call = function.decorator_list[0]
        options = {word.arg: word.value for word in call.keywords}
        facts = ast.literal_eval(_without_calls(options["inductor_meta"])) if "inductor_meta" in options else {}
        mutated = facts.get("mutated_arg_names", ())
        self._mutated = [index for index, name in enumerate(names) if name in mutated]
        self._spares_memory = facts.get("optimize_mem", True)
        self._is_timed = _count_configurations(call) > 1

    def run(self, *args, **kwargs):
        if self._is_timed:
            self._is_timed = False
            self._time([args[index] for index in self._mutated if isinstance(args[index], torch.Tensor)])
        for index in self._written:
            if index < len(args) and isinstance(args[index], torch.Tensor):
                self._tracer.values.forget(args[index])

    def _time(self, mutated):
        """Tensors that the kernel changes are copied, to the CPU where the copies would exceed the peak so far; a buffer
        of the size of the cache is cleared before each run.
        """
        tracer, recorder = self._tracer, self._tracer.recorder
        budget, copies = recorder.peak_bytes - recorder.live_bytes, []
        for tensor in mutated:
            size = 1 + sum((n - 1) * stride for n, stride in zip(tensor.size(), tensor.stride()))
            size = size * tensor.element_size() if tensor.numel() else 0
            if not self._spares_memory or size <= budget:
                budget -= size
                copies.append(size)
        tracer.temporaries(self._name, copies)
        with tracer.held(self._name, [tracer.gpu.cache_bytes]):
            tracer.temporaries(self._name, copies)


def _without_calls(node):
    """A literal in which calls are None."""

    class Literal(ast.NodeTransformer):
        def visit_Call(self, call):
            return ast.copy_location(ast.Constant(None), call)

    return Literal().visit(copy.deepcopy(node))


def _count_configurations(call):
    """Returns the number of configurations that Inductor's heuristic, whose call is given, has for a kernel."""
    from torch._inductor.runtime import hints, triton_heuristics

    found = []
    with contextlib.ExitStack() as stack:
        patch(stack, triton_heuristics, "cached_autotune", lambda _, configs, **__: found.append(configs))
        code = compile(ast.Expression(call), "<kernel>", "eval")
        eval(code, {**vars(hints), "triton_heuristics": triton_heuristics, "__file__": "kernel"})
    return len(triton_heuristics.unique_configs(found[0])) if found else 1


@contextlib.contextmanager
def without_hooks():
    """No hooks of all modules in the body: Dynamo would trace those of the trace."""
    module = torch.nn.modules.module
    kept = [(hooks, dict(hooks)) for hooks in (module._global_forward_pre_hooks, module._global_forward_hooks)]
    for hooks, _ in kept:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, values in kept:
            hooks.update(values)
