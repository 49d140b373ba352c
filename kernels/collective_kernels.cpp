#include "kernels/collective_kernels.h"

#include <fmt/format.h>

#include "runtime/base/errors.h"

namespace headroom {
namespace {

class CollectiveKernel : public Kernel {
 public:
  CollectiveKernel(std::string_view op, int replicas, DeviceCollective* collective)
      : op_(op), collective_(collective) {
    if (collective == nullptr || collective->size() == replicas) return;
    throw InvalidArgument(
        fmt::format("{}: made for {} replicas, run by {}", op, replicas, collective->size()));
  }

  DeviceCollective* collective() const override { return collective_; }

 protected:
  DeviceCollective& replicas() const {
    if (collective_ != nullptr) return *collective_;
    throw InvalidArgument(fmt::format("{}: there are no other replicas to compute it with", op_));
  }

 private:
  const std::string_view op_;
  DeviceCollective* const collective_;
};

class AllReduceKernel final : public CollectiveKernel {
 public:
  AllReduceKernel(const AllReduce& op, size_t inputs, DeviceCollective* collective)
      : CollectiveKernel(op_name(op), op.replicas, collective),
        first_(op.follows ? 1 : 0),
        terms_(inputs - first_) {}

  void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void*,
           Stream stream) override {
    for (size_t i = 0; i < terms_.size(); ++i) {
      terms_[i] = {inputs[first_ + i].as<const float>(), outputs[i].as<float>(), outputs[i].elements()};
    }
    replicas().all_reduce_sum(terms_, stream);
  }

 private:
  const size_t first_;
  std::vector<DeviceCollective::Term> terms_;
};

class AllGatherKernel final : public CollectiveKernel {
 public:
  AllGatherKernel(const AllGatherUpdate& op, size_t inputs, DeviceCollective* collective)
      : CollectiveKernel(op_name(op), op.replicas, collective), tensors_(inputs) {}

  void run(std::span<const TensorView> inputs, std::span<const TensorView>, void*, Stream stream) override {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i] = {inputs[i].as<float>(), static_cast<size_t>(inputs[i].elements())};
    }
    replicas().all_gather(tensors_, stream);
  }

 private:
  std::vector<std::span<float>> tensors_;
};

}  // namespace

std::unique_ptr<Kernel> make_collective_kernel(const AllReduce& op, std::span<const TensorSpec> inputs,
                                               DeviceCollective* collective) {
  return std::make_unique<AllReduceKernel>(op, inputs.size(), collective);
}

std::unique_ptr<Kernel> make_collective_kernel(const AllGatherUpdate& op, std::span<const TensorSpec> inputs,
                                               DeviceCollective* collective) {
  return std::make_unique<AllGatherKernel>(op, inputs.size(), collective);
}

}  // namespace headroom
