// A kernel that runs the kernels of other ops in sequence: computes a fused op that has no kernel of its own.
// Knows no device.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/kernel.h"

namespace headroom {

// One op of a sequence. Operands are numbered: the sequence's inputs first, then its outputs, which also hold
// the values between the ops. An output may be an input of equal size where in_place_input allows it.
struct SequencePart {
  Op op;
  std::vector<int> inputs, outputs;
};

using MakeKernel = std::function<std::unique_ptr<Kernel>(const Op&, std::span<const TensorSpec> inputs,
                                                         std::span<const TensorSpec> outputs)>;

// Makes the kernel of the sequence for fixed shapes. Throws the exceptions of `make`.
std::unique_ptr<Kernel> make_sequence_kernel(std::span<const SequencePart> parts,
                                             std::span<const TensorSpec> inputs,
                                             std::span<const TensorSpec> outputs, const MakeKernel& make);

// The parts of a ClassifierHead. Its description numbers the operands.
std::span<const SequencePart> parts_of_classifier_head();

}  // namespace headroom
