// A Python program with a PyTorch without a GPU, for tests of what the start-up hook of `headroom run` finds
// in it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/guard/guard_fixture.h"

namespace headroom {

inline constexpr char kTorch[] = R"(
import math, shutil
snapshot = ""
class Storage:
  nbytes, data_ptr = (lambda self: 64 << 20), (lambda self: id(self))
class Tensor:
  is_cuda, grad_fn = True, None
  def __init__(self, *shape, dtype="torch.float32"):
    self.storage, self.shape, self.dtype, self.nbytes = Storage(), shape, dtype, 4 * math.prod(shape or (1 << 24,))
  def untyped_storage(self): return self.storage
  def numel(self): return 1 << 24
class nn:
  Parameter = type("Parameter", (Tensor,), {"requires_grad": True, "grad": None})
  class Module:
    def __init__(self): self._modules, self._buffers, self._parameters = {}, {}, {"w": nn.Parameter()}
    def parameters(self): return list(self._parameters.values())
    def named_parameters(self): return list(self._parameters.items())
class optim:
  class Optimizer:
    def __init__(self, weights): self.param_groups, self.state = [{"params": weights}], {}
def is_grad_enabled(): return True
def load(path): return {'model': {i: Tensor() for i in range(4)}, 'step': 1}
def load_large(path):
  read = [Tensor() for i in range(4)]
  fail()
def fail(asked=0):
  _C.ran_out(0, asked)
  raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 MiB')
class cuda:
  def is_initialized(): return True
  def _lazy_call(call): call()
  class memory:
    def _record_memory_history(**_): pass
    def _dump_snapshot(path): snapshot and shutil.copy(snapshot, path)
class _C:
  def _cuda_attach_out_of_memory_observer(call): _C.ran_out = call
)";

class KeptMemory : public Guard {
 protected:
  void SetUp() override {
    if (run_shell(folder_, "python3 -c pass").code != 0) GTEST_SKIP() << "no python3";
    std::filesystem::create_directories(folder_ / "site-packages/torch/utils");
    folder_.write("site-packages/torch/__init__.py", kTorch);
  }
  // Runs a program whose main() has these lines and then runs out of memory.
  std::string verdict(const std::string& body) const {
    const std::string file = folder_.write("train.py", "import torch\n" + body + "  torch.fail()\nmain()\n");
    return run("--limit 1000MiB", "python3 " + file, "PYTHONPATH=" + folder_ / "site-packages").errors;
  }
};

}  // namespace headroom
