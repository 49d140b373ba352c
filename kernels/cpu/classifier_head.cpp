#include "kernels/classifier_head.h"

#include "kernels/cpu/cpu_kernels.h"

namespace headroom::cpu {

std::unique_ptr<Kernel> make_kernel(const ClassifierHead&, Specs inputs, Specs outputs) {
  return make_sequence_kernel(
      parts_of_classifier_head(), inputs, outputs,
      [](const Op& part, Specs ins, Specs outs) { return make_cpu_kernel(part, ins, outs); });
}

}  // namespace headroom::cpu
