// What libraries' algorithms cost, kept in one file between runs: timing those of a whole network takes
// longer than starting a program. Knows no library and no device: a problem is a line of text, so is an
// algorithm.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::cuda {

// One way to compute a problem: the algorithm as text that its library takes, and what it costs.
struct AlgorithmChoice {
  std::string algorithm;
  double time_us = 0;
  int64_t workspace_bytes = 0;
  bool operator==(const AlgorithmChoice&) const = default;
};

// What one search found.
struct AlgorithmSet {
  int64_t limit_bytes = 0;               // the search skipped algorithms with a larger workspace
  std::vector<AlgorithmChoice> choices;  // a Pareto front, the fastest first
  bool operator==(const AlgorithmSet&) const = default;
};

using AlgorithmTable = std::map<std::string, AlgorithmSet>;  // by problem

// The Pareto-optimal choices: by time ascending, by workspace descending.
std::vector<AlgorithmChoice> pareto_front(std::vector<AlgorithmChoice> choices);

// The table that `text` holds. Throws InvalidArgument for what algorithms_text has not written.
AlgorithmTable parse_algorithms(std::string_view text);
// The table as the text of a file.
std::string algorithms_text(const AlgorithmTable& table);

// Where algorithms are kept: what HEADROOM_ALGORITHM_CACHE names, or algorithms.json in
// $XDG_CACHE_HOME/headroom or
// ~/.cache/headroom. Empty when HEADROOM_ALGORITHM_CACHE is "off" or there is no home.
std::string algorithm_cache_path();

// What is kept for a problem. A file that cannot be read or is not ours counts as empty: everything in it can
// be measured again.
std::optional<AlgorithmSet> kept_algorithms(const std::string& path, const std::string& problem);
// Adds what a search found to the file, replacing it as a whole, so that other processes see the old one or
// the new one. Of a problem that an earlier search under a higher limit has timed, it adds only what takes
// less workspace, unless it replaces that. False, and nothing has changed, when the file cannot be written or
// holds something else.
bool keep_algorithms(const std::string& path, const std::string& problem, const AlgorithmSet& algorithms,
                     bool replaces = false) noexcept;

}  // namespace headroom::cuda
