"""Parts of libraries that are changed as soon as a program imports them."""

import importlib.machinery
import sys

from ..errors import refusal
from . import flex, parameters, triton
from .patch import patch


class _Finder:
    """Finds modules as Python does, and calls a hook with each one that has one, once it is there."""

    def __init__(self, hooks):
        self.hooks = hooks

    def find_spec(self, name, path=None, target=None):
        hook = self.hooks.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path) if hook else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            hook(module)

        spec.loader.exec_module = exec_module
        return spec


def after_import(stack, hooks):
    """Calls hooks, {name of a module: function of the module}, for modules that are there, and when others are imported."""
    for name, hook in hooks.items():
        if name in sys.modules:
            hook(sys.modules[name])
    finder = _Finder(hooks)
    sys.meta_path.insert(0, finder)
    stack.callback(sys.meta_path.remove, finder)


def install(tracer, stack):
    """For all traced programs."""

    def accelerate_random(module):
        # The states of random numbers are not sent between ranks: a trace has one.
        patch(stack, module, "synchronize_rng_state", lambda *_, **__: None)

    def transformers_loading(module):
        # Weights are loaded one after the other: a trace follows one thread.
        original = module.is_env_variable_true

        def is_true(name, *args):
            return name == "HF_DEACTIVATE_ASYNC_LOAD" or original(name, *args)

        patch(stack, module, "is_env_variable_true", is_true)

    def numpy(module):
        # Unknown numbers are NaN, of which there is no histogram to log.
        original = module.histogram

        def histogram(a, *args, **kwargs):
            a = module.asarray(a)
            return original(module.where(a == a, a, 0), *args, **kwargs)

        patch(stack, module, "histogram", histogram)

    def cpp_extension(module):
        def unless_it_fails(original):
            def load(name, *args, **kwargs):
                try:
                    return original(name, *args, **kwargs)
                except Exception as error:  # no compiler, or none that finds the files of a traced program
                    raise refusal(
                        f"the extension {name} is C++ or CUDA code of the program, which cannot be built without a GPU "
                        "and takes memory that a trace does not see; take the program's way without it"
                    ) from error

            return load

        for name in ("load", "load_inline"):
            patch(stack, module, name, unless_it_fails(getattr(module, name)))

    after_import(
        stack,
        {
            "numpy": numpy,
            "torch.utils.cpp_extension": cpp_extension,
            **parameters.bitsandbytes(tracer, stack),
            **triton.kernels(tracer, stack),
            **flex.flex(tracer, stack),
            **tracer.compiled.hooks(stack),
            "accelerate.utils.random": accelerate_random,
            "transformers.core_model_loading": transformers_loading,
        },
    )


def read_copies(stack, sandbox):
    """Lets libraries that open files by C++ find those that the program wrote."""

    def pyarrow(module):
        def follow(name):
            original = getattr(module, name)

            def opened(path, mode="r", *args, **kwargs):
                reads = "r" in mode and "+" not in mode
                place = sandbox.to_read(path) if reads else sandbox.to_write(path)
                return original(place, mode, *args, **kwargs)

            patch(stack, module, name, opened)

        for name in ("memory_map", "OSFile"):
            follow(name)

    after_import(stack, {"pyarrow": pyarrow})


def shorten_trainings(stack, steps):
    """Lets trainers that count their own steps evaluate after the last one that is traced; see steps.Steps."""

    def transformers_callbacks(module):
        flow = module.DefaultFlowCallback
        original = flow.on_step_end

        def on_step_end(self, args, state, control, **kwargs):
            control = original(self, args, state, control, **kwargs)
            if steps.is_finished:
                control.should_evaluate = getattr(args.eval_strategy, "value", "no") != "no"
                control.should_training_stop = True
            return control

        patch(stack, flow, "on_step_end", on_step_end)

    def lightning_loop(module):
        original = module._FitLoop.setup_data

        def setup_data(loop):
            trainer = loop.trainer
            most = steps.wanted * trainer.accumulate_grad_batches
            for name, batches in (("limit_train_batches", most), ("limit_val_batches", 2)):
                given = getattr(trainer, name)
                if type(given) is not int or given > batches:
                    setattr(trainer, name, batches)
            trainer.val_check_interval = 1.0  # after the last of them
            return original(loop)

        patch(stack, module._FitLoop, "setup_data", setup_data)

    after_import(
        stack,
        {
            "transformers.trainer_callback": transformers_callbacks,
            "lightning.pytorch.loops.fit_loop": lightning_loop,
            "pytorch_lightning.loops.fit_loop": lightning_loop,
        },
    )
