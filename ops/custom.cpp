#include "ops/custom.h"

namespace headroom {

Outputs Custom::infer(const OpCheck& c) const {
  c.require(!op->name.empty(), "the CustomOp has no name");
  c.require(op->infer != nullptr, "the CustomOp has no function `infer`");
  Outputs outputs = op->infer(c);
  c.require(!outputs.empty(), "`infer` of the CustomOp gives no results");
  return outputs;
}

int64_t Custom::workspace_bytes(std::span<const TensorSpec> inputs) const {
  const int64_t bytes = op->workspace_bytes ? op->workspace_bytes(inputs) : 0;
  if (bytes < 0)
    OpCheck(name(), inputs).fail("`workspace_bytes` of the CustomOp gives " + std::to_string(bytes));
  return bytes;
}

}  // namespace headroom
