"""Parts of libraries that are changed as soon as a program imports them."""

import functools
import importlib.machinery
import os
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


# {module: {function that opens a file without Python's open(): "r" reads it, "w" writes it, "m" says its mode}}
_OPEN_BY_THEMSELVES = {
    "pyarrow": {"memory_map": "m", "OSFile": "m"},
    "h5py": {"File.__init__": "m"},
    "cv2": {"imread": "r", "VideoCapture": "r", "imwrite": "w", "VideoWriter": "w"},
    "sqlite3": {"connect": "w"},
    "sqlite3.dbapi2": {"connect": "w"},
    "tokenizers": {"Tokenizer.from_file": "r", "Tokenizer.train": "r", "Tokenizer.save": "w"},
    "tokenizers.models": {
        f"{kind}.{name}": "r" for kind in ("BPE", "WordLevel", "WordPiece") for name in ("from_file", "read_file")
    },
}


def read_copies(stack, sandbox):
    """Lets libraries that open files by C++ or Rust find those that the program wrote, and write where it does."""

    def place_of(value, kind):
        if isinstance(value, list):
            return [place_of(part, kind) for part in value]
        if not isinstance(value, (str, os.PathLike)) or os.fspath(value).startswith((":", "file:")):
            return value
        try:
            return os.fspath(sandbox.to_read(value) if kind == "r" else sandbox.to_change(value))
        except OSError:  # the library says so in its own way
            return value

    def follow(module, path, kind):
        *owners, name = path.split(".")
        owner = functools.reduce(getattr, owners, module)
        original, is_static = getattr(owner, name), isinstance(vars(owner).get(name), staticmethod)

        def opened(*args, **kwargs):
            place = next((i for i, value in enumerate(args) if isinstance(value, (str, os.PathLike, list))), len(args))
            mode = kind
            if kind == "m":
                given = kwargs.get("mode", args[place + 1] if len(args) > place + 1 else "r")
                mode = "r" if given in ("r", "rb") else "w"
            end = place + (2 if kind == "r" else 1)  # a vocabulary comes in two files
            files = [place_of(value, mode) for value in args[place:end]]
            return original(*args[:place], *files, *args[end:], **kwargs)

        patch(stack, owner, name, staticmethod(opened) if is_static else opened)

    def hook(paths):
        return lambda module: [follow(module, path, kind) for path, kind in paths.items()]

    after_import(stack, {name: hook(paths) for name, paths in _OPEN_BY_THEMSELVES.items()})


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
