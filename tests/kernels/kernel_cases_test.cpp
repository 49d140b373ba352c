// Properties of every kernel, tested on every row of the table.
#include "tests/kernels/kernel_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>

#include "kernels/attention_tiles.h"
#include "tests/kernels/heap_counter.h"
#include "tests/kernels/reference.h"

namespace headroom::test {
namespace {

class EveryKernel : public testing::TestWithParam<KernelCase> {};

// A case's outputs, then the inputs that it changes.
std::vector<HostTensor> results_of(const KernelCase& row, const std::vector<HostTensor>& inputs) {
  std::vector<HostTensor> results = run_op(row.op, inputs);
  for (int i : mutated_inputs(row.op, row.inputs.size())) results.push_back(inputs[static_cast<size_t>(i)]);
  return results;
}

TEST_P(EveryKernel, AgreesWithPlainLoopsInDouble) {
  const KernelCase& row = GetParam();
  const std::vector<HostTensor> inputs = row.inputs;
  std::vector<Values> reference_inputs;
  for (const HostTensor& input : inputs) reference_inputs.push_back({input.spec(), input.values()});
  const std::vector<Values> expected = reference(row.op, reference_inputs);
  const std::vector<HostTensor> results = results_of(row, inputs);
  ASSERT_EQ(results.size(), expected.size());
  for (size_t r = 0; r < results.size(); ++r) {
    ASSERT_EQ(results[r].spec(), expected[r].spec);
    EXPECT_TRUE(results[r].guard_intact());
    const std::vector<double> got = results[r].values();
    for (size_t i = 0; i < got.size(); ++i) {
      const double want = expected[r].data[i];
      if (got[i] == want) continue;  // infinite
      const double allowed =
          results[r].spec().dtype == DType::kF32 ? row.tolerance * std::max(1.0, std::abs(want)) : 0;
      ASSERT_NEAR(got[i], want, allowed) << "result " << r << ", element " << i;
    }
  }
}

TEST_P(EveryKernel, LeavesOtherOperandsUnchanged) {
  const KernelCase& row = GetParam();
  const std::vector<HostTensor> inputs = row.inputs;
  run_op(row.op, inputs);
  const std::vector<int> mutated = mutated_inputs(row.op, row.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(inputs[i].guard_intact());
    if (std::find(mutated.begin(), mutated.end(), static_cast<int>(i)) == mutated.end()) {
      EXPECT_TRUE(inputs[i].same_bytes(row.inputs[i])) << "input " << i;
    }
  }
}

TEST_P(EveryKernel, GivesTheSameBitsInPlace) {
  const KernelCase& row = GetParam();
  const std::vector<TensorSpec> inputs = specs_of(row.inputs);
  const std::vector<TensorSpec> outputs = infer_outputs(row.op, inputs);
  const std::vector<HostTensor> memory = row.inputs, others(outputs.begin(), outputs.end());
  std::vector<TensorView> views = views_of(others);
  bool is_shared = false;
  for (size_t o = 0; o < outputs.size(); ++o) {
    int shared = in_place_input(row.op, inputs, outputs[o], o);
    // Never taken over by a plan, but aliased by it.
    if (std::holds_alternative<Reshape>(row.op)) shared = 0;
    if (shared < 0) continue;
    views[o].data = memory[static_cast<size_t>(shared)].data<void>();
    is_shared = true;
  }
  if (!is_shared) return;
  const std::vector<HostTensor> apart = run_op(row.op, row.inputs);
  const std::unique_ptr<Kernel> kernel = make_cpu_kernel(row.op, inputs, outputs);
  const HostTensor workspace({DType::kU8, {kernel->workspace_bytes()}});
  kernel->run(views_of(memory), views, workspace.data<void>(), {});
  for (size_t o = 0; o < outputs.size(); ++o) {
    EXPECT_EQ(std::memcmp(views[o].data, apart[o].data<void>(), apart[o].bytes()), 0) << "output " << o;
  }
}

// A kernel that loses a NaN hides where a training broke.
TEST_P(EveryKernel, PropagatesNan) {
  const KernelCase& row = GetParam();
  const std::string_view name = op_name(row.op);
  // These pick elements, or give whole numbers; relu_grad, branch_grad and the pools' gradients take no
  // values from input 1.
  static const std::set<std::string_view> picking = {
      "dropout",    "slice",      "gather",       "take_batch",      "cast", "argmax",
      "accuracy",   "where",      "equal",        "not_equal",       "less", "less_equal",
      "all_finite", "mask_tiles", "replace_rows", "cached_attention"};
  if (picking.contains(name)) return;
  if (const auto* softmax = std::get_if<Softmax>(&row.op); softmax && softmax->zero_nan_rows) return;
  // The middle of these operands belongs to a text without a visible key.
  if (row.name.find("attention") == 0 && row.name.find("padding") != std::string::npos) return;
  if (const auto* attention = std::get_if<Attention>(&row.op); attention && attention->zero_nan_rows) return;
  const auto* whole = std::get_if<Expression>(&row.op);
  if (const auto* reduced = std::get_if<ReducedExpression>(&row.op)) whole = &reduced->of;
  // Of hundreds of operands some, in each role: updates have up to four operands of each variable.
  const size_t stride = row.inputs.size() > 100 ? 13 : 1;
  for (size_t i = 0; i < row.inputs.size(); i += stride) {
    if (row.inputs[i].spec().dtype != DType::kF32 || row.inputs[i].elements() == 0) continue;
    if (whole != nullptr && whole->windows.has(i)) continue;  // its middle may not be read
    if ((name == "relu_grad" || name == "max_grad") && i != 0) continue;
    if (name == "branch_grad" && i == 1) continue;
    // After relu, operand 5 masks dy and the residual's gradient.
    if (name == "batch_norm_grad" && row.inputs.size() > 5 && (i == 0 || i > 4)) continue;
    std::vector<HostTensor> inputs = row.inputs;
    const bool is_marked = name == "branch_grad" && inputs[1].spec().dtype == DType::kU8;
    if (is_marked) std::fill_n(inputs[1].data<uint8_t>(), inputs[1].elements(), uint8_t{255});
    if (name == "relu_grad" || (name == "branch_grad" && !is_marked))
      inputs[1].data()[inputs[1].elements() / 2] = 1;
    // Codes are normalized already: their norm's mean is not read, nor to restore them the variance.
    const bool restores = name == "batch_norm_apply" && row.inputs[0].spec().dtype == DType::kU8;
    const bool reads_codes =
        restores || (name == "batch_norm_grad" && row.inputs[1].spec().dtype == DType::kU8);
    if ((reads_codes && i == 3) || (restores && i == 4)) continue;
    inputs[i].data()[inputs[i].elements() / 2] = std::numeric_limits<float>::quiet_NaN();
    // The tiles of a mask that has changed: all of them are read.
    if (i + 1 < inputs.size() && inputs[i + 1].spec().dtype == DType::kU8 && name.starts_with("attention"))
      std::fill_n(inputs[i + 1].data<MaskTile>(), inputs[i + 1].elements(), MaskTile::kMixed);
    if (name == "max_grad")
      inputs[1] =
          run_op(Reduce{ReduceKind::kMax, std::get<ReduceMaxGrad>(row.op).axes, true}, {inputs[0]})[0];
    if (name == "max_grad")
      std::fill_n(inputs[2].data(), inputs[2].elements(), std::numeric_limits<float>::quiet_NaN());
    bool found = false;
    for (const HostTensor& result : results_of(row, inputs)) {
      for (double value : result.values()) found = found || std::isnan(value);
    }
    const bool skipped_by_window = row.name.find("pool_gaps") != std::string::npos;
    EXPECT_TRUE(found || skipped_by_window) << "NaN in input " << i;
  }
}

TEST_P(EveryKernel, AllocatesNothingOnTheHeapAfterItsFirstRun) {
  if (!HeapCounter::works()) GTEST_SKIP() << "a sanitizer owns the heap, or the C library is not glibc";
  const KernelCase& row = GetParam();
  const std::vector<HostTensor> tensors = row.inputs;
  const std::vector<TensorSpec> input_specs = specs_of(tensors);
  const std::vector<TensorSpec> output_specs = infer_outputs(row.op, input_specs);
  const std::vector<HostTensor> results(output_specs.begin(), output_specs.end());
  const std::unique_ptr<Kernel> kernel = make_cpu_kernel(row.op, input_specs, output_specs);
  const HostTensor workspace({DType::kU8, {kernel->workspace_bytes()}});
  const std::vector<TensorView> inputs = views_of(tensors), outputs = views_of(results);
  kernel->run(inputs, outputs, workspace.data<void>(), {});
  const HeapCounter counter;
  kernel->run(inputs, outputs, workspace.data<void>(), {});
  EXPECT_EQ(counter.allocations(), 0);
}

INSTANTIATE_TEST_SUITE_P(Table, EveryKernel, testing::ValuesIn(kernel_cases()), [](const auto& row) {
  std::string name = row.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name + "_row" + std::to_string(row.index);
});

// Convolutions have a table of their own; collective ops have no result on one replica; a program's own ops
// have no kernel of ours.
const std::set<std::string_view> kTestedElsewhere = {
    "conv2d", "conv_bias",  "conv2d_input_grad",     "conv2d_filter_grad",     "all_reduce",
    "custom", "conv_block", "conv_block_input_grad", "conv_block_filter_grad", "all_gather_update"};

TEST(KernelTable, CoversEveryOtherOp) {
  std::set<std::string_view> covered;
  const std::vector<KernelCase> cases = kernel_cases();
  for (const KernelCase& row : cases) covered.insert(op_name(row.op));
  for (std::string_view name : op_names()) {
    EXPECT_NE(covered.contains(name), kTestedElsewhere.contains(name)) << name;
  }
}

}  // namespace
}  // namespace headroom::test
