"""python3 -m headroom trace train.py:make_step: what the command `headroom trace` runs.

Exit codes: 0 done, 2 bad usage or a program that cannot be traced, 130 Ctrl-C, 1 anything else. Errors are one line.
"""

import argparse
import importlib.util
import os
import sys

_DONE, _OTHER, _BAD_INPUT, _INTERRUPTED = 0, 1, 2, 130


def _fail(code, text):
    print(f"headroom trace: {' '.join(str(text).split())}", file=sys.stderr)
    return code


def _tell_steps(count):
    print(f"headroom: traced {count} steps", file=sys.stderr, flush=True)


def _parse(words):
    parser = argparse.ArgumentParser(prog="python3 -m headroom", description=__doc__.split(":")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    trace = commands.add_parser("trace", help="trace a program's allocations, without a GPU")
    trace.add_argument("program", help="FILE.py:FUNCTION")
    trace.add_argument("--batch", type=int)
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
    return parser.parse_args(words)


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
    import torch

    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < (2, 4):
        return _fail(_OTHER, f"PyTorch {torch.__version__} is too old: tracing needs 2.4 or later")
    from headroom.torch.errors import TraceError
    from headroom.torch.program import trace_program

    if arguments.requests:
        from headroom.torch.answers import serve

        serve(arguments.program, arguments.steps, arguments.device)
        return _DONE
    try:
        trace = trace_program(
            arguments.program,
            arguments.batch,
            arguments.steps,
            arguments.device,
            on_step=_tell_steps if arguments.progress else None,
        )
    except (TraceError, ValueError) as error:
        return _fail(_BAD_INPUT, error)
    try:
        trace.save(arguments.output)
    except OSError as error:
        return _fail(_OTHER, f"{arguments.output}: cannot write it: {error.strerror}")
    if not arguments.quiet:
        print(
            f"{arguments.program}: {len(trace.blocks)} allocations in {arguments.steps} steps, at most "
            f"{trace.peak_bytes / 2**20:.2f} MiB live at once; {trace.seconds:.1f} s"
        )
        print(f"next: headroom predict {arguments.output} --device {arguments.device}")
    return _DONE


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(_fail(_INTERRUPTED, "ended by SIGINT"))
