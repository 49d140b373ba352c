"""Tests traced commands: where their steps end, and what else is traced of them. See python_test.sh"""

import json
import os
import subprocess
import sys
import textwrap
import unittest

from traced_training import EVALUATION, TracedTraining


class Tracing(TracedTraining):
    STEP = [1, 2, 1, 3, 1]

    def test_it_ends_after_its_steps_and_what_it_evaluates_is_a_phase(self):
        self.program(after=EVALUATION)
        marks = self.trace("python", "train.py")
        steps = [(step, phase) for step in (1, 2, 3) for phase in self.STEP]
        self.assertEqual(marks, [*steps, (3, 4), (3, 5), (3, 4)])
        self.assertEqual(self.files(), ["./run.trace", "./train.py"])
        self.assertEqual(self.trace("python", "train.py", options=["--steps", "1"])[:5], steps[:5])

    def kept(self, evaluation):
        """(the bytes of each block that is live at the peak, what is said) of an evaluation of 16 batches after a training."""
        test = "for x, y in DataLoader(data, args.eval_batch_size):"
        self.program(after=textwrap.dedent(evaluation).replace("LOOP", test) + "\nbreak")
        self.trace("python", "train.py")
        live, most = {}, []
        for line in self.lines:
            kind, *rest = line.split(",")
            if kind == "f":
                del live[rest[0]]
            elif kind == "a":
                live[rest[0]] = int(rest[1])
                most = max(most, list(live.values()), key=sum)
        said = [line for line in self.lines if line.startswith("s,assumed,")]
        return most, said[0].replace("%2c", ",") if said else ""

    def test_an_evaluation_that_keeps_graphs_grows_with_all_its_batches(self):
        hidden, output = 256 * 16 * 256 * 4, 256 * 16 * 8 * 4
        for mode in ("net.eval()", "pass"):
            sizes, said = self.kept(f"{mode}\nlosses = []\nLOOP\n    losses.append(net(x.cuda().repeat(256, 1)).square().mean())")
            self.assertEqual((sizes.count(hidden), sizes.count(output)), (17, 15))  # in the last pass
            self.assertRegex(said, r"train.py:\d+: the evaluation keeps .* of each batch, .* of 16: put it under torch.no_grad")

    def test_an_evaluation_that_keeps_results_grows_with_all_its_batches(self):
        evaluation = """
            net.eval()
            kept = KEPT
            with torch.no_grad():
                LOOP
                    x = net[0](x.cuda().repeat(256, 1))
                    KEEP
        """
        rows = 256 * 16 * 256 * 4
        sizes, said = self.kept(evaluation.replace("KEPT", "[]").replace("KEEP", "kept.append(x)"))
        self.assertEqual(sizes.count(rows), 16)
        self.assertIn("move to the CPU what it keeps", said)
        joined = "kept = torch.cat([kept, x])"
        sizes, _ = self.kept(evaluation.replace("KEPT", "torch.empty(0, 256).cuda()").replace("KEEP", joined))
        self.assertIn(15 * rows, sizes)  # those of all batches but one, while all are joined
        self.assertIn(16 * rows, sizes)

    def test_a_training_that_goes_on_is_no_evaluation(self):
        self.program()
        self.trace("python", "train.py")
        sizes = self.largest()
        self.program(step="optimizer.step(); done = globals().get('done', 0) + 1; globals().update(done=done)\nif done == 3: break")
        marks = self.trace("python", "train.py")
        self.assertEqual([step for step, phase in marks if phase == 5], [])
        self.assertEqual(self.largest(), sizes)

    def test_no_handler_of_the_program_goes_on_after_the_last_step(self):
        self.program(
            step="try:\n    optimizer.step()\nexcept BaseException:\n    print('caught', file=sys.stderr)"
        )
        self.trace("python", "train.py")
        self.assertNotIn("caught", self.errors)

    def test_a_loop_of_forward_passes_without_an_optimizer_is_one_step(self):
        self.write(
            "infer.py",
            """import torch
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
for _ in range(8):
    y = net(torch.randn(32, 64).cuda())
""",
        )
        marks = self.trace("python", "infer.py")
        self.assertEqual({step for step, phase in marks}, {1})
        self.assertEqual(marks, sorted(marks, key=lambda mark: mark[0]))

    def test_a_trace_uses_no_gpu_of_the_machine_and_the_program_reads_its_own_variable(self):
        seen = "import ctypes; get = ctypes.CDLL(None).getenv; get.restype = ctypes.c_char_p"
        self.program(
            before=f'{seen}; print(get(b"CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_VISIBLE_DEVICES"), file=sys.stderr)'
        )
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES", None)
        self.trace("python", "train.py")
        self.assertIn("b'' 0", self.errors)

    def test_a_program_that_writes_changes_no_file(self):
        self.program(
            before='os.makedirs("out"); torch.save(net.state_dict(), "out/a.pt"); open("log", "w").write("x")',
            step='optimizer.step(); torch.save({"a": 1}, "out/b.pt"); assert os.path.exists("out/b.pt")',
        )
        self.trace("python", "train.py")
        self.assertEqual(self.files(), ["./run.trace", "./train.py"])

    def test_a_program_resumes_from_the_checkpoint_that_it_wrote(self):
        self.program(
            before='kept = "training.pt"; count = 0',
            step="""
optimizer.step()
count += 1
torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "count": count}, kept)
saved = torch.load(kept, map_location="cuda")
assert saved["count"] == count
assert saved["optimizer"]["state"][0]["step"].item() == count
net.load_state_dict(saved["net"])
optimizer.load_state_dict(saved["optimizer"])
""",
        )
        self.assertEqual(max(step for step, _ in self.trace("python", "train.py")), 3)
        self.assertEqual(self.files(), ["./run.trace", "./train.py"])

    def test_an_evaluation_takes_as_many_batches_as_it_asks_for(self):
        """By next(), of a loader that a generator of its own goes through."""
        self.program(
            before="""def batches():
    for x, y in DataLoader(data, 16):
        yield x.cuda(), y.cuda()
net.eval()
rest = batches()
with torch.no_grad():
    for _ in range(9):
        net(next(rest)[0])"""
        )
        self.assertEqual(max(step for step, _ in self.trace("python", "train.py")), 3)

    def test_batches_may_come_from_a_sampler_without_end(self):
        self.program(
            before="""class Forever:
    def __iter__(self):
        while True:
            yield list(range(16))
loader = DataLoader(data, batch_sampler=Forever())"""
        )
        self.assertEqual(max(step for step, _ in self.trace("python", "train.py")), 3)

    def test_passes_that_are_left_out_leave_what_a_module_keeps(self):
        """The loss of each pass is an attribute of the net."""
        self.program(
            before="""def forward(x):
    y = net[2](net[1](net[0](x)))
    net.loss = y.mean()
    return y
net.forward = forward""",
            step="for _ in range(3):\n    net(x.cuda())\n    net.loss.backward()\noptimizer.step()",
        )
        self.assertEqual(max(step for step, _ in self.trace("python", "train.py")), 3)

    def test_several_optimizers_and_accumulated_gradients_are_one_step(self):
        self.program(
            before="other = torch.optim.SGD(net.parameters(), 0.1); count = 0",
            step="count += 1\nif count % 2 == 0: optimizer.step(); other.step()",
        )
        marks = self.trace("python", "train.py")
        self.assertEqual(sum(mark[1] == 3 for mark in marks), 6)
        self.assertEqual(sum(mark[1] == 2 for mark in marks), 6)
        self.assertEqual(max(step for step, _ in marks), 3)

    def test_an_optimizer_that_takes_no_step_does_not_count(self):
        self.program(before="other = torch.optim.SGD(net.parameters(), 0.1)")
        self.assertEqual(max(step for step, _ in self.trace("python", "train.py")), 3)

    def test_the_batch_is_an_option_or_that_of_the_loader(self):
        self.program(after=EVALUATION)
        self.trace("python", "train.py", options=["--batch", "128"])
        self.assertIn("note: the batch is --batch-size (16 as typed)", self.errors)
        self.program(before="net(torch.zeros(1, 64).cuda())")  # to try it out
        self.trace("python", "train.py", options=["--batch", "32"])
        self.assertIn("note: the batch is --batch-size (16 as typed)", self.errors)
        large = self.largest()
        self.trace("python", "train.py", "-b", "128")
        self.assertEqual(self.largest(), large)
        self.program()
        self.write("train.py", self.text.replace("args.batch_size,", "20,"))
        self.trace("python", "train.py", options=["--batch", "128"])
        self.assertIn("note: the batch is batch_size of its data loader (20 as typed)", self.errors)
        self.assertEqual(self.largest(), large)

    def test_a_batch_larger_than_the_data_is_full(self):
        self.program()
        self.trace("python", "train.py", options=["--batch", "1024"])
        self.assertIn(str(1024 * 256 * 4), {line.split(",")[2] for line in self.lines if line[:2] == "a,"})

    def test_a_stack_on_the_gpu_is_as_the_program_has_it(self):
        self.program(step="torch.stack([net[0].weight] * 8)\noptimizer.step()")
        sizes = []
        for words, options in (((), ["--batch", "128"]), (("-b", "128"), ())):
            self.trace("python", "train.py", *words, options=options)
            sizes.append([line.split(",")[2] for line in self.lines if line[:2] == "a,"])
        filled, own = sizes  # the loader of a changed batch goes on for a batch more
        self.assertEqual(filled[: len(own)], own)

    def test_an_item_that_a_batch_has_several_times_is_loaded_once(self):
        self.program()
        items = """
            class Items(torch.utils.data.Dataset):
                taken = 0

                def __len__(self):
                    return 64

                def __getitem__(self, index):
                    self.taken += 1
                    assert self.taken <= 3 * 64, "loaded again"
                    return {"x": torch.zeros(64), "y": torch.tensor(1)}

            def pack(items):
                return tuple(torch.stack([item.pop(name) for item in items]) for name in "xy")

            def main():
        """
        text = self.text.replace("def main():", textwrap.dedent(items).strip())
        self.write("train.py", text.replace("DataLoader(data,", "DataLoader(Items(), collate_fn=pack, batch_size="))
        self.trace("python", "train.py", options=["--batch", "1024"])
        self.assertIn(str(1024 * 256 * 4), {line.split(",")[2] for line in self.lines if line[:2] == "a,"})

    def test_a_batch_of_many_items_takes_a_part_of_them(self):
        self.program()
        items = """
            class Items(torch.utils.data.Dataset):
                taken = 0

                def __len__(self):
                    return 200_000

                def __getitem__(self, index):
                    self.taken += 1
                    assert self.taken <= 3 * 4096, "more than a part"
                    return torch.zeros(64), 1

            def main():
        """
        text = self.text.replace("def main():", textwrap.dedent(items).strip())
        self.write("train.py", text.replace("DataLoader(data,", "DataLoader(Items(), batch_size="))
        self.trace("python", "train.py", options=["--batch", "100000"])
        self.assertIn(str(100000 * 256 * 4), {line.split(",")[2] for line in self.lines if line[:2] == "a,"})

    def test_a_program_has_a_terminal_with_a_size_and_without_input(self):
        self.program(
            before="""rows, columns = os.popen("stty size", "r").read().split()
assert sys.stdin.isatty() and (rows, columns) == ("24", "80")
for _ in range(3):
    try:
        raise ValueError(input())
    except EOFError:
        pass"""
        )
        self.trace("python", "train.py")

    def test_processes_of_the_program_send_tensors_and_end_with_it(self):
        self.write(
            "train.py",
            """
import torch, torch.multiprocessing as mp

def produce(queue):
    while True:
        queue.put((torch.arange(64.0), torch.randn(8, 64)))

if __name__ == "__main__":
    queue = mp.Queue(2)
    mp.Process(target=produce, args=(queue,)).start()
    net = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(10):
        known, drawn = queue.get()
        assert known.sum() == 63 * 32
        net(drawn.cuda() + known.cuda()).sum().backward()
        optimizer.step()
""",
        )
        self.assertEqual(max(step for step, _ in self.trace("python", "train.py")), 3)

    def test_errors_name_the_line_and_those_after_the_last_step_do_not_matter(self):
        self.program(before='raise ValueError("no data")')
        self.assertRegex(self.trace("python", "train.py", code=2), r"train\.py:\d+: ValueError: no data$")
        self.program(before="import urllib.request; urllib.request.urlopen('https://example.com/" + "a" * 500 + "')")
        refused = r"\d+: URLError: no network for a traced program: example.com \(run it once to download what it needs\)$"
        self.assertRegex(self.trace("python", "train.py", code=2), refused)
        self.program(before="from torch.utils import cpp_extension; cpp_extension.load('scan', ['scan.cu'])")
        refused = r"train\.py:\d+: the extension scan is C\+\+ or CUDA code of the program, "
        self.assertRegex(self.trace("python", "train.py", code=2), refused)
        self.program(before="assert args.epochs == 7")
        self.assertRegex(self.trace("python", "train.py", code=2), r"\d+: AssertionError: assert args.epochs == 7$")
        self.program(after='raise ValueError("no data")')
        self.trace("python", "train.py")
        self.program()
        self.assertRegex(
            self.trace("python", "train.py", "--what", code=2),
            r"train\.py:\d+: unrecognized arguments: --what$",
        )
        self.program(before="sys.exit(3)")
        self.assertRegex(
            self.trace("python", "train.py", code=2), r"the program ended \(3\) before its first step$"
        )

    def test_modules_code_notebooks_and_ranks_run_too(self):
        self.program(before='print(os.environ.get("WORLD_SIZE"), sys.argv, file=sys.stderr)')
        self.write("pkg/__init__.py")
        self.write("pkg/train.py", self.text)
        first = self.trace("python", "train.py")
        self.assertEqual(self.trace("python", "-m", "pkg.train"), first)
        self.assertEqual(self.trace("python", "-c", "import train; train.main()"), first)
        self.assertEqual(self.trace("torchrun", "--nproc-per-node", "4", "train.py", "-b", "8"), first)
        self.assertIn("4 ['train.py', '-b', '8']", self.errors)
        cells = [{"cell_type": "code", "source": ["%cd x\n", self.text]}]
        self.write("train.ipynb", json.dumps({"cells": cells}))
        self.assertEqual(self.trace("train.ipynb"), first)

    def test_folders_of_modules_and_processes_with_a_model_are_as_python_has_them(self):
        self.write("lib/made_for_it.py", "size = 512")
        self.write(
            "train.py",
            """import torch
import torch.multiprocessing as mp
from made_for_it import size

def train(rank, net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(8):
        net(torch.randn(4, size, device="cuda")).sum().backward()
        optimizer.step()

if __name__ == "__main__":
    net = torch.nn.Linear(size, size).cuda()
    net.share_memory()
    mp.set_start_method("spawn", force=True)
    processes = [mp.Process(target=train, args=(rank, net)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
""",
        )
        marks = self.trace("env", "PYTHONPATH=lib", "python", "train.py")
        self.assertEqual(max(step for step, _ in marks), 3)
        self.assertEqual(self.largest(), 32 << 20)

    def test_a_process_trains_where_the_program_itself_does_not(self):
        self.write(
            "train.py",
            """import torch
import torch.multiprocessing as mp

def main(rank, size):
    net = torch.nn.Linear(size, size).to(f"cuda:{rank}")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(8):
        net(torch.randn(4, size, device=rank)).sum().backward()
        optimizer.step()

if __name__ == "__main__":
    mp.set_start_method("spawn")
    for rank in range(2):
        mp.Process(target=main, args=(rank,), kwargs={"size": 512}).start()
""",
        )
        self.assertEqual(max(step for step, _ in self.trace("python", "train.py")), 3)

    def test_of_several_ranks_the_one_that_takes_most_is_traced(self):
        ranks = 'torch.distributed.init_process_group("nccl"); rank = torch.distributed.get_rank()'
        self.program(before=ranks + '; kept = torch.empty(1 + min(rank, 2), 100000, device="cuda")')
        self.trace("python", "train.py", options=["--ranks", "4"])
        self.assertRegex(self.errors, "rank 2 of 4, which takes the most; .* MiB in 0; .* in 1; .* in 2, 3\n")
        taken = self.largest()
        self.trace("torchrun", "--nproc-per-node", "4", "train.py")
        self.assertEqual(self.largest(), taken)
        self.program(before=ranks)
        self.trace("torchrun", "--nproc-per-node", "2", "train.py")
        self.assertIn("rank 0 of 2, whose requests are those of rank 1\n", self.errors)

    def test_a_function_that_trains_by_itself_is_a_whole_program(self):
        self.program()
        self.assertEqual(self.run_main("train.py:main", "-o", "a.trace"), 0, self.errors)
        self.assertIn("in 3 steps", self.out)

    def test_requests_trace_it_anew_with_changes(self):
        self.program()
        requests = [{"batch": 64}, {"batch": 128}, {"batch": 128, "changes": {"passes": 2}}, {}]
        ran = subprocess.run(
            [sys.executable, "-m", "headroom", "trace", "--requests", "--", "python", "train.py"],
            input="".join(
                json.dumps({"output": f"{number}.trace", **request}) + "\n"
                for number, request in enumerate(requests)
            ),
            capture_output=True,
            text=True,
        )
        answers = [json.loads(line) for line in ran.stdout.splitlines()]
        self.assertEqual([answer.get("error") for answer in answers], [None] * 4, ran.stderr)
        self.assertEqual(answers[0]["name"], "net")
        self.assertEqual(answers[0]["batch"], "the batch is --batch-size (16 as typed)")
        sums = []
        for number in range(4):
            with open(f"{number}.trace") as file:
                lines = file.read().splitlines()
            backward = sum(line[:2] == "m," and line.split(",")[2] == "2" for line in lines)
            sums.append((backward, sum(line[:2] == "m," and line.split(",")[2] == "3" for line in lines)))
        self.assertEqual(sums, [(3, 3), (3, 3), (6, 3), (3, 3)])


if __name__ == "__main__":
    unittest.main()
