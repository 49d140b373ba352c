#include "kernels/cuda/library/dnn_convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "device/cuda/check.h"
#include "kernels/cuda/library/dnn_operands.h"

namespace headroom::cuda {
namespace {

// cuDNN lists its engines best guess first; the later ones are rarely the fastest. Most are ready at once,
// but those of depthwise convolutions are compiled for a quarter of a second each: there are no more after
// the first one and this time, of this process: others on a busy host must not change the choice.
constexpr size_t kMaxEngines = 20;
constexpr std::clock_t kCompilePatience = CLOCKS_PER_SEC / 10;

int64_t aligned(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

int64_t span(const Shape& shape, DType type) {
  return aligned(TensorSpec{type, shape}.bytes());
}

cudnnDataType_t dnn_type(DType type) {
  if (type == DType::kBf16) return CUDNN_DATA_BFLOAT16;
  return type == DType::kF16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

// (N,H,W,C) as cuDNN's (N,C,H,W).
DnnTensor dnn_image(const Shape& s, DType type) {
  return {dnn_type(type), {s[0], s[3], s[1], s[2]}, {s[1] * s[2] * s[3], 1, s[2] * s[3], s[3]}};
}

// Describes (K,KH,KW,C), the transpose of our (KH,KW,C,K), as cuDNN's (K,C,KH,KW). Strides could describe our
// layout too, but cuDNN's engines ignore them: version 9.14 accepts such a filter and computes something
// else.
DnnTensor dnn_filter(const Shape& s, DType type) {
  return {dnn_type(type), {s[3], s[2], s[0], s[1]}, {s[0] * s[1] * s[2], 1, s[1] * s[2], s[2]}};
}

// Returns the types in which operands are multiplied: as they are stored, f32 rounded first, or widened if
// cuDNN supports a problem only in f32. An algorithm's text begins with the word for its type.
std::vector<DType> operand_types(Math math, DType stored) {
  std::vector<DType> types = {stored};
  if (is_half(stored)) types.push_back(DType::kF32);
  if (stored == DType::kF32 && math == Math::kBf16) types.push_back(DType::kBf16);
  if (stored == DType::kF32 && math == Math::kF16) types.push_back(DType::kF16);
  return types;
}

std::string prefix_of(DType type) {
  return std::string(to_string(type)) + " ";
}

std::string name_of(ConvDirection direction, const Conv2d& conv, const Shape& image, const Shape& filter,
                    const DnnConvolution::Types& types, const KernelSettings& settings) {
  static constexpr const char* kNames[] = {"conv2d", "conv2d_input_grad", "conv2d_filter_grad"};
  return fmt::format("{} {} {} stride {},{} padding {},{} dilation {},{} groups {} math {}{}",
                     kNames[static_cast<size_t>(direction)], to_string(image), to_string(filter),
                     conv.stride[0], conv.stride[1], conv.padding[0], conv.padding[1], conv.dilation[0],
                     conv.dilation[1], conv.groups, static_cast<int>(settings.math),
                     settings.deterministic ? " deterministic" : "") +
         (is_half(types.read) ? fmt::format(" {} to {}", to_string(types.read), to_string(types.computed))
                              : "") +
         (conv.filter_by_result ? " by result" : "");
}

}  // namespace

DnnConvolution::DnnConvolution(const Request& request, ConvDirection direction, const Conv2d& conv,
                               const Shape& image, const Shape& filter, const Shape& result,
                               const Types& types)
    : direction_(direction),
      conv_(conv),
      image_(image),
      filter_(filter),
      result_(result),
      types_(types),
      a_(direction == ConvDirection::kInputGrad ? result_ : image_),
      b_(direction == ConvDirection::kFilterGrad ? result_ : filter_),
      device_(request.device),
      handle_(request.dnn()),
      name_(name_of(direction, conv, image, filter, types, request.settings)),
      own_(Depthwise::of(request, direction, conv, image, filter, result, types.read, types.computed)) {
  if (own_) return;
  const KernelSettings& settings = request.settings;
  const int64_t operand_bytes =
      span(a_, types.read) + span(b_, types.read) + span(computed(), types.computed);
  choose_algorithm(request,
                   {name_, operand_bytes, [&](size_t enough) { return candidates(settings, enough); },
                    [&](const AlgorithmChoice& choice) { return use(choice, settings.math); }});
}

const Shape& DnnConvolution::computed() const {
  if (direction_ == ConvDirection::kForward) return result_;
  return direction_ == ConvDirection::kInputGrad ? image_ : filter_;
}

// cuDNN does not narrow a result that it has multiplied in f32.
DType DnnConvolution::computed_type(DType type) const {
  return type == DType::kF32 ? DType::kF32 : types_.computed;
}

DnnGraph DnnConvolution::graph(DType type) const {
  const auto type_of = [&](ConvDirection computing) {
    return direction_ == computing ? computed_type(type) : type;
  };
  return DnnGraph(handle_, {direction_, conv_, dnn_image(image_, type_of(ConvDirection::kInputGrad)),
                            dnn_filter(filter_, type_of(ConvDirection::kFilterGrad)),
                            dnn_image(result_, type_of(ConvDirection::kForward))});
}

std::shared_ptr<const DnnConvolution::Prepared> DnnConvolution::prepare(DType type, const DnnGraph& graph,
                                                                        const std::string& engine) const {
  // Equal layers share the code that cuDNN compiles for them.
  static std::mutex mutex;
  static std::map<std::tuple<cudnnHandle_t, std::string, DType, std::string>, std::weak_ptr<const Prepared>>
      known;
  const std::lock_guard lock(mutex);
  std::weak_ptr<const Prepared>& shared = known[{handle_, name_, type, engine}];
  if (std::shared_ptr<const Prepared> prepared = shared.lock()) return prepared;
  std::optional<DnnAlgorithm> algorithm = graph.prepare(engine);
  if (!algorithm) return nullptr;
  Prepared prepared{type, std::move(*algorithm)};
  int64_t end = 0;
  const auto place = [&](const Shape& shape, DType stored) {
    return std::exchange(end, end + span(shape, stored));
  };
  const bool converts = type != types_.read;
  if (converts) prepared.a_at = place(a_, type);
  if (direction_ == ConvDirection::kFilterGrad) {
    if (converts) prepared.b_at = place(b_, type);
  } else if (converts || !conv_.filter_by_result) {
    prepared.b_at = place(b_, type);
  }
  const bool turns = direction_ == ConvDirection::kFilterGrad && !conv_.filter_by_result;
  if (turns || computed_type(type) != types_.computed)
    prepared.computed_at = place(computed(), computed_type(type));
  prepared.algorithm_at = end;
  prepared.workspace_bytes = end + prepared.algorithm.workspace_bytes();
  const auto made = std::make_shared<const Prepared>(std::move(prepared));
  shared = made;
  return made;
}

std::vector<AlgorithmCandidate> DnnConvolution::candidates(const KernelSettings& settings,
                                                           size_t enough) const {
  const DnnRules rules{settings.math == Math::kF32, settings.deterministic};
  std::vector<AlgorithmCandidate> results;
  for (const DType type : operand_types(settings.math, types_.read)) {
    if (is_half(types_.read) && !results.empty()) break;
    const DnnGraph offered = graph(type);
    size_t taken = 0;
    std::clock_t first = 0;
    for (const std::string& engine : offered.engines(rules)) {
      if (taken == kMaxEngines || results.size() >= enough) break;
      if (taken > 0 && std::clock() - first > kCompilePatience) break;
      const std::shared_ptr<const Prepared> prepared = prepare(type, offered, engine);
      if (!prepared || prepared->workspace_bytes > settings.workspace_limit_bytes) continue;
      if (taken++ == 0) first = std::clock();
      const auto run_it = [=, this, b_at = span(a_, types_.read),
                           computed_at = span(a_, types_.read) + span(b_, types_.read)](
                              std::byte* at, void* workspace, cudaStream_t stream) {
        run(*prepared, at, at + b_at, at + computed_at, workspace, stream);
      };
      results.push_back({{prefix_of(type) + engine, 0, prepared->workspace_bytes}, run_it});
    }
  }
  return results;
}

bool DnnConvolution::use(const AlgorithmChoice& choice, Math math) {
  for (const DType type : operand_types(math, types_.read)) {
    const std::string prefix = prefix_of(type);
    if (!choice.algorithm.starts_with(prefix)) continue;
    std::shared_ptr<const Prepared> prepared =
        prepare(type, graph(type), choice.algorithm.substr(prefix.size()));
    if (!prepared || prepared->workspace_bytes > choice.workspace_bytes) return false;
    chosen_ = std::move(prepared);
    return true;
  }
  return false;
}

void DnnConvolution::run(const Prepared& prepared, const void* a, const void* b, void* computed,
                         void* workspace, cudaStream_t stream) const {
  const int64_t rows = filter_.elements() / filter_[3], columns = filter_[3];
  const auto at = [&](int64_t offset) { return static_cast<std::byte*>(workspace) + offset; };
  const void *first = a, *second = b;
  void* result = computed;
  if (prepared.a_at >= 0) {
    convert(device_, stream, a_.elements(), {a, types_.read}, prepared.type, at(prepared.a_at));
    first = at(prepared.a_at);
  }
  if (prepared.b_at >= 0) {
    if (direction_ == ConvDirection::kFilterGrad || conv_.filter_by_result) {
      convert(device_, stream, b_.elements(), {b, types_.read}, prepared.type, at(prepared.b_at));
    } else {
      transpose(stream, rows, columns, {b, types_.read}, prepared.type, at(prepared.b_at));
    }
    second = at(prepared.b_at);
  }
  if (prepared.computed_at >= 0) result = at(prepared.computed_at);
  DnnPointers pointers{first, second, result};
  if (direction_ == ConvDirection::kInputGrad) pointers = {result, second, first};
  if (direction_ == ConvDirection::kFilterGrad) pointers = {first, result, second};
  {
    const std::lock_guard lock(device_.dnn_mutex());
    prepared.algorithm.run(handle_, pointers, at(prepared.algorithm_at), stream);
  }
  if (prepared.computed_at < 0) return;
  const DnnFloats made{result, computed_type(prepared.type)};
  if (direction_ == ConvDirection::kFilterGrad && !conv_.filter_by_result) {
    transpose(stream, columns, rows, made, types_.computed, computed);
  } else {
    convert(device_, stream, this->computed().elements(), made, types_.computed, computed);
  }
}

void DnnConvolution::run(const void* a, const void* b, void* computed, void* workspace,
                         cudaStream_t stream) const {
  if (own_) return own_->run(a, b, computed, workspace, stream);
  run(*chosen_, a, b, computed, workspace, stream);
}

}  // namespace headroom::cuda
