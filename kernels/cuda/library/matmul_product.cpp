#include "kernels/cuda/library/matmul_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "device/cuda/check.h"

namespace headroom::cuda {
namespace {

// Number of suggestions from the heuristic: its later answers are rarely the fastest.
constexpr int kMaxSuggestions = 12;
// Enough for the partial sums of small products, which is where splitting k matters most.
constexpr int64_t kSmallWorkspaceBytes = int64_t{1} << 20;
// An address that is checked and not read.
constexpr uintptr_t kAnyAddress = 256;

cublasComputeType_t compute_type(Math math, DType read) {
  if (is_half(read)) return CUBLAS_COMPUTE_32F;
  switch (math) {
    case Math::kF32:
      break;
    case Math::kTf32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case Math::kBf16:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
    case Math::kF16:
      return CUBLAS_COMPUTE_32F_FAST_16F;
  }
  return CUBLAS_COMPUTE_32F_PEDANTIC;  // neither tensor cores nor emulation by narrower types
}

bool has_bias(Epilogue epilogue) {
  return epilogue != Epilogue::kNone && epilogue != Epilogue::kSum;
}

cublasLtEpilogue_t lt_epilogue(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
    case Epilogue::kSum:  // C is added to any product
      break;
    case Epilogue::kBias:
    case Epilogue::kBiasSum:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kBiasRelu:
    case Epilogue::kBiasSumRelu:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Epilogue::kSumB:
      return CUBLASLT_EPILOGUE_BGRADA;  // our b is its first operand
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

template <typename T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t name, const T& value) {
  HR_CHECK(cublasLtMatmulDescSetAttribute(description, name, &value, sizeof value));
}

cudaDataType_t blas_type(DType type) {
  if (type == DType::kBf16) return CUDA_R_16BF;
  return type == DType::kF16 ? CUDA_R_16F : CUDA_R_32F;
}

// A row-major (rows, columns) matrix as cuBLASLt sees it.
cublasLtMatrixLayout_t layout(DType type, int64_t rows, int64_t columns, int64_t batch, int64_t stride) {
  cublasLtMatrixLayout_t result = nullptr;
  HR_CHECK(cublasLtMatrixLayoutCreate(&result, blas_type(type), static_cast<uint64_t>(columns),
                                      static_cast<uint64_t>(rows), columns));
  const auto count = static_cast<int32_t>(batch);
  HR_CHECK(
      cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  HR_CHECK(cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                            sizeof stride));
  return result;
}

cublasLtMatmulDesc_t describe(const KernelSettings& settings, const MatMulShape& shape, Epilogue epilogue) {
  cublasLtMatmulDesc_t result = nullptr;
  HR_CHECK(cublasLtMatmulDescCreate(&result, compute_type(settings.math, shape.read), CUDA_R_32F));
  const cublasOperation_t first = shape.op.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = shape.op.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(result, CUBLASLT_MATMUL_DESC_TRANSA, first);
  set(result, CUBLASLT_MATMUL_DESC_TRANSB, second);
  set(result, CUBLASLT_MATMUL_DESC_EPILOGUE, lt_epilogue(epilogue));
  if (has_bias(epilogue)) {
    // The heuristic looks at how far the pointer is aligned, and takes null for no bias.
    const auto aligned_pointer = reinterpret_cast<void*>(uintptr_t{256});
    set(result, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned_pointer);
    set(result, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, blas_type(shape.computed));
  }
  return result;
}

// Returns the bytes of `batch` matrices, rounded so that the next tensor is aligned.
int64_t span_bytes(DType type, int64_t rows, int64_t columns, int64_t batch, int64_t stride) {
  const int64_t elements = rows * columns + (batch - 1) * stride;
  return (elements * element_bytes(type) + 255) / 256 * 256;
}

// The name of our own kernel among algorithms.
constexpr const char* kFewRows = "few rows";

std::optional<FewRows> few_rows_of(const CudaGpu& device, const MatMulShape& s, Epilogue epilogue) {
  const bool is_sum = epilogue == Epilogue::kNone || epilogue == Epilogue::kBias ||
                      epilogue == Epilogue::kBiasSum || epilogue == Epilogue::kSum;
  const bool fits = is_sum && s.batch == 1 && s.aligned && s.op.transpose_b && !s.op.transpose_a;
  if (!fits || !takes_few_rows(device, s.read, s.m, s.k)) return {};
  return FewRows{
      static_cast<int>(s.m), s.n, s.k, s.read, s.computed, nullptr, nullptr, nullptr, nullptr, nullptr};
}

std::string name_of(const MatMulShape& s, Epilogue epilogue, const KernelSettings& settings, bool is_own) {
  return fmt::format("matmul{} {}x{}x{}{}{} batch {} strides {},{},{}{} epilogue {} math {}{}",
                     is_own ? " of few rows" : "", s.m, s.n, s.k, s.op.transpose_a ? " ta" : "",
                     s.op.transpose_b ? " tb" : "", s.batch, s.stride_a, s.stride_b, s.stride_y,
                     s.aligned ? "" : " unaligned", static_cast<int>(epilogue),
                     static_cast<int>(settings.math), settings.deterministic ? " deterministic" : "") +
         (is_half(s.read) ? fmt::format(" {} to {} by f32", to_string(s.read), to_string(s.computed)) : "");
}

// An algorithm's words are text as they stand: cuBLASLt allows to store them and to restore them with the
// same version of the library.
std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text = "algorithm";
  for (uint64_t word : algorithm.data) text += fmt::format(" {:x}", word);
  return text;
}

std::optional<cublasLtMatmulAlgo_t> parse_algorithm(const std::string& text) {
  std::istringstream words(text);
  std::string name;
  cublasLtMatmulAlgo_t algorithm{};
  if (!(words >> name) || name != "algorithm") return {};
  for (uint64_t& word : algorithm.data) {
    if (!(words >> std::hex >> word)) return {};
  }
  return algorithm;
}

}  // namespace

Product::Product(const Request& request, const MatMulShape& s, Epilogue epilogue)
    : device_(request.device),
      handle_(cublasLtHandle_t(request.blas())),
      description_(describe(request.settings, s, epilogue)),
      first_(s.op.transpose_b ? layout(s.read, s.n, s.k, s.batch, s.stride_b)
                              : layout(s.read, s.k, s.n, s.batch, s.stride_b)),
      second_(s.op.transpose_a ? layout(s.read, s.k, s.m, s.batch, s.stride_a)
                               : layout(s.read, s.m, s.k, s.batch, s.stride_a)),
      result_(layout(s.computed, s.m, s.n, s.batch, s.stride_y)),
      has_bias_(has_bias(epilogue)),
      adds_(epilogue == Epilogue::kBiasSum || epilogue == Epilogue::kBiasSumRelu ||
            epilogue == Epilogue::kSum),
      few_rows_(few_rows_of(request.device, s, epilogue)) {
  const int64_t operand_bytes =
      span_bytes(s.read, s.m, s.k, s.batch, s.stride_a) + span_bytes(s.read, s.k, s.n, s.batch, s.stride_b) +
      span_bytes(s.computed, s.m, s.n, s.batch, s.stride_y) + span_bytes(s.computed, 1, s.n, 1, 0);
  workspace_bytes_ =
      choose_algorithm(request, {name_of(s, epilogue, request.settings, few_rows_.has_value()), operand_bytes,
                                 [&](size_t) { return candidates(request.settings, s); },
                                 [&](const AlgorithmChoice& choice) { return use(choice); }})
          .workspace_bytes;
}

std::vector<cublasLtMatmulHeuristicResult_t> Product::suggestions(const KernelSettings& settings,
                                                                  const MatMulShape& shape,
                                                                  int64_t limit_bytes) const {
  cublasLtMatmulPreference_t made = nullptr;
  HR_CHECK(cublasLtMatmulPreferenceCreate(&made));
  const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    HR_CHECK(cublasLtMatmulPreferenceSetAttribute(made, name, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(limit_bytes));
  // Adding into the result in place happens in the order in which blocks arrive.
  constexpr uint32_t kOrdered = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                                CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  constexpr uint32_t kAny = CUBLASLT_REDUCTION_SCHEME_MASK;
  // Parts of a sum that are results of 16 bits are each rounded.
  constexpr uint32_t kExact = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const uint32_t schemes = settings.deterministic ? kOrdered : kAny;
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, is_half(shape.computed) ? schemes & kExact : schemes);
  const auto alignment = static_cast<uint32_t>(
      shape.aligned ? 16 : std::min(element_bytes(shape.read), element_bytes(shape.computed)));
  for (const auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(name, alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(kMaxSuggestions);
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, description_.get(), first_.get(), second_.get(), result_.get(),
                                     result_.get(), made, kMaxSuggestions, results.data(), &count);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) HR_CHECK(status);
  results.resize(static_cast<size_t>(count));
  std::erase_if(results, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  return results;
}

std::vector<AlgorithmCandidate> Product::candidates(const KernelSettings& settings,
                                                    const MatMulShape& s) const {
  const int64_t a_bytes = span_bytes(s.read, s.m, s.k, s.batch, s.stride_a);
  const int64_t b_bytes = span_bytes(s.read, s.k, s.n, s.batch, s.stride_b);
  const int64_t y_bytes = span_bytes(s.computed, s.m, s.n, s.batch, s.stride_y);
  std::vector<AlgorithmCandidate> results;
  if (few_rows_) {
    results.push_back({{kFewRows, 0, 0}, [=, this](std::byte* at, void*, cudaStream_t stream) {
                         std::byte *b = at + a_bytes, *y = b + b_bytes, *bias = y + y_bytes;
                         launch_own(at, b, y, bias, y, stream);
                       }});
  }
  // Asked only for the whole limit, the heuristic does not tell the cost of less workspace.
  const int64_t limit = settings.workspace_limit_bytes;
  for (int64_t bytes : {limit, std::min(limit, kSmallWorkspaceBytes), int64_t{0}}) {
    for (const cublasLtMatmulHeuristicResult_t& found : suggestions(settings, s, bytes)) {
      // The heuristic may ask for less than the check of the same algorithm, on which use() insists.
      const std::optional<int64_t> checked = checked_workspace(found.algo);
      if (!checked || *checked > limit) continue;
      AlgorithmChoice choice{text_of(found.algo), 0,
                             std::max(static_cast<int64_t>(found.workspaceSize), *checked)};
      const auto is_same = [&](const AlgorithmCandidate& other) { return other.choice == choice; };
      if (std::any_of(results.begin(), results.end(), is_same)) continue;
      const auto run = [=, this, algorithm = found.algo, workspace_bytes = choice.workspace_bytes](
                           std::byte* at, void* workspace, cudaStream_t stream) {
        std::byte *b = at + a_bytes, *y = b + b_bytes, *bias = y + y_bytes;
        launch(algorithm, at, b, y, bias, y, workspace, workspace_bytes, stream);
      };
      results.push_back({std::move(choice), run});
    }
  }
  return results;
}

std::optional<int64_t> Product::checked_workspace(const Algorithm& algorithm) const {
  // cuBLAS refuses the check of a product that has a bias at no address. It does not read there.
  if (has_bias_)
    set(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<void*>(kAnyAddress));
  cublasLtMatmulHeuristicResult_t checked{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle_, description_.get(), first_.get(), second_.get(), result_.get(),
                              result_.get(), &algorithm, &checked);
  if (status != CUBLAS_STATUS_SUCCESS) return {};
  return static_cast<int64_t>(checked.workspaceSize);
}

bool Product::use(const AlgorithmChoice& choice) {
  is_own_ = few_rows_ && choice.algorithm == kFewRows;
  if (is_own_) return true;
  const std::optional<Algorithm> algorithm = parse_algorithm(choice.algorithm);
  if (!algorithm) return false;
  const std::optional<int64_t> checked = checked_workspace(*algorithm);
  if (!checked || *checked > choice.workspace_bytes) return false;
  algorithm_ = *algorithm;
  return true;
}

void Product::launch(const Algorithm& algorithm, const void* a, const void* b, void* y, void* bias,
                     const void* c, void* workspace, int64_t workspace_bytes, cudaStream_t stream) const {
  if (has_bias_) set(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const float alpha = 1, beta = adds_ ? 1 : 0;
  HR_CHECK(cublasLtMatmul(handle_, description_.get(), &alpha, b, first_.get(), a, second_.get(), &beta,
                          adds_ ? c : y, result_.get(), y, result_.get(), &algorithm, workspace,
                          static_cast<size_t>(workspace_bytes), stream));
}

void Product::launch_own(const void* a, const void* b, void* y, const void* bias, const void* c,
                         cudaStream_t stream) const {
  FewRows rows = *few_rows_;
  rows.x = static_cast<const uint16_t*>(a), rows.w = static_cast<const uint16_t*>(b), rows.y = y;
  if (has_bias_) rows.bias = bias;
  if (adds_) rows.c = c;
  multiply_few_rows(device_, rows, stream);
}

void Product::run(const void* a, const void* b, void* y, void* bias, const void* c, void* workspace,
                  cudaStream_t stream) const {
  if (is_own_) return launch_own(a, b, y, bias, c, stream);
  launch(algorithm_, a, b, y, bias, c, workspace, workspace_bytes_, stream);
}

}  // namespace headroom::cuda
