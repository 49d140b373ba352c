#include "tools/repro/solution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "allocators/packing/pack.h"
#include "answers/solve.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "tools/report/verdict.h"
#include "tools/repro/runs.h"
#include "trace/trace_builder.h"

namespace headroom::repro {
namespace {

// Trains in that much memory: the same net and batch, planned for the budget.
Solved train_in(RuntimeOptions card, TrainSettings settings, int64_t memory_bytes) {
  Solved solved{.memory_bytes = memory_bytes};
  card.memory_bytes = memory_bytes;
  card.strategy = "direct";
  card.plan = settings.plan = PlanMode::kPacked;
  try {
    Runtime runtime(card);
    const TrainResult result = train_four_steps(settings, runtime);
    solved.process_bytes = result.peak_process_bytes;
    if (result.outcome != RunOutcome::kOk) {
      solved.outcome = SolveOutcome::kRefused;
      solved.text = result.error;
      return solved;
    }
  } catch (const Error& error) {
    solved.outcome = SolveOutcome::kRefused;
    solved.text = error.what();
    return solved;
  }
  solved.outcome = SolveOutcome::kSolved;
  solved.text = fmt::format("the same net trains with batch {}: takes {} of {}", settings.batch,
                            format_bytes(solved.process_bytes), format_bytes(memory_bytes));
  solved.next = fmt::format(
      "train_mnist --device {} --batch {} --epochs 1{} --memory {}", card.device, settings.batch,
      card.others_by_gpu.empty() ? "" : " --others-by-gpu " + card.others_by_gpu, exact_size(memory_bytes));
  return solved;
}

Solved on_laptop(const Scenario&) {
  const RuntimeOptions card = Stage{}.card(kLaptop);
  return train_in(card, settings_of_tutorial(), free_bytes(setup_of(card)));
}

// On the GPU of the machine that has most room. Others hold the last two, all of them.
Solved on_four_cards(const Scenario&) {
  const std::string total = exact_size(find_profile(kFourCards).total_bytes);
  const std::string full = fmt::format("2:{}/3:{}", total, total);
  std::optional<std::pair<int64_t, RuntimeOptions>> best;
  for (int gpu = 0; gpu < 4; ++gpu) {
    RuntimeOptions options{.device = fmt::format("{}:{}", kFourGpus, gpu), .others_by_gpu = full};
    const int64_t bytes = free_bytes(setup_of(options));
    if (!best || bytes > best->first) best.emplace(bytes, options);
  }
  return train_in(best->second, settings_of_tutorial(), best->first);
}

// A batch of 256 in a pool of 64 MiB: the pool's memory, and that of context and libraries.
Solved in_small_pool(const Scenario&) {
  constexpr int64_t kPool = 64 * kMiB;
  const RuntimeOptions card = Stage{}.card(kSixGb);
  TrainSettings settings;
  settings.batch = 256;
  settings.data_on = DataOn::kHost;
  settings.fused = false;
  return train_in(card, settings, setup_of(card).device.overhead_bytes() + kPool);
}

// Blocks with known lifetimes fit where a pool that grew in pieces has no free block that is long enough.
Solved fragmented_pool(const Scenario&) {
  constexpr int64_t kMost = 100 * kMiB;
  std::array<PlannedBlock, 3> blocks = {PlannedBlock{55 * kMiB, 0, 1}, PlannedBlock{10 * kMiB, 1, 3},
                                        PlannedBlock{55 * kMiB, 2, 3}};
  const int64_t height = pack(blocks).height_bytes;
  Solved solved{.memory_bytes = kMost, .process_bytes = height};
  solved.outcome = height <= kMost ? SolveOutcome::kSolved : SolveOutcome::kRefused;
  solved.text = fmt::format("the three blocks lie in {} of {}: their lives are known, so they are packed",
                            format_bytes(height), format_bytes(kMost));
  solved.next = "train_mnist --plan packed --epochs 1";
  return solved;
}

// Solves a program whose card is full of live memory, none of it idle or droppable. Its allocations show if
// it would stop growing.
Solved refuse_held(const Scenario& scenario) {
  TraceBuilder builder("run", "recording");
  scenario.run({.recording = &builder});
  const Trace trace = builder.take();
  const report::History history(trace);
  const report::Steps steps(trace);
  const report::Verdict verdict = report::judge_history(history, steps);
  Solved solved{.outcome = SolveOutcome::kRefused};
  if (!verdict.failure) {
    solved.text = "it fits on this card";
    return solved;
  }
  const report::Failure& failure = *verdict.failure;
  for (const DeviceEvent& event : trace.device_events) {
    if (event.kind != DeviceEvent::Kind::kDevice || event.position > failure.event) continue;
    solved.memory_bytes = event.bytes - event.others_bytes;
    solved.process_bytes = event.process_bytes;
  }
  const std::vector<size_t> held = history.live_blocks(failure.event);
  const bool leaks = std::ranges::any_of(verdict.findings,
                                         [](const auto& finding) { return finding.cause == Cause::kLeak; });
  if (leaks) {
    const int64_t count = std::ranges::count_if(
        steps.list(), [&](const report::Step& step) { return step.begin < failure.event; });
    const int64_t growth = failure.live_bytes / std::max<int64_t>(count, 1);
    solved.text = fmt::format(
        "a leak: what is live grows by {} each step and never falls, so any card fills up ({} "
        "steps here, {} with twice the memory); keep numbers, loss.item(), instead of tensors",
        format_bytes(growth), count, count + solved.memory_bytes / std::max<int64_t>(growth, 1));
  } else {
    solved.text = fmt::format(
        "{} tensors of {} are live at once and each may still be read: no order and no packing makes them "
        "fit; drop what is no longer needed",
        held.size() + 1, format_bytes(failure.requested_bytes));
  }
  return solved;
}

struct Row {
  std::string_view id;
  Solved (*solve)(const Scenario& scenario);
};
constexpr Row kRows[] = {
    {"A1", on_laptop},   {"A2", on_laptop},       {"A3", on_laptop},
    {"A4", on_laptop},   {"A5", fragmented_pool}, {"B2", on_four_cards},
    {"C5", refuse_held}, {"C8", refuse_held},     {"C9", in_small_pool},
};

}  // namespace

Solved solve(const Scenario& scenario) {
  const auto row = std::ranges::find_if(kRows, [&](const Row& r) { return r.id == scenario.id; });
  Solved solved;
  if (row == std::end(kRows)) {
    solved.text = "not a memory problem";
  } else {
    solved = row->solve(scenario);
  }
  solved.scenario = &scenario;
  return solved;
}

Sheet to_sheet(std::span<const Solved> solved) {
  const auto count =
      std::ranges::count_if(solved, [](const Solved& one) { return one.outcome == SolveOutcome::kSolved; });
  Sheet sheet;
  sheet.verdict(fmt::format("{} of {} scenarios solved automatically", count, solved.size()));
  SheetTable& table = sheet.table({.key = "scenarios",
                                   .columns = {{"id", "id"},
                                               {{}, "title"},
                                               {"outcome", "outcome"},
                                               {"how, or why none", "text", kWrappedText},
                                               {{}, "memory_bytes"},
                                               {{}, "process_bytes"},
                                               {{}, "next"}}});
  for (const Solved& one : solved) {
    table.add({one.scenario->id, one.scenario->title, to_string(one.outcome), one.text, one.memory_bytes,
               one.process_bytes, one.next});
    if (sheet.next.empty() && !one.next.empty()) sheet.next = {{one.next}};
  }
  return sheet;
}

}  // namespace headroom::repro
