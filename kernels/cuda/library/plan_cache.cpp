#include "kernels/cuda/library/plan_cache.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/errors.h"
#include "runtime/base/files.h"

namespace headroom::cuda {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormatName = "headroom_plans";
constexpr int kFormat = 1;
// A problem takes some hundred bytes; a file that outgrows this began with other shapes, and starts anew.
constexpr int64_t kMaxFileBytes = int64_t{4} << 20;

[[noreturn]] void refuse(const std::string& why) {
  throw InvalidArgument("plan cache: " + why);
}

const Json& member(const Json& json, const char* name) {
  if (!json.is_object() || !json.contains(name)) refuse(std::string("no ") + name);
  return json[name];
}

// A count of bytes; -1 for what is none.
int64_t bytes_of(const Json& json) {
  // A number beyond int64_t is unsigned, and wraps to below 0.
  return json.is_number_integer() ? std::max(int64_t{-1}, json.get<int64_t>()) : -1;
}

PlanChoice parse_choice(const Json& json) {
  const Json &plan = member(json, "plan"), &time = member(json, "time_us");
  if (!plan.is_string() || !time.is_number()) refuse("a choice of wrong types");
  PlanChoice choice{plan.get<std::string>(), time.get<double>(), bytes_of(member(json, "workspace_bytes"))};
  if (!std::isfinite(choice.time_us) || choice.time_us < 0 || choice.workspace_bytes < 0)
    refuse("a choice with impossible costs");
  return choice;
}

PlanSet parse_set(const Json& json) {
  PlanSet plans{bytes_of(member(json, "limit_bytes")), {}};
  const Json& choices = member(json, "choices");
  if (plans.limit_bytes < 0 || !choices.is_array() || choices.empty()) refuse("a problem without choices");
  for (const Json& choice : choices) plans.choices.push_back(parse_choice(choice));
  if (pareto_front(plans.choices) != plans.choices) refuse("choices out of order");
  if (plans.choices[0].workspace_bytes > plans.limit_bytes) refuse("a choice beyond its limit");
  return plans;
}

// The table in a file, empty where there is none or it cannot be used. Nothing for a file that holds
// something else, which a wrong path must not destroy.
std::optional<PlanTable> read_table(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return PlanTable{};
  std::string text;
  try {
    text = read_file(path, kMaxFileBytes);
    return parse_plans(text);
  } catch (const InvalidArgument&) {
    const bool ours = text.empty() ? std::filesystem::file_size(path, error) == 0
                                   : text.find(kFormatName) != std::string::npos;
    return ours ? std::optional(PlanTable{}) : std::nullopt;
  }
}

}  // namespace

std::vector<PlanChoice> pareto_front(std::vector<PlanChoice> choices) {
  std::stable_sort(choices.begin(), choices.end(), [](const PlanChoice& a, const PlanChoice& b) {
    return a.time_us != b.time_us ? a.time_us < b.time_us : a.workspace_bytes < b.workspace_bytes;
  });
  std::vector<PlanChoice> front;
  for (PlanChoice& choice : choices) {
    if (front.empty() || choice.workspace_bytes < front.back().workspace_bytes)
      front.push_back(std::move(choice));
  }
  return front;
}

PlanTable parse_plans(std::string_view text) {
  const Json file = Json::parse(text, nullptr, false);
  if (member(file, kFormatName) != kFormat) refuse("another format");
  const Json& problems = member(file, "problems");
  if (!problems.is_object()) refuse("no table of problems");
  PlanTable table;
  for (const auto& [problem, plans] : problems.items()) table[problem] = parse_set(plans);
  return table;
}

std::string plans_text(const PlanTable& table) {
  Json problems = Json::object();
  for (const auto& [problem, plans] : table) {
    Json choices = Json::array();
    for (const PlanChoice& choice : plans.choices) {
      choices.push_back(
          {{"plan", choice.plan}, {"time_us", choice.time_us}, {"workspace_bytes", choice.workspace_bytes}});
    }
    problems[problem] = {{"limit_bytes", plans.limit_bytes}, {"choices", choices}};
  }
  return Json{{kFormatName, kFormat}, {"problems", problems}}.dump(1) + "\n";
}

std::string plan_cache_path() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string path = variable("HEADROOM_PLAN_CACHE");
  if (!path.empty()) return path == "off" ? "" : path;
  const std::string cache = variable("XDG_CACHE_HOME"), home = variable("HOME");
  if (!cache.empty()) return cache + "/headroom/plans.json";
  return home.empty() ? "" : home + "/.cache/headroom/plans.json";
}

std::optional<PlanSet> kept_plans(const std::string& path, const std::string& problem) {
  if (path.empty()) return {};
  const PlanTable table = read_table(path).value_or(PlanTable{});
  const auto row = table.find(problem);
  return row == table.end() ? std::nullopt : std::optional(row->second);
}

bool keep_plans(const std::string& path, const std::string& problem, const PlanSet& plans) noexcept {
  if (path.empty() || plans.choices.empty()) return false;
  try {
    std::optional<PlanTable> table = read_table(path);
    if (!table) return false;
    (*table)[problem] = plans;
    std::string text = plans_text(*table);
    if (static_cast<int64_t>(text.size()) > kMaxFileBytes) text = plans_text({{problem, plans}});
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
