// A training as PyTorch's snapshot records it: allocations and frees with the stacks that a program would
// have. Header only, for tests of several folders.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trace/categorize.h"
#include "trace/infer_marks.h"
#include "trace/stack.h"
#include "trace/trace_builder.h"

namespace headroom {

class FakeTraining {
 public:
  using Blocks = std::vector<uint64_t>;
  static constexpr int64_t kMiB = 1 << 20;

  // `native`: stacks also have C++ frames, as with stacks="all". `repeats`: frees have the stacks of their
  // allocations, as with context="alloc".
  explicit FakeTraining(bool native = false, bool repeats = false) : native_(native), repeats_(repeats) {
    for (int i = 0; i < kLayers; ++i) {
      weights_.push_back(allocate(kMiB, with(kModule + "convert", in_main(10))));
    }
  }

  // A block of the user's code, outside a module.
  uint64_t user(int line, int64_t bytes) { return allocate(bytes, in_loop(line)); }
  void drop(int line, uint64_t block) { release(block, in_loop(line)); }
  void drop(int line, const Blocks& blocks) {
    for (const uint64_t block : blocks) drop(line, block);
  }

  // Activations of all layers, which a loop of four lines calls, and of one after it; freed one by one under
  // no_grad.
  Blocks forward(int64_t bytes, bool grad = true, int line = 21) {
    Blocks live;
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string stack = layer_stack(layer, line);
      live.push_back(allocate(bytes, stack));
      const uint64_t temporary = allocate(kMiB / 2, stack);
      release(temporary, stack);
      if (!grad && live.size() == 2) {
        release(live.front(), stack);
        live.erase(live.begin());
      }
    }
    return live;
  }

  // Frees the activations and makes the gradients of the weights, unless they exist.
  void backward(const Blocks& activations) {
    const std::string stack = backward_stack();
    uint64_t before = 0;
    for (auto block = activations.rbegin(); block != activations.rend(); ++block) {
      const uint64_t gradient = allocate(kMiB / 4, stack);
      if (gradients_.size() < weights_.size()) gradients_.push_back(allocate(kMiB, stack));
      release(*block, stack);
      if (before != 0) release(before, stack);
      before = gradient;
    }
    release(before, stack);
  }

  void optimizer_step() {
    const std::string stack = optimizer_stack();
    while (state_.size() < 2 * weights_.size()) state_.push_back(allocate(kMiB, stack));
    Blocks temporary;
    for (size_t i = 0; i < weights_.size(); ++i) temporary.push_back(allocate(kMiB / 8, stack));
    for (const uint64_t block : temporary) release(block, stack);
  }
  // The next optimizer makes its own state; that of the last one is not freed.
  void begin_optimizer() { state_.clear(); }
  // A weight beside those of the layers, and a backward pass that cannot make its gradient.
  void add_weight(int64_t bytes) { allocate(bytes, with(kModule + "convert", in_main(10))); }
  void fail_in_backward(int64_t bytes) { fail(bytes, backward_stack()); }
  // The optimizer's first step, which has no room for the state of its last weight.
  void optimizer_fails() {
    for (size_t i = 0; i + 1 < 2 * weights_.size(); ++i) allocate(kMiB, optimizer_stack());
    fail(kMiB, optimizer_stack());
  }
  void zero_grad(int line = 20) {
    for (const uint64_t block : std::exchange(gradients_, {})) {
      release(block, with(kOptim + "optimizer.py:1000 zero_grad", in_loop(line)));
    }
  }

  // A whole step.
  void step(int64_t bytes) {
    const uint64_t batch = user(19, bytes / 4);
    if (last_batch_ != 0) drop(19, last_batch_);
    last_batch_ = batch;
    zero_grad();
    backward(forward(bytes));
    optimizer_step();
  }

  // A block that a layer makes and never frees.
  uint64_t keep_in_layer(int64_t bytes, int layer = 0) { return allocate(bytes, layer_stack(layer, 21)); }
  // All so far was there before the file's history.
  void begin_history() { builder_.begin_history(); }

  void fail_in_layer(int64_t bytes, int layer = 0, int64_t free_bytes = 0) {
    fail(bytes, layer_stack(layer, 21), free_bytes);
  }
  void fail(int64_t bytes, const std::string& stack, int64_t free_bytes = 0) {
    const StackSummary summary = summarize(frames_of(stack));
    builder_.add({.kind = DeviceEvent::Kind::kOutOfMemory, .bytes = bytes, .free_bytes = free_bytes},
                 {.time_ns = time_ns_,
                  .op = summary.op,
                  .source = summary.source,
                  .module = summary.module,
                  .stack = stack});
  }
  void reserve(uint64_t address, int64_t bytes) {
    builder_.add({.kind = DeviceEvent::Kind::kReserve, .address = address, .bytes = bytes},
                 {.time_ns = time_ns_});
  }

  std::string in_loop(int line) const {
    return with("/home/me/train.py:" + std::to_string(line) + " train", in_main(50));
  }
  std::string in_main(int line) const {
    return "/home/me/train.py:" + std::to_string(line) + " main\n/home/me/train.py:60 <module>";
  }

  Trace take() {
    Trace trace = builder_.take();
    trace.marks = infer_marks(trace, stacks_);
    categorize(trace);
    return trace;
  }

  // Source of the next addresses, so that tests can place blocks.
  uint64_t next_address = uint64_t{1} << 32;

 private:
  static constexpr int kLayers = 8;
  static inline const std::string kPackages = "/venv/lib/python3.12/site-packages/";
  static inline const std::string kOptim = kPackages + "torch/optim/";
  static inline const std::string kModule = kPackages + "torch/nn/modules/module.py:1300 ";
  static inline const std::string kCall = kPackages + "torch/nn/modules/module.py:1790 _call_impl\n" +
                                          kPackages + "torch/nn/modules/module.py:1779 _wrapped_call_impl";

  static std::string with(const std::string& inner, const std::string& outer) { return inner + "\n" + outer; }

  std::string layer_stack(int layer, int line) const {
    std::string stack = kPackages + "torch/nn/modules/linear.py:134 forward\n" + kCall +
                        "\n/home/me/net.py:" + std::to_string(layer + 1 == kLayers ? 12 : 7 + layer % 4) +
                        " forward\n" + kCall;
    if (native_) stack = "??:0 torch::unwind::unwind()\n??:0 at::_ops::mm::call(at::Tensor const&)\n" + stack;
    return with(stack, in_loop(line));
  }
  std::string backward_stack() const {
    return native_ ? "??:0 torch::unwind::unwind()\n??:0 torch::autograd::generated::MmBackward0::apply(x)\n"
                     "??:0 torch::autograd::Engine::thread_main(x)"
                   : "";
  }
  std::string optimizer_stack() const {
    return with(kOptim + "adam.py:248 step\n" + kOptim + "optimizer.py:533 wrapper", in_loop(23));
  }

  uint64_t allocate(int64_t bytes, const std::string& stack) {
    const uint64_t address = next_address;
    next_address += static_cast<uint64_t>(bytes);
    const StackSummary summary = summarize(frames_of(stack));
    builder_.allocate(address, bytes,
                      {.time_ns = ++time_ns_,
                       .op = summary.op,
                       .source = summary.source,
                       .module = summary.module,
                       .stack = stack});
    stacks_.push_back(builder_.name(stack));
    made_at_[address] = stacks_.back();
    return address;
  }
  void release(uint64_t block, const std::string& stack) {
    builder_.free(block, 0, {.time_ns = ++time_ns_});
    stacks_.push_back(repeats_ ? made_at_[block] : builder_.name(stack));
  }

  const bool native_, repeats_;
  std::map<uint64_t, int32_t> made_at_;
  TraceBuilder builder_{"train.pickle", "PyTorch memory snapshot"};
  std::vector<int32_t> stacks_;
  Blocks weights_, gradients_, state_;
  uint64_t last_batch_ = 0;
  int64_t time_ns_ = 0;
};

}  // namespace headroom
