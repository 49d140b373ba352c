#include "runtime/onnx/parameters.h"

#include <fmt/format.h>

#include <algorithm>

namespace headroom::onnx {
namespace {

// "p_weight: PARAMETER target='encoder.weight'", a line each: what PyTorch says of a program's inputs.
struct Signature {
  std::unordered_set<std::string> parameters, buffers;
};

Signature signature_of(const Model& model) {
  Signature signature;
  const auto found = model.metadata.find("pkg.torch.export.ExportedProgram.graph_signature");
  if (found == model.metadata.end()) return signature;
  const std::string_view text = found->second;
  constexpr std::string_view kTarget = " target='";
  size_t at = 0;
  while ((at = text.find(kTarget, at)) != std::string_view::npos) {
    const std::string_view before = text.substr(0, at);
    at += kTarget.size();
    const size_t end = text.find('\'', at);
    if (end == std::string_view::npos) break;
    std::string name(text.substr(at, end - at));
    if (before.ends_with(": PARAMETER"))
      signature.parameters.insert(std::move(name));
    else if (before.ends_with(": BUFFER"))
      signature.buffers.insert(std::move(name));
    at = end;
  }
  return signature;
}

bool is_weight_place(const OnnxNode& node, size_t i) {
  const std::string_view op = node.op;
  if (op == "MatMul" || op == "Conv" || op == "ConvTranspose" || op == "Gemm")
    return i >= 1 || op == "MatMul" || op == "Gemm";
  if (op == "Gather") return i == 0;
  if (op == "PRelu") return i == 1;
  return (op.ends_with("Normalization")) && (i == 1 || i == 2);
}

// Places whose numbers are settings, not weights.
bool is_setting_place(const OnnxNode& node, size_t i) {
  const std::string_view op = node.op;
  if (op == "Clip" || op == "Pad" || op == "Resize" || op == "Upsample" || op == "Dropout" || op == "Range" ||
      op == "OneHot" || op == "Trilu") {
    return i > 0;
  }
  return op == "Pow" && i == 1;
}

bool is_statistic_place(const OnnxNode& node, size_t i) {
  return node.op == "BatchNormalization" && i >= 3;
}

struct Uses {
  int all = 0, weights = 0, settings = 0, statistics = 0, vectors = 0;  // vectors: scales, shifts and biases
};

}  // namespace

Roles find_roles(const Model& model) {
  const Signature signature = signature_of(model);
  const bool is_told = !signature.parameters.empty();
  std::unordered_map<std::string_view, Uses> uses;
  for (const Tensor& tensor : model.initializers) uses.emplace(tensor.name, Uses());
  // A weight that is only transposed or passed on is used where the result is.
  std::unordered_map<std::string_view, std::string_view> passed;
  int batch_norms = 0, convolutions = 0;
  for (const OnnxNode& node : model.nodes) {
    if (node.op == "BatchNormalization") ++batch_norms;
    if (node.op == "Conv") ++convolutions;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      std::string_view name = node.inputs[i];
      const auto origin = passed.find(name);
      if (origin != passed.end()) name = origin->second;
      const auto found = uses.find(name);
      if (found == uses.end()) continue;
      const bool passes = (node.op == "Transpose" || node.op == "Identity" || node.op == "Reshape" ||
                           node.op == "Unsqueeze" || node.op == "Squeeze") &&
                          i == 0;
      if (passes && !node.outputs.empty()) {
        passed[node.outputs[0]] = found->first;
        continue;
      }
      Uses& use = found->second;
      ++use.all;
      if (is_weight_place(node, i)) ++use.weights;
      if (is_setting_place(node, i)) ++use.settings;
      if (is_statistic_place(node, i)) ++use.statistics;
      if (node.op.ends_with("Normalization") ||
          ((node.op == "Gemm" || node.op.starts_with("Conv")) && i == 2) || node.op == "Add") {
        ++use.vectors;
      }
    }
  }
  Roles roles;
  int64_t shared_matrices = 0, present = 0;
  for (const Tensor& tensor : model.initializers) {
    if (!is_float(tensor.type)) continue;
    const Uses& use = uses[tensor.name];
    if (use.statistics > 0) {
      roles.kinds[tensor.name] = SourceKind::kStatistic;
      continue;
    }
    if (use.all == 0 || use.settings == use.all) continue;
    const bool is_parameter = signature.parameters.contains(tensor.name);
    if (is_parameter) ++present;
    if (signature.buffers.contains(tensor.name)) continue;
    const bool is_weight = use.weights > 0 && !tensor.extents.empty();
    // Where nobody tells, what has more than one number and meets the data is a weight.
    const bool looks_so = !is_told && !tensor.extents.empty() && tensor.elements() > 1;
    if (!is_parameter && !is_weight && !looks_so) continue;
    roles.kinds[tensor.name] = SourceKind::kParameter;
    if (tensor.extents.size() > 1 && use.weights > 1) ++shared_matrices;
  }
  // An exporter that merges equal tensors makes one of all fresh scales and shifts. Matrices that are shared
  // are tied by the program; with a layer that is used twice its vectors are, too.
  const bool has_merged =
      is_told ? present < static_cast<int64_t>(signature.parameters.size()) : shared_matrices <= 1;
  int64_t merged = 0, made = 0;
  for (const Tensor& tensor : model.initializers) {
    const Uses& use = uses[tensor.name];
    if (!has_merged || roles.kind_of(tensor.name) != SourceKind::kParameter || tensor.extents.size() != 1 ||
        use.vectors < 2 || use.vectors != use.all) {
      continue;
    }
    roles.merges[tensor.name] = &tensor;
    ++merged;
    made += use.vectors;
  }
  if (merged > 0) {
    roles.notes.push_back(fmt::format("{} vector{} stood for {} equal weights, which are trained apart",
                                      merged, merged == 1 ? "" : "s", made));
  }
  if (is_told && batch_norms == 0 && convolutions > 0) {
    const bool was_normalised =
        std::any_of(signature.buffers.begin(), signature.buffers.end(),
                    [](const std::string& name) { return name.ends_with("running_mean"); });
    if (was_normalised) {
      roles.notes.push_back(
          "the export has folded batch normalisation into the convolutions: training goes on without it "
          "(export with optimize=False to keep it)");
    }
  }
  return roles;
}

}  // namespace headroom::onnx
