"""Programs for several GPUs, traced as one rank. See python_test.sh"""

import os
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from headroom.torch import TraceError, trace

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def program(start):
    """A training in the style of torchrun; `start` begins it and returns how it wraps the model."""

    def make_step(batch):
        wrap = start()
        net = wrap(nn.Linear(1000, 1000).cuda())
        x = torch.randn(batch, 1000, device="cuda")

        def step():
            net(x).sum().backward()
            dist.all_reduce(torch.zeros(5, device="cuda"), async_op=True).wait()
            dist.barrier()

        return step

    return make_step


def peak(start):
    return trace(program(start), batch=8, steps=2).peak_bytes


def as_it_is(net):
    return net


class Distributed(unittest.TestCase):
    def setUp(self):
        kept = {name: os.environ.pop(name) for name in NAMES if name in os.environ}
        self.addCleanup(os.environ.update, kept)
        self.alone = peak(lambda: as_it_is)
        self.buckets = (1000 * 1000 + 1000) * 4

    def test_scripts_of_torchrun_are_one_rank_with_its_buckets(self):
        def unguarded():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            dist.init_process_group("nccl")
            return DistributedDataParallel

        def guarded():
            if not dist.is_initialized():
                address = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
                ranks = int(os.environ["WORLD_SIZE"])
                dist.init_process_group(
                    "nccl", address, rank=int(os.environ["RANK"]), world_size=ranks
                )
            self.assertTrue(dist.is_initialized())
            self.assertEqual(os.getenv("LOCAL_RANK"), "0")
            return lambda net: DistributedDataParallel(net, device_ids=[dist.get_rank()])

        for start in (unguarded, guarded):
            self.assertEqual(peak(start) - self.alone, self.buckets)

    def test_a_script_that_asks_whether_it_has_ranks_has_none_until_it_starts_them(self):
        def start():
            self.assertEqual(int(os.environ.get("RANK", -1)), -1)
            self.assertNotIn("WORLD_SIZE", os.environ)
            self.assertFalse(dist.is_initialized())
            return as_it_is

        self.assertEqual(peak(start), self.alone)

    def test_the_number_of_ranks_is_that_of_the_program_or_of_its_environment(self):
        seen = []

        def of_the_program():
            dist.init_process_group("nccl", rank=2, world_size=4)
            sampler = torch.utils.data.DistributedSampler(range(1000))
            seen.append(
                (dist.get_world_size(), os.environ["WORLD_SIZE"], dist.get_rank(), len(sampler))
            )
            dist.destroy_process_group()
            self.assertFalse(dist.is_initialized())
            return as_it_is

        def of_the_environment():
            dist.init_process_group("nccl")
            seen.append((dist.get_world_size(), os.environ["LOCAL_RANK"]))
            return as_it_is

        peak(of_the_program)
        os.environ["WORLD_SIZE"] = "8"
        self.addCleanup(os.environ.pop, "WORLD_SIZE")
        peak(of_the_environment)
        self.assertEqual(seen, [(4, "4", 2, 250), (8, "0")])

    def test_the_environment_is_as_before_after_a_trace(self):
        peak(lambda: dist.init_process_group("nccl") or as_it_is)
        self.assertFalse(any(name in os.environ for name in NAMES))
        self.assertRaises(KeyError, os.environ.__getitem__, "LOCAL_RANK")

    def test_sharded_models_are_refused_in_one_line(self):
        from torch.distributed.fsdp import FullyShardedDataParallel

        def sharded():
            dist.init_process_group("nccl")
            return FullyShardedDataParallel

        def mesh():
            dist.device_mesh.init_device_mesh("cuda", (1,))

        starts = [sharded, mesh]
        if hasattr(torch.distributed.fsdp, "fully_shard"):
            starts += [lambda: torch.distributed.fsdp.fully_shard]
        for start in starts:
            with self.assertRaisesRegex(
                TraceError, r"^distributed_test\.py:\d+: FullyShardedDataParallel, fully_shard and"
            ):
                peak(start)


if __name__ == "__main__":
    unittest.main()
