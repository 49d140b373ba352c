#include "kernels/cuda/library/dnn_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "device/cuda/check.h"

namespace headroom::cuda {
namespace {

constexpr int64_t kImageId = 'i', kFilterId = 'f', kResultId = 'r';

using Handles = std::vector<cudnnBackendDescriptor_t>;

void set(const DnnDescriptor& descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         int64_t count, const void* values) {
  HR_CHECK(cudnnBackendSetAttribute(descriptor.get(), name, type, count, values));
}

void set(const DnnDescriptor& descriptor, cudnnBackendAttributeName_t name, int64_t value) {
  set(descriptor, name, CUDNN_TYPE_INT64, 1, &value);
}

void set(const DnnDescriptor& descriptor, cudnnBackendAttributeName_t name, const DnnDescriptor& value) {
  const cudnnBackendDescriptor_t handle = value.get();
  set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
}

void set(const DnnDescriptor& descriptor, cudnnBackendAttributeName_t name, cudnnHandle_t handle) {
  set(descriptor, name, CUDNN_TYPE_HANDLE, 1, &handle);
}

int64_t count_of(const DnnDescriptor& descriptor, cudnnBackendAttributeName_t name,
                 cudnnBackendAttributeType_t type) {
  int64_t count = 0;
  HR_CHECK(cudnnBackendGetAttribute(descriptor.get(), name, type, 0, &count, nullptr));
  return count;
}

template <typename T>
T get(const DnnDescriptor& descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
  T value{};
  int64_t count = 0;
  HR_CHECK(cudnnBackendGetAttribute(descriptor.get(), name, type, 1, &count, &value));
  return value;
}

// Descriptors that another one holds: cuDNN fills descriptors that the caller has made.
std::vector<DnnDescriptor> get_all(const DnnDescriptor& descriptor, cudnnBackendAttributeName_t name,
                                   cudnnBackendDescriptorType_t type, int64_t count) {
  std::vector<DnnDescriptor> results;
  Handles handles;
  for (int64_t i = 0; i < count; ++i) handles.push_back(results.emplace_back(type).get());
  int64_t given = 0;
  if (count > 0) {
    HR_CHECK(cudnnBackendGetAttribute(descriptor.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &given,
                                      handles.data()));
  }
  results.erase(results.begin() + std::min(given, count), results.end());
  return results;
}

DnnDescriptor tensor(int64_t id, const DnnTensor& tensor) {
  DnnDescriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  set(descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &tensor.type);
  set(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, tensor.extents.data());
  set(descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, tensor.strides.data());
  set(descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);  // allocators and workspaces give 256
  HR_CHECK(cudnnBackendFinalize(descriptor.get()));
  return descriptor;
}

DnnDescriptor convolution(const Conv2d& conv) {
  const auto both = [](Pair pair) { return std::array<int64_t, 2>{pair[0], pair[1]}; };
  const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const auto padding = both(conv.padding), stride = both(conv.stride), dilation = both(conv.dilation);
  DnnDescriptor descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  set(descriptor, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
  set(descriptor, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  set(descriptor, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
  set(descriptor, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, padding.data());
  set(descriptor, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, padding.data());
  set(descriptor, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride.data());
  set(descriptor, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation.data());
  HR_CHECK(cudnnBackendFinalize(descriptor.get()));
  return descriptor;
}

// The names of one direction's attributes.
struct Names {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t convolution, image, filter, result, alpha, beta;
};

Names names_of(ConvDirection direction) {
  switch (direction) {
    case ConvDirection::kForward:
      break;
    case ConvDirection::kInputGrad:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvDirection::kFilterGrad:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
}

bool finalized(const DnnDescriptor& descriptor) {
  return cudnnBackendFinalize(descriptor.get()) == CUDNN_STATUS_SUCCESS;
}

std::optional<DnnDescriptor> operation_graph(cudnnHandle_t handle, const DnnProblem& problem) {
  const Names names = names_of(problem.direction);
  DnnDescriptor operation(names.type);
  const float alpha = 1, beta = 0;
  set(operation, names.convolution, convolution(problem.conv));
  set(operation, names.image, tensor(kImageId, problem.image));
  set(operation, names.filter, tensor(kFilterId, problem.filter));
  set(operation, names.result, tensor(kResultId, problem.result));
  set(operation, names.alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
  set(operation, names.beta, CUDNN_TYPE_FLOAT, 1, &beta);
  if (!finalized(operation)) return {};
  DnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  if (!finalized(graph)) return {};
  return graph;
}

bool allowed(const DnnDescriptor& engine, const DnnRules& rules) {
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  int64_t count = 0;
  HR_CHECK(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                    notes.size(), &count, notes.data()));
  const auto end = notes.begin() + std::min<int64_t>(count, static_cast<int64_t>(notes.size()));
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    return std::find(notes.begin(), end, note) != end;
  };
  if (rules.deterministic && has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
  if (!rules.exact) return true;
  // Winograd's and Fourier's detours cost more bits than a plain sum.
  return !has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) && !has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
         !has(CUDNN_NUMERICAL_NOTE_WINOGRAD) && !has(CUDNN_NUMERICAL_NOTE_FFT);
}

std::string text_of(const DnnDescriptor& config, const DnnDescriptor& engine) {
  std::string text =
      fmt::format("engine {} knobs", get<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64));
  for (const DnnDescriptor& knob : get_all(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                           CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS)) {
    const auto type =
        get<cudnnBackendKnobType_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE);
    text += fmt::format(" {}:{}", static_cast<int>(type),
                        get<int64_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
  }
  return text;
}

}  // namespace

DnnDescriptor::DnnDescriptor(cudnnBackendDescriptorType_t type) {
  HR_CHECK(cudnnBackendCreateDescriptor(type, &handle_));
}

DnnDescriptor::~DnnDescriptor() {
  if (handle_ != nullptr) cudnnBackendDestroyDescriptor(handle_);
}

DnnDescriptor& DnnDescriptor::operator=(DnnDescriptor&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

DnnAlgorithm::DnnAlgorithm(DnnDescriptor execution_plan)
    : descriptor_(std::move(execution_plan)),
      workspace_bytes_(
          get<int64_t>(descriptor_, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64)) {}

void DnnAlgorithm::run(cudnnHandle_t handle, const DnnPointers& operands, void* workspace,
                       cudaStream_t stream) const {
  const std::array<int64_t, 3> ids = {kImageId, kFilterId, kResultId};
  const std::array<const void*, 3> pointers = {operands.image, operands.filter, operands.result};
  DnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids.data());
  set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers.data());
  set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  HR_CHECK(cudnnBackendFinalize(pack.get()));
  HR_CHECK(cudnnSetStream(handle, stream));
  HR_CHECK(cudnnBackendExecute(handle, descriptor_.get(), pack.get()));
}

DnnGraph::DnnGraph(cudnnHandle_t handle, const DnnProblem& problem)
    : handle_(handle), graph_(operation_graph(handle, problem)) {}

std::vector<std::string> DnnGraph::engines(const DnnRules& rules) const {
  std::vector<std::string> texts;
  if (!graph_) return texts;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    DnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, *graph_);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!finalized(heuristics)) continue;  // a mode that has no answer for this problem
    const int64_t count = count_of(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
    for (const DnnDescriptor& config :
         get_all(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count)) {
      const auto engine = get_all(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
      if (engine.empty() || !allowed(engine[0], rules)) continue;
      std::string text = text_of(config, engine[0]);
      if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
    }
  }
  return texts;
}

std::optional<DnnAlgorithm> DnnGraph::prepare(const std::string& text) const {
  if (!graph_) return {};
  std::istringstream words(text);
  std::string word;
  int64_t index = -1;
  if (!(words >> word >> index) || word != "engine" || index < 0 || !(words >> word) || word != "knobs")
    return {};
  DnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, *graph_);
  set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index);
  if (!finalized(engine)) return {};
  std::vector<DnnDescriptor> knobs;
  Handles handles;
  int type = 0;
  char colon = 0;
  for (int64_t value = 0; words >> type >> colon >> value;) {
    const auto kind = static_cast<cudnnBackendKnobType_t>(type);
    const DnnDescriptor& knob = knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    if (cudnnBackendSetAttribute(knob.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                                 &kind) != CUDNN_STATUS_SUCCESS)
      return {};
    set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value);
    if (!finalized(knob)) return {};
    handles.push_back(knob.get());
  }
  DnnDescriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  set(config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!handles.empty() &&
      cudnnBackendSetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                               static_cast<int64_t>(handles.size()), handles.data()) != CUDNN_STATUS_SUCCESS)
    return {};
  if (!finalized(config)) return {};
  DnnDescriptor execution_plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  set(execution_plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_);
  set(execution_plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (!finalized(execution_plan)) return {};
  return DnnAlgorithm(std::move(execution_plan));
}

}  // namespace headroom::cuda
