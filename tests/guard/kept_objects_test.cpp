// Tests which objects of a Python program a verdict finds to keep memory, and which it knows to be needed.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/guard/kept_memory.h"

namespace headroom {
namespace {

class KeptObjects : public KeptMemory {
 protected:
  // The place of the line that "# HERE" marks in a body, whose first line is that one of the file.
  std::string here(const std::string& body, int64_t first) const {
    const auto end = body.begin() + static_cast<int64_t>(body.find("# HERE"));
    return folder_ / "train.py:" + std::to_string(first + std::count(body.begin(), end, '\n'));
  }
};

// Each row keeps four tensors in another kind of object, in the line that "# HERE" marks.
TEST_F(KeptObjects, ObjectsOfAllKindsThatKeepTensorsAreNamed) {
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
      {"outputs",  // a weak proxy, which is seen first, keeps nothing
       "import weakref\n"
       "class Model:\n"
       "  def __init__(self): self.outputs = []\n"
       "  def step(self): self.outputs.append(torch.Tensor())  # HERE\n"
       "class Trainer: pass\n"
       "Trainer.__module__ = 'library'\n"
       "trainer, model = Trainer(), Model()\n"
       "trainer.seen, trainer.model = weakref.proxy(model), model\n"
       "del model\n"
       "def main():\n"
       "  for i in range(4): trainer.model.step()\n"},
      {"opt",  // the option that says how much an optimizer keeps
       "class LBFGS(torch.optim.Optimizer):\n"
       "  __module__ = 'torch.optim.lbfgs'\n"
       "  def __init__(self, weights, history_size):\n"
       "    super().__init__(weights)\n"
       "    self.state[0] = {'old': [torch.Tensor() for i in range(history_size)]}\n"
       "def main():\n"
       "  opt = LBFGS([],\n"
       "              history_size=4)  # HERE\n"},
      {"total",  // another function has a variable of that name
       "def count():\n"
       "  total = []\n"
       "  total.append(1)\n"
       "def main():\n"
       "  total = []\n"
       "  for i in range(4): total.append(torch.Tensor())  # HERE\n"},
  };
  for (const Row& row : rows) {
    const std::string text = verdict(row.body);
    EXPECT_PRED2(
        has, text,
        std::string("leak: ") + row.name + " keeps 4 tensors, 256.00 MiB, at " + here(row.body, 2) + "\n")
        << text;
  }
}

// The program's own numbers that are as large as a side of an array say what grows, whatever they are called.
TEST_F(KeptObjects, WhatIsAsLargeAsASideOfAnArrayGrows) {
  struct Row {
    const char *name, *body;
  };
  const Row rows[] = {
      {"tokens_at",
       "def tokens_at(step): return 8 * 2 ** step  # HERE\n"
       "def main():\n"
       "  for step in range(3):\n"
       "    t = tokens_at(step)\n"
       "    x = torch.Tensor(4, t)\n"
       "    if step == 2: torch.fail()\n"},
      {"side",
       "STAGES = [64, 128, 256]  # HERE\n"
       "def main():\n"
       "  for side in STAGES:\n"
       "    x = torch.Tensor(3, side, side)\n"
       "    if side == 256: torch.fail()\n"},
      {"horizon_for",
       "def horizon_for(epoch): return 4 << epoch  # HERE\n"
       "def imagine(horizon):\n"
       "  states = [torch.Tensor(2, 3) for i in range(horizon)]\n"
       "  if horizon == 16: torch.fail()\n"
       "def main():\n"
       "  for epoch in range(3):\n"
       "    horizon = horizon_for(epoch)\n"
       "    imagine(horizon)\n"},
      {"rounds",
       "class Plan:\n"
       "  def __init__(self): self.rounds = 7\n"
       "  def more(self): self.rounds += 9  # HERE\n"
       "def roll(rounds):\n"
       "  for i in range(rounds):\n"
       "    if i == 9: torch.fail()\n"
       "def main():\n"
       "  plan = Plan()\n"
       "  plan.more()\n"
       "  roll(plan.rounds)\n"},
      {"batch_size",
       "class Data:\n"
       "  def loader(self, epoch): return dict(batch_size=64 << epoch)  # HERE\n"
       "def main():\n"
       "  Data().loader(2)\n"},
  };
  for (const Row& row : rows) {
    const std::string text = verdict("torch.snapshot = '" HEADROOM_SOURCE_DIR
                                     "/tests/tools/report/snapshots/growing-batch-gpt2-python.pickle.gz'\n" +
                                     std::string(row.body));
    EXPECT_PRED2(has, text, row.name + (" is made larger at " + here(row.body, 3))) << text;
  }
}

TEST_F(KeptMemory, ACheckpointThatAFunctionReturnsIsNamedWhereItIsLoaded) {
  const std::string text = verdict(
      "def resume(path):\n"
      "  state = torch.load(path)\n"  // line 3
      "  return state\n"
      "def main():\n"
      "  last = resume('last.pt')\n");
  EXPECT_PRED2(
      has, text,
      "exhausted: last still holds 256.00 MiB that torch.load returned, at " + folder_ / "train.py:3")
      << text;
}

TEST_F(KeptMemory, WhatAFileHasFilledSoFarIsToldWhereItIsLoaded) {
  const std::string text = verdict("def main():\n  states = torch.load_large('x.pt')\n");
  EXPECT_PRED2(
      has, text,
      "exhausted: torch.load_large has put 256.00 MiB on the GPU so far, at " + folder_ / "train.py:3\n")
      << text;
}

// Variables of an imported module: a library's object may hold what the program keeps, under another name.
TEST_F(KeptMemory, ObjectsOfTheProgramNameWhatLibrariesHoldAsWell) {
  folder_.write("state.py",
                "class Model:\n"
                "  def __init__(self): self.outputs = []\n"
                "  def step(self, x): self.outputs.append(x)\n"
                "class Trainer: pass\n"
                "Trainer.__module__ = 'library'\n"
                "trainer, model = Trainer(), Model()\n"
                "trainer.kept = model.outputs\n");
  const std::string text = verdict(
      "import state\n"
      "def main():\n"
      "  for i in range(4): state.model.step(torch.Tensor())\n");
  EXPECT_PRED2(has, text, "leak: outputs keeps 4 tensors, 256.00 MiB, at " + folder_ / "state.py:3\n")
      << text;
}

TEST_F(KeptMemory, AStateThatIsCarriedOverBackwardPassesIsNamed) {
  const std::string text = verdict("torch.snapshot = '" HEADROOM_SOURCE_DIR
                                   "/tests/tools/report/snapshots/leak-python.pickle.gz'\n"
                                   "class State(torch.Tensor): grad_fn, numel = 1, lambda self: 7\n"
                                   "class Loss:\n"
                                   "  def backward(self): pass\n"
                                   "def model(x, state): return Loss(), State()\n"
                                   "def main():\n"
                                   "  state = None\n"
                                   "  for step in range(4):\n"
                                   "    loss, state = model(step, state)\n"  // line 10
                                   "    if step == 3: torch.fail()\n"
                                   "    loss.backward()\n");
  EXPECT_PRED2(has, text,
               "state keeps 1 tensor with the graph behind it, 64.00 MiB, at " + folder_ / "train.py:10")
      << text;
}

TEST_F(KeptMemory, TheListOfAComprehensionIsNamed) {
  const std::string text = verdict(
      "def model(i):\n"
      "  if i == 5: torch.fail()\n"
      "  return torch.Tensor()\n"
      "def main():\n"
      "  samples = sum([model(i) for i in range(6)])\n");  // line 6
  EXPECT_PRED2(has, text, "leak: samples keeps 5 tensors, 320.00 MiB, at " + folder_ / "train.py:6") << text;
}

// A graph tells what ran, also where the model itself has returned.
TEST_F(KeptMemory, AGraphLeadsToAModelThatNoOptimizerTrains) {
  const std::string text = verdict(
      "class Teacher(torch.nn.Module): pass\n"
      "class Node:\n"
      "  def __init__(self, weight): self.variable, self.next_functions = weight, []\n"
      "def main():\n"
      "  student, teacher, soft = torch.nn.Module(), Teacher(), torch.Tensor()\n"
      "  optimizer = torch.optim.Optimizer(student.parameters())\n"
      "  soft.grad_fn = Node(teacher.parameters()[0])\n");
  EXPECT_PRED2(has, text, "exhausted: Teacher runs with gradients, though no optimizer trains it") << text;
}

TEST_F(KeptMemory, AModelThatTheFailingLineCallsHasRun) {
  const std::string text = verdict(
      "class Teacher(torch.nn.Module):\n"
      "  def __call__(self): return 0\n"
      "def score(model): torch.fail(model())\n"
      "def main():\n"
      "  student, teacher = torch.nn.Module(), Teacher()\n"
      "  optimizer = torch.optim.Optimizer(student.parameters())\n"
      "  score(teacher)\n");
  EXPECT_PRED2(has, text, "exhausted: Teacher runs with gradients, at " + folder_ / "train.py:4, though")
      << text;
}

TEST_F(KeptMemory, ARequestIsTheProductOfTwoNumbers) {
  const std::string text = verdict("def main():\n  rows, dim = 1 << 20, 16\n  torch.fail(64 << 20)\n");
  EXPECT_PRED2(has, text, "of the request that failed: rows x dim (1048576 x 16) numbers of 4 bytes") << text;
}

// A loop has the iterator of a loader alone.
TEST_F(KeptMemory, PaddingIsFoundWhereTheLoaderIsGone) {
  const std::string text = verdict("import sys, types\ntorch.snapshot = '" HEADROOM_SOURCE_DIR
                                   "/tests/tools/report/snapshots/growing-batch-gpt2-python.pickle.gz'\n"
                                   "class Iterator:\n"
                                   "  def __init__(self, collate): self._collate_fn = collate\n"
                                   "name = 'torch.utils.data.dataloader'\n"
                                   "sys.modules[name] = types.SimpleNamespace(_BaseDataLoaderIter=Iterator)\n"
                                   "def collate(items):\n"
                                   "  return max(map(len, items))\n"  // line 9
                                   "def main():\n"
                                   "  batches = Iterator(collate)\n");
  EXPECT_PRED2(has, text, "each batch is padded to its longest item, at " + folder_ / "train.py:9") << text;
}

TEST_F(KeptMemory, TextsAndNumbersInTheMachinesMemoryAreFound) {
  for (const char* value : {"bytes(1 << 23)", "'x' * (1 << 23)", "[float(i)] * (1 << 18)"}) {
    const std::string text = verdict(
        "def main():\n"
        "  files = {}\n"
        "  for i in range(4): files[i] = " +
        std::string(value) +
        "\n"  // line 4
        "  raise MemoryError('Unable to allocate 2.00 GiB')\n");
    EXPECT_PRED2(has, text, "files keeps 4 objects, 32.00 MiB, at " + folder_ / "train.py:4") << text;
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

constexpr char kCuPy[] = R"(
import types
class ndarray:
  dtype = "float32"
  def __init__(self, mib, base=None): self.nbytes, self.base, self.shape = mib << 20, base, (mib << 18,)
class Cache:
  used = 0
  def get_curr_memsize(self): return self.used << 20
  def get_curr_size(self): return 4
cache = Cache()
config = types.SimpleNamespace(get_plan_cache=lambda: cache)
def transform(x): cache.used = 300
fft = types.SimpleNamespace(config=config, fft=transform)
def get_default_memory_pool(): return types.SimpleNamespace(total_bytes=lambda: 0)
)";

TEST_F(KeptMemory, AViewOfCuPyKeepsAllOfItsArray) {
  folder_.write("site-packages/cupy.py", kCuPy);
  const std::string text = verdict(
      "import cupy as cp\n"
      "def main():\n"
      "  final = {}\n"
      "  for name in range(4): final[name] = cp.ndarray(1, cp.ndarray(80))\n");  // line 5
  EXPECT_PRED2(has, text,
               "leak: final keeps 4 tensors, views that hold all of larger ones, 320.00 MiB, at " +
                   folder_ / "train.py:5")
      << text;
}

TEST_F(KeptMemory, PlansThatCuPyKeepsAreTold) {
  folder_.write("site-packages/cupy.py", kCuPy);
  const std::string text = verdict(
      "import cupy as cp\n"
      "def spectrum(x): return cp.fft.fft(x)\n"  // line 3
      "def main():\n"
      "  spectrum(cp.ndarray(1))\n");
  EXPECT_PRED2(has, text,
               "leak: CuPy's cache keeps 4 FFT plans, whose work areas take 300.00 MiB, made at " +
                   folder_ / "train.py:3")
      << text;
}

constexpr char kJax[] = R"(
import sys
from types import SimpleNamespace as Made
class Compiled:
  def __init__(self, line): self.line = line
  def __call__(self, *_): pass
  def trace(self, *_):
    class Type(str): shape, dtype = (1 << 26,), Made(itemsize=4)
    own = Made(file_name=sys.modules["__main__"].__file__, line_num=self.line)
    library = Made(file_name=__file__, line_num=1)
    step = Made(source_info=Made(traceback=Made(frames=[library, own])), outvars=[Made(aval=Type("float32[n]"))], params={})
    outer = Made(source_info=Made(traceback=None), outvars=[], params={"jaxpr": Made(jaxpr=Made(eqns=[step]))})
    return Made(jaxpr=Made(jaxpr=Made(eqns=[outer])))
)";

TEST_F(KeptMemory, TheLineOfACompiledFunctionThatMakesTheRequestIsTold) {
  folder_.write("site-packages/jaxlib.py", kJax);
  const std::string text = verdict(
      "import jaxlib\n"
      "step = jaxlib.Compiled(17)\n"
      "def main():\n"
      "  x = 1\n"
      "  step(x, 0.1); torch.fail(256 << 20)\n");
  EXPECT_PRED2(has, text, "of the request that failed: step makes float32[n], at " + folder_ / "train.py:17")
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
