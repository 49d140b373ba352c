// Tests what the start-up hook finds in a Python program's own frames when memory runs out, told by the
// verdict.

#include "tests/guard/kept_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace headroom {
namespace {

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
  EXPECT_PRED2(
      has, failed,
      "leak: skipped keeps 4 tensors in tracebacks of errors, 256.00 MiB, at " + folder_ / "train.py:9")
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
      "  for i in range(4):\n"
      "    folds.append(torch.nn.Module())\n"  // line 5
      "    if i == 3: torch.fail()\n");
  EXPECT_PRED2(has, models, "leak: folds keeps 4 models, 256.00 MiB, at " + folder_ / "train.py:5") << models;
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
  const std::string misspelt = verdict(set_up +
                                       "  for w in teacher.parameters(): w.require_grad = False\n"  // line 8
                                       "  teacher.forward()\n");
  EXPECT_PRED2(has, misspelt,
               "its weights have require_grad, which PyTorch does not read, at " + folder_ / "train.py:8")
      << misspelt;
}

// Objects of libraries, and lists in their calls, keep what the program gave them or asked them for.
TEST_F(KeptMemory, AVerdictNamesTheLineThatHasALibraryKeepTheMemory) {
  folder_.write("site-packages/library.py", R"(import torch
class Layer:
  def __init__(self): self.keys = torch.Tensor()
class Cache:
  def __init__(self): self.layers = [Layer() for _ in range(4)]
def generate():
  scores = [torch.Tensor() for _ in range(4)]
  torch.fail()
)");
  const std::string call = verdict(
      "import library\n"
      "def main():\n"
      "  library.generate()\n");  // line 4
  EXPECT_PRED2(has, call, "leak: library.generate keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:4")
      << call;
  folder_.write("site-packages/trainer.py",
                "import library\ndef train(): evaluate()\ndef evaluate(): library.generate()\n");
  const std::string evaluation = verdict("import trainer\ndef main():\n  trainer.train()\n");  // line 4
  EXPECT_PRED2(has, evaluation,
               "leak: trainer.train, in evaluate, keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:4")
      << evaluation;
  EXPECT_PRED2(has, evaluation, "\nnext: have the evaluation keep less of each batch") << evaluation;
  const std::string object = verdict(
      "import library\n"
      "def main():\n"
      "  cache = library.Cache()\n");  // line 4
  EXPECT_PRED2(has, object, "leak: cache keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:4")
      << object;
  const std::string queue = verdict(
      "import queue\n"
      "def main():\n"
      "  q = queue.Queue()\n"
      "  for _ in range(4): q.put(torch.Tensor())\n");  // line 5
  EXPECT_PRED2(has, queue,
               "leak: q, a queue without maxsize, keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:5")
      << queue;
}

TEST_F(KeptMemory, AVerdictNamesBuffersOptimizersAndPaddingWhereTheSnapshotShowsTheirKind) {
  const auto snapshot = [](const std::string& name) {
    return "torch.snapshot = '" HEADROOM_SOURCE_DIR "/tests/tools/report/snapshots/" + name +
           "-python.pickle.gz'\n";
  };
  const std::string buffer = verdict(snapshot("evaluation-keeps-graphs") +
                                     "class Norm(torch.nn.Module):\n"
                                     "  def forward(self, x):\n"
                                     "    self.mean = 0.9 * self.mean + 0.1 * x\n"  // line 5
                                     "def main():\n"
                                     "  norm = Norm()\n"
                                     "  norm._buffers['mean'] = torch.Tensor()\n"
                                     "  norm._buffers['mean'].grad_fn = 1\n");
  EXPECT_PRED2(has, buffer,
               "mean keeps 1 tensor with the graph behind it, 64.00 MiB, at " + folder_ / "train.py:5")
      << buffer;
  EXPECT_PRED2(has, buffer, "\nnext: update the buffer under torch.no_grad()") << buffer;
  const std::string optimizers = verdict(snapshot("leak") +
                                         "def main():\n"
                                         "  steps = []\n"
                                         "  for i in range(64):\n"
                                         "    each = torch.optim.Optimizer([])\n"
                                         "    each.state[0] = {'exp_avg': torch.Tensor()}\n"
                                         "    steps.append(each)\n"  // line 8
                                         "    if i == 63: torch.fail()\n");
  EXPECT_PRED2(has, optimizers, "leak: steps keeps 64 optimizers, 4.00 GiB, at " + folder_ / "train.py:8")
      << optimizers;
  folder_.write("site-packages/torch/utils/data.py",
                "class DataLoader:\n  def __init__(self, collate_fn): self.collate_fn = collate_fn\n");
  const std::string padding = verdict("from torch.utils import data\n" + snapshot("growing-batch-gpt2") +
                                      "def collate(items):\n"
                                      "  return torch.pad_sequence(items)\n"  // line 5
                                      "def main():\n"
                                      "  loader = data.DataLoader(collate)\n");
  EXPECT_PRED2(has, padding, "each batch is padded to its longest item, at " + folder_ / "train.py:5")
      << padding;
  const std::string object =
      verdict("from torch.utils import data\n" + snapshot("growing-batch-gpt2") +
              "class Collator:\n"
              "  def __call__(self, items): return torch.pad_sequence(items)\n"  // line 5
              "def main():\n"
              "  loader = data.DataLoader(Collator())\n");
  EXPECT_PRED2(has, object, "each batch is padded to its longest item, at " + folder_ / "train.py:5")
      << object;
}

TEST_F(KeptMemory, AVerdictTellsARequestByTheArraysThatItIsMadeOf) {
  const auto request = [&](const std::string& a, const std::string& b) {
    return verdict("def main():\n  a, b = torch.Tensor(" + a + "), torch.Tensor(" + b +
                   ")\n  torch.fail(64 << 20)\n");
  };
  const std::string one = request("16, 1024, 1024", "1024, 1");
  EXPECT_PRED2(has, one, "of the request that failed: it is as large as a (16 x 1024 x 1024 of float32)")
      << one;
  const std::string pair = request("4096, 1", "4096");
  EXPECT_PRED2(has, pair, "a (4096 x 1 of float32) and b (4096 of float32) make 4096 x 4096") << pair;
  EXPECT_PRED2(has, pair, "\nnext: make the shapes equal first") << pair;
  const std::string product = request("4096, 64", "4096, 64");
  EXPECT_PRED2(has, product, "it is the product of a (4096 x 64 of float32) and b (4096 x 64 of float32)")
      << product;
  EXPECT_FALSE(has(request("3000, 3", "8, 8"), "of the request"));
}

TEST_F(KeptMemory, AVerdictNamesTheVariableThatHoldsItsOldValueAndWhereDoublesBegin) {
  const std::string replaced = verdict(
      "def make():\n"
      "  torch.fail()\n"
      "def main():\n"
      "  volume = torch.Tensor()\n"
      "  volume = make()\n");  // line 6
  EXPECT_PRED2(
      has, replaced,
      "exhausted: volume still holds 64.00 MiB while its next value is made, at " + folder_ / "train.py:6")
      << replaced;
  EXPECT_PRED2(has, replaced, "\nnext: del volume") << replaced;
  const std::string doubles = verdict(
      "def main():\n"
      "  grid = torch.Tensor(dtype='torch.float64')\n");  // line 3
  EXPECT_PRED2(has, doubles, "64.00 MiB are float64 or complex128, since " + folder_ / "train.py:3")
      << doubles;
}

TEST_F(KeptMemory, AVerdictCountsWhatTheObjectsInAListHold) {
  const std::string models = verdict(
      "class Fold:\n"
      "  def __init__(self): self.net = torch.nn.Module()\n"
      "def main():\n"
      "  folds = []\n"
      "  for i in range(5):\n"
      "    folds.append({'fold': i, 'model': Fold()})\n"  // line 7
      "    if i == 4: torch.fail()\n");
  EXPECT_PRED2(has, models, "leak: folds keeps 5 models, 320.00 MiB, at " + folder_ / "train.py:7") << models;
  const std::string records = verdict(
      "class Step:\n"
      "  __slots__ = ('seen', 'reward')\n"
      "def main():\n"
      "  memory = []\n"
      "  for i in range(5):\n"
      "    memory.append(Step())\n"  // line 7
      "    memory[-1].seen, memory[-1].reward = torch.Tensor(), 1\n");
  EXPECT_PRED2(has, records, "leak: memory keeps 5 tensors, 320.00 MiB, at " + folder_ / "train.py:7")
      << records;
}

TEST_F(KeptMemory, AVerdictNamesObjectsThatWaitForTheCollector) {
  const std::string text = verdict(
      "import gc\n"
      "gc.disable()\n"
      "class Other:\n"
      "  def own(self, part): part.owner = self\n"
      "class Node:\n"
      "  def link(self, other):\n"
      "    self.seen, other.back = torch.Tensor(), self\n"
      "    other.root = self\n"  // line 9
      "    self.other = other\n"
      "def main():\n"
      "  for i in range(4): Node().link(Node())\n");
  EXPECT_PRED2(
      has, text,
      "leak: objects that refer to each other, as Node does, keep 256.00 MiB until Python's collector runs, "
      "at " +
          folder_ / "train.py:9")
      << text;
}

TEST_F(KeptMemory, ALibraryThatFindsNoRoomIsExplainedByWhatTheProgramHolds) {
  const std::string error =
      "  raise RuntimeError('CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`')\n";
  const std::string text = verdict(
      "def main():\n"
      "  checkpoint = torch.load('last.pt')\n" +  // line 3
      error);
  EXPECT_PRED2(
      has, text,
      "exhausted: checkpoint still holds 256.00 MiB that torch.load returned, at " + folder_ / "train.py:3")
      << text;
  EXPECT_PRED2(has, text, "\nnext: map_location=\"cpu\"") << text;
  const std::string made = verdict(
      "def load_batch(i): return torch.Tensor(), torch.Tensor()\n"
      "def main():\n"
      "  pair = load_batch(1)\n" +
      error);
  EXPECT_PRED2(has, made, "pair still holds 128.00 MiB that load_batch returned") << made;
  EXPECT_FALSE(has(made, "map_location")) << made;
}

TEST_F(KeptMemory, FactsOfOtherTypesAreNone) {
  const std::string text = verdict(
      "import os\n"
      "def main():\n"
      "  with open('%s.%d.json' % (os.environ['HEADROOM_RUN_SNAPSHOT'], os.getpid()), 'w') as file:\n"
      "    file.write('{\"kept\": [{\"line\": \"3\", \"bytes\": 1e300, \"count\": null}], \"cycles\": "
      "{\"bytes\": null},'\n"
      "               ' \"starts\": {\"ranks\": \"x\", \"jax\": 1}, \"loaded\": {\"bytes\": [1]}, "
      "\"evaluating\": 7,'\n"
      "               ' \"arrays\": {\"bytes\": \"1\"}, \"libraries\": {\"JAX\": -5}}')\n"
      "  raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 MiB')\n");
  EXPECT_PRED2(has, text, "exhausted: The device was full before this request") << text;
  EXPECT_PRED2(has, text, "headroom: no GPU memory used") << text;
}

TEST_F(KeptMemory, AProgramGetsItsOwnErrorWhereNothingCanBeWrittenDown) {
  const std::string text = verdict(
      "def fail(path): raise OSError('no space')\n"
      "torch.cuda.memory._dump_snapshot = fail\n"
      "def main():\n"
      "  try: torch.fail()\n"
      "  except RuntimeError as error: print('caught', error)\n");
  EXPECT_PRED2(has, text, "headroom: what the program keeps is unknown: no space") << text;
  EXPECT_PRED2(has, text, "RuntimeError: CUDA out of memory") << text;
}

TEST_F(KeptMemory, AVerdictNamesViewsInAnObjectThatOnlyALibraryHas) {
  folder_.write("site-packages/library.py",
                "def keep(callback): global kept; kept = callback\ndef call(i): kept.see(i)\n");
  const std::string text = verdict(
      "import library; from heapq import heappush\n"
      "class Worst:\n"
      "  def __init__(self): self.heap = []\n"
      "  def see(self, i):\n"
      "    view = torch.Tensor()\n"
      "    view.nbytes = 1 << 20\n"
      "    heappush(self.heap, (i, view))\n"  // line 8
      "def main():\n"
      "  library.keep(Worst())\n"
      "  for i in range(5): library.call(i)\n");
  EXPECT_PRED2(has, text,
               "leak: heap keeps 5 tensors, views that hold all of larger ones, 320.00 MiB, at " +
                   folder_ / "train.py:8")
      << text;
  EXPECT_PRED2(has, text, "\nnext: keep .clone() of a view") << text;
}

TEST_F(KeptMemory, AVerdictNamesTheVariableThatHoldsMost) {
  const std::string text = verdict(
      "class State:\n"
      "  def __init__(self): self.memory = torch.Tensor()\n"
      "def main():\n"
      "  state: dict = {'a': State(), 'b': [State()]}\n"  // line 5
      "  other = torch.Tensor()\n");
  EXPECT_PRED2(has, text, "state takes 128.00 MiB, made at " + folder_ / "train.py:5") << text;
}

// The code that looks at a program's variables leaves none of them behind, nor adds to its objects.
TEST_F(KeptMemory, AProgramThatRecoversCanFreeItsVariables) {
  const std::string text = verdict(
      "import collections, weakref\n"
      "class Dict(collections.defaultdict): __getattr__ = collections.defaultdict.__getitem__\n"
      "def step():\n"
      "  batch, options = torch.Tensor(), Dict(list)\n"
      "  seen = weakref.ref(batch)\n"
      "  try: torch.fail()\n"
      "  except RuntimeError: pass\n"
      "  del batch\n"
      "  print('held' if seen() else 'freed', dict(options), file=__import__('sys').stderr)\n"
      "def main():\n"
      "  step()\n");
  EXPECT_PRED2(has, text, "freed {}\n") << text;
}

TEST_F(KeptMemory, TheHookIsNeverTheProgramsLine) {
  folder_.write("site-packages/torch/__init__.py", "raise ImportError('CUDA out of memory')\n");
  const std::string text = verdict("def main():\n");
  EXPECT_PRED2(has, text, "at " + folder_ / "train.py:1 in <module>\n") << text;
}

TEST_F(KeptMemory, AModuleInTheMakingHidesNothing) {
  const std::string text = verdict(
      "class Half(torch.nn.Module):\n"
      "  def __init__(self): torch.fail()\n"
      "def main():\n"
      "  maps, model = [], torch.nn.Module()\n"
      "  for _ in range(4): maps.append(torch.Tensor())\n"  // line 6
      "  Half()\n");
  EXPECT_PRED2(has, text, "leak: maps keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:6") << text;
}

// Graphs that a long step makes for its own backward are no evaluation's; those of a list before it are.
TEST_F(KeptMemory, AVerdictTellsALongStepFromAnEvaluation) {
  const auto program = [&](const std::string& before) {
    return verdict("torch.snapshot = '" HEADROOM_SOURCE_DIR
                   "/tests/tools/report/snapshots/evaluation-keeps-graphs-python.pickle.gz'\n"
                   "def graph():\n"
                   "  value = torch.Tensor()\n"
                   "  value.grad_fn = 1\n"
                   "  return value\n"
                   "def imagine():\n"
                   "  rewards = []\n"
                   "  for _ in range(4): rewards.append(graph())\n"
                   "  torch.fail()\n"
                   "def main():\n"
                   "  losses = []\n"
                   "  for _ in range(4):\n" +
                   before +
                   "    imagine()\n"
                   "    losses[0].backward()\n");
  };
  const std::string step = program(""), evaluation = program("    for _ in 'abcd': losses.append(graph())\n");
  EXPECT_PRED2(has, step, "of activations until its backward") << step;
  EXPECT_PRED2(has, evaluation, "next: evaluate under torch.no_grad()") << evaluation;
}

TEST_F(KeptMemory, AVerdictNamesTheRankThatRanOutFirst) {
  const std::string file =
      folder_.write("train.py",
                    "import torch, sys\n"
                    "def load():\n"
                    "  torch.fail()\n"  // line 3
                    "def main():\n"
                    "  try: load()\n"
                    "  except RuntimeError: pass\n"
                    "  raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 MiB')\n"
                    "main()\n");
  const auto ranks = [&](const char* count) {
    return run("--limit 1000MiB", "python3 " + file,
               std::string("LOCAL_WORLD_SIZE=") + count + " PYTHONPATH=" + folder_ / "site-packages")
        .errors;
  };
  EXPECT_PRED2(has, ranks("2"), "at " + file + ":3 in load, called at train.py:5 in main");
  EXPECT_PRED2(has, ranks("1"), "at " + file + ":7 in main");
}

TEST_F(KeptMemory, AVerdictNamesTheTransformOfAJaxProgram) {
  std::filesystem::create_directories(folder_ / "site-packages/jax");
  folder_.write("site-packages/jax/__init__.py",
                "class lax:\n  def scan(*_): pass\n"
                "vmap = grad = lambda *_: None\n");
  const std::string text = verdict(
      "import jax\n"
      "def roll():\n"
      "  if True:\n"
      "    jax.lax.scan(None, None)\n"  // line 5, deeper than the next
      "def main():\n"
      "  jax.lax.scan(None, None)\n"
      "  raise RuntimeError('RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 "
      "bytes.')\n");
  EXPECT_PRED2(has, text,
               "a scan stores what it returns at each step and, for gradients, what each step computes, at " +
                   folder_ / "train.py:5")
      << text;
  EXPECT_PRED2(has, text, "\nnext: jax.checkpoint(body)") << text;
  const std::string each = verdict(
      "import jax\n"
      "def main():\n"
      "  jax.vmap(jax.grad(None))\n"  // line 4
      "  raise RuntimeError('RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 "
      "bytes.')\n");
  EXPECT_PRED2(has, each,
               "vmap makes the gradients of all its examples at once, as large as the weights for each, at " +
                   folder_ / "train.py:4")
      << each;
}

}  // namespace
}  // namespace headroom
