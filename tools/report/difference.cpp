#include "tools/report/difference.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

namespace headroom::report {
namespace {

void add(const History& history, OpMemory OpDifference::*side, std::map<std::string, OpDifference>& ops) {
  // By index of the name first: a million blocks share few names.
  std::vector<OpMemory> by_name(history.trace.names.size());
  for (size_t block = 0; block < history.lifetimes.size(); ++block) {
    const TraceEvent& allocation = history.allocation(block);
    if (allocation.bytes == 0) continue;  // an unfolded arena: its parts count
    OpMemory& op = by_name[static_cast<size_t>(allocation.op)];
    ++op.blocks;
    // A trace may claim 2^60 bytes for each of its blocks.
    if (__builtin_add_overflow(op.allocated_bytes, allocation.bytes, &op.allocated_bytes)) {
      op.allocated_bytes = INT64_MAX;
    }
    if (history.is_live(block, history.peak_event())) op.peak_bytes += allocation.bytes;
  }
  for (size_t name = 0; name < by_name.size(); ++name) {
    if (by_name[name].blocks == 0) continue;
    OpDifference& op = ops[history.trace.names[name]];
    op.op = history.trace.names[name];
    op.*side = by_name[name];
  }
}

}  // namespace

std::vector<OpDifference> differences(const History& before, const History& after) {
  std::map<std::string, OpDifference> ops;
  add(before, &OpDifference::before, ops);
  add(after, &OpDifference::after, ops);
  std::vector<OpDifference> result;
  for (auto& [name, op] : ops) {
    if (op.peak_change() != 0 || op.allocated_change() != 0 || op.before.blocks != op.after.blocks) {
      result.push_back(std::move(op));
    }
  }
  const auto rank = [](const OpDifference& op) {
    return std::tuple(-std::abs(op.peak_change()), -std::abs(op.allocated_change()));
  };
  std::stable_sort(result.begin(), result.end(),
                   [&](const OpDifference& a, const OpDifference& b) { return rank(a) < rank(b); });
  return result;
}

}  // namespace headroom::report
