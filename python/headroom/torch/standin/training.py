"""The parts of a training that the tracer follows: modules, backward, optimizers, scalers, data loaders."""

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.amp import grad_scaler
from torch.optim import optimizer as optimizers
from torch.utils import _foreach_utils

from ..recurrent import flatten_parameters
from ..unknown import UnknownNumber
from .patch import patch


def install(tracer, stack):
    _follow_modules(tracer, stack)
    _follow_backward(tracer, stack)
    _follow_optimizers(tracer, stack)
    _take_lists_of_tensors(stack)
    _take_every_scaled_step(stack)
    _load_data_in_this_process(stack)
    _fill_weights_at_once(stack)
    _take_lengths_as_tensors(stack)
    patch(stack, torch.nn.RNNBase, "flatten_parameters", flatten_parameters)


def _follow_modules(tracer, stack):
    module = torch.nn.modules.module
    before = module.register_module_forward_pre_hook(lambda m, args: tracer.enter_module(m))
    after = module.register_module_forward_hook(
        lambda m, args, output: tracer.leave_module(m), always_call=True
    )
    stack.callback(before.remove)
    stack.callback(after.remove)
    original = torch.nn.Module._apply
    depth = 0

    def apply(self, *args, **kwargs):
        nonlocal depth
        if depth == 0:
            _make_fake(tracer, self)
            tracer.note_weights(self)
        depth += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            depth -= 1
            if depth == 0:
                tracer.note_weights(self)

    patch(stack, torch.nn.Module, "_apply", apply)


def _make_fake(tracer, module):
    """Makes parameters that a checkpoint gave fake ones before they are moved: PyTorch changes a parameter only to a
    tensor of the same kind, else it makes a new one, and tied ones would be two.
    """
    made = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is None or isinstance(parameter, FakeTensor) or hasattr(parameter, "__tensor_flatten__"):
                continue
            if parameter not in made:
                fake = tracer.values.as_fake(parameter)
                made[parameter] = torch.nn.Parameter(fake, parameter.requires_grad)
            part._parameters[name] = made[parameter]


def _follow_backward(tracer, stack):
    recorder = tracer.recorder
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
            tracer.name_tensors()
            recorder.enter(phase)

    patch(stack, torch.autograd, "_engine_run_backward", run_backward)


def _follow_optimizers(tracer, stack):
    recorder = tracer.recorder

    def before_step(optimizer, args, kwargs):
        if not any(optimizer is known for known in tracer.optimizers):
            tracer.optimizers.append(optimizer)
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    tracer.values.mark_weight(parameter)
        tracer.phase_before_step = recorder.phase
        recorder.enter("optimizer")

    def after_step(optimizer, args, kwargs):
        tracer.name_tensors()
        recorder.enter(tracer.phase_before_step)

    handles = [
        optimizers.register_optimizer_step_pre_hook(before_step),
        optimizers.register_optimizer_step_post_hook(after_step),
    ]
    for handle in handles:
        stack.callback(handle.remove)


def _take_lists_of_tensors(stack):
    """On a GPU optimizers and gradient clipping take lists of tensors; fake tensors are tensors to them."""
    for owner in (optimizers, _foreach_utils):
        if hasattr(owner, "_foreach_supported_types"):
            patch(
                stack,
                owner,
                "_foreach_supported_types",
                list(owner._foreach_supported_types) + [FakeTensor],
            )


def _take_every_scaled_step(stack):
    """A GradScaler looks at a flag on the GPU to decide whether to take the step: it takes it."""

    def maybe_step(scaler, optimizer, optimizer_state, *args, **kwargs):
        return optimizer.step(*args, **kwargs)

    patch(stack, grad_scaler.GradScaler, "_maybe_opt_step", maybe_step)
    patch(
        stack,
        grad_scaler.GradScaler,
        "get_scale",
        lambda scaler: UnknownNumber("the scale of a GradScaler"),
    )


def _fill_weights_at_once(stack):
    """From PyTorch 2.15 on a truncated normal distribution draws again until all values lie within its bounds."""

    def fill(tensor, mean, std, *args, **kwargs):
        with torch.no_grad():
            return tensor.normal_(mean, std)

    patch(stack, torch.nn.init, "_no_grad_trunc_normal_", fill)


def _take_lengths_as_tensors(stack):
    """Copies the CTC loss's lengths into tensors first: PyTorch would copy them in C++, where fake tensors have no
    memory.
    """
    original = torch.ctc_loss

    def ctc_loss(log_probs, targets, *lengths_and_rest, **kwargs):
        def as_tensor(value):
            return torch.tensor(value) if isinstance(value, (list, tuple)) else value

        rest = [as_tensor(value) for value in lengths_and_rest]
        kwargs = {name: as_tensor(value) for name, value in kwargs.items()}
        return original(log_probs, targets, *rest, **kwargs)

    patch(stack, torch, "ctc_loss", ctc_loss)


def _load_data_in_this_process(stack):
    """The workers of a data loader would have real tensors."""
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

    patch(stack, loader, "__init__", init)
