// Answers of solve as they were recorded: each budget is kept for no more time, and more memory never costs
// more. HEADROOM_RECORD_ANSWERS=FILE writes the present answers to that file instead.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "answers/solve.h"
#include "tests/shared_data.h"
#include "tests/tools/workload/layered_program.h"
#include "tools/workload/checkpoints.h"
#include "tools/workload/solve_torch.h"
#include "tools/workload/torch_changes.h"
#include "tools/workload/torch_lines.h"
#include "tools/workload/workload.h"
#include "trace/read_trace.h"

namespace headroom {
namespace {

constexpr const char* kRecorded = HEADROOM_SOURCE_DIR "/tests/tools/workload/recorded_answers.csv";
constexpr double kMostMoreTime = 1.01;

struct Row {
  std::string workload;  // a net, kLayered, or the file of a recording
  std::string setting;   // equal for rows that one solver answers: batch, device, strategy, host GiB, allowed
  int64_t memory_bytes = 0;
  double us = 0;
  int64_t process_bytes = 0;
  std::string variant;
};
constexpr const char* kLayered = "layered";

struct Answer {
  bool fits = false;
  double us = 0;
  int64_t process_bytes = 0;
  std::string variant;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

std::vector<Row> read_rows() {
  std::ifstream file(kRecorded);
  std::vector<Row> rows;
  std::string line;
  std::getline(file, line);  // the header
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = split(line, ',');
    rows.push_back({cells.at(0), cells.at(1), std::stoll(cells.at(2)), std::stod(cells.at(3)),
                    std::stoll(cells.at(4)), cells.size() > 5 ? cells[5] : ""});
  }
  return rows;
}

class Solving {
 public:
  virtual ~Solving() = default;
  virtual Answer solve(int64_t memory_bytes) const = 0;
};

// "16 sim direct 0 never"
class OfNet : public Solving {
 public:
  explicit OfNet(const Row& row) {
    const std::vector<std::string> words = split(row.setting, ' ');
    WorkloadOptions options;
    options.net = row.workload;
    options.step.batch = std::stoll(words.at(0));
    options.step.steps = 2;
    options.runtime.device = words.at(1);
    options.runtime.strategy = words.at(2);
    options.runtime.plan = PlanMode::kPacked;
    options.runtime.host_memory_bytes = std::stoll(words.at(3)) * kGiB;
    options.runtime.split_batch = words.at(4) == "needed"    ? SplitBatch::kNeeded
                                  : words.at(4) == "cheaper" ? SplitBatch::kCheaper
                                                             : SplitBatch::kNever;
    options.runtime.compress_norms = words.at(4) == "norms";
    solver_ = std::make_unique<Solver>(make_programs(options).front(), setup_of(options.runtime));
  }
  Answer solve(int64_t memory_bytes) const override {
    const MemorySolution solution = solver_->solve(memory_bytes);
    std::string variant = describe_parts(solution);
    for (const Lever& use : solution.levers) variant += fmt::format(" {}", use.name);
    return {solution.fits, solution.us, solution.process_bytes, variant};
  }

 private:
  std::unique_ptr<Solver> solver_;
};

// "needed": what may be split; for a recording only checkpoints are tried
class OfTorch : public Solving {
 public:
  explicit OfTorch(const Row& row) : is_layered_(row.workload == kLayered) {
    if (is_layered_) {
      split_ = row.setting == "never"     ? SplitBatch::kNever
               : row.setting == "cheaper" ? SplitBatch::kCheaper
                                          : SplitBatch::kNeeded;
      return;
    }
    const std::string in_tree = HEADROOM_SOURCE_DIR "/tests/tools/trace/recorded/" + row.workload;
    const std::string shared = (shared_data() / "snapshots" / row.workload).string();
    const std::string& file = std::filesystem::exists(in_tree) ? in_tree : shared;
    if (!std::filesystem::exists(file)) return;
    recorded_.trace = read_traces(file).front();
    recorded_.modules = recorded_modules(recorded_.trace);
  }
  bool is_there() const { return is_layered_ || !recorded_.trace.events.empty(); }
  Answer solve(int64_t memory_bytes) const override {
    RuntimeOptions options;
    options.device = "rtx-3090";
    options.strategy = "pytorch";
    options.memory_bytes = memory_bytes;
    const TraceProgram trace = [&](std::optional<int64_t> batch, const ProgramChanges& changes) {
      if (is_layered_) return traced_net(batch, changes);
      TracedProgram program = recorded_;
      program.trace = with_checkpoints(recorded_.trace, changes.checkpoints);
      return program;
    };
    const RunSetup setup = with_budget(setup_of(options));
    const ProgramSolution solution =
        is_layered_ ? solve_torch(trace, setup, split_, kLayeredBatch) : solve_recording(trace, setup);
    return {solution.fits(), solution.chosen.us, solution.chosen.prediction.total_bytes,
            describe(solution.chosen)};
  }

 private:
  const bool is_layered_;
  SplitBatch split_ = SplitBatch::kNever;
  TracedProgram recorded_;
};

bool is_torch(const Row& row) {
  return row.workload == kLayered || row.workload.ends_with(".gz");
}

TEST(RecordedAnswers, EachBudgetIsKeptForNoMoreTimeAndMoreMemoryNeverCostsMore) {
  const char* const record = std::getenv("HEADROOM_RECORD_ANSWERS");
  std::ofstream recorded;
  if (record != nullptr) {
    recorded.open(record);
    recorded << "workload,setting,memory_bytes,us,process_bytes,variant\n";
  }
  int same = 0, better = 0, within = 0;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Solving>> solvers;
  std::map<const Solving*, double> us_before;
  const std::vector<Row> rows = read_rows();
  ASSERT_FALSE(rows.empty());
  for (const Row& row : rows) {
    const std::string what = fmt::format("{} {} in {}", row.workload, row.setting, row.memory_bytes);
    std::unique_ptr<Solving>& solver = solvers[{row.workload, row.setting}];
    if (!solver) {
      if (is_torch(row)) {
        auto of_torch = std::make_unique<OfTorch>(row);
        if (!of_torch->is_there()) continue;  // data from outside of the project
        solver = std::move(of_torch);
      } else {
        solver = std::make_unique<OfNet>(row);
      }
    }
    const Answer answer = solver->solve(row.memory_bytes);
    if (record != nullptr) {
      recorded << fmt::format("{},{},{},{:.3f},{},{}\n", row.workload, row.setting, row.memory_bytes,
                              answer.us, answer.process_bytes, answer.variant);
      continue;
    }
    EXPECT_TRUE(answer.fits) << what << ": " << row.variant;
    if (!answer.fits) continue;
    EXPECT_LE(answer.process_bytes, row.memory_bytes) << what;
    EXPECT_LE(answer.us, kMostMoreTime * row.us + 1e-3)
        << what << ": " << answer.variant << " for " << row.variant;
    const auto [before, is_first] = us_before.try_emplace(solver.get(), answer.us);
    // Parts that come only where nothing else fits may cost less than the whole batch.
    if (!row.setting.ends_with("needed")) {
      EXPECT_LE(answer.us, before->second * (1 + 1e-12)) << what << ": less memory was cheaper";
    }
    before->second = answer.us;
    const double more = answer.us - row.us;
    ++(more < -1e-3 ? better : more > 1e-3 ? within : same);
  }
  if (record != nullptr) return;
  fmt::print("{} answers are as recorded, {} better, {} within 1 %\n", same, better, within);
}

}  // namespace
}  // namespace headroom
