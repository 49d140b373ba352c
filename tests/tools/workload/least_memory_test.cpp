// --memory: the minimum budget that a refusal names, under every strategy, and the parts of it.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "allocators/strategies/strategy.h"
#include "answers/predict.h"
#include "answers/solve.h"
#include "base/bytes.h"
#include "tools/workload/workload.h"

namespace headroom {
namespace {

WorkloadOptions packed_under(const std::string& net, const std::string& strategy) {
  WorkloadOptions options;
  options.net = net;
  options.step.batch = 8;
  options.runtime.plan = PlanMode::kPacked;
  options.runtime.strategy = strategy;
  return options;
}

Solver solver_for(const WorkloadOptions& options) {
  return {make_programs(options).front(), setup_of(options.runtime)};
}

std::vector<std::string> names_of_strategies() {
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) names.emplace_back(strategy.name);
  return names;
}

class LeastMemory : public testing::TestWithParam<std::string> {};

TEST_P(LeastMemory, IsKeptAndAPageLessIsNotAndARefusalHasItsCheapestPlan) {
  for (const char* net : {"mlp", "attention"}) {
    WorkloadOptions options = packed_under(net, GetParam());
    // Parts of the batch are planned the same way, for one number of parts after the other.
    if (net != std::string("mlp")) options.runtime.split_batch = SplitBatch::kNever;
    const RunSetup setup = setup_of(options.runtime);
    const Solver solver = solver_for(options);
    const int64_t least = solver.solve(1).least_memory_bytes;
    ASSERT_GT(least, 0) << net;
    EXPECT_LE(least, solver.bytes_without()) << net;
    EXPECT_LE(solver.bytes_without(), free_bytes(setup)) << net;
    const MemorySolution kept = solver.solve(least);
    EXPECT_TRUE(kept.fits) << net;
    const MemorySolution less = solver.solve(least - setup.device.granularity_bytes);
    EXPECT_FALSE(less.fits) << net;
    EXPECT_EQ(less.least_memory_bytes, least) << net;
    EXPECT_EQ(less.us, kept.us) << net;
    EXPECT_EQ(describe_parts(less), describe_parts(kept)) << net;
    EXPECT_EQ(less.schedule.repeats(), kept.schedule.repeats()) << net;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, LeastMemory, testing::ValuesIn(names_of_strategies()),
                         [](const auto& row) {
                           std::string name = row.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class MemoryOfAPlainRun : public testing::TestWithParam<std::string> {};

TEST_P(MemoryOfAPlainRun, IsKeptAsABudgetWithTheSameBits) {
  WorkloadOptions options = packed_under(GetParam(), WorkloadOptions{}.runtime.strategy);
  options.runtime.plan = PlanMode::kDynamic;
  const int64_t taken = headroom::predict(trace_of(options), setup_to_fit(options.runtime)).total_bytes;
  options.runtime.plan = PlanMode::kPacked;
  EXPECT_TRUE(solver_for(options).solve(taken, SplitBatch::kNever).fits) << format_bytes(taken);
  options.runtime.memory_bytes = taken;
  const Prediction planned = headroom::predict(trace_of(options), setup_to_fit(options.runtime));
  EXPECT_TRUE(planned.fits) << planned.reason;
  EXPECT_LE(planned.total_bytes, taken);
}

INSTANTIATE_TEST_SUITE_P(Nets, MemoryOfAPlainRun, testing::ValuesIn(net_names()),
                         [](const auto& row) { return row.param; });

TEST(MemoryOfLibraries, CountsOnlyThoseThatTheNetUses) {
  const DeviceProfile& card = find_profile("laptop-2gb");
  const int64_t of_products = solver_for(packed_under("mlp", "direct")).solve(1).least_memory_bytes;
  EXPECT_GE(of_products, card.context_bytes + card.bytes_of(std::array{Library::kNone, Library::kBlas}));
  EXPECT_LT(of_products, card.overhead_bytes()) << "no convolution starts cuDNN";
  EXPECT_GT(solver_for(packed_under("lenet", "direct")).solve(1).least_memory_bytes, card.overhead_bytes());
}

TEST(MemoryOfADevice, MoreThanItHasIsAllThatItHas) {
  const WorkloadOptions options = packed_under("residual", "direct");
  const Solver solver = solver_for(options);
  const int64_t free = free_bytes(setup_of(options.runtime));
  const MemorySolution solution = solver.solve(free + 64 * kGiB);
  EXPECT_TRUE(solution.fits);
  EXPECT_EQ(solution.memory_bytes, free);
  EXPECT_TRUE(solution.levers.empty());
}

TEST(MemoryOfADevice, ABudgetAboveWhatIsFreeIsLoweredWithANote) {
  RuntimeOptions options{.device = "sim"};
  EXPECT_FALSE(lower_memory_to_free(options)) << "no budget";
  options.memory_bytes = 100 * kGiB;
  const std::optional<std::string> note = lower_memory_to_free(options);
  ASSERT_TRUE(note);
  EXPECT_NE(note->find("100.00 GiB"), std::string::npos) << *note;
  EXPECT_EQ(options.memory_bytes, free_bytes(setup_of(options)));
  EXPECT_FALSE(lower_memory_to_free(options)) << "once";
}

TEST(MemoryThatIsTooSmall, IsPredictedAsTheRefusalOfARun) {
  WorkloadOptions options = packed_under("lenet", "direct");
  for (const int64_t memory : {int64_t{1}, 300 * kMiB}) {  // below and above what the context takes
    options.runtime.memory_bytes = memory;
    const Traced program = trace_of(options);
    const Prediction prediction = predict(program, setup_to_fit(options.runtime));
    EXPECT_FALSE(prediction.fits);
    EXPECT_LT(*prediction.margin_bytes, 0);
    const std::optional<MemoryTooSmall>& refusal = program.refusal;
    ASSERT_TRUE(refusal);
    EXPECT_EQ(prediction.reason, refusal->what());
    EXPECT_NE(prediction.reason.find("--memory " + exact_size(refusal->least_bytes())), std::string::npos);
    EXPECT_THROW(require_fit(make_programs(options)), MemoryTooSmall);
  }
}

TEST(MemoryUnderAStrategy, ThatCannotBeIsRefusedByItsOwnWords) {
  EXPECT_THROW(solver_for(packed_under("mlp", "caching:expandable_segments=maybe")), InvalidArgument);
}

}  // namespace
}  // namespace headroom
