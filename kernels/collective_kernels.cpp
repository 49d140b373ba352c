#include "kernels/collective_kernels.h"

#include <fmt/format.h>

#include "base/errors.h"

namespace headroom {
namespace {

class CollectiveKernel : public Kernel {
 public:
  template <typename T>
  CollectiveKernel(const T& op, const KernelRequest& request)
      : op_(T::kTraits.name), collective_(request.settings.collective) {
    if (collective_ == nullptr || collective_->size() == op.replicas) return;
    throw InvalidArgument(
        fmt::format("{}: made for {} replicas, run by {}", op_, op.replicas, collective_->size()));
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
  AllReduceKernel(const AllReduce& op, const KernelRequest& request)
      : CollectiveKernel(op, request), first_(op.follows ? 1 : 0), terms_(request.outputs.size()) {}

  void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void*,
           Stream stream) override {
    for (size_t i = 0; i < terms_.size(); ++i) {
      terms_[i] = {inputs[first_ + i].data, outputs[i].data, outputs[i].elements(), outputs[i].spec.dtype};
    }
    replicas().all_reduce_sum(terms_, stream);
  }

 private:
  const size_t first_;
  std::vector<DeviceCollective::Term> terms_;
};

class AllGatherKernel final : public CollectiveKernel {
 public:
  AllGatherKernel(const AllGatherUpdate& op, const KernelRequest& request)
      : CollectiveKernel(op, request), tensors_(request.inputs.size()) {}

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

std::unique_ptr<Kernel> make_kernel(const AllReduce& op, const KernelRequest& request) {
  return std::make_unique<AllReduceKernel>(op, request);
}

std::unique_ptr<Kernel> make_kernel(const AllGatherUpdate& op, const KernelRequest& request) {
  return std::make_unique<AllGatherKernel>(op, request);
}

}  // namespace headroom
