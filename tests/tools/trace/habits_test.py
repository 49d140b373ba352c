"""Tests habits of training programs: batches and steps that differ in size, texts that grow, data that they save. See
python_test.sh
"""

import unittest

from traced_training import TracedTraining


class Habits(TracedTraining):
    def test_the_last_step_has_the_largest_of_batches_that_differ(self):
        for growth in (0, 10):
            self.program(
                before=f"""def collate(items, count=iter(range(99))):
    rows = 100 + {growth} * next(count)
    return torch.randn(rows, 64), torch.zeros(rows).long()
loader.collate_fn = collate"""
            )
            self.trace("python", "train.py")
            said = "batches differ in size: the last traced step has the largest of 14"
            self.assertEqual(said in "".join(self.lines), growth > 0)
            self.assertNotIn("steps differ", "".join(self.lines))
        self.assertIn(str((100 + 15 * 10) * 256 * 4), {line.split(",")[2] for line in self.lines if line[:2] == "a,"})

    def test_steps_that_differ_are_told(self):
        for rows in ("16", "4096 + 64 * count", "4096 * count"):
            step = f"count += 1; net(torch.zeros({rows}, 64).cuda()).mean().backward(); optimizer.step()"
            self.program(before="count = 0", step=step)
            self.trace("python", "train.py")
            said = "steps differ: the largest of steps 2 to 3 takes"
            self.assertEqual(said in "".join(self.lines), rows != "16")

    def test_passes_are_left_out_while_little_more_is_live(self):
        """The text grows by a token with each pass, whose window stays as long."""
        passes = "\n    ".join(["net(text[:, -64:].float())", "text = torch.cat([text, text[:, :1]], 1)"])
        text = "net.eval(); text = torch.zeros(1, 64, dtype=torch.int8).cuda()"
        self.program(before=f"{text}\nfor _ in range(200):\n    {passes}")
        self.trace("python", "train.py")
        self.assertLess(sum(line.endswith("net[0]") or ",aten::addmm," in line for line in self.lines), 100)

    def test_a_refusal_that_a_program_handles_is_told(self):
        text = "import torch\ntry:\n  print(torch.nn.Linear(4, 4).cuda()(torch.ones(4).cuda()).argmax().tolist())\n"
        self.write("train.py", text + "except Exception: pass")
        self.trace("python", "train.py", options=["--compute", "never"])
        told = "the program went on without a part: train.py:3: tolist() needs the value"
        self.assertTrue(any(line.startswith("s,assumed,") and told in line for line in self.lines))

    def test_a_program_that_makes_no_tensor_is_refused(self):
        self.write("train.py", "print('usage: train.py FILE')")
        said = "the program ended without a tensor: give the command that trains, with the arguments that it needs"
        self.assertIn(said, self.trace("python", "train.py", code=2))

    def test_data_that_is_saved_keeps_its_values(self):
        self.program(
            before="""mask = torch.zeros(100_000, dtype=torch.bool)
mask[torch.arange(5_000)] = True
torch.save({"mask": mask, "net": net.state_dict()}, "data.pt")
assert torch.load("data.pt")["mask"].sum() == 5_000
assert torch.load("data.pt", map_location="cuda")["mask"].is_cuda"""
        )
        self.assertEqual(max(step for step, _ in self.trace("python", "train.py")), 3)

    def test_the_gpu_may_be_the_default_of_new_tensors(self):
        for line in ("torch.set_default_tensor_type('torch.cuda.FloatTensor')", "torch.set_default_device('cuda')"):
            self.program()
            made = f"{line}\nassert nn.Linear(2, 2).weight.is_cuda and torch.tensor([1, 2]).is_cuda"
            rest = "assert torch.tensor([1], device='cpu').device.type == 'cpu'; torch.set_default_device(None)"
            self.program(before=f"{made}\n{rest}")
            self.assertEqual(max(step for step, _ in self.trace("python", "train.py")), 3)


if __name__ == "__main__":
    unittest.main()
