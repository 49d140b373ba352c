#include "kernels/cuda/library/algorithm_cache.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/files.h"

namespace headroom::cuda {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormatName = "headroom_algorithms";
constexpr int kFormat = 1;
// A problem takes some hundred bytes; a file that outgrows this began with other shapes, and starts anew.
constexpr int64_t kMaxFileBytes = int64_t{4} << 20;

[[noreturn]] void refuse(const std::string& why) {
  throw InvalidArgument("algorithm cache: " + why);
}

const Json& member(const Json& json, const char* name) {
  if (!json.is_object() || !json.contains(name)) refuse(std::string("no ") + name);
  return json[name];
}

// Returns a count of bytes; -1 if it is not one.
int64_t bytes_of(const Json& json) {
  // A number beyond int64_t is unsigned, and wraps to below 0.
  return json.is_number_integer() ? std::max(int64_t{-1}, json.get<int64_t>()) : -1;
}

AlgorithmChoice parse_choice(const Json& json) {
  const Json &algorithm = member(json, "algorithm"), &time = member(json, "time_us");
  if (!algorithm.is_string() || !time.is_number()) refuse("a choice of wrong types");
  AlgorithmChoice choice{algorithm.get<std::string>(), time.get<double>(),
                         bytes_of(member(json, "workspace_bytes"))};
  if (!std::isfinite(choice.time_us) || choice.time_us < 0 || choice.workspace_bytes < 0)
    refuse("a choice with impossible costs");
  return choice;
}

AlgorithmSet parse_set(const Json& json) {
  AlgorithmSet algorithms{bytes_of(member(json, "limit_bytes")), {}};
  const Json& choices = member(json, "choices");
  if (algorithms.limit_bytes < 0 || !choices.is_array() || choices.empty())
    refuse("a problem without choices");
  for (const Json& choice : choices) algorithms.choices.push_back(parse_choice(choice));
  if (pareto_front(algorithms.choices) != algorithms.choices) refuse("choices out of order");
  if (algorithms.choices[0].workspace_bytes > algorithms.limit_bytes) refuse("a choice beyond its limit");
  return algorithms;
}

// Reads the table in a file; empty if there is none or it cannot be used. Returns nullopt for a file with
// other content, which a wrong path must not destroy.
std::optional<AlgorithmTable> read_table(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return AlgorithmTable{};
  std::string text;
  try {
    text = read_file(path, kMaxFileBytes);
    return parse_algorithms(text);
  } catch (const InvalidArgument&) {
    const bool ours = text.empty() ? std::filesystem::file_size(path, error) == 0
                                   : text.find(kFormatName) != std::string::npos;
    return ours ? std::optional(AlgorithmTable{}) : std::nullopt;
  }
}

// Joins the choices of an earlier search under a higher limit with those of a later one that use less
// workspace than any of them. The later search may have timed them as faster, at another moment.
AlgorithmSet joined(AlgorithmSet kept, const AlgorithmSet& found) {
  for (AlgorithmChoice choice : found.choices) {
    const AlgorithmChoice& last = kept.choices.back();
    if (choice.workspace_bytes >= last.workspace_bytes) continue;
    choice.time_us =
        std::max(choice.time_us, std::nextafter(last.time_us, std::numeric_limits<double>::infinity()));
    kept.choices.push_back(std::move(choice));
  }
  return kept;
}

}  // namespace

std::vector<AlgorithmChoice> pareto_front(std::vector<AlgorithmChoice> choices) {
  std::stable_sort(choices.begin(), choices.end(), [](const AlgorithmChoice& a, const AlgorithmChoice& b) {
    return a.time_us != b.time_us ? a.time_us < b.time_us : a.workspace_bytes < b.workspace_bytes;
  });
  std::vector<AlgorithmChoice> front;
  for (AlgorithmChoice& choice : choices) {
    if (front.empty() || choice.workspace_bytes < front.back().workspace_bytes)
      front.push_back(std::move(choice));
  }
  return front;
}

AlgorithmTable parse_algorithms(std::string_view text) {
  const Json file = Json::parse(text, nullptr, false);
  if (member(file, kFormatName) != kFormat) refuse("another format");
  const Json& problems = member(file, "problems");
  if (!problems.is_object()) refuse("no table of problems");
  AlgorithmTable table;
  for (const auto& [problem, algorithms] : problems.items()) table[problem] = parse_set(algorithms);
  return table;
}

std::string algorithms_text(const AlgorithmTable& table) {
  Json problems = Json::object();
  for (const auto& [problem, algorithms] : table) {
    Json choices = Json::array();
    for (const AlgorithmChoice& choice : algorithms.choices) {
      choices.push_back({{"algorithm", choice.algorithm},
                         {"time_us", choice.time_us},
                         {"workspace_bytes", choice.workspace_bytes}});
    }
    problems[problem] = {{"limit_bytes", algorithms.limit_bytes}, {"choices", choices}};
  }
  return Json{{kFormatName, kFormat}, {"problems", problems}}.dump(1) + "\n";
}

std::string algorithm_cache_path() {
  const char* path = std::getenv("HEADROOM_ALGORITHM_CACHE");
  if (path != nullptr && *path != 0) return std::string_view(path) == "off" ? "" : path;
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/algorithms.json";
}

std::optional<AlgorithmSet> kept_algorithms(const std::string& path, const std::string& problem) {
  if (path.empty()) return {};
  const AlgorithmTable table = read_table(path).value_or(AlgorithmTable{});
  const auto row = table.find(problem);
  return row == table.end() ? std::nullopt : std::optional(row->second);
}

bool keep_algorithms(const std::string& path, const std::string& problem, const AlgorithmSet& algorithms,
                     bool replaces) noexcept {
  if (path.empty() || algorithms.choices.empty()) return false;
  try {
    std::optional<AlgorithmTable> table = read_table(path);
    if (!table) return false;
    const auto [row, is_new] = table->try_emplace(problem, algorithms);
    if (!is_new)
      row->second = !replaces && row->second.limit_bytes > algorithms.limit_bytes
                        ? joined(row->second, algorithms)
                        : algorithms;
    std::string text = algorithms_text(*table);
    if (static_cast<int64_t>(text.size()) > kMaxFileBytes) text = algorithms_text({{problem, algorithms}});
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder);
    const std::string_view parts[] = {text};
    write_file(path, parts);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace headroom::cuda
