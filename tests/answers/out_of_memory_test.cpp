// Tests explanations of out-of-memory errors: each cause is known by construction, and each change that is
// reported to fit is tried for real.

#include "answers/out_of_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>

#include "allocators/strategies/strategy_text.h"
#include "answers/memory_solution.h"
#include "answers/play.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "runtime/app/runtime.h"
#include "runtime/graph/functions.h"
#include "runtime/session/session.h"
#include "trace/trace_builder.h"

namespace headroom {
namespace {

// Takes 16 KiB for each of the batch four times over: 4 MiB for each value of 64, 8 of the last.
struct BranchingNet {
  Graph graph;
  Value y;
  explicit BranchingNet(int64_t batch) {
    const Value x = graph.input("x", {DType::kF32, {batch, 4096}});
    const Value left = relu(x), right = sigmoid(x);
    y = concat({left, right}, 0);
  }
  Targets targets() const { return {{y}, false}; }
};
constexpr int64_t kNetBatch = 256;  // 4 MiB

RuntimeOptions options(const std::string& strategy, int64_t device_bytes = 1002 * kMiB,
                       int64_t others_bytes = 0) {
  return {.device = "sim:laptop-2gb",
          .strategy = strategy,
          .device_memory_bytes = device_bytes,
          .others_bytes = others_bytes,
          .context_bytes = 40 * kMiB};  // and 10 for kernels
}

// Throws the exceptions of a run.
void run(const RuntimeOptions& options, int64_t batch) {
  const BranchingNet net(batch);
  Runtime runtime(options);
  Variables variables(net.graph, runtime.device(), runtime.allocator());
  Session session(net.graph, net.targets(), options.plan, variables);
  session.run(2);
}

RunSetup present_setting(const RuntimeOptions& options) {
  RunSetup present = setup_of(options);
  present.batch = kNetBatch;
  present.has_plan = true;
  return present;
}

std::vector<Program> branching_programs(const RunSetup& setup) {
  const auto net = std::make_shared<BranchingNet>(setup.batch);
  return {{{net, &net->graph}, {net->targets()}}};
}

OutOfMemoryReport explain_failed_run(const RuntimeOptions& options) {
  try {
    run(options, kNetBatch);
  } catch (const OutOfMemory& error) {
    RunResult failed;
    failed.memory = error.facts();
    return *explain_run(failed, present_setting(options), branching_programs);
  }
  ADD_FAILURE() << options.strategy << " fits";
  return {};
}

void expect_true_when_run(const OutOfMemoryReport& report) {
  EXPECT_TRUE(report.reproduced);
  EXPECT_NE(report.smallest(), nullptr);
  for (const TriedChange& change : report.changes) {
    RuntimeOptions options = change.setup.options;
    options.device_memory_bytes = change.setup.device.total_bytes;
    if (change.fits) {
      EXPECT_NO_THROW(run(options, change.setup.batch)) << change.what;
    } else if (!change.what.starts_with("any ")) {
      EXPECT_ANY_THROW(run(options, change.setup.batch)) << change.what;
    }
  }
}

struct Row {
  RuntimeOptions options;
  Cause cause;
  std::string smallest;
};

TEST(OutOfMemoryReports, NameEachCauseAndProposeOnlyChangesThatFitWhenRun) {
  const Row rows[] = {
      {options("hard-limit=12MiB"), Cause::kLimit, "limit +4.00 MiB"},
      {options("direct", 60 * kMiB), Cause::kExhausted, "batch "},
      {options("direct", 1002 * kMiB, 942 * kMiB), Cause::kOtherProcess, "batch "},
      {options("grab-all", (40 + 225 + 12) * kMiB), Cause::kLibraryReserve, "strategy mapped"},
      {options("caching+limit=18MiB"), Cause::kRounding, "limit +2.00 MiB"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.options.strategy + " " + std::string(name_of(row.cause)));
    const OutOfMemoryReport report = explain_failed_run(row.options);
    EXPECT_EQ(name_of(report.judgment.cause), name_of(row.cause)) << to_text(report);
    ASSERT_NE(report.smallest(), nullptr) << to_text(report);
    EXPECT_TRUE(report.smallest()->what.starts_with(row.smallest)) << to_text(report);
    expect_true_when_run(report);
  }
}

TEST(OutOfMemoryReports, NameOpTensorLineAndWhatLives) {
  const OutOfMemoryReport report = explain_failed_run(options("hard-limit=12MiB"));
  EXPECT_EQ(report.facts.op, "concat");
  EXPECT_NE(report.facts.source.find("out_of_memory_test.cpp:"), std::string::npos);
  ASSERT_FALSE(report.live.empty());
  EXPECT_EQ(report.live[0].bytes, 4 * kMiB);
  EXPECT_FALSE(report.live[0].tensor.empty());
  const std::string text = to_text(report);
  EXPECT_EQ(text.rfind("limit: ", 0), 0u) << text;
  EXPECT_NE(text.find("concat at out_of_memory_test.cpp:"), std::string::npos) << text;
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 7) << text;
  const nlohmann::json json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["cause"], "limit");
  EXPECT_EQ(json["facts"]["requested_bytes"], 8 * kMiB);
  EXPECT_EQ(json["smallest"], "limit +4.00 MiB");
  EXPECT_EQ(json["live"].size(), report.live.size());
}

TEST(OutOfMemoryReports, TheErrorItselfSaysTheCauseInOneLine) {
  try {
    run(options("hard-limit=12MiB"), kNetBatch);
    FAIL() << "fits";
  } catch (const OutOfMemory& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("; limit: 16.00 MiB are needed, the limit is 12.00 MiB"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

TEST(OutOfMemoryReports, OneCallExplainsAnErrorOfASession) {
  const RuntimeOptions asked = options("hard-limit=12MiB");
  const BranchingNet net(kNetBatch);
  const Targets targets[] = {net.targets()};
  Runtime runtime(asked);
  Variables variables(net.graph, runtime.device(), runtime.allocator());
  Session session(net.graph, targets[0], PlanMode::kDynamic, variables);
  try {
    session.run();
    FAIL() << "fits";
  } catch (const OutOfMemory& error) {
    const OutOfMemoryReport report = explain_out_of_memory(error, net.graph, targets, runtime.setup());
    ASSERT_NE(report.smallest(), nullptr);
    EXPECT_EQ(report.smallest()->what, "limit +4.00 MiB");
  }
}

// The twin does not include memory that other processes have allocated since then: no change is claimed then.
TEST(OutOfMemoryReports, AFailureThatTheTwinDoesNotShowProvesNoChange) {
  const RuntimeOptions roomy = options("direct");
  RunResult failed;
  failed.memory.emplace().requested = 8 * kMiB;
  failed.memory->device_total = 1002 * kMiB;
  const OutOfMemoryReport report = *explain_run(failed, present_setting(roomy), branching_programs);
  EXPECT_FALSE(report.reproduced);
  EXPECT_TRUE(report.changes.empty());
  EXPECT_NE(to_text(report).find("no change is tested"), std::string::npos);
}

// 4 MiB, a block that stays, 4 MiB; then 6 MiB where 8 are free, 4 on each side of the block.
Trace pieces() {
  TraceBuilder builder("pieces", "test");
  builder.allocate(1, 4 * kMiB, {.op = "first", .tag = "a"});
  builder.allocate(2, 2 * kMiB, {.op = "stays", .tag = "b", .source = "/src/net.cpp:31"});
  builder.allocate(3, 4 * kMiB, {.op = "third", .tag = "c"});
  builder.free(1);
  builder.free(3);
  builder.allocate(4, 6 * kMiB, {.op = "last", .tag = "d"});
  return builder.take();
}

TEST(OutOfMemoryReports, FragmentationNamesTheBlocksBetween) {
  const Trace trace = pieces();
  RunSetup present{.device = find_profile("h200"), .options = {.strategy = "hard-limit=10MiB"}};
  present.device.total_bytes = 64 * kMiB;
  const Play play = [&](const RunSetup& setup, bool explains) -> Prediction {
    try {
      return headroom::play(
          traced_here(trace),
          setup_of_capacity(setup.device, setup.options.strategy_settings(), setup.device.total_bytes),
          {.explains = explains});
    } catch (const InvalidArgument& error) {  // a limit above the total
      return {.reason = error.what()};
    }
  };
  const Prediction now = play(present, true);
  ASSERT_TRUE(now.failure);
  EXPECT_EQ(now.failure->facts.tensor, "d");
  const OutOfMemoryReport report = explain_out_of_memory(now.failure->facts, present, play);
  EXPECT_EQ(name_of(report.judgment.cause), "fragmentation");
  ASSERT_TRUE(report.pin);
  EXPECT_EQ(report.pin->block.tensor, "b");
  EXPECT_EQ(report.pin->block.op, "stays");
  EXPECT_EQ(report.pin->others, 0);
  EXPECT_NE(to_text(report).find("pinned by: 2.00 MiB for b of stays at net.cpp:31"), std::string::npos)
      << to_text(report);
  int fitting = 0;
  for (const TriedChange& change : report.changes) {
    if (change.what.starts_with("any ")) continue;
    EXPECT_EQ(play(change.setup, false).fits, change.fits) << change.what;
    fitting += change.fits;
  }
  EXPECT_GT(fitting, 1);
}

// A trial that was refused nothing says how all go that are still enough for it.
TEST(OutOfMemoryReports, DevicesThatAreKnownToBeEnoughAreNotPlayed) {
  const RunSetup present{.device = find_profile("h200"), .options = {.strategy = "direct"}};
  const auto tried = [&](int64_t needed, bool is_known, std::string& what) {
    int64_t trials = 0;
    const Play play = [&](const RunSetup& setup, bool) {
      ++trials;
      Prediction attempt;
      attempt.fits = setup.device.total_bytes >= needed;
      attempt.used_bytes = needed;
      if (attempt.fits && is_known) attempt.enough_total = needed;
      return attempt;
    };
    MemoryFacts facts;
    facts.requested = kMiB;
    what = explain_out_of_memory(facts, present, play).changes.back().what;
    return trials;
  };
  for (const int64_t times : {1, 4}) {
    const int64_t needed = present.device.total_bytes + times * 1234 * kMiB;
    std::string known, unknown;
    EXPECT_LT(tried(needed, true, known), tried(needed, false, unknown));
    EXPECT_EQ(known, unknown);
  }
}

// A trial of a long trace takes seconds, so a search ends with its first result, and says so.
TEST(OutOfMemoryReports, ALongTraceIsTriedAFewTimesAndTheReportSaysThatLessMayDo) {
  RunSetup present{.device = find_profile("h200"), .options = {.strategy = "mapped"}};
  const int64_t needed = present.device.total_bytes + 1234 * kMiB;
  const auto tried = [&](int64_t events, OutOfMemoryReport& report) {
    int64_t trials = 0;
    const Play play = [&](const RunSetup& setup, bool) {
      ++trials;
      Prediction attempt;
      attempt.fits = setup.device.total_bytes >= needed && setup.options.strategy == "mapped";
      attempt.work = events;
      attempt.used_bytes = needed + 100 * kMiB;
      return attempt;
    };
    MemoryFacts facts;
    facts.requested = kMiB;
    report = explain_out_of_memory(facts, present, play);
    return trials;
  };
  OutOfMemoryReport of_short, of_long;
  const int64_t trials = tried(1000, of_short);
  ASSERT_NE(of_short.smallest(), nullptr);
  EXPECT_EQ(of_short.smallest()->what, "1.21 GiB more on the device");
  EXPECT_LE(tried(1'000'000, of_long), trials / 2);
  ASSERT_NE(of_long.smallest(), nullptr);
  EXPECT_EQ(of_long.smallest()->what, "1.30 GiB more on the device (less may do)");
  EXPECT_FALSE(of_long.smallest()->is_least);
}

TEST(OutOfMemoryReports, ThePinIsTheLeastThatHasToGo) {
  using State = SnapshotBlock::State;
  std::byte memory[8];
  const auto block = [&](int at, int64_t bytes, State state) {
    return SnapshotBlock{.pointer = memory + at, .bytes = bytes, .state = state};
  };
  Snapshot snapshot;
  snapshot.segments.push_back({memory,
                               900,
                               {block(0, 300, State::kFree), block(1, 200, State::kActive),
                                block(2, 300, State::kFree), block(3, 100, State::kActive)}});
  snapshot.segments.push_back({memory + 4, 500, {block(4, 50, State::kActive), block(5, 450, State::kFree)}});
  std::unordered_map<const void*, LiveBlock> live;
  live[memory + 1].op = "wide";
  live[memory + 3].op = "end";
  live[memory + 4].op = "thin";
  EXPECT_EQ(find_pin(snapshot, 500, 0, live)->block.op, "thin");
  EXPECT_EQ(find_pin(snapshot, 800, 0, live)->block.op, "wide");
  EXPECT_EQ(find_pin(snapshot, 800, 300, live)->block.op, "thin");  // the segment goes back
  EXPECT_EQ(find_pin(snapshot, 900, 0, live)->others, 1);
  EXPECT_FALSE(find_pin(snapshot, 901, 0, live));
}

TEST(ExplainRun, OfAProgramThatWasRefusedForItsBudgetHasNothingToExplain) {
  RunResult refused;
  refused.outcome = RunOutcome::kOutOfMemory;
  refused.memory = MemoryTooSmall(10 * kMiB, 300 * kMiB).facts();
  EXPECT_FALSE(explain_run(refused, present_setting(options("direct")), branching_programs));
}

}  // namespace
}  // namespace headroom
