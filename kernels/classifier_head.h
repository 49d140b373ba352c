// The fused classifier head as a sequence of plain ops. Knows no device.
#pragma once

#include "kernels/sequence_kernel.h"

namespace headroom {

// The parts of a ClassifierHead, whose operands are numbered as in its description.
std::span<const SequencePart> parts_of_classifier_head();

}  // namespace headroom
