// Costs of libraries' algorithms, kept in one file between runs: timing those of a whole network takes longer
// than starting a program. Knows no library and no device: a problem is a line of text, and so is an
// algorithm.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::cuda {

// One way to compute a problem: the algorithm as text that its library accepts, and its cost.
struct AlgorithmChoice {
  std::string algorithm;
  double time_us = 0;
  int64_t workspace_bytes = 0;
  bool operator==(const AlgorithmChoice&) const = default;
};

// The result of one search.
struct AlgorithmSet {
  int64_t limit_bytes = 0;               // the search skipped algorithms with a larger workspace
  std::vector<AlgorithmChoice> choices;  // a Pareto front, the fastest first
  bool operator==(const AlgorithmSet&) const = default;
};

using AlgorithmTable = std::map<std::string, AlgorithmSet>;  // by problem

// The Pareto-optimal choices: by time ascending, by workspace descending.
std::vector<AlgorithmChoice> pareto_front(std::vector<AlgorithmChoice> choices);

// Parses a table. Throws InvalidArgument for text that algorithms_text has not written.
AlgorithmTable parse_algorithms(std::string_view text);
// The table as the text of a file.
std::string algorithms_text(const AlgorithmTable& table);

// Returns the path of the cache: HEADROOM_ALGORITHM_CACHE, or algorithms.json in $XDG_CACHE_HOME/headroom or
// ~/.cache/headroom. Empty if HEADROOM_ALGORITHM_CACHE is "off" or there is no home.
std::string algorithm_cache_path();

// Returns the cached algorithms for a problem. A file that cannot be read or is not ours counts as empty:
// everything in it can be measured again.
std::optional<AlgorithmSet> kept_algorithms(const std::string& path, const std::string& problem);
// Adds the result of a search to the file, replacing it as a whole, so that other processes see the old file
// or the new one. If an earlier search under a higher limit has timed the problem, adds only algorithms with
// less workspace, unless `replaces` is set. Returns false, and changes nothing, if the file cannot be written
// or has other content.
bool keep_algorithms(const std::string& path, const std::string& problem, const AlgorithmSet& algorithms,
                     bool replaces = false) noexcept;

}  // namespace headroom::cuda
