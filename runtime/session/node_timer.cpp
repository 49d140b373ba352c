#include "runtime/session/node_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>

#include "base/bytes.h"
#include "base/half.h"
#include "runtime/graph/data_flow.h"

namespace headroom {
namespace {

// With so many runs to a wait for the device, the wait counts for a microsecond.
constexpr int64_t kTimedRuns = 8;
constexpr int kTimedLaunches = 2;
constexpr int64_t kAlignment = 256;
constexpr int64_t kPatternBytes = 16 * kMiB;

bool holds_numbers(DType dtype) {
  return dtype == DType::kF32 || is_half(dtype);
}

// Numbers in [-1, 1), in 16 bits and, by pairs, in 32: a GPU multiplies zeros with less power, and so faster.
std::vector<uint16_t> random_halves() {
  std::vector<uint16_t> halves(kPatternBytes / sizeof(uint16_t));
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (uint16_t& half : halves) half = bf16_of(uniform(random));
  return halves;
}

// Memory that one node needs: numbers that it reads or writes with its workspace, and zeros for indices that
// it reads.
struct Need {
  int64_t numbers = 0, zeros = 0;

  Need(const Graph& graph, const Node& node, int64_t workspace_bytes) {
    for (const int input : node.inputs) {
      const TensorSpec& spec = graph.value(input).spec;
      (holds_numbers(spec.dtype) ? numbers : zeros) += round_up(spec.bytes(), kAlignment);
    }
    for (const int output : node.outputs) numbers += round_up(graph.value(output).spec.bytes(), kAlignment);
    numbers += round_up(workspace_bytes, kAlignment);
  }
};

// Returns true if a result has no memory in a step because it is not read.
bool is_left_out(const Node& node, size_t output, const std::vector<bool>& is_read) {
  return is_optional_output(node.op, output) && !is_read[static_cast<size_t>(node.outputs[output])];
}

std::string key_of(const Graph& graph, const Node& node, int64_t workspace_bytes,
                   const std::vector<bool>& is_read, const MaskValues& masks) {
  std::string key = fmt::format("{} {}", op_name(node.op), workspace_bytes);
  for (const std::vector<int>* values : {&node.inputs, &node.outputs}) {
    key += ';';
    for (const int value : *values) key += ' ' + to_string(graph.value(value).spec);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (is_left_out(node, i, is_read)) key += fmt::format(" without {}", i);
  }
  for (const int input : node.inputs) {
    if (masks.contains(input)) key += " with " + graph.value(input).name;
  }
  return key;
}

}  // namespace

// Driver memory filled with numbers, followed by zeros.
class NodeTimer::Scratch {
 public:
  Scratch(DeviceMemory& memory, int64_t numbers, int64_t zeros)
      : memory_(memory), numbers_(numbers), bytes_(numbers + zeros) {
    data_ = static_cast<std::byte*>(memory.try_allocate(std::max<int64_t>(1, bytes_)));
    if (data_ == nullptr) return;
    fill(random_halves(), 0, numbers_);
    fill(std::vector<uint16_t>(kPatternBytes / sizeof(uint16_t)), numbers_, bytes_);
  }
  ~Scratch() {
    if (data_ != nullptr) memory_.release(data_, std::max<int64_t>(1, bytes_));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  bool is_there() const { return data_ != nullptr; }
  std::byte* numbers() const { return data_; }
  std::byte* zeros() const { return data_ + numbers_; }

 private:
  void fill(const std::vector<uint16_t>& pattern, int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kPatternBytes) {
      memory_.copy_to_device(data_ + at, pattern.data(), std::min(kPatternBytes, end - at));
    }
  }

  DeviceMemory& memory_;
  const int64_t numbers_, bytes_;
  std::byte* data_ = nullptr;
};

std::optional<std::vector<double>> NodeTimer::times_us(const Graph& graph, const Kernels& kernels,
                                                       int64_t max_process_bytes) {
  std::vector<std::string> keys;
  const std::vector<bool> is_read = read_values(graph);
  MaskValues masks(graph, kernels, device_);
  int64_t numbers = 0, zeros = 0;
  for (size_t id = 0; id < graph.nodes().size(); ++id) {
    const Node& node = graph.nodes()[id];
    const int64_t workspace_bytes = kernels.workspace_bytes()[id];
    keys.push_back(key_of(graph, node, workspace_bytes, is_read, masks));
    if (std::holds_alternative<Reshape>(node.op) || known_.contains(keys.back())) continue;
    const Need need(graph, node, workspace_bytes);
    numbers = std::max(numbers, need.numbers);
    zeros = std::max(zeros, need.zeros);
  }
  if (device_.memory().info().process + masks.bytes() + numbers + zeros > max_process_bytes) return {};
  if (!masks.compute()) return {};
  const Scratch scratch(device_.memory(), numbers, zeros);
  if (!scratch.is_there()) return {};
  std::vector<double> times;
  for (size_t id = 0; id < keys.size(); ++id) {
    const Node& node = graph.nodes()[id];
    if (std::holds_alternative<Reshape>(node.op)) {
      times.push_back(0);
      continue;
    }
    const auto [known, is_new] = known_.try_emplace(keys[id]);
    if (is_new)
      known->second = measure_us(graph, node, is_read, kernels.of_node(static_cast<int>(id)), scratch, masks);
    times.push_back(known->second);
  }
  return times;
}

double NodeTimer::measure_us(const Graph& graph, const Node& node, const std::vector<bool>& is_read,
                             Kernel& kernel, const Scratch& scratch, const MaskValues& masks) {
  std::byte *number = scratch.numbers(), *zero = scratch.zeros();
  const auto view_of = [&](int value, bool is_operand) {
    const TensorSpec& spec = graph.value(value).spec;
    if (is_operand && masks.contains(value)) return TensorView{masks.data(value), spec};
    std::byte*& next = is_operand && !holds_numbers(spec.dtype) ? zero : number;
    const TensorView view{next, spec};
    next += round_up(spec.bytes(), kAlignment);
    return view;
  };
  std::vector<TensorView> inputs, outputs;
  for (const int input : node.inputs) inputs.push_back(view_of(input, true));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    outputs.push_back(view_of(node.outputs[i], false));
    if (is_left_out(node, i, is_read)) outputs.back().data = nullptr;
  }
  const auto run = [&](Stream stream) { kernel.run(inputs, outputs, number, stream); };
  run({});  // loads what a capture cannot
  device_.streams().synchronize({});
  const std::array tasks = {Task{run, {}, {0}, false, false}};
  const std::unique_ptr<Capture> capture = device_.captures().capture(tasks, kTimedRuns);
  capture->launch({});
  device_.streams().synchronize({});
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimedLaunches; ++i) capture->launch({});
  device_.streams().synchronize({});
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count() / static_cast<double>(kTimedLaunches * kTimedRuns);
}

}  // namespace headroom
