#include "kernels/cuda/library/dnn_convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "kernels/cuda/library/dnn_operands.h"
#include "runtime/base/errors.h"
#include "runtime/device/cuda/check.h"

namespace headroom::cuda {
namespace {

// cuDNN lists its engines best guess first; the later ones are rarely the fastest, and each takes some
// milliseconds to make ready.
constexpr size_t kMaxEngines = 20;

int64_t aligned(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

int64_t span(const Shape& shape) {
  return aligned(bytes_of(CUDNN_DATA_FLOAT, shape.elements()));
}

// (N,H,W,C) as cuDNN's (N,C,H,W).
DnnTensor dnn_image(const Shape& s, cudnnDataType_t type) {
  return {type, {s[0], s[3], s[1], s[2]}, {s[1] * s[2] * s[3], 1, s[2] * s[3], s[3]}};
}

// (K,KH,KW,C), the transpose of our (KH,KW,C,K), as cuDNN's (K,C,KH,KW). Strides could describe our layout
// too, but cuDNN's engines do not look at them: version 9.14 takes such a filter and computes something else.
DnnTensor dnn_filter(const Shape& s, cudnnDataType_t type) {
  return {type, {s[3], s[2], s[0], s[1]}, {s[0] * s[1] * s[2], 1, s[1] * s[2], s[2]}};
}

// The types that operands may be rounded to, with the word for each at the head of an algorithm's text.
struct OperandType {
  cudnnDataType_t type;
  std::string_view prefix;
};
std::vector<OperandType> operand_types(Math math) {
  std::vector<OperandType> types = {{CUDNN_DATA_FLOAT, "f32 "}};
  if (math == Math::kBf16) types.push_back({CUDNN_DATA_BFLOAT16, "bf16 "});
  if (math == Math::kF16) types.push_back({CUDNN_DATA_HALF, "f16 "});
  return types;
}

std::string name_of(ConvDirection direction, const Conv2d& conv, const Shape& image, const Shape& filter,
                    const KernelSettings& settings) {
  static constexpr const char* kNames[] = {"conv2d", "conv2d_input_grad", "conv2d_filter_grad"};
  return fmt::format("{} {} {} stride {},{} padding {},{} dilation {},{} groups {} math {}{}",
                     kNames[static_cast<size_t>(direction)], to_string(image), to_string(filter),
                     conv.stride[0], conv.stride[1], conv.padding[0], conv.padding[1], conv.dilation[0],
                     conv.dilation[1], conv.groups, static_cast<int>(settings.math),
                     settings.deterministic ? " deterministic" : "");
}

}  // namespace

DnnConvolution::DnnConvolution(const Request& request, ConvDirection direction, const Conv2d& conv,
                               const Shape& image, const Shape& filter, const Shape& result)
    : direction_(direction),
      conv_(conv),
      image_(image),
      filter_(filter),
      result_(result),
      a_(direction == ConvDirection::kInputGrad ? result_ : image_),
      b_(direction == ConvDirection::kFilterGrad ? result_ : filter_),
      device_(request.device),
      handle_(request.dnn()) {
  const KernelSettings& settings = request.settings;
  choose_algorithm(
      request, {name_of(direction, conv, image, filter, settings), span(image) + span(filter) + span(result),
                [&](size_t enough) { return candidates(settings, enough); },
                [&](const AlgorithmChoice& choice) { return use(choice, settings.math); }});
}

DnnGraph DnnConvolution::graph(cudnnDataType_t type) const {
  const auto type_of = [&](ConvDirection computing) {
    return direction_ == computing ? CUDNN_DATA_FLOAT : type;
  };
  return DnnGraph(handle_, {direction_, conv_, dnn_image(image_, type_of(ConvDirection::kInputGrad)),
                            dnn_filter(filter_, type_of(ConvDirection::kFilterGrad)),
                            dnn_image(result_, type_of(ConvDirection::kForward))});
}

std::shared_ptr<const DnnConvolution::Prepared> DnnConvolution::prepare(cudnnDataType_t type,
                                                                        const DnnGraph& graph,
                                                                        const std::string& engine) const {
  std::optional<DnnAlgorithm> algorithm = graph.prepare(engine);
  if (!algorithm) return nullptr;
  Prepared prepared{type, std::move(*algorithm)};
  int64_t end = 0;
  const auto place = [&](const Shape& shape, cudnnDataType_t stored) {
    return std::exchange(end, end + aligned(bytes_of(stored, shape.elements())));
  };
  const bool converts = type != CUDNN_DATA_FLOAT;
  if (converts) prepared.a_at = place(a_, type);
  if (direction_ == ConvDirection::kFilterGrad) {
    if (converts) prepared.b_at = place(b_, type);
    prepared.computed_at = place(filter_, CUDNN_DATA_FLOAT);
  } else {
    prepared.b_at = place(b_, type);
  }
  prepared.algorithm_at = end;
  prepared.workspace_bytes = end + prepared.algorithm.workspace_bytes();
  return std::make_shared<const Prepared>(std::move(prepared));
}

std::vector<AlgorithmCandidate> DnnConvolution::candidates(const KernelSettings& settings,
                                                           size_t enough) const {
  const DnnRules rules{settings.math == Math::kF32, settings.deterministic};
  std::vector<AlgorithmCandidate> results;
  for (const auto& [type, prefix] : operand_types(settings.math)) {
    const DnnGraph offered = graph(type);
    size_t taken = 0;
    for (const std::string& engine : offered.engines(rules)) {
      if (taken == kMaxEngines || results.size() >= enough) break;
      const std::shared_ptr<const Prepared> prepared = prepare(type, offered, engine);
      if (!prepared || prepared->workspace_bytes > settings.workspace_limit_bytes) continue;
      ++taken;
      const auto run_it = [=, this, b_at = span(a_), computed_at = span(a_) + span(b_)](
                              std::byte* at, void* workspace, cudaStream_t stream) {
        run(*prepared, reinterpret_cast<float*>(at), reinterpret_cast<float*>(at + b_at),
            reinterpret_cast<float*>(at + computed_at), workspace, stream);
      };
      results.push_back({{std::string(prefix) + engine, 0, prepared->workspace_bytes}, run_it});
    }
  }
  return results;
}

bool DnnConvolution::use(const AlgorithmChoice& choice, Math math) {
  for (const auto& [type, prefix] : operand_types(math)) {
    if (!choice.algorithm.starts_with(prefix)) continue;
    std::shared_ptr<const Prepared> prepared =
        prepare(type, graph(type), choice.algorithm.substr(prefix.size()));
    if (!prepared || prepared->workspace_bytes > choice.workspace_bytes) return false;
    chosen_ = std::move(prepared);
    return true;
  }
  return false;
}

void DnnConvolution::run(const Prepared& prepared, const float* a, const float* b, float* computed,
                         void* workspace, cudaStream_t stream) const {
  const int64_t rows = filter_.elements() / filter_[3], columns = filter_[3];
  const auto at = [&](int64_t offset) { return static_cast<std::byte*>(workspace) + offset; };
  const void *first = a, *second = b;
  float* result = computed;
  if (prepared.a_at >= 0) {
    convert(device_, stream, a_.elements(), a, prepared.type, at(prepared.a_at));
    first = at(prepared.a_at);
  }
  if (prepared.b_at >= 0) {
    if (direction_ == ConvDirection::kFilterGrad) {
      convert(device_, stream, b_.elements(), b, prepared.type, at(prepared.b_at));
    } else {
      transpose(stream, rows, columns, b, prepared.type, at(prepared.b_at));
    }
    second = at(prepared.b_at);
  }
  if (prepared.computed_at >= 0) result = reinterpret_cast<float*>(at(prepared.computed_at));
  DnnPointers pointers{first, second, result};
  if (direction_ == ConvDirection::kInputGrad) pointers = {result, second, first};
  if (direction_ == ConvDirection::kFilterGrad) pointers = {first, result, second};
  {
    const std::lock_guard lock(device_.dnn_mutex());
    prepared.algorithm.run(handle_, pointers, at(prepared.algorithm_at), stream);
  }
  if (prepared.computed_at >= 0) transpose(stream, columns, rows, result, CUDNN_DATA_FLOAT, computed);
}

void DnnConvolution::run(const float* a, const float* b, float* computed, void* workspace,
                         cudaStream_t stream) const {
  run(*chosen_, a, b, computed, workspace, stream);
}

}  // namespace headroom::cuda
