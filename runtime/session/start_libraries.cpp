// Apart from start_op.cpp: a prediction needs no kernel.
#include <array>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "kernels/kernel.h"
#include "ops/ops.h"
#include "runtime/session/start_op.h"

namespace headroom {
namespace {

constexpr std::array kLibraries = {Library::kBlas, Library::kDnn};
// The number of steps that a session captures, see session.cpp.
constexpr int64_t kRepeats = 16;

// Memory of the device for one call.
class Scratch {
 public:
  Scratch(DeviceMemory& memory, int64_t bytes) : memory_(memory), bytes_(bytes) {
    if (bytes == 0) return;
    pointer_ = memory.try_allocate(bytes);
    if (pointer_ != nullptr) return;
    throw DeviceError("cudaMalloc", "cudaErrorMemoryAllocation", "no room for the first call of a library",
                      "");
  }
  ~Scratch() { memory_.release(pointer_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* pointer() const { return pointer_; }

 private:
  DeviceMemory& memory_;
  const int64_t bytes_;
  void* pointer_ = nullptr;
};

// The bytes that the process holds more once the op has run and while its capture lives, without operands.
int64_t run_first(const Op& op, const std::vector<TensorSpec>& inputs, Device& device) {
  DeviceMemory& memory = device.memory();
  const int64_t before = memory.info().process;
  const std::vector<TensorSpec> outputs = infer_outputs(op, inputs);
  const std::unique_ptr<Kernel> kernel =
      make_cuda_kernel(op, inputs, outputs, device, {.library_only = true});
  std::vector<std::unique_ptr<Scratch>> scratch;
  std::vector<TensorView> in, out;
  const auto add = [&](std::vector<TensorView>& views, const TensorSpec& spec) {
    scratch.push_back(std::make_unique<Scratch>(memory, spec.bytes()));
    views.push_back({scratch.back()->pointer(), spec});
  };
  for (const TensorSpec& spec : inputs) add(in, spec);
  for (const TensorSpec& spec : outputs) add(out, spec);
  scratch.push_back(std::make_unique<Scratch>(memory, kernel->workspace_bytes()));
  const auto run = [&](Stream stream) { kernel->run(in, out, scratch.back()->pointer(), stream); };
  run({});
  const Task task{run, {}, {0}};
  const std::unique_ptr<Capture> capture = device.captures().capture({&task, 1}, kRepeats);
  capture->launch({});
  device.streams().synchronize({});
  scratch.clear();
  return memory.info().process - before;
}

int64_t run_first(Library library, Device& device) {
  const auto f32 = [](const Shape& shape) { return TensorSpec{DType::kF32, shape}; };
  if (library == Library::kBlas) return run_first(MatMul{}, {f32({64, 64}), f32({64, 64})}, device);
  return run_first(Conv2d{}, {f32({8, 14, 14, 32}), f32({3, 3, 32, 64})}, device);
}

}  // namespace

int64_t start_libraries(Device& device) {
  const int64_t pending_bytes = start_library_handles(device);
  if (!device.libraries().start_with_kernels()) return pending_bytes;
  int64_t bytes = 0;
  for (const Library library : kLibraries) {
    bytes += run_first(library, device) + device.memory().granularity_bytes();
  }
  return bytes;
}

}  // namespace headroom
