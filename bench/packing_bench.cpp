// Measures the distance of packed blocks from their lower bound, and the time of packing.
//
//   packing_bench [--work N] FILE...     instances of minimalloc or idealloc: CSV with lower, upper, size
//   packing_bench [--work N] --random N  N blocks of random sizes and lifetimes
//   packing_bench --nets                 the packed and parallel plans of all nets of the zoo
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocators/packing/pack.h"
#include "base/errors.h"
#include "base/random.h"
#include "examples/models/zoo/zoo.h"
#include "runtime/app/run_main.h"
#include "runtime/app/runtime.h"
#include "runtime/plan/plan.h"
#include "runtime/session/kernels.h"

namespace headroom {
namespace {

std::vector<PlannedBlock> read_instance(const std::string& path) {
  std::ifstream file(path);
  std::string line, word;
  if (!std::getline(file, line)) throw InvalidArgument(path + ": cannot read it");
  std::vector<std::string> names;
  std::istringstream header(line);
  while (std::getline(header, word, ',')) names.push_back(word);
  std::vector<PlannedBlock> blocks;
  while (std::getline(file, line)) {
    std::istringstream cells(line);
    PlannedBlock block;
    for (const std::string& name : names) {
      if (!std::getline(cells, word, ',')) throw InvalidArgument(path + ": a row is too short");
      if (name == "lower") block.first = std::stoi(word);
      if (name == "upper") block.end = std::stoi(word);
      if (name == "size") block.bytes = std::stoll(word);
      if (name == "alignment") block.alignment = std::stoll(word);
    }
    blocks.push_back(block);
  }
  return blocks;
}

// Most live for a short time, some for long, as in a training step.
std::vector<PlannedBlock> random_blocks(int64_t count) {
  std::vector<PlannedBlock> blocks;
  for (int64_t i = 0; i < count; ++i) {
    const auto words = random_words(1, 0, static_cast<uint64_t>(i));
    const auto begin = static_cast<int>(i);
    const auto steps = static_cast<int>(1 + words[0] % (1u << (words[1] % 11)));
    blocks.push_back({256 * (1 + static_cast<int64_t>(words[2] % 4096)), begin, begin + steps});
  }
  return blocks;
}

bool overlaps(std::vector<PlannedBlock> blocks) {
  std::sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const PlannedBlock*> live;
  for (const PlannedBlock& block : blocks) {
    std::erase_if(live, [&](const PlannedBlock* other) { return other->end <= block.first; });
    for (const PlannedBlock* other : live) {
      if (block.offset_bytes < other->offset_bytes + other->bytes &&
          other->offset_bytes < block.offset_bytes + block.bytes) {
        return true;
      }
    }
    if (block.end > block.first && block.bytes > 0) live.push_back(&block);
  }
  return false;
}

void measure(const std::string& name, std::vector<PlannedBlock> blocks, const PackOptions& options) {
  const std::clock_t start = std::clock();
  const Packing packing = pack(blocks, options);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  fmt::print("{:<44} {:>8} {:>16} {:>16} {:>8.5f} {:>7} {:>9.3f} {:>9.1f}{}\n", name, blocks.size(),
             packing.height_bytes, packing.lower_bound_bytes,
             static_cast<double>(packing.height_bytes) / static_cast<double>(packing.lower_bound_bytes),
             packing.is_optimal() ? "yes" : "no", seconds, static_cast<double>(packing.work) / 1e6,
             blocks.size() <= 200'000 && overlaps(blocks) ? "  BLOCKS OVERLAP" : "");
  std::fflush(stdout);
}

void measure_plan(const std::string& name, const ZooStep& step, PlanMode mode,
                  std::span<const int64_t> workspace_bytes) {
  const std::clock_t start = std::clock();
  Plan plan = make_plan(step.graph, step.targets(), mode, workspace_bytes);
  const double plan_seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::vector<PlannedBlock> blocks;
  for (const Buffer& buffer : plan.buffers) {
    blocks.push_back({buffer.bytes, buffer.first_step, buffer.end_step});
  }
  measure(fmt::format("{} ({:.3f} s)", name, plan_seconds), std::move(blocks), {});
}

void measure_nets() {
  Runtime runtime({.device = "cpu"});
  for (const ZooNet& net : zoo_nets()) {
    for (const int64_t batch : {1, 16, 64, 512}) {
      for (const bool fused : {true, false}) {
        ZooSettings settings;
        settings.batch = batch;
        settings.fused = fused;
        const auto step = make_zoo_step(net, settings);
        const Kernels kernels(step->graph, runtime.device(), runtime.allocator());
        for (const PlanMode mode : {PlanMode::kPacked, PlanMode::kParallel}) {
          measure_plan(fmt::format("{} {} {}{}", net.name, batch, to_string(mode), fused ? "" : " unfused"),
                       *step, mode, kernels.workspace_bytes());
        }
      }
    }
  }
}

int run(int argc, char** argv) {
  PackOptions options;
  fmt::print("{:<44} {:>8} {:>16} {:>16} {:>8} {:>7} {:>9} {:>9}\n", "instance", "blocks", "height",
             "lower bound", "ratio", "optimal", "CPU s", "work/1e6");
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--work" && i + 1 < argc) {
      options.max_work = static_cast<int64_t>(std::stod(argv[++i]));  // also 3e9
    } else if (word == "--nets") {
      measure_nets();
    } else if (word == "--random" && i + 1 < argc) {
      const std::string count = argv[++i];
      measure("random " + count, random_blocks(std::stoll(count)), options);
    } else {
      const std::string path(word);
      measure(path.substr(path.find_last_of('/') + 1), read_instance(path), options);
    }
  }
  return 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  return headroom::run_main("packing_bench", headroom::run, argc, argv);
}
