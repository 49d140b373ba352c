#include "tools/workload/torch_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "tools/workload/checkpoints.h"

namespace headroom {
namespace {

bool is_position(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
}

// "model.h[3].mlp" of "h.3.mlp".
std::string expression_of(std::string_view root, std::string_view path) {
  std::string text(root);
  for (const std::string_view part : split(path, ".")) {
    if (!part.empty()) text += is_position(part) ? fmt::format("[{}]", part) : fmt::format(".{}", part);
  }
  return text;
}

// Modules of one pattern, by their numbers.
struct Group {
  std::string pattern;
  std::vector<int64_t> numbers;
};

std::vector<Group> groups_of(const std::vector<std::string>& paths) {
  std::vector<Group> groups;
  for (const std::string& path : paths) {
    auto [pattern, number] = pattern_of(path);
    const auto found =
        std::ranges::find_if(groups, [&text = pattern](const Group& group) { return group.pattern == text; });
    Group& group = found == groups.end() ? groups.emplace_back(Group{std::move(pattern), {}}) : *found;
    if (number >= 0) group.numbers.push_back(number);
  }
  for (Group& group : groups) std::ranges::sort(group.numbers);
  return groups;
}

// "3-9, 11"
std::string ranges_of(const std::vector<int64_t>& numbers) {
  std::vector<std::string> ranges;
  for (size_t first = 0, end = 1; first < numbers.size(); first = end, ++end) {
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    ranges.push_back(end - first == 1 ? fmt::format("{}", numbers[first])
                                      : fmt::format("{}-{}", numbers[first], numbers[end - 1]));
  }
  return fmt::format("{}", fmt::join(ranges, ","));
}

std::string checkpoint_line(std::string_view module) {
  return fmt::format("{0}.forward = partial(checkpoint, {0}.forward, use_reentrant=False)", module);
}

void add_checkpoints(const Group& group, std::string_view root, std::vector<std::string>& lines) {
  if (group.numbers.empty()) {
    lines.push_back(checkpoint_line(expression_of(root, group.pattern)));
    return;
  }
  const size_t star = group.pattern.find('*');
  const std::string list =
      expression_of(root, std::string_view(group.pattern).substr(0, star == 0 ? 0 : star - 1));
  const std::string_view behind =
      std::string_view(group.pattern).substr(std::min(star + 2, group.pattern.size()));
  const int64_t first = group.numbers.front(), last = group.numbers.back();
  if (group.numbers.size() == 1) {
    lines.push_back(checkpoint_line(expression_of(fmt::format("{}[{}]", list, first), behind)));
    return;
  }
  const bool is_range = last - first + 1 == std::ssize(group.numbers);
  lines.push_back(
      is_range
          ? fmt::format("for block in {}[{}:{}]:", list, first == 0 ? "" : fmt::format("{}", first), last + 1)
          : fmt::format("for block in [{}[i] for i in ({})]:", list, fmt::join(group.numbers, ", ")));
  lines.push_back("    " + checkpoint_line(expression_of("block", behind)));
}

}  // namespace

std::string modules_text(const std::vector<std::string>& paths) {
  std::vector<std::string> texts;
  for (const Group& group : groups_of(paths)) {
    std::string text = group.pattern;
    if (const size_t star = text.find('*'); !group.numbers.empty() && star != std::string::npos)
      text.replace(star, 1, ranges_of(group.numbers));
    texts.push_back(std::move(text));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::vector<std::string> torch_lines(const ProgramSolution& solution, const ProgramTrial& trial,
                                     int64_t batch) {
  const ProgramChanges& changes = trial.changes;
  const std::string root = solution.name.empty() ? "model" : solution.name;
  std::vector<std::string> lines;
  if (trial.has_expandable_segments) {
    lines.emplace_back("# in the environment, or before torch is imported");
    lines.emplace_back("os.environ[\"PYTORCH_CUDA_ALLOC_CONF\"] = \"expandable_segments:True\"");
  }
  if (changes.uncached || !changes.checkpoints.empty()) {
    lines.push_back(fmt::format("# after {}{} is built", root,
                                solution.model.empty() ? "" : fmt::format(" ({})", solution.model)));
  }
  if (changes.uncached) lines.push_back(fmt::format("{}.config.use_cache = False", root));
  if (!changes.checkpoints.empty()) {
    lines.emplace_back("from functools import partial");
    lines.emplace_back("from torch.utils.checkpoint import checkpoint");
    for (const Group& group : groups_of(changes.checkpoints)) add_checkpoints(group, root, lines);
  }
  if (changes.loss_parts > 1) {
    const std::string head = expression_of(root, changes.head);
    lines.push_back(fmt::format("# in place of the loss, where x is what {} is given", head));
    lines.emplace_back("from torch.utils.checkpoint import checkpoint");
    lines.emplace_back("def part(x, targets):");
    lines.push_back(fmt::format("    return F.cross_entropy({}(x), targets, reduction=\"sum\")", head));
    lines.push_back(fmt::format("x, targets = x.flatten(0, -2).chunk({0}), targets.flatten().chunk({0})",
                                changes.loss_parts));
    lines.emplace_back(
        "loss = sum(checkpoint(part, *both, use_reentrant=False) for both in zip(x, targets))");
    lines.emplace_back("loss = loss / sum(map(len, targets))");
  }
  if (changes.fused) lines.emplace_back("optimizer = ...(..., fused=True)  # of torch.optim");
  if (!changes.autocast.empty()) {
    lines.emplace_back("# around the forward pass and the loss");
    lines.push_back(fmt::format("with torch.autocast(\"cuda\", torch.{}):",
                                changes.autocast == "bf16" ? "bfloat16" : "float16"));
  }
  if (changes.offload) {
    lines.emplace_back("# around the forward pass and the loss");
    lines.emplace_back("with torch.autograd.graph.save_on_cpu(pin_memory=True):");
  }
  if (changes.passes > 1) {
    lines.push_back(
        fmt::format("# batches of {} instead of {}, and in each step", batch / changes.passes, batch));
    lines.emplace_back("optimizer.zero_grad()");
    lines.push_back(fmt::format("for _ in range({}):", changes.passes));
    lines.push_back(fmt::format("    loss = ... / {}  # of the next batch", changes.passes));
    lines.emplace_back("    loss.backward()");
    lines.emplace_back("optimizer.step()");
  }
  return lines;
}

std::vector<std::string> effects_of(const ProgramSolution& solution, const ProgramTrial& trial) {
  const ProgramChanges& changes = trial.changes;
  std::vector<std::string> effects;
  if (changes.passes > 1) {
    effects.push_back(fmt::format(
        "gradients are sums of {} parts of the batch: they round in another order{}", changes.passes,
        solution.normalizes_batches ? ", and batch normalization takes its statistics from one part" : ""));
  }
  if (changes.loss_parts > 1)
    effects.push_back(
        fmt::format("the loss is a sum of {} parts: it rounds in another order, and is a mean over "
                    "all targets, those to ignore as well",
                    changes.loss_parts));
  if (!changes.autocast.empty()) effects.emplace_back("products are computed in 16 bits");
  if (!changes.checkpoints.empty() && solution.normalizes_batches) {
    effects.emplace_back(
        "batch normalization in a module that runs again moves its running averages twice a step");
  }
  if (changes.fused) effects.emplace_back("the fused optimizer may round the last bits in another way");
  return effects;
}

namespace {

std::string describe(const ProgramTrial& trial, bool names_modules) {
  const ProgramChanges& changes = trial.changes;
  std::vector<std::string> parts;
  if (!changes.checkpoints.empty()) {
    parts.push_back(fmt::format(
        "{} checkpoint{}{}", changes.checkpoints.size(), changes.checkpoints.size() == 1 ? "" : "s",
        names_modules ? fmt::format(" ({})", modules_text(changes.checkpoints)) : ""));
  }
  if (changes.offload) parts.emplace_back("saved on the host");
  if (changes.loss_parts > 1) parts.push_back(fmt::format("the loss in {} parts", changes.loss_parts));
  if (changes.passes > 1) parts.push_back(fmt::format("{} parts of the batch", changes.passes));
  if (!changes.autocast.empty()) parts.push_back(fmt::format("autocast to {}", changes.autocast));
  if (changes.uncached) parts.emplace_back("no cache of keys and values");
  if (changes.fused) parts.emplace_back("fused optimizer");
  if (trial.has_expandable_segments) parts.emplace_back("expandable segments");
  return parts.empty() ? "as it is" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string describe(const ProgramTrial& trial) {
  return describe(trial, false);
}

std::vector<std::string> describe_apart(std::span<const ProgramTrial> trials) {
  std::map<std::string, int> uses;
  for (const ProgramTrial& trial : trials) ++uses[describe(trial)];
  std::vector<std::string> texts;
  for (const ProgramTrial& trial : trials) texts.push_back(describe(trial, uses[describe(trial)] > 1));
  return texts;
}

}  // namespace headroom
