// Tests what the start-up hook tells of hooks, of entries that are joined with more, and of what is filled at
// once, by the verdict.

#include <gtest/gtest.h>

#include <string>

#include "base/files.h"
#include "tests/guard/kept_memory.h"

namespace headroom {
namespace {

TEST_F(KeptMemory, EntriesThatAreReplacedByLongerOnesGrow) {
  const std::string layer =
      "def cat(parts): return parts[0]\n"
      "def layer(state):\n"
      "  k, v = torch.Tensor(), torch.Tensor()\n"
      "  if state:\n"
      "    k = cat([state['k'], k])\n"  // line 6
      "    v = cat([state['v'], v])\n";
  const std::string rest =
      "  state['k'], state['v'] = k, v\n"
      "def main():\n"
      "  states = [{} for _ in range(4)]\n"
      "  for _ in range(3):\n"
      "    for state in states: layer(state)\n";
  const std::string text = verdict(layer + rest);
  EXPECT_PRED2(has, text, "leak: state grows by cat and takes 512.00 MiB, at " + folder_ / "train.py:6")
      << text;
  const std::string cut = verdict(layer + "    k, v = k[:4], v[:4]\n" + rest);
  EXPECT_FALSE(has(cut, "grows by")) << cut;
}

TEST_F(KeptMemory, AHookOfAnOptimizerIsNamedWithWhatItsClosuresKeep) {
  const std::string text = verdict(
      "torch.snapshot = '" HEADROOM_SOURCE_DIR
      "/tests/tools/report/snapshots/leak-python.pickle.gz'\n"
      "def register_step_post_hook(opt, hook): opt._step_post_hooks[len(opt._step_post_hooks)] = hook\n"
      "def watch(opt, x):\n"
      "  def report(): return x\n"
      "  register_step_post_hook(opt, report)\n"  // line 6
      "def main():\n"
      "  opt = torch.optim.Optimizer([])\n"
      "  opt._step_post_hooks = {}\n"
      "  for _ in range(4): watch(opt, torch.Tensor())\n");
  EXPECT_PRED2(has, text,
               "leak: report is 4 times a hook of the same optimizer, and keeps x by its closure, 256.00 "
               "MiB, registered again at " +
                   folder_ / "train.py:6")
      << text;
  EXPECT_PRED2(has, text, "next: handle.remove()  # of what register_step_post_hook returned") << text;
}

TEST_F(KeptMemory, WhatALibraryFillsInOneCallIsNoLeak) {
  folder_.write("site-packages/library.py", R"(import torch
class Layer:
  def __init__(self): self.keys = torch.Tensor()
class Cache:
  def __init__(self): self.layers = []
def fill(cache):
  cache.layers += [Layer() for _ in range(4)]
  torch.fail()
)");
  const std::string text = verdict(
      "import library\n"
      "def main():\n"
      "  cache = library.Cache()\n"  // line 4
      "  for _ in range(9): out = library.fill(cache)\n");
  EXPECT_PRED2(
      has, text,
      "exhausted: cache keeps 4 tensors, all made in one call, 256.00 MiB, at " + folder_ / "train.py:4")
      << text;
}

TEST_F(KeptMemory, AModelThatIsBeingMadeAndNumbersOfAShapeAreKnown) {
  const std::string file = folder_.write("train.py",
                                         "import torch\n"
                                         "class Net(torch.nn.Module):\n"
                                         "  def __init__(self): torch.fail()\n"
                                         "Net()\n");
  const std::string facts = folder_ / "facts.json";
  run("--limit 1000MiB --failure " + facts, "python3 " + file, "PYTHONPATH=" + folder_ / "site-packages");
  EXPECT_PRED2(has, read_file(facts, 1 << 20), "\"makes_model\": true");
  const std::string text = verdict(
      "def make(): return [torch.Tensor() for _ in range(4)]\n"
      "def sample(): torch.fail()\n"
      "def main():\n"
      "  print(make(), tuple(sample().shape))\n");
  EXPECT_FALSE(has(text, "keeps")) << text;
}

}  // namespace
}  // namespace headroom
