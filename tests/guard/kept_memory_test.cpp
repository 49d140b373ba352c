// Tests what the start-up hook finds in a Python program's own frames when memory runs out, told by the verdict.
// The program has a PyTorch without a GPU.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/guard/guard_fixture.h"

namespace headroom {
namespace {

constexpr char kTorch[] = R"(
class Storage:
  nbytes, data_ptr = (lambda self: 64 << 20), (lambda self: id(self))
class Tensor:
  is_cuda, grad_fn = True, None
  def __init__(self): self.storage = Storage()
  def untyped_storage(self): return self.storage
  def numel(self): return 1 << 24
class nn:
  Parameter = type("Parameter", (Tensor,), {"requires_grad": True, "grad": None, "nbytes": 64 << 20})
  class Module:
    def __init__(self): self._modules, self._parameters = {}, {"w": nn.Parameter()}
    def parameters(self): return list(self._parameters.values())
class optim:
  class Optimizer:
    def __init__(self, weights): self.param_groups, self.state = [{"params": weights}], {}
def is_grad_enabled(): return True
def fail():
  _C.ran_out()
  raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 MiB')
class cuda:
  def _lazy_call(call): call()
  class memory: _record_memory_history = _dump_snapshot = lambda *_, **__: None
class _C:
  def _cuda_attach_out_of_memory_observer(call): _C.ran_out = call
)";

class KeptMemory : public Guard {
 protected:
  void SetUp() override {
    if (run_shell(folder_, "python3 -c pass").code != 0) GTEST_SKIP() << "no python3";
    std::filesystem::create_directories(folder_ / "site-packages/torch");
    folder_.write("site-packages/torch/__init__.py", kTorch);
  }
  // Runs a program whose main() has these lines and then runs out of memory.
  std::string verdict(const std::string& body) const {
    const std::string file = folder_.write("train.py", "import torch\n" + body + "  torch.fail()\nmain()\n");
    return run("--limit 1000MiB", "python3 " + file, "PYTHONPATH=" + folder_ / "site-packages").errors;
  }
};

TEST_F(KeptMemory, AVerdictNamesWhatKeepsTheMemoryAndItsLine) {
  const std::string text = verdict(
      "class Hooks:\n"
      "  def __init__(self): self.maps = {'a': []}\n"
      "  def see(self, output):\n"
      "    self.maps['a'].append(output)\n"  // line 5
      "def main():\n"
      "  hooks, weights = Hooks(), [torch.nn.Parameter() for _ in range(9)]\n"
      "  for _ in range(5): hooks.see(torch.Tensor())\n");
  EXPECT_PRED2(has, text, "leak: maps keeps 5 tensors, 320.00 MiB, at " + folder_ / "train.py:5") << text;
  EXPECT_PRED2(has, text, "memory ran out at " + folder_ / "train.py:") << text;
  const std::string cached = verdict(
      "import functools\n"
      "@functools.lru_cache(None)\n"  // line 3
      "def prepare(batch): return torch.Tensor()\n"
      "def main():\n"
      "  for i in range(4): prepare(i)\n");
  EXPECT_PRED2(has, cached, "leak: prepare keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:3")
      << cached;
  const std::string logged = verdict(
      "import logging.handlers\n"
      "log = logging.getLogger('x')\n"
      "log.addHandler(logging.handlers.MemoryHandler(99))\n"
      "log.setLevel('DEBUG')\n"
      "def main():\n"
      "  for i in range(4): log.debug('%s', torch.Tensor())\n");  // line 7
  EXPECT_PRED2(has, logged, "leak: log keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:7") << logged;
  const std::string failed = verdict(
      "def train():\n"
      "  logits = torch.Tensor()\n"
      "  raise ValueError\n"
      "def main():\n"
      "  skipped = []\n"
      "  for i in range(4):\n"
      "    try: train()\n"
      "    except ValueError as error: skipped.append(error)\n");  // line 9
  EXPECT_PRED2(has, failed, "leak: skipped keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:9")
      << failed;
  const std::string optimizer = verdict(
      "def main():\n"
      "  optimizer = torch.optim.Optimizer([])\n"  // line 3
      "  optimizer.state[0] = {'old_dirs': [torch.Tensor() for _ in range(4)]}\n");
  EXPECT_PRED2(has, optimizer, "leak: optimizer keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:3")
      << optimizer;
  const std::string models = verdict(
      "def main():\n"
      "  folds = []\n"
      "  for _ in range(4): folds.append(torch.nn.Module())\n");  // line 4
  EXPECT_PRED2(has, models, "leak: folds keeps 4 models, 256.00 MiB, at " + folder_ / "train.py:4") << models;
  EXPECT_FALSE(has(verdict("def main():\n  a, b = torch.Tensor(), [torch.Tensor()]\n"), "keeps"));
}

// A model that should not be trained: nothing is kept by mistake of a list.
TEST_F(KeptMemory, AVerdictNamesWeightsThatNoOptimizerTrains) {
  const std::string set_up =
      "class Teacher(torch.nn.Module):\n"
      "  def forward(self):\n"
      "    torch.fail()\n"
      "def main():\n"
      "  student, teacher = torch.nn.Module(), Teacher()\n"
      "  optimizer = torch.optim.Optimizer(student.parameters())\n";
  const std::string teacher = verdict(set_up + "  teacher.forward()\n");
  EXPECT_PRED2(has, teacher, "exhausted: Teacher runs with gradients, though no optimizer trains it")
      << teacher;
  const std::string gradients =
      verdict(set_up +
              "  for w in teacher.parameters(): w.grad = type('', (), {'nbytes': 1 << 28})\n"
              "  torch.fail()\n");
  EXPECT_PRED2(has, gradients,
               "exhausted: backward makes 256.00 MiB of gradients for weights that no optimizer")
      << gradients;
  const std::string right = verdict(set_up +
                                    "  for w in teacher.parameters(): w.requires_grad = False\n"
                                    "  teacher.forward()\n");
  EXPECT_FALSE(has(right, "no optimizer")) << right;
}

}  // namespace
}  // namespace headroom
