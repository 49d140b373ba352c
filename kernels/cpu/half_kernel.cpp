#include "kernels/cpu/half_kernel.h"

#include <new>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/half.h"

namespace headroom::cpu {
namespace {

constexpr int64_t kScratchAlignment = 256;  // as device memory has

// Memory of the calling thread that only grows: kernels run in sequence and keep nothing in it.
class ThreadScratch {
 public:
  ~ThreadScratch() { release(); }
  std::byte* of(int64_t bytes) {
    if (bytes > bytes_) {
      release();
      memory_ = static_cast<std::byte*>(
          ::operator new (static_cast<size_t>(bytes), std::align_val_t{kScratchAlignment}));
      bytes_ = bytes;
    }
    return memory_;
  }

 private:
  void release() {
    ::operator delete (memory_, std::align_val_t{kScratchAlignment});
    memory_ = nullptr;
    bytes_ = 0;
  }
  std::byte* memory_ = nullptr;
  int64_t bytes_ = 0;
};

std::byte* thread_scratch(int64_t bytes) {
  thread_local ThreadScratch scratch;
  return scratch.of(bytes);
}

TensorSpec widened(TensorSpec spec) {
  if (is_half(spec.dtype)) spec.dtype = DType::kF32;
  return spec;
}

std::vector<TensorSpec> all_widened(std::span<const TensorSpec> specs) {
  std::vector<TensorSpec> wide;
  for (const TensorSpec& spec : specs) wide.push_back(widened(spec));
  return wide;
}

class HalfKernel final : public Kernel {
 public:
  HalfKernel(std::unique_ptr<Kernel> inner, std::span<const TensorSpec> inputs,
             std::span<const TensorSpec> outputs)
      : inner_(std::move(inner)), inputs_(inputs.size()), outputs_(outputs.size()) {
    const auto place = [&](std::span<const TensorSpec> specs, std::vector<int64_t>& offsets) {
      for (const TensorSpec& spec : specs) {
        offsets.push_back(is_half(spec.dtype) ? bytes_ : -1);
        if (is_half(spec.dtype)) bytes_ += round_up(widened(spec).bytes(), kScratchAlignment);
      }
    };
    place(inputs, input_offsets_);
    place(outputs, output_offsets_);
  }

  int64_t workspace_bytes() const override { return inner_->workspace_bytes(); }
  DeviceCollective* collective() const override { return inner_->collective(); }

  void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void* workspace,
           Stream stream) override {
    std::byte* const scratch = thread_scratch(bytes_);
    const auto wide_view = [&](const TensorView& view, int64_t offset) {
      if (offset < 0 || view.data == nullptr) return view;
      return TensorView{scratch + offset, widened(view.spec)};
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs_[i] = wide_view(inputs[i], input_offsets_[i]);
      if (inputs_[i].data != inputs[i].data)
        widen(inputs[i].spec.dtype, inputs[i].data, inputs_[i].as<float>(), inputs[i].elements());
    }
    for (size_t i = 0; i < outputs.size(); ++i) outputs_[i] = wide_view(outputs[i], output_offsets_[i]);
    inner_->run(inputs_, outputs_, workspace, stream);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs_[i].data != outputs[i].data)
        narrow(outputs[i].spec.dtype, outputs_[i].as<const float>(), outputs[i].data, outputs[i].elements());
    }
  }

 private:
  const std::unique_ptr<Kernel> inner_;
  std::vector<int64_t> input_offsets_, output_offsets_;  // in the scratch; -1: where it is
  std::vector<TensorView> inputs_, outputs_;             // tensors of the current run
  int64_t bytes_ = 0;
};

}  // namespace

bool has_half(std::span<const TensorSpec> specs) {
  return std::ranges::any_of(specs, [](const TensorSpec& spec) { return is_half(spec.dtype); });
}

void widen(DType stored, const void* from, float* to, int64_t n) {
  const auto* x = static_cast<const uint16_t*>(from);
  if (stored == DType::kBf16) {  // NOLINT(bugprone-branch-clone): they differ by pragmas
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = float_of_bf16(x[i]);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = float_of_f16(x[i]);
  }
}

void narrow(DType stored, const float* from, void* to, int64_t n) {
  auto* y = static_cast<uint16_t*>(to);
  if (stored == DType::kBf16) {  // NOLINT(bugprone-branch-clone): they differ by pragmas
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = bf16_of(from[i]);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = f16_of(from[i]);
  }
}

std::unique_ptr<Kernel> make_half_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                         std::span<const TensorSpec> outputs,
                                         const KernelSettings& settings) {
  Op wide = op;
  if (auto* cast = std::get_if<Cast>(&wide)) {
    if (is_half(cast->to)) cast->to = DType::kF32;
  }
  return std::make_unique<HalfKernel>(
      make_cpu_kernel(wide, all_widened(inputs), all_widened(outputs), settings), inputs, outputs);
}

}  // namespace headroom::cpu
