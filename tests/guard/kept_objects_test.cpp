// Tests which objects of a Python program a verdict finds to keep memory, and which it knows to be needed.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/guard/kept_memory.h"

namespace headroom {
namespace {

// Each row keeps four tensors in another kind of object, in the line that "# HERE" marks.
TEST_F(KeptMemory, ObjectsOfAllKindsThatKeepTensorsAreNamed) {
  struct Row {
    const char *name, *body;
  };
  const Row rows[] = {
      {"kept",
       "import collections\n"
       "def main():\n"
       "  kept = collections.deque(maxlen=9)\n"
       "  for i in range(4): kept.append(torch.Tensor())  # HERE\n"},
      {"items",  // an attribute in a slot
       "class Log:\n"
       "  __slots__ = ('items',)\n"
       "def main():\n"
       "  log = Log()\n"
       "  log.items = []\n"
       "  for i in range(4): log.items.append(torch.Tensor())  # HERE\n"},
      {"items",  // of a class, with no object
       "class Cache:\n"
       "  items = []\n"
       "  def see(x): Cache.items.append(x)  # HERE\n"
       "def main():\n"
       "  for i in range(4): Cache.see(torch.Tensor())\n"},
      {"encode",
       "import functools\n"
       "class Encoder:\n"
       "  @functools.lru_cache(maxsize=None)  # HERE\n"
       "  def encode(self, i): return torch.Tensor()\n"
       "def main():\n"
       "  encoder = Encoder()\n"
       "  for i in range(4): encoder.encode(i)\n"},
      {"var",
       "import contextvars\n"
       "var = contextvars.ContextVar('var')\n"
       "def main():\n"
       "  var.set([])\n"
       "  for i in range(4): var.get().append(torch.Tensor())  # HERE\n"},
      {"callbacks",  // methods
       "class Box:\n"
       "  def __init__(self): self.x = torch.Tensor()\n"
       "  def read(self): return self.x\n"
       "def main():\n"
       "  callbacks = []\n"
       "  for i in range(4): callbacks.append(Box().read)  # HERE\n"},
      {"streams",
       "def produce(x): yield x\n"
       "def main():\n"
       "  streams = []\n"
       "  for i in range(4):\n"
       "    stream = produce(torch.Tensor())\n"
       "    next(stream)\n"
       "    streams.append(stream)  # HERE\n"},
      {"tasks",
       "import asyncio\n"
       "async def work():\n"
       "  x = torch.Tensor()\n"
       "  await asyncio.sleep(99)\n"
       "async def serve():\n"
       "  tasks = set()\n"
       "  for i in range(4):\n"
       "    tasks.add(asyncio.create_task(work()))  # HERE\n"
       "    await asyncio.sleep(0)\n"
       "  torch.fail()\n"
       "def main():\n"
       "  asyncio.run(serve())\n"},
      {"work.x",  // tasks that nothing but the loop has
       "import asyncio\n"
       "async def work(x): await asyncio.sleep(99)\n"
       "async def serve():\n"
       "  for i in range(4):\n"
       "    asyncio.create_task(work(torch.Tensor()))  # HERE\n"
       "    await asyncio.sleep(0)\n"
       "  torch.fail()\n"
       "def main():\n"
       "  asyncio.run(serve())\n"},
      {"q, a queue without maxsize,",
       "import queue\n"
       "def main():\n"
       "  q = queue.SimpleQueue()\n"
       "  for i in range(4): q.put(torch.Tensor())  # HERE\n"},
      {"threads",
       "import threading\n"
       "def main():\n"
       "  threads = []\n"
       "  for i in range(4): threads.append(threading.Thread(args=(torch.Tensor(),)))  # HERE\n"},
      {"Node.x",  // a chain
       "class Node:\n"
       "  def __init__(self, x, before): self.x, self.before = x, before\n"
       "def main():\n"
       "  node = None\n"
       "  for i in range(4): node = Node(torch.Tensor(), node)  # HERE\n"},
      {"total",  // another function has a variable of that name
       "def count():\n"
       "  total = []\n"
       "  total.append(1)\n"
       "def main():\n"
       "  total = []\n"
       "  for i in range(4): total.append(torch.Tensor())  # HERE\n"},
  };
  for (const Row& row : rows) {
    const std::string body = row.body, before = body.substr(0, body.find("# HERE"));
    const auto line = 2 + std::count(before.begin(), before.end(), '\n');
    const std::string text = verdict(body);
    EXPECT_PRED2(has, text,
                 std::string("leak: ") + row.name + " keeps 4 tensors, 256.00 MiB, at " +
                     folder_ / "train.py:" + std::to_string(line) + "\n")
        << text;
  }
}

// A GAN has two optimizers, and an ensemble several models, from the start.
TEST_F(KeptMemory, ModelsAndOptimizersThatAreTrainedTogetherAreNotKept) {
  const std::string text = verdict("torch.snapshot = '" HEADROOM_SOURCE_DIR
                                   "/tests/tools/report/snapshots/leak-python.pickle.gz'\n"
                                   "def main():\n"
                                   "  nets, optimizers = [], {}\n"
                                   "  for i in range(3):\n"
                                   "    nets.append(torch.nn.Module())\n"
                                   "    optimizers[i] = torch.optim.Optimizer(nets[i].parameters())\n"
                                   "    optimizers[i].state[0] = {'exp_avg': torch.Tensor()}\n"
                                   "  for step in range(3): x = torch.Tensor()\n");
  EXPECT_FALSE(has(text, "keeps 3")) << text;
}

TEST_F(KeptMemory, AModelInACycleIsToldAsTheCycle) {
  const std::string text = verdict(
      "import gc\n"
      "gc.disable()\n"
      "class Trainer:\n"
      "  def __init__(self):\n"
      "    self.model = torch.nn.Module()\n"
      "    self.model.owner = self\n"  // line 7
      "def main():\n"
      "  for i in range(5): trainer = Trainer()\n");
  EXPECT_PRED2(
      has, text,
      "leak: objects that refer to each other, as Trainer does, keep 256.00 MiB until Python's collector "
      "runs, at " +
          folder_ / "train.py:7")
      << text;
}

// A sum that is made anew in each step is not what grows over the steps.
TEST_F(KeptMemory, ASumOfTheStepIsNoLeak) {
  const auto program = [&](const std::string& first, const std::string& each) {
    return verdict("torch.snapshot = '" HEADROOM_SOURCE_DIR
                   "/tests/tools/report/snapshots/leak-python.pickle.gz'\n"
                   "class Loss(torch.Tensor):\n"
                   "  grad_fn, numel = 1, lambda self: 1\n"
                   "  __add__ = __radd__ = lambda self, other: self\n"
                   "  def backward(self): pass\n"
                   "def main():\n" +
                   first + "  for step in range(4):\n" + each +
                   "    for head in range(3): total += Loss()\n"
                   "    if step == 3: torch.fail()\n"
                   "    total.backward()\n");
  };
  const std::string of_step = program("", "    total = 0\n"), of_all = program("  total = 0\n", "");
  EXPECT_FALSE(has(of_step, "total keeps")) << of_step;
  EXPECT_PRED2(has, of_all, "total keeps 1 tensor with the graph behind it") << of_all;
}

}  // namespace
}  // namespace headroom
