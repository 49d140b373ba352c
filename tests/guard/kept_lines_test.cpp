// Tests which line of a Python program a verdict names for what is kept.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/guard/kept_memory.h"

namespace headroom {
namespace {

TEST_F(KeptMemory, ALineThatKeepsNumbersIsNotTheOneThatKeepsTensors) {
  const std::string text = verdict(
      "def main():\n"
      "  history = {'loss': [], 'score': []}\n"
      "  for i in range(4):\n"
      "    history['loss'].append(float(i))\n"
      "    history['score'].append(torch.Tensor())\n");  // line 6
  EXPECT_PRED2(has, text, "leak: history keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:6") << text;
}

TEST_F(KeptMemory, OfADictTheLineIsNamedThatPutsTheTensorsIntoIt) {
  const std::string text = verdict(
      "def score(x): return 1.0\n"
      "def main():\n"
      "  history = {'score': [], 'feature': []}\n"
      "  for i in range(4):\n"
      "    history['score'].append(score(i))\n"
      "    history['feature'].append(torch.Tensor())\n");  // line 7
  EXPECT_PRED2(has, text, "leak: history keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:7") << text;
}

TEST_F(KeptMemory, ATensorThatIsJoinedWithMoreAgainAndAgainIsNamed) {
  const std::string text = verdict(
      "class Buffer:\n"
      "  def __init__(self): self.images = torch.Tensor()\n"
      "  def cat(self, parts): return parts[0]\n"
      "  def push(self, more):\n"
      "    self.images = self.cat([self.images, more])\n"  // line 6
      "    torch.fail()\n"
      "def main():\n"
      "  Buffer().push(torch.Tensor())\n");
  EXPECT_PRED2(has, text,
               "leak: self.images grows by self.cat and takes 64.00 MiB, at " + folder_ / "train.py:6")
      << text;
}

TEST_F(KeptMemory, ATensorOfAnObjectThatHasReturnedIsJoinedWithMore) {
  const std::string text = verdict(
      "def cat(parts): return parts[0]\n"
      "class Negatives:\n"
      "  def __init__(self): self.bank = torch.Tensor()\n"
      "  def extend(self, more): self.bank = cat([self.bank, more])\n"  // line 5
      "def main():\n"
      "  negatives = Negatives()\n"
      "  for step in range(3): negatives.extend(torch.Tensor())\n");
  EXPECT_PRED2(has, text,
               "leak: negatives.bank grows by cat and takes 64.00 MiB, at " + folder_ / "train.py:5")
      << text;
}

TEST_F(KeptMemory, ATensorThatAModelJoinsWithAnotherDoesNotGrow) {
  const std::string text = verdict(
      "def cat(parts): return parts[0]\n"
      "def up(x): return x\n"
      "def forward(x, skips):\n"
      "  for skip in skips:\n"
      "    x = up(x)\n"
      "    x = cat([x, skip])\n"
      "  torch.fail()\n"
      "def main():\n"
      "  forward(torch.Tensor(), [torch.Tensor()])\n");
  EXPECT_FALSE(has(text, "grows by")) << text;
}

TEST_F(KeptMemory, ObjectsThatRefuseOrActWhenTheyAreAskedHideNothing) {
  const std::string text = verdict(
      "import collections, weakref\n"
      "class Thing: pass\n"
      "class Lazy(collections.OrderedDict):\n"
      "  def values(self): print('asked for all'); return []\n"
      "class Proxy:\n"
      "  @property\n"
      "  def __dict__(self): raise RuntimeError('outside of a request')\n"
      "  def __getattr__(self, name): print('asked for', name); raise AttributeError(name)\n"
      "lazy, gone, request = Lazy(a=1), weakref.proxy(Thing()), Proxy()\n"
      "def main():\n"
      "  kept = []\n"
      "  for _ in range(4): kept.append(torch.Tensor())\n"  // line 13
      "  everything = [lazy, gone, request]\n");
  EXPECT_PRED2(has, text, "leak: kept keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:13") << text;
  EXPECT_FALSE(has(text, "asked for")) << text;
}

TEST_F(KeptMemory, NumbersThatAreMultipliedAreNoSizesOfBatches) {
  const std::string text = verdict("torch.snapshot = '" HEADROOM_SOURCE_DIR
                                   "/tests/tools/report/snapshots/growing-batch-gpt2-python.pickle.gz'\n"
                                   "def main():\n"
                                   "  batch_loss = total_size = 0\n"
                                   "  for x in range(4):\n"
                                   "    batch_loss += x * 2\n"
                                   "    total_size *= 3\n");
  EXPECT_FALSE(has(text, "is made larger")) << text;
}

TEST_F(KeptMemory, AScanOfJaxIsNoCauseWherePyTorchFails) {
  folder_.write("site-packages/jax.py", "def scan(f): return f\n");
  const std::string text = verdict(
      "import jax\n"
      "def main():\n"
      "  step = jax.scan(print)\n"
      "  torch.fail(64 << 20)\n");
  EXPECT_FALSE(has(text, "a scan stores")) << text;
}

TEST_F(KeptMemory, WeightsThatModelsShareCountOnce) {
  const std::string text = verdict(
      "class Head(torch.nn.Module):\n"
      "  def __init__(self, weight):\n"
      "    super().__init__()\n"
      "    self._parameters = {'w': weight}\n"
      "def main():\n"
      "  weight = torch.nn.Parameter()\n"
      "  a, b, c = Head(weight), Head(weight), Head(weight)\n");
  EXPECT_FALSE(has(text, "3 models")) << text;
}

TEST_F(KeptMemory, DoublesBeginWhereAnAttributeIsMade) {
  const std::string text = verdict(
      "class Solver:\n"
      "  def __init__(self): self.damp = torch.Tensor(dtype='torch.float64')\n"  // line 3
      "  def forward(self):\n"
      "    u = torch.Tensor(dtype='torch.float64')\n"
      "    torch.fail()\n"
      "def main():\n"
      "  Solver().forward()\n");
  EXPECT_PRED2(has, text, "float64 or complex128, since " + folder_ / "train.py:3") << text;
}

TEST_F(KeptMemory, ARequestOfEachProductIsToldBeforeItsSum) {
  const std::string text = verdict(
      "def main():\n"
      "  queries, texts = torch.Tensor(64, 32, 16), torch.Tensor(32, 16, 16)\n"
      "  torch.fail(64 << 20)\n");
  EXPECT_PRED2(has, text, "each row of queries (64 x 32 x 16 of float32) is multiplied by each of texts")
      << text;
  EXPECT_PRED2(has, text, "\nnext: torch.einsum or a matmul") << text;
}

TEST_F(KeptMemory, ARequestIsAsLargeAsWhatAModelReturned) {
  const std::string text = verdict(
      "def main():\n"
      "  output = {'loss': 1.0, 'logits': torch.Tensor(16, 1024, 1024)}\n"
      "  torch.fail(64 << 20)\n");
  EXPECT_PRED2(has, text, "it is as large as output.logits (16 x 1024 x 1024 of float32)") << text;
}

TEST_F(KeptMemory, ARequestOfABackwardIsToldByTheFunctionsThatWaitForIt) {
  const std::string text = verdict(
      "import threading\n"
      "def main():\n"
      "  logits = torch.Tensor(16, 1024, 1024)\n"
      "  engine = threading.Thread(target=torch._C.ran_out, args=(0, 64 << 20))\n"
      "  engine.start(), engine.join()\n"
      "  raise RuntimeError('CUDA out of memory. Tried to allocate 64.00 MiB')\n");
  EXPECT_PRED2(has, text, "it is as large as logits (16 x 1024 x 1024 of float32)") << text;
}

TEST_F(KeptMemory, ObjectsOfALibraryThatADictKeepsAreTheDicts) {
  folder_.write("site-packages/library.py", R"(import torch
class Layer:
  def __init__(self): self.keys = torch.Tensor()
class Cache:
  def __init__(self): self.layers = [Layer() for _ in range(2)]
)");
  const std::string text = verdict(
      "import library\n"
      "class Server:\n"
      "  def __init__(self): self.sessions = {}\n"
      "  def reply(self, user): self.sessions[user] = library.Cache()\n"  // line 5
      "def main():\n"
      "  server = Server()\n"
      "  for user in range(3): server.reply(user)\n");
  EXPECT_PRED2(has, text, "leak: sessions keeps 6 tensors, 384.00 MiB, at " + folder_ / "train.py:5") << text;
  EXPECT_PRED2(has, text, "\nnext: keep a copy in the machine's memory") << text;
}

TEST_F(KeptMemory, WhatFunctionsKeepIsNamed) {
  const std::string hook = verdict(
      "def watch(model):\n"
      "  features = []\n"
      "  def hook(output): features.append(output)\n"  // line 4
      "  model._forward_hooks = {0: hook}\n"
      "def main():\n"
      "  model = torch.nn.Module()\n"
      "  watch(model)\n"
      "  for _ in range(4): model._forward_hooks[0](torch.Tensor())\n");
  EXPECT_PRED2(has, hook, "leak: features keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:4") << hook;
  const std::string argument = verdict(
      "def embed(i, known={}):\n"
      "  known[i] = torch.Tensor()\n"  // line 3
      "def main():\n"
      "  for i in range(4): embed(i)\n");
  EXPECT_PRED2(has, argument, "leak: known keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:3")
      << argument;
  folder_.write("bank.py", "import torch\nBANK = []\ndef keep(): BANK.append(torch.Tensor())\n");
  const std::string other = verdict("import bank\ndef main():\n  for _ in range(4): bank.keep()\n");
  EXPECT_PRED2(has, other, "leak: BANK keeps 4 tensors, 256.00 MiB, at " + folder_ / "bank.py:3") << other;
}

TEST_F(KeptMemory, ModelsThatTakeMostAreNamedWithTheirLines) {
  const std::string text = verdict(
      "def main():\n"
      "  target = torch.nn.Module()\n"  // line 3
      "  draft = torch.nn.Module()\n");
  EXPECT_PRED2(has, text, "weights and gradients: target takes 64.00 MiB, made at " + folder_ / "train.py:3")
      << text;
  EXPECT_PRED2(has, text, "; draft takes 64.00 MiB, made at " + folder_ / "train.py:4") << text;
}

TEST_F(KeptMemory, OfAnObjectThePartIsNamedThatTakesNearlyAll) {
  const std::string text = verdict(
      "class Penalty:\n"
      "  def __init__(self):\n"
      "    self.name, self.fisher = 'ewc', torch.Tensor()\n"  // line 4
      "def main():\n"
      "  penalty = Penalty()\n");
  EXPECT_PRED2(has, text, "penalty.fisher takes 64.00 MiB, made at " + folder_ / "train.py:4") << text;
}

TEST_F(KeptMemory, IteratorsThatKeepWhatTheyGaveAreNamed) {
  const std::string text = verdict(
      "import itertools\n"
      "def main():\n"
      "  batches = itertools.cycle(torch.Tensor() for _ in range(4))\n"  // line 4
      "  for _ in range(9): next(batches)\n");
  EXPECT_PRED2(has, text, "leak: batches keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:4") << text;
  EXPECT_PRED2(has, text, "\nnext: make a new iterator for each pass") << text;
}

TEST_F(KeptMemory, WhatManyObjectsWereMadeWithIsNamedWhereTheyAreMade) {
  const std::string text = verdict(
      "class Beam:\n"
      "  def __init__(self, cache, parent=None): self.cache, self.parent = cache, parent\n"
      "def main():\n"
      "  beam = Beam([torch.Tensor()])\n"
      "  for _ in range(4): beam = Beam([torch.Tensor()], parent=beam)\n");  // line 6
  EXPECT_PRED2(has, text, "leak: Beam.cache keeps 5 tensors, 320.00 MiB, at " + folder_ / "train.py:6")
      << text;
}

TEST_F(KeptMemory, AnAverageOfTensorsWithGraphsIsNamed) {
  const std::string text =
      verdict("torch.snapshot = '" HEADROOM_SOURCE_DIR
              "/tests/tools/report/snapshots/leak-python.pickle.gz'\n"
              "class Monitor:\n"
              "  mean = 0\n"
              "  def see(self, x):\n"
              "    x.grad_fn = 1\n"
              "    self.mean = x if self.mean == 0 else torch.lerp(self.mean, x)\n"  // line 7
              "def main():\n"
              "  monitor = Monitor()\n"
              "  monitor.see(torch.Tensor())\n");
  EXPECT_PRED2(has, text,
               "mean keeps 1 tensor with the graph behind it, 64.00 MiB, at " + folder_ / "train.py:7")
      << text;
}

TEST_F(KeptMemory, AHookThatIsRegisteredAgainAndAgainIsTheCause) {
  const std::string text = verdict("torch.snapshot = '" HEADROOM_SOURCE_DIR
                                   "/tests/tools/report/snapshots/leak-python.pickle.gz'\n"
                                   "class Explainer:\n"
                                   "  def __init__(self, model):\n"
                                   "    self.seen = [torch.Tensor()]\n"
                                   "    model._forward_hooks[len(model._forward_hooks)] = self.see\n"
                                   "    # model.register_forward_hook\n"
                                   "  def see(self): pass\n"
                                   "def main():\n"
                                   "  model = torch.nn.Module()\n"
                                   "  model._forward_hooks = {}\n"
                                   "  for _ in range(4): Explainer(model)\n");
  EXPECT_PRED2(has, text, "leak: see is 4 times a hook of the same module") << text;
  EXPECT_PRED2(has, text, "\nnext: handle.remove()") << text;
}

// Four threads that have a model each, of a class Net that these lines define.
std::string models_of_threads(const std::string& net) {
  return "import threading\n" + net +
         "local = threading.local()\n"
         "def work(ready, ends):\n"
         "  local.model = Net()\n"
         "  ready.release()\n"
         "  ends.wait()\n"
         "def main():\n"
         "  ready, ends = threading.Semaphore(0), threading.Event()\n"
         "  for _ in range(4): threading.Thread(target=work, args=(ready, ends), daemon=True).start()\n"
         "  for _ in range(4): ready.acquire()\n";
}

TEST_F(KeptMemory, ManyModelsOfOneClassAreTheCause) {
  const std::string text = verdict(models_of_threads("class Net(torch.nn.Module): pass\n"));
  EXPECT_PRED2(
      has, text,
      "the weights and gradients of 4 models of class Net take 256.00 MiB, made at " + folder_ / "train.py:6")
      << text;
}

TEST_F(KeptMemory, EqualContainersOfPyTorchAreModels) {
  const std::string text =
      verdict(models_of_threads("class Sequential(torch.nn.Module): pass\n"
                                "Sequential.__module__ = 'torch.nn.modules'\n"
                                "def Net():\n"
                                "  model = Sequential()\n"  // line 6
                                "  model._modules['0'] = torch.nn.Module()\n"
                                "  return model\n"));
  EXPECT_PRED2(has, text,
               "the weights and gradients of 4 models of class Sequential take 256.00 MiB, made at " +
                   folder_ / "train.py:6")
      << text;
}

TEST_F(KeptMemory, TheLayersOfAModelThatIsBeingMadeAreNoModels) {
  const std::string text = verdict(
      "class Layer(torch.nn.Module): pass\n"
      "class Net(torch.nn.Module):\n"
      "  def __init__(self):\n"
      "    super().__init__()\n"
      "    layers = [Layer() for _ in range(5)]\n"
      "    torch.fail()\n"
      "def main():\n"
      "  Net()\n");
  EXPECT_FALSE(has(text, "models of class")) << text;
}

TEST_F(KeptMemory, WhatKeepsTheMachinesMemoryIsTold) {
  const std::string text = verdict(
      "def main():\n"
      "  maps = []\n"
      "  for _ in range(4):\n"
      "    maps.append(torch.Tensor())\n"  // line 5
      "    maps[-1].is_cuda = False\n"
      "  on_card = [torch.Tensor() for _ in range(9)]\n"
      "  raise RuntimeError(\"DefaultCPUAllocator: can't allocate memory: you tried to allocate 19267584 "
      "bytes. Error code 12 (Cannot allocate memory)\")\n");
  EXPECT_PRED2(has, text, "host-memory: The machine's memory (RAM)") << text;
  EXPECT_PRED2(has, text, "\nmaps keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:5") << text;
  EXPECT_PRED2(has, text, "\nnext: keep less of each, or write it to a file") << text;
}

TEST_F(KeptMemory, FunctionsInAListKeepTheirArraysInTheList) {
  const std::string text = verdict(
      "import functools\n"
      "def make():\n"
      "  bank = torch.Tensor()\n"
      "  return lambda x: x @ bank\n"
      "def main():\n"
      "  versions = []\n"
      "  for _ in range(4): versions.append(functools.partial(make(), 1))\n");  // line 8
  EXPECT_PRED2(has, text, "leak: versions keeps 4 tensors, 256.00 MiB, at " + folder_ / "train.py:8") << text;
}

TEST_F(KeptMemory, OneModelUnderSeveralNamesIsOne) {
  folder_.write("site-packages/library.py", R"(
class Trainer:
  def __init__(self, model): self.model, self.wrapped, self.plugins = model, [model], {'a': model, 'b': model}
  def fit(self): pass
)");
  const std::string text = verdict(
      "import library\n"
      "def main():\n"
      "  model = torch.nn.Module()\n"
      "  trainer = library.Trainer(model)\n"
      "  trainer.fit(model)\n");
  EXPECT_FALSE(has(text, "keeps")) << text;
}

TEST_F(KeptMemory, TwoModelsInAListThatGrowsAreKept) {
  const std::string grows = verdict(
      "def main():\n"
      "  folds = []\n"
      "  for i in range(2):\n"
      "    folds.append({'model': torch.nn.Module()})\n"  // line 5
      "    if i == 1: torch.fail()\n");
  EXPECT_PRED2(has, grows, "leak: folds keeps 2 models, 128.00 MiB, at " + folder_ / "train.py:5") << grows;
  const std::string pair = verdict("def main():\n  both = [torch.nn.Module(), torch.nn.Module()]\n");
  EXPECT_FALSE(has(pair, "keeps")) << pair;
}

TEST_F(KeptMemory, ACheckpointThatAnObjectKeepsIsNamedWithTheLineThatLoadsIt) {
  const std::string text = verdict(
      "class Trainer:\n"
      "  def __init__(self):\n"
      "    self.checkpoint = torch.load('weights.pt')\n"  // line 4
      "  def fit(self): torch.fail()\n"
      "def main():\n"
      "  Trainer().fit()\n");
  EXPECT_PRED2(has, text,
               "exhausted: self.checkpoint still holds 256.00 MiB that torch.load returned, at " +
                   folder_ / "train.py:4")
      << text;
}

TEST_F(KeptMemory, GradientsOfEachExampleAreNamedWhereTheTransformIs) {
  std::filesystem::create_directories(folder_ / "site-packages/torch/_functorch");
  folder_.write("site-packages/torch/_functorch/apis.py", R"(import torch
def grad(loss): return loss
def vmap(function): return lambda x: torch.fail(64 << 20)
)");
  const std::string text = verdict(
      "from torch._functorch.apis import grad, vmap\n"
      "def main():\n"
      "  each = vmap(grad(print))\n"  // line 4
      "  each(torch.Tensor())\n");
  EXPECT_PRED2(has, text, "vmap makes the gradients of all its examples at once") << text;
  EXPECT_PRED2(has, text, "at " + folder_ / "train.py:4") << text;
  EXPECT_PRED2(has, text, "chunk_size") << text;
}

TEST_F(KeptMemory, OptimizersThatSchedulesKeepAreNamed) {
  folder_.write("site-packages/schedules.py", R"(
class Schedule:
  __module__ = 'torch.optim.lr_scheduler'
  def __init__(self, optimizer): self.optimizer = optimizer
)");
  const std::string text =
      verdict("import schedules\ntorch.snapshot = '" HEADROOM_SOURCE_DIR
              "/tests/tools/report/snapshots/leak-python.pickle.gz'\n"
              "def main():\n"
              "  cycles = []\n"
              "  for _ in range(2):\n"
              "    optimizer = torch.optim.Optimizer([])\n"
              "    optimizer.state.update({i: {'exp_avg': torch.Tensor()} for i in range(32)})\n"
              "    cycles.append(schedules.Schedule(optimizer))\n"  // line 9
              "    if len(cycles) == 2: torch.fail()\n");
  EXPECT_PRED2(has, text, "leak: cycles keeps 2 optimizers, 4.00 GiB, at " + folder_ / "train.py:9") << text;
}

TEST_F(KeptMemory, AFunctionOfAutogradThatKeepsItsOutputIsNamedByItsOwnLine) {
  const std::string text = verdict(
      "import gc\n"
      "class Round:\n"
      "  def forward(ctx, x):\n"
      "    ctx.y = x\n"  // line 5
      "Context = type('RoundBackward', (), {'__module__': 'torch.autograd', '_forward_cls': Round})\n"
      "def main():\n"
      "  gc.disable()\n"
      "  for _ in range(8):\n"
      "    ctx, x = Context(), torch.Tensor()\n"
      "    Round.forward(ctx, x)\n"
      "    x.maker = ctx\n"
      "  del ctx, x\n");
  EXPECT_PRED2(has, text,
               "as Round does, keep 512.00 MiB until Python's collector runs, at " + folder_ / "train.py:5")
      << text;
}

TEST_F(KeptMemory, TheLineThatMakesBatchesLargerIsNamed) {
  const std::string text = verdict("torch.snapshot = '" HEADROOM_SOURCE_DIR
                                   "/tests/tools/report/snapshots/growing-batch-gpt2-python.pickle.gz'\n"
                                   "class Data:\n"
                                   "  batch_size = 8\n"
                                   "  def grow(self): self.batch_size *= 2\n"  // line 5
                                   "def main():\n"
                                   "  Data().grow()\n");
  EXPECT_PRED2(has, text, "batch_size is made larger at " + folder_ / "train.py:5") << text;
  const std::string first = verdict("torch.snapshot = '" HEADROOM_SOURCE_DIR
                                    "/tests/tools/report/snapshots/growing-batch-gpt2-python.pickle.gz'\n"
                                    "class Control:\n"
                                    "  def __init__(self): self.size, self.count = 96, 64\n"
                                    "  def step(self):\n"
                                    "    self.count += 1\n"
                                    "    self.size = int(self.size * 1.5)\n"  // line 7
                                    "def main():\n"
                                    "  control = Control()\n"
                                    "  x = torch.Tensor(control.size, control.count)\n");
  EXPECT_PRED2(has, first, "\nsize is made larger at " + folder_ / "train.py:7") << first;
}

}  // namespace
}  // namespace headroom
