#include "kernels/classifier_head.h"

namespace headroom {

std::span<const SequencePart> parts_of_classifier_head() {
  enum { kX, kW1, kB1, kW2, kB2, kLabels, kDLoss, kHidden, kLogits, kLoss, kDLogits, kDHidden, kDx };
  static const SequencePart kParts[] = {
      {MatMul{}, {kX, kW1}, {kHidden}},
      {Binary{BinaryKind::kAdd}, {kHidden, kB1}, {kHidden}},
      {Unary{UnaryKind::kRelu}, {kHidden}, {kHidden}},
      {MatMul{}, {kHidden, kW2}, {kLogits}},
      {Binary{BinaryKind::kAdd}, {kLogits, kB2}, {kLogits}},
      {CrossEntropy{}, {kLogits, kLabels}, {kLoss}},
      {CrossEntropyGrad{}, {kLogits, kLabels, kDLoss}, {kDLogits}},
      {MatMul{false, true}, {kDLogits, kW2}, {kDHidden}},
      {UnaryGrad{UnaryKind::kRelu}, {kDHidden, kHidden}, {kDHidden}},
      {MatMul{false, true}, {kDHidden, kW1}, {kDx}},
  };
  return kParts;
}

}  // namespace headroom
