#include "runtime/onnx/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "base/text.h"
#include "runtime/onnx/importer.h"

namespace headroom::onnx {
namespace {

// The module that has the weight: of the weight's name, or of the node where exporters number weights.
std::string module_of(const std::string& weight, const OnnxNode& node) {
  constexpr std::string_view kEnd = ".weight";
  if (weight.ends_with(kEnd)) return weight.substr(0, weight.size() - kEnd.size());
  return node.module.empty() ? weight : node.module;
}

}  // namespace

bool has_part(const std::string& name, const std::string& part) {
  const auto is_between = [](char c) { return c == '.' || c == '/' || c == '_'; };
  for (size_t at = name.find(part); !part.empty() && at != std::string::npos; at = name.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || is_between(name[at - 1])) && (end == name.size() || is_between(name[end]))) return true;
  }
  return false;
}

bool Adapters::is_target(const std::string& name, const OnnxNode& node, const Model& model) const {
  if (!settings_.targets.empty()) {
    return std::ranges::any_of(settings_.targets,
                               [&](const std::string& part) { return has_part(name, part); });
  }
  return std::ranges::none_of(model.outputs, [&](const ValueType& output) {
    return std::ranges::find(node.outputs, output.name) != node.outputs.end();
  });
}

std::optional<Item> Adapters::product(Importer& im, const Item& x, const Item& weight, const OnnxNode& node,
                                      const Model& model) {
  if (!settings_.is_on() || weight.rank() != 2 || x.rank() < 2) return {};
  const int source = weight.quantized ? weight.quantized->numbers.source : weight.source;
  if (source < 0) return {};
  const Source& given = im.sources()[static_cast<size_t>(source)];
  if (given.is_adapter || (!weight.quantized && given.kind != SourceKind::kParameter)) return {};
  auto found = pairs_.find(source);
  if (found == pairs_.end()) {
    const Source& of = im.sources()[static_cast<size_t>(source)];
    const std::string module = module_of(of.name, node);
    if (of.is_looked_up || !is_target(module, node, model)) {
      others_.push_back(module);
      return {};
    }
    const int64_t in = weight.shape[0], out = weight.shape[1];
    const auto adapter = [&](const char* name, const Shape& shape) {
      Source added{SourceKind::kParameter, fmt::format("base_model.model.{}.{}.weight", module, name),
                   ElementType::kFloat, shape};
      added.is_adapter = true;
      return added;
    };
    Source a = adapter("lora_A", {settings_.rank, in}), b = adapter("lora_B", {out, settings_.rank});
    a.limit = 1 / std::sqrt(static_cast<float>(std::max<int64_t>(1, in)));  // kaiming_uniform_(a=sqrt(5))
    b.number = 0.0f;
    const Item first = im.add_source(std::move(a)), second = im.add_source(std::move(b));
    found = pairs_.emplace(source, Pair{first, second}).first;
  }
  const double alpha = settings_.alpha > 0 ? settings_.alpha : static_cast<double>(settings_.rank);
  const auto scale = static_cast<float>(alpha / static_cast<double>(settings_.rank));
  const Item small = im.matmul(x, im.transpose(found->second.a, {1, 0}));
  return im.matmul(im.binary(BinaryKind::kMul, small, im.number(scale)),
                   im.transpose(found->second.b, {1, 0}));
}

void Adapters::require_any() const {
  if (!settings_.is_on() || !pairs_.empty()) return;
  constexpr size_t kShown = 8;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(kShown, others_.size()); ++i) names.push_back(printable(others_[i], 60));
  throw InvalidArgument(fmt::format(
      "--lora: no weight of a product is a target{}",
      names.empty()
          ? std::string()
          : fmt::format("; --lora-targets takes parts of names such as {}", fmt::join(names, ", "))));
}

}  // namespace headroom::onnx
