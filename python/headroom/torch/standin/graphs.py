"""Graphs of modules (torch.jit.trace, torch.export, torch.onnx): PyTorch cannot write down those of fake tensors, and
none is needed. The function or module runs once where it does so there, and stands for its graph from then on.
"""

import copy

import torch

from ..errors import refusal
from .libraries import after_import
from .patch import patch, without_patches


class _Graph:
    """A graph without nodes, for TensorBoard and others that ask for one."""

    code = ""
    graph = inlined_graph = property(lambda self: torch._C.Graph())

    def __call__(self, *args, **kwargs):
        self.is_used()
        return super().__call__(*args, **kwargs)


class _Call:
    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


class _Function(_Graph, _Call):
    pass


class _Exported(_Graph, _Call):
    """A torch.export.ExportedProgram."""

    graph_module = property(lambda self: self.function)
    graph_signature = range_constraints = None

    def module(self):
        return self.function

    def run_decompositions(self, *_, **__):
        return self


def install(tracer, stack):
    def is_used(graph):
        tracer.assumed["what torch.jit.trace gives is traced as eager; fused kernels usually take less"] = True

    def of_module(module):
        traced = copy.copy(module)  # with the same parameters
        traced.__class__ = type(type(module).__name__, (_Graph, type(module)), {})
        return traced

    def trace(func, example_inputs=None, *_, example_kwarg_inputs=None, **__):
        if isinstance(func, torch.jit.ScriptModule):
            return func
        inputs = () if example_inputs is None else example_inputs
        if isinstance(inputs, (torch.Tensor, dict)):
            inputs = (inputs,)
        func(*inputs, **(example_kwarg_inputs or {}))
        return of_module(func) if isinstance(func, torch.nn.Module) else _Function(func)

    def trace_module(mod, inputs, *_, **__):
        for name, given in inputs.items():
            getattr(mod, name)(*(given if isinstance(given, tuple) else (given,)))
        return of_module(mod)

    def unless_ours(original):
        """A function of torch.jit that leaves what we traced as it is."""
        return lambda obj, *args, **kwargs: obj if isinstance(obj, _Graph) else original(obj, *args, **kwargs)

    def onnx_export(model, args=(), f=None, *_, kwargs=None, **__):
        model(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
        if f is not None:
            torch.save(None, f)

    def export(mod, args=(), kwargs=None, **__):
        return _Exported(mod)

    saved = {}  # path -> module

    def write(module, file, *_, **__):
        saved[str(file)] = module
        torch.save(None, file)

    def load(f, map_location=None, *_, **__):
        module = saved.get(str(f))
        if module is None:
            raise refusal(
                "a file of TorchScript cannot be traced, as its code is not Python; build the module in Python and load "
                "its weights"
            )
        return module.to(map_location) if map_location is not None else module

    after_import(
        stack,
        {
            "torch.onnx": lambda module: patch(stack, module, "export", onnx_export),
            "torch.export": lambda module: [
                patch(stack, module, name, value)
                for name, value in (("export", export), ("save", lambda program, f, **_: torch.save(None, f)))
            ],
        },
    )
    patch(stack, torch.jit, "trace", trace)
    patch(stack, torch.jit, "trace_module", trace_module)
    compile_script = torch.jit.script

    def script(obj, *args, **kwargs):
        with without_patches(lambda owner, _: owner in (torch.nn.Linear, torch.nn.functional)):  # which it cannot compile
            return compile_script(obj, *args, **kwargs)

    patch(stack, torch.jit, "script", unless_ours(script))
    for name in ("freeze", "optimize_for_inference"):
        patch(stack, torch.jit, name, unless_ours(getattr(torch.jit, name)))
    patch(stack, torch.jit, "save", write)
    patch(stack, torch.jit, "load", load)
    patch(stack, torch.jit.RecursiveScriptModule, "save", write)
    patch(stack, _Graph, "save", write)
    patch(stack, _Graph, "is_used", is_used)
