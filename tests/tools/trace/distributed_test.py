"""Programs for several GPUs, traced as one rank. See python_test.sh"""

import os
import unittest

import torch
import torch.distributed as dist
import torch.distributed.fsdp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from headroom.torch import trace

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def program(start):
    """A training in the style of torchrun; `start` begins it and returns how it wraps the model."""

    def make_step(batch):
        wrap = start()
        net = wrap(nn.Linear(1000, 1000).cuda())
        x = torch.randn(batch, 1000, device="cuda")

        def step():
            net(x).sum().backward()
            if dist.is_initialized():
                dist.all_reduce(torch.zeros(5, device="cuda"), async_op=True).wait()
                dist.barrier()

        return step

    return make_step


def traced(start):
    return trace(program(start), batch=8, steps=2)


def peak(start):
    return traced(start).peak_bytes


def as_it_is(net):
    return net


def of_rank(rank, ranks, wrap):
    def start():
        dist.init_process_group("nccl", rank=rank, world_size=ranks)
        return wrap

    return start


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

    def test_the_buckets_lie_in_the_order_of_the_gradients_after_the_first_step(self):
        def start():
            dist.init_process_group("nccl", rank=0, world_size=2)
            return lambda net: DistributedDataParallel(
                nn.Sequential(net, nn.Linear(1000, 500).cuda())
            )

        buckets = [b.size for b in traced(start).blocks if b.op == "aten::empty.memory_format"]
        first, second = (1000 * 1000 + 1000) * 4, (500 * 1000 + 500) * 4
        self.assertEqual(sorted(buckets[-2:]), [second, first])

    def test_the_weights_that_the_first_step_of_a_static_graph_uses_are_known(self):
        def wrap(net):
            net.unused = nn.Parameter(torch.zeros(8, device="cuda"))
            return DistributedDataParallel(net, static_graph=True)

        self.assertGreaterEqual(peak(of_rank(0, 2, wrap)) - self.alone, self.buckets)

    def test_what_ranks_gather_is_what_this_one_has(self):
        seen = []

        def start():
            dist.init_process_group("nccl", rank=1, world_size=4)
            size = torch.tensor([5], device="cuda")
            sizes = [torch.zeros_like(size) for _ in range(4)]
            dist.all_gather(sizes, size)
            objects = [None] * 4
            dist.all_gather_object(objects, {"rank": 1})
            seen.append((int(max(sizes)), objects))
            return as_it_is

        peak(start)
        self.assertEqual(seen, [(5, [{"rank": 1}] * 4)])

    def test_normalization_over_ranks_has_its_kernels(self):
        def sync(net):
            norm = nn.SyncBatchNorm(1000).cuda()
            return DistributedDataParallel(nn.Sequential(net, norm), find_unused_parameters=True)

        ops = {block.op for block in traced(of_rank(0, 2, sync)).blocks}
        self.assertIn("aten::batch_norm_stats", ops)
        self.assertIn("aten::batch_norm_backward_reduce", ops)


WEIGHT, BIAS = 1000 * 1000 * 4, 1000 * 4


class Sharded(unittest.TestCase):
    """Models that are spread over ranks."""

    def held_after(self, wrap, rank=0, ranks=4):
        """Bytes of weights and gradients by name, and the trace."""
        made = traced(of_rank(rank, ranks, wrap))
        names = {}
        for block in made.blocks:
            if block.is_live:
                names[block.tensor] = names.get(block.tensor, 0) + block.size
        return names, made

    @unittest.skipUnless(hasattr(torch.distributed.fsdp, "fully_shard"), "from PyTorch 2.6 on")
    def test_a_fully_sharded_rank_holds_its_rows_and_gathers_all_of_them(self):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        for policy, bytes_each in ((None, 4), (MixedPrecisionPolicy(torch.bfloat16), 2)):
            options = {"mp_policy": policy} if policy else {}
            names, made = self.held_after(lambda net: fully_shard(net, **options))
            self.assertEqual(names["weight"], 2 * WEIGHT // 4 + BIAS // 4)  # and all gradients
            gathered = [b.size for b in made.blocks if b.size == 1000 * 1000 * bytes_each]
            self.assertTrue(gathered)

    @unittest.skipUnless(hasattr(torch.distributed.fsdp, "fully_shard"), "from PyTorch 2.6 on")
    def test_weights_that_are_made_as_shards_are_filled_there(self):
        from torch.distributed.fsdp import fully_shard

        def wrap(_):
            with torch.device("meta"):
                net = nn.Linear(1000, 1000)
            fully_shard(net).to_empty(device="cuda")
            net.reset_parameters()
            return net

        names, _ = self.held_after(wrap)
        self.assertEqual(names["weight"], 2 * WEIGHT // 4 + BIAS // 4)  # and all gradients

    @unittest.skipUnless(hasattr(torch.distributed.fsdp, "fully_shard"), "from PyTorch 2.6 on")
    def test_weights_that_stay_after_the_forward_pass_are_gathered_once(self):
        from torch.distributed.fsdp import fully_shard

        def gathers(reshards):
            def wrap(net):
                net = nn.Sequential(net, nn.Linear(1000, 1000).cuda())
                for layer in net:
                    fully_shard(layer, reshard_after_forward=reshards)
                return fully_shard(net)

            _, made = self.held_after(wrap)
            return sum(b.size == WEIGHT + BIAS for b in made.blocks)

        self.assertGreater(gathers(True), gathers(False))

    def test_fsdp_shards_its_flat_weights(self):
        from torch.distributed.fsdp import FullyShardedDataParallel

        _, made = self.held_after(lambda net: FullyShardedDataParallel(net, device_id=0))
        self.assertIn((WEIGHT + BIAS) // 4, {block.size for block in made.blocks if block.is_live})
        self.assertIn(WEIGHT + BIAS, {block.size for block in made.blocks})

    def test_a_tensor_parallel_rank_has_its_columns(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

        def wrap(net):
            mesh = init_device_mesh("cuda", (dist.get_world_size(),))
            return parallelize_module(net, mesh, ColwiseParallel())

        _, made = self.held_after(wrap)
        sizes = [block.size for block in made.blocks if block.is_live]
        self.assertEqual(sizes.count(WEIGHT // 4), 2)  # the weight and its gradient
        self.assertNotIn(WEIGHT, sizes)
        # 1000 columns over 3 ranks: the last one has 332 of them.
        _, made = self.held_after(wrap, 2, 3)
        sizes = [block.size for block in made.blocks if block.is_live]
        self.assertEqual(sizes.count(334 * 1000 * 4), 1)  # the weight, as it was sent
        self.assertEqual(sizes.count(332 * 1000 * 4), 1)  # its gradient

    def nccl_bytes(self, rank, *collectives):
        def wrap(net):
            for collective in collectives:
                collective(torch.zeros(4, device="cuda"))
            return net

        return int(traced(of_rank(rank, 2, wrap)).settings["nccl_bytes"]) >> 20

    def test_what_nccl_takes_is_counted_for_each_group_and_kind_of_exchange(self):
        def scatter(x):
            dist.scatter(x, [x, x] if dist.get_rank() == 0 else None)

        def in_new_group(x):
            dist.all_reduce(x, group=dist.new_group([0, 1]))

        self.assertEqual(self.nccl_bytes(0), 840)
        self.assertEqual(self.nccl_bytes(0, lambda x: dist.broadcast(x, 0)), 840)
        self.assertEqual(self.nccl_bytes(0, in_new_group), 840 + 484)
        self.assertEqual(self.nccl_bytes(0, lambda x: dist.all_to_all_single(x, x.clone())), 840 + 442)
        self.assertEqual(self.nccl_bytes(0, scatter), 840 + 104)
        self.assertEqual(self.nccl_bytes(1, scatter), 840 + 360)
        self.assertEqual(int(traced(lambda: as_it_is).settings["nccl_bytes"]), 0)


if __name__ == "__main__":
    unittest.main()
