"""python3 -m headroom trace train.py:make_step, or python3 -m headroom trace -- python train.py: what the command
`headroom trace` runs.

Exit codes: 0 done, 2 bad usage or a program that cannot be traced, 130 Ctrl-C, 1 anything else. Errors are one line.
"""

import argparse
import ctypes
import importlib.util
import os
import sys
import time

if not __package__:  # run by its path, in a Python that does not have the package
    _folder = sys.path[0] = os.path.dirname(os.path.abspath(__file__))
    _spec = importlib.util.spec_from_file_location(
        "headroom", os.path.join(_folder, "__init__.py"), submodule_search_locations=[_folder]
    )
    sys.modules["headroom"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["headroom"])
    sys.path[0] = ""

_DONE, _OTHER, _BAD_INPUT, _INTERRUPTED = 0, 1, 2, 130


def _fail(code, text):
    print(f"headroom trace: {' '.join(str(text).split())}", file=sys.stderr)
    return code


def _tell_steps(count):
    print(f"headroom: traced {count} steps", file=sys.stderr, flush=True)


def _hide_gpus():
    """A trace takes no memory of a GPU that the machine has, and says what it says elsewhere: the driver sees no
    GPU. The program's own variable, which it may read, stays as it is."""
    ctypes.CDLL(None).setenv(b"CUDA_VISIBLE_DEVICES", b"", 1)


def _parse(words):
    parser = argparse.ArgumentParser(prog="python3 -m headroom", description=__doc__.split(":")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    trace = commands.add_parser("trace", help="trace a program's allocations, without a GPU")
    trace.add_argument("program", nargs="?", help="FILE.py:FUNCTION, or a command after --")
    trace.add_argument("--batch", type=int)
    trace.add_argument("--batch-option", help="the option of a command that is its batch")
    trace.add_argument("--compute", choices=("auto", "never", "all"))
    trace.add_argument("--ranks", type=int, help="processes that train together")
    trace.add_argument("--steps", type=int, default=3)
    trace.add_argument("--device", default="h200")
    trace.add_argument("-o", "--output", default="run.trace")
    trace.add_argument("--quiet", action="store_true", help="print nothing but errors")
    trace.add_argument(
        "--progress", action="store_true", help="count traced steps on stderr, a line for each"
    )
    trace.add_argument(
        "--requests",
        action="store_true",
        help="trace again for each line of JSON on stdin (headroom/torch/answers.py)",
    )
    words = list(sys.argv[1:] if words is None else words)
    end = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:end])
    arguments.command = words[end + 1 :]
    if (arguments.program is None) == (end == len(words)):
        parser.error("give one program: FILE.py:FUNCTION, or a command after --")
    return arguments


def main(words=None):
    arguments = _parse(words)
    if arguments.batch is not None and arguments.batch < 1:
        return _fail(_BAD_INPUT, f"--batch: {arguments.batch} is below 1")
    if not arguments.output:
        return _fail(_BAD_INPUT, "--output: the name of the file is empty")
    if importlib.util.find_spec("torch") is None:
        is_pipx = f"{os.sep}pipx{os.sep}" in sys.prefix
        install = "pipx inject headroom-gpu" if is_pipx else f"{sys.executable} -m pip install"
        return _fail(
            _OTHER,
            f"{sys.executable} has no PyTorch: run `{install} torch` and install what your program "
            "imports there, or set HEADROOM_PYTHON to a Python that has PyTorch and Headroom",
        )
    _hide_gpus()
    import torch

    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < (2, 4):
        return _fail(_OTHER, f"PyTorch {torch.__version__} is too old: tracing needs 2.4 or later")
    from headroom.torch import command as commands
    from headroom.torch.child import ChildError
    from headroom.torch.errors import TraceError
    from headroom.torch.seeds import Seeds
    from headroom.torch.launchers import rank_environment
    from headroom.torch.whole_program import trace_command

    try:
        program = arguments.program or commands.parse(arguments.command, arguments.ranks)
    except TraceError as error:
        return _fail(_BAD_INPUT, error)
    title = arguments.program or program.title
    if arguments.program and arguments.ranks:
        os.environ.update(rank_environment(arguments.ranks, arguments.ranks))
    if arguments.requests:
        from headroom.torch.answers import serve

        serve(
            program, arguments.steps, arguments.device, arguments.batch_option, arguments.compute
        )
        return _DONE
    on_step = _tell_steps if arguments.progress else None
    start = time.perf_counter()
    try:
        facts = None
        if arguments.program:
            # In a copy of this process: one that has run a backward pass cannot be copied, and a function may turn out
            # to be a whole program.
            facts = Seeds().trace(
                arguments.output,
                lambda path, seed: _trace_in_copy(program, arguments, on_step, path, seed),
            )
        if facts is None:
            facts = trace_command(
                commands.of_function(program) if arguments.program else program,
                arguments.output,
                arguments.batch,
                arguments.steps,
                arguments.device,
                arguments.batch_option,
                on_step,
                arguments.compute,
            )
    except (TraceError, ValueError) as error:
        return _fail(_BAD_INPUT, error)
    except ChildError as error:
        return _fail(_OTHER, f"{title}: {error}")
    except OSError as error:
        return _fail(_OTHER, f"{arguments.output}: cannot write it: {error.strerror}")
    for note in filter(None, (facts["batch"], facts.get("ranks"))):
        print(f"headroom: note: {note}", file=sys.stderr, flush=True)
    if not arguments.quiet:
        print(
            f"{title}: {facts['allocations']} allocations in {facts['steps']} steps, at most "
            f"{facts['peak_bytes'] / 2**20:.2f} MiB live at once; {time.perf_counter() - start:.1f} s"
        )
        print(f"next: headroom predict {arguments.output} --device {arguments.device}")
    return _DONE


def _trace_in_copy(program, arguments, on_step, path, seed):
    """Traces "train.py:make_step" with a seed into a file, in a copy of this process. Returns facts; None for a function
    that trains by itself.
    """
    from headroom.torch.child import in_child

    facts, error = in_child(lambda: _trace_function(program, arguments, on_step, path, seed))
    if error:
        raise error
    return facts


def _trace_function(program, arguments, on_step, path, seed):
    """In a copy: (facts, error)."""
    from headroom.torch.draws import seed_python
    from headroom.torch.errors import TraceError
    from headroom.torch.program import trace_program
    from headroom.torch.seeds import SEEDS, facts_of
    from headroom.torch.session import TrainsByItself

    seed_python(seed)
    try:
        trace = trace_program(
            program,
            arguments.batch,
            arguments.steps,
            arguments.device,
            on_step=on_step,
            compute=arguments.compute,
            seed=seed,
            seeds=SEEDS,
        )
        trace.save(path)
    except TrainsByItself:
        return None, None
    except (TraceError, ValueError, OSError) as error:
        return None, type(error)(*error.args)  # without what it came through
    return {
        "allocations": len(trace.blocks),
        **facts_of(trace),
        "steps": arguments.steps,
        "batch": "",
    }, None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(_fail(_INTERRUPTED, "ended by SIGINT"))
