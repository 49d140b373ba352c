"""Tests the operations that a traced program may use, and those that it is refused, as if it used a GPU
(headroom/torch/standin).
"""

import importlib.util
import math
import os
import re
import sys
import tempfile
import unittest

import torch
from torch import nn
from torch.nn import functional as F

from headroom.torch import TraceError, trace
from headroom.torch.recorder import OPTIMIZER_STATE
from small_training import refusal, training, unknown


class Standin(unittest.TestCase):
    def test_a_program_without_a_device_is_traced_as_on_the_gpu(self):
        def loss(net, x):
            return net(x).pow(2).mean()

        self.assertEqual(
            trace(training(loss, "cuda"), batch=8).peak_bytes,
            trace(training(loss, "cpu"), batch=8).peak_bytes,
        )

    def test_a_recurrent_net_without_a_device_is_traced_as_on_the_gpu(self):
        def program(device):
            def make_step():
                net = nn.LSTM(8, 512, 2).to(device)
                optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

                def step():
                    optimizer.zero_grad()
                    net(torch.randn(5, 4, 8, device=device))[0].mean().backward()
                    optimizer.step()

                return step

            return make_step

        on_host, on_gpu = (trace(program(device)).peak_bytes for device in ("cpu", "cuda"))
        self.assertAlmostEqual(on_host / on_gpu, 1, places=2)

    def test_gradients_of_a_program_without_a_device_are_where_its_tensors_are(self):
        def make_step():
            net = nn.Linear(8, 4)

            def step():
                chosen = net(torch.ones(2, 8)).gather(1, torch.tensor([[1], [2]]))
                (chosen - torch.tensor([[1.0], [2.0]])).square().sum().backward()

            return step

        self.assertGreater(trace(make_step, steps=1).peak_bytes, 0)

    def test_weights_of_a_library_keep_their_class_and_what_they_know(self):
        class Packed(nn.Parameter):
            def __new__(cls, data, bits=4):
                self = torch.Tensor._make_subclass(cls, data, False)
                self.bits = bits
                return self

            def cuda(self, device=None):
                self.data = torch.empty(self.numel() * self.bits // 8, dtype=torch.uint8, device="cuda")
                return self

        def make_step():
            net = nn.Linear(512, 512)
            net.weight = Packed(net.weight.data)
            net.cuda()
            self.assertIsInstance(net.weight, Packed)
            self.assertEqual((net.weight.bits, net.weight.dtype), (4, torch.uint8))
            return lambda: net.bias + 1

        sizes = [block.size for block in trace(make_step, steps=1).blocks if block.is_live]
        self.assertEqual(sorted(sizes), [512 * 4, 512 * 512 // 2])

    def test_a_library_may_make_a_parameter_of_the_class_that_it_finds(self):
        def body(net, x):
            found = net[0].weight
            made = type(found)(found.detach().clone(), **{**vars(found), "requires_grad": False})
            self.assertIsInstance(made, nn.Parameter)
            self.assertFalse(made.requires_grad)
            return net(x).mean()

        trace(training(body), batch=8, steps=1)

    @unittest.skipIf(importlib.util.find_spec("triton") is None, "no Triton")
    def test_kernels_of_triton_take_nothing_and_write_what_is_unknown(self):
        import triton

        @triton.jit
        def double(x):
            pass

        def body(net, x):
            ones = torch.ones(4, device="cuda")
            before = torch.cuda.memory_allocated()
            double[(4,)](ones)
            self.assertEqual(torch.cuda.memory_allocated(), before)
            return net(x).mean() + ones.new_zeros(int(ones.sum()))

        self.assertRegex(refusal(body), r"int\(\) needs the value of a tensor")

    @unittest.skipIf("dtype" not in torch.ops.aten.mm.overloads(), "from PyTorch 2.8 on")
    def test_products_of_halves_may_have_results_of_another_type(self):
        def body(net, x):
            half = x.half()
            made = torch.mm(half, half.T, out_dtype=torch.float32)
            out = torch.addmm(made, half, half.T, out_dtype=torch.float32)
            self.assertEqual((made.dtype, out.dtype, out.shape), (torch.float32, torch.float32, (8, 8)))
            return net(x).mean()

        trace(training(body), batch=8, steps=1)

    def test_profilers_record_nothing(self):
        made = []

        def body(net, x):
            schedule = torch.profiler.schedule(wait=0, warmup=0, active=1)
            with torch.profiler.profile(schedule=schedule, on_trace_ready=made.append, with_stack=True) as profiler:
                y = net(x).mean()
                profiler.step()
            self.assertEqual(profiler.key_averages().table(sort_by="self_cpu_time_total"), "")
            with torch.autograd.profiler.profile() as old:
                return y + net(x).mean() * len(old.key_averages())

        trace(training(body), batch=8, steps=1)
        self.assertTrue(made)

    def test_l_bfgs_keeps_a_full_history(self):
        for search, default in ((None, "cpu"), ("strong_wolfe", "cpu"), ("strong_wolfe", "cuda")):

            def make_step():
                torch.set_default_device(default)
                self.addCleanup(torch.set_default_device, None)
                net = nn.Linear(100, 10, bias=False).cuda()
                x = torch.randn(8, 100, device="cuda")
                optimizer = torch.optim.LBFGS(net.parameters(), history_size=30, line_search_fn=search)

                def closure():
                    optimizer.zero_grad()
                    loss = net(x).square().mean()
                    loss.backward()
                    return loss

                return lambda: optimizer.step(closure)

            live = [block.size for block in trace(make_step, steps=2).blocks if block.is_live]
            # Two vectors for each step of the history; the weight, its gradient, the direction and the last gradient.
            self.assertIn(live.count(4000), range(64, 68))

    def test_types_of_tensors_say_that_they_are_on_the_gpu(self):
        def body(net, x):
            for moved in (torch.ones(3).type_as(x), torch.ones(3).type(torch.cuda.FloatTensor)):
                self.assertTrue(moved.is_cuda)
            self.assertEqual(torch.cuda.LongTensor([1, 2]).sum().item(), 3)
            self.assertEqual(torch.cuda.FloatTensor(2, 3).fill_(1.0).sum().item(), 6)
            self.assertIsInstance(x, torch.cuda.FloatTensor)
            self.assertNotIsInstance(torch.ones(3), torch.cuda.FloatTensor)
            self.assertEqual(x.type(), "torch.cuda.FloatTensor")
            return net(x).mean()

        trace(training(body), batch=8, steps=1)

    @unittest.skipIf(importlib.util.find_spec("bitsandbytes") is None, "no bitsandbytes")
    def test_long_products_with_4_bit_weights_make_the_weight_first(self):
        def made(rows):
            def make_step():
                import bitsandbytes

                net = bitsandbytes.nn.Linear4bit(4096, 4096, False, torch.bfloat16, quant_type="nf4").cuda()
                x = torch.randn(rows, 4096, device="cuda", dtype=torch.bfloat16)
                return lambda: net(x)

            return [block.size for block in trace(make_step, steps=1).blocks if block.step == 1]

        self.assertIn(2 * 4096 * 4096, made(2048))
        self.assertNotIn(2 * 4096 * 4096, made(1))

    def test_values_of_gradients_cannot_steer_a_step(self):
        for what, body in (
            ("tolist()", lambda net, x: net(x).mean() * unknown(x).long().tolist()),
            ("condition", lambda net, x: net(x).mean() if unknown(x).sum() > 0 else x.mean()),
            ("nonzero", lambda net, x: net(x).mean() + unknown(x).nonzero().sum()),
            ("index", lambda net, x: net(x)[unknown(x)[:, 0] > 0].mean()),
            ("index", lambda net, x: net(x[unknown(x) > 0]).mean()),
        ):
            text = refusal(body)
            self.assertIn(what, text)
            self.assertRegex(text, r"^standin_test\.py:\d+: ")

    def test_values_of_constants_are_known(self):
        def loss(net, x):
            if torch.ones(4, device=x.device).all() and torch.arange(5).tolist() == [
                0,
                1,
                2,
                3,
                4,
            ]:
                return net(x).mean()
            raise AssertionError

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_a_random_number_drawn_alone_can_steer_a_step(self):
        def loss(net, x):
            if torch.rand([]) < 0 or torch.empty(1).uniform_(2, 3).item() < 2:
                raise AssertionError
            return net(x)[: torch.randint(1, 3, (1,)).item()].mean()

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_a_refusal_names_the_line_of_the_library_that_the_users_line_led_to(self):
        with tempfile.TemporaryDirectory() as folder:
            package = os.path.join(folder, "site-packages", "lottery")
            os.makedirs(package)
            with open(os.path.join(package, "__init__.py"), "w", encoding="utf-8") as file:
                file.write("def is_even(x):\n    return bool(x.sum() % 2 == 0)\n")
            sys.path.insert(0, os.path.dirname(package))
            try:
                import lottery
            finally:
                sys.path.pop(0)
            text = refusal(lambda net, x: net(x).mean() if lottery.is_even(unknown(x)) else 0)
        self.assertRegex(text, r"^standin_test\.py:\d+: lottery/__init__\.py:2: a condition ")

    def test_data_loaders_may_shuffle_split_and_sample(self):
        data = torch.utils.data

        def make_step(batch):
            net = nn.Linear(16, 4).cuda()
            rows = data.TensorDataset(torch.randn(50, 16), torch.randint(0, 4, (50,)))
            first, second = data.random_split(rows, [40, 10])
            weighted = data.WeightedRandomSampler([1.0] * 50, 24)
            loaders = (
                data.DataLoader(first, batch_size=batch, shuffle=True),
                data.DataLoader(rows, batch_size=batch, sampler=weighted),
                data.DataLoader(second, batch, shuffle=True, generator=torch.Generator()),
            )

            def step():
                for loader in loaders:
                    for x, y in loader:
                        F.cross_entropy(net(x.cuda()), y.cuda()).backward()

            return step

        trace_of = trace(make_step, batch=8, steps=1)
        inputs = [e[1] for e in trace_of.recorder.events if e[0] == "a" and e[1].size == 8 * 16 * 4]
        self.assertGreaterEqual(len(inputs), 40 // 8 + 24 // 8 + 1)

    def test_optimizers_that_read_their_steps_and_norms_take_their_state(self):
        weights = 256 * 512 + 512 + 512 * 256 + 256
        for name, states in (("RAdam", 2), ("ASGD", 1), ("NAdam", 2), ("Adafactor", 0)):
            if not hasattr(torch.optim, name):
                continue
            traced = trace(
                training(lambda net, x: net(x).mean(), optimizer=getattr(torch.optim, name)),
                batch=8,
            )
            blocks = [e[1] for e in traced.recorder.events if e[0] == "a"]
            state = sum(b.size for b in blocks if b.category == OPTIMIZER_STATE)
            self.assertGreaterEqual(state, states * 4 * weights, name)
            self.assertLess(state, (states + 1) * 4 * weights, name)

    def test_an_unknown_value_is_finite_and_prints_as_unknown(self):
        texts = []

        def loss(net, x):
            value = net(x).mean()
            number = unknown(value).item()
            if not math.isfinite(number) or math.isnan(number):
                raise AssertionError
            texts.append(f"{number:.2f} {number} {max(0.5, number)} {min([number, 1.0])}")
            return value

        self.assertGreater(trace(training(loss), batch=8, steps=1).peak_bytes, 0)
        self.assertEqual(texts, ["nan nan nan nan"])

    def test_what_a_trace_cannot_follow_is_refused_in_one_line(self):
        for body, expected in (
            (lambda net, x: x.to_sparse().log1p(), r"log1p\(\) of a sparse tensor cannot be traced"),
            (lambda net, x: torch.cuda.CUDAGraph(), "CUDA graphs cannot be traced"),
            (lambda net, x: net(torch.randn(8, 256)).mean(), "tensors to be on the same device"),
        ):
            self.assertRegex(refusal(body), rf"^\w+\.py:\d+: .*{expected}")

    def test_inference_mode_takes_the_libraries_and_kernels_that_other_modes_take(self):
        def ops(mode):
            def make_step():
                net = nn.TransformerEncoderLayer(64, 4, batch_first=True).cuda().half().train()
                x = torch.randn(2, 128, 64, device="cuda", dtype=torch.float16)

                def step():
                    with mode():
                        return net(x).softmax(-1)

                return step

            blocks = trace(make_step, steps=2).blocks
            return {b.op for b in blocks if "attention" in b.op or "cuBLAS" in b.op or "max" in b.op}

        self.assertEqual(len(ops(torch.inference_mode)), 4)
        self.assertEqual(ops(torch.inference_mode), ops(torch.no_grad))

    def test_ops_with_kernels_of_their_own_are_not_taken_apart(self):
        blocks = trace(training(lambda net, x: F.silu(net(x)).mean()), batch=8, steps=1).blocks
        self.assertIn("aten::silu_backward", [b.op for b in blocks])

    def test_classes_of_torch_cuda_stay_classes(self):
        def loss(net, x):
            for kind in (
                torch.cuda.CUDAGraph,
                torch.cuda.graph,
                torch.cuda.Stream,
                torch.cuda.Event,
            ):
                kind | None  # as libraries annotate
            return net(x).mean()

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_the_accelerator_has_no_number_and_random_states_may_be_kept(self):
        def body(net, x):
            if hasattr(torch, "accelerator"):
                self.assertEqual(str(torch.accelerator.current_accelerator()), "cuda")
            torch.cuda.set_rng_state(torch.cuda.get_rng_state())
            self.assertEqual([len(state) for state in torch.cuda.get_rng_state_all()], [16])
            self.assertIs(x.pin_memory(device=x.device), x)
            return net(x).mean()

        trace(training(body), batch=8, steps=1)

    def test_random_numbers_may_come_from_a_generator_of_the_gpu(self):
        def body(net, x):
            generator = torch.Generator(device="cuda").manual_seed(3)
            self.assertIsInstance(generator, torch.Generator)
            self.assertIsInstance(torch.default_generator, torch.Generator)
            self.assertEqual((generator.device, generator.initial_seed()), (x.device, 3))
            self.assertEqual((torch.Generator().device.type, torch.Generator("cuda:0").device.index), ("cpu", 0))
            self.assertTrue(torch.cuda.default_generators[0].device.type, "cuda")
            generator.set_state(generator.get_state())
            self.assertTrue(torch.randn(4, device="cuda", generator=generator).is_cuda)
            torch.bernoulli(net(x).sigmoid(), generator=generator)  # whose likelihoods are not known yet
            return net(x).mean()

        trace(training(body), batch=8, steps=1)

    def test_traced_modules_of_torch_jit_run_as_they_are(self):
        convolution = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))

        def loss(is_traced):
            def body(net, x):
                image = torch.zeros(2, 1, 16, 16)
                made = convolution
                if is_traced:
                    made = torch.jit.trace(convolution, image)
                    self.assertIs(next(made.parameters()), next(convolution.parameters()))
                    self.assertEqual(list(made.graph.nodes()), [])
                    made.save(os.devnull)
                    torch.jit.save(torch.jit.freeze(torch.jit.trace(lambda y: y * 2, (x,))), os.devnull)
                return made(image).mean() + net(x).mean()

            return body

        traced, eager = (trace(training(loss(is_traced), "cpu"), batch=8) for is_traced in (True, False))
        self.assertEqual(traced.peak_bytes, eager.peak_bytes)
        self.assertIn("torch.jit.trace", traced.settings["assumed"])

    def test_modules_are_exported_without_a_graph(self):
        def body(net, x):
            torch.onnx.export(net, x, os.devnull, dynamo=False)
            program = torch.export.export(net, (x,))
            torch.export.save(program, os.devnull)
            scripted = torch.jit.script(nn.Sequential(nn.Linear(256, 4)).to(x.device))
            torch.jit.save(scripted, os.devnull)
            self.assertEqual(torch.jit.load(os.devnull, map_location="cuda")(x).shape, (8, 4))
            with self.assertRaisesRegex(TraceError, "a file of TorchScript cannot be traced"):
                torch.jit.load("other.pt")
            return program.module()(x).mean()

        self.assertIn(("forward", 1), {(b.phase, b.step) for b in trace(training(body), batch=8, steps=1).blocks})

    def test_transforms_of_torch_func_run_as_on_the_gpu(self):
        def body(net, x):
            def value(z):
                return net(z).sum()

            rows = x[:2]
            curves = torch.func.vmap(torch.func.hessian(value))(rows)  # with tangents that are zero
            self.assertEqual((curves.shape, curves.is_cuda), ((2, 256, 256), True))
            slopes = torch.func.vmap(torch.func.jacrev(value))(rows)
            _, along = torch.func.jvp(net, (rows,), (torch.ones_like(rows),))
            return curves.mean() + slopes.mean() + along.mean()

        self.assertGreater(trace(training(body), batch=8, steps=1).peak_bytes, 2 * 256 * 256 * 4)

    def test_passes_that_another_follows_by_its_gradient_are_all_traced(self):
        def body(net, x):
            weights = dict(net.named_parameters())
            for _ in range(5):
                loss = torch.func.functional_call(net, weights, x).mean()
                slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
                weights = {name: w - slope for (name, w), slope in zip(weights.items(), slopes)}
            return torch.func.functional_call(net, weights, x).mean()

        trace(training(body), batch=8, steps=1)

    def test_questions_about_the_state_of_the_gpu_are_answered(self):
        def body(net, x):
            self.assertEqual(torch.cuda.temperature() + torch.cuda.power_draw() + torch.cuda.memory_usage(), 0)
            self.assertTrue(torch.cuda.can_device_access_peer(0, 0))
            return net(x).mean()

        trace(training(body), batch=8, steps=1)

    def test_tensors_of_the_host_may_meet_the_gpu_where_pytorch_lets_them(self):
        def loss(net, x):
            rows = x[torch.tensor([0, 1])] * torch.tensor(2.0)
            F.one_hot(torch.zeros(8, dtype=torch.long, device=x.device), num_classes=3)
            x[torch.arange(8) > 3] = 0
            torch.empty(8, 256).copy_(x)
            return net(rows).mean()

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_checkpoints_may_be_saved_in_a_step(self):
        def loss(net, x):
            torch.save(net.state_dict(), "/no/such/folder/weights.pt")
            return net(x).mean()

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_integers_are_counted_as_a_gpu_counts_them(self):
        def loss(net, x):
            experts = torch.randint(0, 4, (64,), device=x.device).int()
            counts = torch.histc(experts, bins=4, min=0, max=3)
            if counts.dtype != torch.int32 or counts.shape != (4,):
                raise AssertionError
            return net(x).mean()

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_weights_may_be_drawn_from_every_distribution_of_pytorch(self):
        init = nn.init

        def loss(net, x):
            weight = torch.empty(64, 48, device=x.device)
            for fill in (
                lambda w: init.trunc_normal_(w, std=0.02),
                lambda w: init.trunc_normal_(w, a=2.5, b=3.0),
                lambda w: init.sparse_(w, 0.1),
                *(
                    getattr(init, f"{name}_")
                    for name in ("uniform", "normal", "ones", "eye", "orthogonal")
                ),
                *(getattr(init, f"{name}_uniform_") for name in ("xavier", "kaiming")),
                *(getattr(init, f"{name}_normal_") for name in ("xavier", "kaiming")),
            ):
                fill(weight)
            init.dirac_(torch.empty(16, 16, 3, 3, device=x.device))
            return net(x).mean()

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_a_loss_can_be_printed(self):
        def loss(net, x):
            value = net(x).mean()
            f"{value.item():.3f} {round(value.item(), 2)} {sum([value.item(), 1.0]) / 2}"
            return value

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_a_function_that_makes_no_step_is_told_what_to_change(self):
        def two(batch, width):
            return None

        def model(batch):
            return nn.Linear(batch, batch)

        for make_step, expected in (
            (two, "two is called with a batch size alone; give 'width' a default"),
            (model, "not the model (Linear)"),
        ):
            with self.assertRaisesRegex(TraceError, re.escape(expected)):
                trace(make_step, batch=8)


if __name__ == "__main__":
    unittest.main()
