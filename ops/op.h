// The traits that every op declares, and the names that its struct uses. Knows no op.
//
// An op is a plain struct with two members beside its parameters:
//   static constexpr OpTraits kTraits{.name = "softmax", ...};  true for all operands
//   Outputs infer(const OpCheck& c) const;                      checks the operands, gives the outputs
// An update has a third: UpdateOperands operands() const.
//
// Layouts: images are (N,H,W,C), filters (KH,KW,C/groups,K), matrices row-major. Comments give inputs ->
// outputs. An output in [brackets] is optional.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "device/device.h"

namespace headroom {

class OpCheck;
using Outputs = std::vector<TensorSpec>;
using Pair = std::array<int, 2>;  // {along H, along W}

// The variables that an op changes. Only updates change some, and they have no outputs.
enum class Changes : uint8_t {
  kNothing,
  kWeights,   // each weight is followed by its gradient, then by the optimizer's states
  kAverages,  // averages of the model's values
  kRecords,   // records of a run: counters, results of its steps
  kReplicas,  // this replica's copy of what another one has updated
};

struct OpTraits {
  // The word for the op everywhere: messages, node names, traces.
  std::string_view name = {};
  // Instead of a name, one for each value of the member `kind`, in the order of its enum.
  std::span<const std::string_view> kind_names = {};
  // The library whose handle the op needs on a GPU.
  Library library = Library::kNone;
  // The first output may take over the bytes of one of that many leading inputs: the first of equal size.
  int in_place_inputs = 0;
  // The output that needs no memory if it is not read; -1 if none.
  int optional_output = -1;
  Changes changes = Changes::kNothing;
  // False: gradients() refuses a path through the op. Otherwise, and for no update, gradients.cpp has a rule.
  bool differentiable = true;
  // False: its CUDA kernel computes only f32, and fuse() makes it for no other precision.
  bool takes_half = true;

  constexpr std::span<const std::string_view> names() const {
    return kind_names.empty() ? std::span(&name, 1) : kind_names;
  }
  constexpr bool is_update() const { return changes != Changes::kNothing; }
  constexpr bool has_gradient() const { return differentiable && !is_update(); }
};

// The operands of an update: `shared` ones, then `per_variable` for each variable. It changes those at
// `changed`, counted from the first operand of a variable.
struct UpdateOperands {
  size_t shared = 0, per_variable = 1;
  std::vector<size_t> changed = {};
};

}  // namespace headroom
