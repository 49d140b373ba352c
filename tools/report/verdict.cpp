#include "tools/report/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "tools/report/findings.h"
#include "trace/categorize.h"

namespace headroom::report {
namespace {

std::string phase_name(StepPhase phase) {
  return std::string(kStepPhaseNames[static_cast<size_t>(phase)]);
}

// Formats as " in step 3, forward"; empty if unknown.
std::string in_step(const Steps& steps, int64_t event) {
  if (!steps.known()) return "";
  const Moment moment = steps.at(event);
  if (moment.step == 0) return " before the first step";
  return fmt::format(" in step {}{}", moment.step,
                     moment.phase == StepPhase::kOther ? "" : ", " + phase_name(moment.phase));
}

std::string failed_request(const Failure& failure, const Steps& steps) {
  std::string text = "Out of memory" + in_step(steps, std::max<int64_t>(0, failure.event - 1));
  if (!failure.caller.empty()) text += fmt::format(" at {}", printable(failure.caller));
  if (!failure.source.empty()) {
    text += failure.caller.empty() ? fmt::format(" at {}", printable(failure.source))
                                   : fmt::format(" ({})", printable(failure.source));
  }
  if (!failure.last_line.empty()) text += fmt::format(", after {}", printable(failure.last_line));
  // PyTorch's own message states the bytes allocated for the request.
  const std::string requested = short_size(failure.requested_bytes), taken = short_size(failure.driver_bytes);
  text += ": " + taken + (requested != taken ? fmt::format(" ({} requested)", requested) : "");
  const std::string& what = failure.tensor.empty() ? failure.op : failure.tensor;
  if (!what.empty()) text += fmt::format(" for {}", printable(what));
  if (!failure.module.empty()) text += fmt::format(" in {}", printable(failure.module));
  return text;
}

// Returns what an operation needs beside its input and its result; empty if that is not known.
std::string_view temporaries_of(std::string_view op) {
  struct Known {
    std::string_view part, needs;
  };
  constexpr Known kKnown[] = {
      {"unique", "it sorts, which needs copies of the input and 8 bytes of index for each element"},
      {"sort", "a sort needs copies of the input and 8 bytes of index for each element"},
      {"topk", "it sorts, which needs copies of the input and 8 bytes of index for each element"},
      {"cdist", "it makes a value for each pair of rows"},
      {"einsum", "it may copy its inputs and make larger products in between"},
      {"one_hot", "it makes 8 bytes for each class of each element"},
  };
  for (const Known& known : kKnown) {
    if (op.find(known.part) != std::string_view::npos) return known.needs;
  }
  return {};
}

// Returns the sentence about a trace without a history.
std::string about_moment(const History& history) {
  std::map<std::string, int64_t> lines;
  const std::vector<size_t> live = history.live_blocks(history.peak_event());
  for (const size_t block : live) lines[history.source(block)] += history.bytes(block);
  const auto most =
      std::ranges::max_element(lines, [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text = fmt::format("No history: {} in {} block{} were live when the snapshot was dumped",
                                 short_size(history.peak_bytes), live.size(), live.size() == 1 ? "" : "s");
  if (most != lines.end() && !most->first.empty()) {
    text += fmt::format(", {} of them allocated at {}", short_size(most->second), printable(most->first));
  }
  return text;
}

std::string about_peak(const History& history, const Steps& steps) {
  const MemorySample& peak = history.samples[history.peak_sample];
  const auto most = std::ranges::max_element(peak.bytes);
  const auto category = static_cast<size_t>(most - peak.bytes.begin());
  std::string text = fmt::format(
      "The peak of {} comes{}", short_size(history.peak_bytes),
      steps.known()
          ? in_step(steps, history.peak_event() - 1)
          : fmt::format(" at event {} of {}", history.recorded_peak_event(), history.trace.recorded_events));
  if (category != 0 && *most > 0) {
    text += fmt::format(
        "; {:.0f} % of it are {}",
        100 * static_cast<double>(*most) / static_cast<double>(std::max<int64_t>(history.peak_bytes, 1)),
        kMemoryCategoryNames[category]);
  }
  return text;
}

}  // namespace

Verdict judge_history(const History& history, const Steps& steps, std::optional<int64_t> device_bytes) {
  Verdict verdict;
  verdict.failure = find_failure(history);
  const Evidence evidence(history, steps, verdict.failure ? &*verdict.failure : nullptr, device_bytes);
  std::vector<Finding>& findings = verdict.findings;
  const auto add = [&](std::optional<Finding> finding) {
    if (finding) findings.push_back(std::move(*finding));
  };
  if (steps.known()) {
    findings = find_leaks(evidence);
    if (auto kept = find_optimizers_kept(evidence);
        kept && (findings.empty() || kept->bytes > findings[0].bytes / 2))
      findings = {std::move(*kept)};
    if (findings.empty()) add(find_unused_graphs(evidence));
    add(find_growing_batch(evidence));
    add(find_optimizer_state(evidence));
    add(find_kept_gradients(evidence));
    if (findings.empty()) add(find_growing_work(evidence));
    if (findings.empty()) add(find_dense_gradient(evidence));
  }
  // A finding is no cause if the request would not have fitted without it.
  if (verdict.failure && verdict.failure->free_bytes) {
    const int64_t lacking = verdict.failure->driver_bytes - *verdict.failure->free_bytes;
    std::erase_if(findings, [lacking](const Finding& finding) {
      return finding.bytes < lacking && finding.cause != Cause::kGrowingBatch;
    });
  }
  // If a program keeps more than is idle, by more than a third, fragmentation is only a symptom. If its batch
  // grew, it is one as well: larger tensors cannot use the pieces of the smaller ones.
  const auto weight_of = [](const Finding& finding) {
    return finding.cause == Cause::kFragmentation ? finding.bytes / 3 * 4 : finding.bytes;
  };
  if (auto pieces = find_fragmentation(evidence);
      pieces && std::ranges::none_of(findings, [&](const Finding& other) {
        return other.cause == Cause::kGrowingBatch || weight_of(other) > weight_of(*pieces);
      })) {
    findings.push_back(std::move(*pieces));
  }
  std::ranges::stable_sort(findings,
                           [&](const Finding& a, const Finding& b) { return weight_of(a) > weight_of(b); });
  const auto with_title = [](const Finding& finding) {
    return finding.cause == Cause::kGrowingBatch || finding.cause == Cause::kOptimizerState
               ? finding.sentence
               : finding.title + ": " + finding.sentence;
  };
  if (verdict.failure) {
    verdict.sentence = failed_request(*verdict.failure, steps);
    if (!findings.empty()) {
      verdict.sentence += "; " + with_title(findings.front());
    } else if (verdict.failure->judgment.cause != Cause::kUnknown) {
      verdict.sentence += "; " + verdict.failure->judgment.reason;
      if (const std::string_view needs = temporaries_of(verdict.failure->op); !needs.empty())
        verdict.sentence += fmt::format("; {}", needs);
    }
  } else if (!findings.empty()) {
    verdict.sentence = with_title(findings.front());
    if (verdict.sentence[0] >= 'a' && verdict.sentence[0] <= 'z') {
      verdict.sentence[0] = static_cast<char>(verdict.sentence[0] - 'a' + 'A');
    }
  } else {
    verdict.sentence = is_moment(history.trace) ? about_moment(history) : about_peak(history, steps);
  }
  verdict.sentence += ".";
  return verdict;
}

}  // namespace headroom::report
