// Cases of the onnx package, as make_conformance.py packs them: ONNX's own expected results of its ops and
// nets.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "runtime/app/runtime.h"
#include "runtime/onnx/decode.h"
#include "runtime/onnx/model_step.h"
#include "runtime/onnx/read_model.h"
#include "runtime/session/session.h"
#include "tests/runtime/onnx/model_bytes.h"

namespace headroom::test {
namespace {

struct ConformanceCase {
  std::string name, model;
  std::vector<std::string> inputs, outputs;  // TensorProto
};

class CaseFile {
 public:
  explicit CaseFile(const std::string& name) : file_(std::string(HEADROOM_ONNX_FIXTURES) + "/" + name) {}

  std::vector<ConformanceCase> read() {
    std::vector<ConformanceCase> cases(number());
    for (ConformanceCase& one : cases) {
      one.name = text();
      one.model = text();
      for (std::vector<std::string>* list : {&one.inputs, &one.outputs}) {
        list->resize(number());
        for (std::string& tensor : *list) tensor = text();
      }
    }
    return cases;
  }

 private:
  uint32_t number() {
    uint32_t value = 0;
    if (file_.read(&value, sizeof value) != sizeof value) file_.fail("truncated");
    return value;
  }
  std::string text() {
    std::string result(number(), '\0');
    if (file_.read(result.data(), static_cast<int64_t>(result.size())) !=
        static_cast<int64_t>(result.size())) {
      file_.fail("truncated");
    }
    return result;
  }

  InputFile file_;
};

onnx::HostTensor tensor_of(const onnx::Tensor& tensor) {
  const TensorSpec spec{onnx::dtype_of_element(tensor.type), Shape(std::span<const int64_t>(tensor.extents))};
  return {spec, onnx::convert_elements(tensor.type, tensor.data, tensor.elements())};
}

std::vector<double> numbers_of(const onnx::HostTensor& tensor) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const auto at = static_cast<size_t>(i);
    switch (tensor.spec().dtype) {
      case DType::kF32:
        numbers.push_back(static_cast<double>(tensor.data<float>()[at]));
        break;
      case DType::kI32:
        numbers.push_back(tensor.data<int32_t>()[at]);
        break;
      case DType::kU8:
        numbers.push_back(tensor.data<uint8_t>()[at]);
        break;
      case DType::kBf16:
      case DType::kF16:
        break;
    }
  }
  return numbers;
}

// Returns the difference of the output from the expected one, as the case stores it; empty if there is none.
std::string difference(const onnx::HostTensor& got, const onnx::Tensor& stored) {
  const onnx::HostTensor expected = tensor_of(stored);
  if (got.spec() != expected.spec())
    return to_string(got.spec()) + " instead of " + to_string(expected.spec());
  const std::vector<double> here = numbers_of(got), there = numbers_of(expected);
  for (size_t i = 0; i < here.size(); ++i) {
    const bool is_same = here[i] == there[i] || (std::isnan(here[i]) && std::isnan(there[i]));
    // The bounds of the onnx package's own tests, with room for f32 where it computes in double.
    const double bound = stored.type == onnx::ElementType::kBfloat16 ? 0x1p-6 : 1e-3;
    if (!is_same && !(std::abs(here[i] - there[i]) <= bound * std::abs(there[i]) + 2e-6)) {
      return "element " + std::to_string(i) + ": " + std::to_string(here[i]) + " instead of " +
             std::to_string(there[i]);
    }
  }
  return {};
}

onnx::HostTensor fetched(Session& session, const Value& output) {
  switch (output.spec().dtype) {
    case DType::kF32:
      return {output.spec(), std::as_bytes(session.output<float>(output))};
    case DType::kI32:
      return {output.spec(), std::as_bytes(session.output<int32_t>(output))};
    case DType::kU8:
      return {output.spec(), std::as_bytes(session.output<uint8_t>(output))};
    case DType::kBf16:
    case DType::kF16:
      break;
  }
  return {};
}

template <typename T>
void copy_to(Session& session, const Value& input, const onnx::HostTensor& from) {
  const std::span<T> to = session.input<T>(input);
  std::copy(from.data<T>().begin(), from.data<T>().end(), to.begin());
}

// Floats that say how an op works: limits, scales, shares.
bool is_setting(const std::string& op, size_t i) {
  constexpr std::string_view kOps[] = {"Clip", "Dropout", "OneHot", "Pad", "Range", "Resize", "Upsample"};
  return (i > 0 || op == "Range") && std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

// Runs the model on the CPU. Float inputs are fed; whole ones, which are mostly shapes and indices, are known
// at import, as are all if `all_known`. Returns why it is wrong; empty if it is not.
std::string failure(const ConformanceCase& row, const std::vector<onnx::Tensor>& inputs, bool all_known) {
  try {
    auto model = std::make_shared<onnx::Model>(onnx::parse_model(as_bytes(row.model), row.name));
    onnx::ImportSettings settings;
    std::vector<std::pair<std::string, onnx::HostTensor>> fed;
    for (size_t i = 0; i < std::min(inputs.size(), model->inputs.size()); ++i) {
      onnx::ValueType& input = model->inputs[i];
      // Cases may leave shapes open.
      input.shape.emplace();
      for (int64_t extent : inputs[i].extents) input.shape->push_back({extent, ""});
      if (all_known || !onnx::is_float(inputs[i].type) || is_setting(model->nodes[0].op, i)) {
        settings.known.emplace(input.name, tensor_of(inputs[i]));
      } else {
        fed.emplace_back(input.name, tensor_of(inputs[i]));
      }
    }
    const auto inference = make_model_inference(model, {.import = settings});
    Runtime runtime({.device = "cpu"});
    Variables variables(inference->graph, runtime.device(), runtime.allocator());
    Session session(inference->graph, Targets{inference->outputs}, PlanMode::kDynamic, variables);
    for (const onnx::BoundTensor& input : inference->model.inputs) {
      const auto found =
          std::find_if(fed.begin(), fed.end(), [&](const auto& one) { return one.first == input.name; });
      if (found == fed.end()) return "input " + input.name + " has no data";
      onnx::HostTensor data = found->second;
      if (!onnx::is_in_order(input.order)) data = compute(Transpose{input.order}, std::vector{data});
      copy_to<float>(session, input.value, data);
    }
    session.run();
    for (size_t i = 0; i < row.outputs.size(); ++i) {
      const std::string why = difference(fetched(session, inference->outputs[i]),
                                         onnx::decode_tensor(as_bytes(row.outputs[i]), *model));
      if (!why.empty()) return "output " + std::to_string(i) + ": " + why;
    }
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// Returns the reasons that the case fails when it is run, and when it is folded.
std::array<std::string, 2> failures(const ConformanceCase& row) {
  onnx::Model store;
  std::vector<onnx::Tensor> inputs;
  try {
    for (const std::string& input : row.inputs) inputs.push_back(onnx::decode_tensor(as_bytes(input), store));
  } catch (const InvalidArgument& error) {
    return {error.what(), error.what()};
  }
  return {failure(row, inputs, false), failure(row, inputs, true)};
}

// The cases that fail: the words of the refusal by the name of the case.
std::map<std::string, std::string> unsupported_cases() {
  std::map<std::string, std::string> reasons;
  std::ifstream file(HEADROOM_ONNX_FIXTURES "/conformance_unsupported.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    const size_t space = line.find(' ');
    reasons.emplace(line.substr(0, space), line.substr(space + 1));
  }
  return reasons;
}

TEST(OnnxConformance, EveryNodeCasePassesOrFailsAsListed) {
  const std::vector<ConformanceCase> cases = CaseFile("conformance.bin.gz").read();
  // The number that make_conformance.py printed, so that a lost case is noticed.
  EXPECT_EQ(cases.size(), 1238u);
  std::map<std::string, std::string> unsupported = unsupported_cases();
  for (const ConformanceCase& row : cases) {
    const auto listed = unsupported.extract(row.name);
    std::string reason = listed ? listed.mapped() : "";
    const auto [as_inputs, folded] = failures(row);
    constexpr std::string_view kUnknown = "unless its inputs are known: ";
    const bool is_folded = reason.starts_with(kUnknown);
    if (is_folded) reason.erase(0, kUnknown.size());
    EXPECT_TRUE(!is_folded || folded.empty()) << row.name << ": " << folded;
    for (const std::string& why : {as_inputs, is_folded ? as_inputs : folded}) {
      if (reason.empty()) {
        EXPECT_EQ(why, "") << row.name;
      } else if (reason.starts_with("differs: ")) {
        EXPECT_TRUE(why.starts_with("output ")) << row.name << ": '" << why << "' although it " << reason;
      } else {
        EXPECT_NE(why.find(reason), std::string::npos) << row.name << ": '" << why << "', not " << reason;
      }
    }
  }
  for (const auto& [name, reason] : unsupported) ADD_FAILURE() << "no case " << name << " (" << reason << ")";
}

TEST(OnnxConformance, TheLightNetsGiveTheirOutputs) {
  for (const ConformanceCase& row : CaseFile("light_nets.bin.gz").read()) {
    const onnx::Model model = onnx::parse_model(as_bytes(row.model), row.name);
    // 0, 1/n, 2/n, ...: the numbers of the onnx package's runner.
    std::deque<std::vector<float>> numbers;
    std::vector<onnx::Tensor> inputs;
    for (const onnx::ValueType& input : model.inputs) {
      onnx::Tensor tensor;
      tensor.name = input.name;
      tensor.type = onnx::ElementType::kFloat;
      for (const onnx::Dimension& axis : *input.shape)
        tensor.extents.push_back(std::max<int64_t>(1, axis.extent));
      std::vector<float>& values = numbers.emplace_back(static_cast<size_t>(tensor.elements()));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(static_cast<double>(i) / static_cast<double>(values.size()));
      }
      tensor.data = std::as_bytes(std::span(values));
      inputs.push_back(std::move(tensor));
    }
    EXPECT_EQ(failure(row, inputs, false), "") << row.name;
  }
}

}  // namespace
}  // namespace headroom::test
