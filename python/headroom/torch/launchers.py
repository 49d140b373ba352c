"""Programs that start others on several GPUs: what they run, and the environment of its first rank.

A launcher takes the words after its name and returns (is_module, target, arguments, environment).
"""

import argparse

from .errors import TraceError


def _parse(parser, words):
    """The parsed words; TraceError with what the launcher says of them."""

    def fail(message):
        raise TraceError(f"{parser.prog}: {message}")

    parser.error = fail
    return parser.parse_args(words)


def _count(text, name):
    """A number of processes; "gpu" and "auto" are those of the one GPU that is traced."""
    if text in ("gpu", "auto", "cpu", "xpu"):
        return 1
    try:
        return max(1, int(str(text).partition(":")[0]))  # "1:4" is elastic: at least one
    except ValueError:
        raise TraceError(f"{name}: '{text}' is no number of processes") from None


def rank_environment(ranks, local_ranks):
    """The variables that torchrun gives the first of `ranks` processes, of which `local_ranks` are on its machine."""
    return {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "GROUP_RANK": "0",
        "ROLE_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(local_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "headroom",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def _torchrun(words):
    from torch.distributed.run import get_args_parser

    arguments = _parse(get_args_parser(), words)
    local = _count(arguments.nproc_per_node, "--nproc-per-node")
    ranks = local * _count(arguments.nnodes, "--nnodes")
    return (
        arguments.module,
        arguments.training_script,
        arguments.training_script_args,
        rank_environment(ranks, local),
    )


def _accelerate(words):
    try:
        from accelerate.commands import launch
    except ImportError as error:
        raise TraceError("the command needs accelerate, which this Python does not have") from error
    words = list(words)
    if words[:1] == ["launch"]:
        words.pop(0)
    arguments = _parse(launch.launch_command_parser(), words)
    arguments, _, _ = launch._validate_launch_command(arguments)
    if arguments.use_deepspeed or arguments.use_fsdp or arguments.use_megatron_lm or arguments.tpu:
        raise TraceError(
            "accelerate's DeepSpeed, FSDP, Megatron-LM and TPU plugins cannot be traced; trace the program "
            "without them, an upper bound of what a rank takes"
        )
    local = max(1, arguments.num_processes or 1) if arguments.multi_gpu else 1
    machines = max(1, arguments.num_machines or 1)
    if arguments.multi_gpu:
        environment = dict(launch.prepare_multi_gpu_env(arguments))
        environment.update(rank_environment(local, max(1, local // machines)))
    else:
        _, environment = launch.prepare_simple_launcher_cmd_env(arguments)
    return (
        arguments.module,
        arguments.training_script,
        arguments.training_script_args,
        environment,
    )


def _deepspeed(words):
    parser = argparse.ArgumentParser(prog="deepspeed", add_help=False, allow_abbrev=False)
    for name in ("-H", "--hostfile", "-i", "--include", "-e", "--exclude", "--master_addr"):
        parser.add_argument(name)
    for name in ("--num_nodes", "--num_gpus", "--master_port", "--launcher", "--launcher_args"):
        parser.add_argument(name)
    parser.add_argument("--module", action="store_true")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = _parse(parser, words)
    local = _count(given.num_gpus or 1, "--num_gpus")
    ranks = local * _count(given.num_nodes or 1, "--num_nodes")
    return given.module, given.script, given.arguments, rank_environment(ranks, local)


BY_NAME = {"torchrun": _torchrun, "accelerate": _accelerate, "deepspeed": _deepspeed}
BY_MODULE = {
    "torch.distributed.run": _torchrun,
    "torch.distributed.launch": _torchrun,
    "accelerate.commands.launch": _accelerate,
    "accelerate.commands.accelerate_cli": _accelerate,
    "deepspeed.launcher.runner": _deepspeed,
}
