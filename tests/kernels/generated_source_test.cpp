// The kernels that are compiled at run time, for machines without a GPU: their source is valid.
#include <gtest/gtest.h>

#include "base/errors.h"
#include "kernels/cuda/generated/compiled_kernel.h"
#include "kernels/cuda/generated/expression_source.h"
#include "tests/kernels/kernel_cases.h"

namespace headroom::cuda {
namespace {

constexpr int kCapability = 90;

std::vector<TensorSpec> stored_in(DType type, const std::vector<TensorSpec>& specs) {
  std::vector<TensorSpec> stored = specs;
  for (TensorSpec& spec : stored) spec.dtype = type;
  return stored;
}

void expect_compiles(const KernelSource& source) {
  EXPECT_NO_THROW(compile_kernel(source.text, kCapability)) << source.text;
}

// One case of eight, and all whose operands have windows: each takes some tens of milliseconds.
TEST(GeneratedSource, OfExpressionsAndTheirReductionsCompiles) {
  std::vector<test::KernelCase> cases;
  test::add_expression_cases(cases);
  int number = 0;
  for (const test::KernelCase& row : cases) {
    const auto* expression = std::get_if<Expression>(&row.op);
    const auto* reduced = std::get_if<ReducedExpression>(&row.op);
    const bool has_windows = (expression ? *expression : reduced->of).windows.operands != 0;
    if (!has_windows && ++number % 8 != 0) continue;
    SCOPED_TRACE(row.name);
    std::vector<TensorSpec> specs;
    for (const test::HostTensor& input : row.inputs) specs.push_back(input.spec());
    const DType type = number % 3 == 0 ? DType::kF32 : number % 3 == 1 ? DType::kBf16 : DType::kF16;
    const std::vector<TensorSpec> inputs = stored_in(type, specs);
    const TensorSpec output = infer_outputs(row.op, specs)[0];
    if (expression) {
      expect_compiles(elementwise_source(*expression, inputs, stored_in(type, {output})[0],
                                         lanes_of_expression(*expression, inputs, output)));
      continue;
    }
    const ReductionShape shape = reduction_shape(*reduced, inputs, output, 1000, true);
    expect_compiles(reduction_source(*reduced, inputs, output, shape));
    expect_compiles(join_source(reduced->by, shape, output));
  }
}

TEST(GeneratedSource, IsPtxForGpusThatTheCompilerDoesNotKnowYet) {
  Expression twice{1, 1};
  twice.instructions[0].alpha = 2;
  const std::vector<TensorSpec> inputs = {{DType::kF32, {64}}};
  const KernelSource source = elementwise_source(twice, inputs, inputs[0], 4);
  EXPECT_EQ(compile_kernel(source.text, kCapability).substr(1, 3), "ELF");
  EXPECT_NE(compile_kernel(source.text, 9999).find(".entry kernel"), std::string::npos);
}

TEST(GeneratedSource, ThatIsFaultyIsRefusedWithTheCompilersWords) {
  try {
    compile_kernel("no function", kCapability);
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("error"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace headroom::cuda
