#include "tools/compare/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/process/process.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/text.h"

namespace headroom::compare {
namespace {

// A run of its own, as commands know nothing of each other; what it wrote of its result.
nlohmann::json run_under(const std::string& strategy, const std::string& limit, const std::string& result,
                         const std::vector<std::string>& command) {
  std::vector<std::string> words = {"run", "--strategy", strategy, "--result", result};
  if (!limit.empty()) words.insert(words.end(), {"--limit", limit});
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  std::filesystem::remove(result);
  const ChildResult child = run_child(own_path(), words);
  if (!std::filesystem::exists(result))
    throw InvalidArgument(fmt::format("{}: {}", strategy, error_of(child)));
  return nlohmann::json::parse(read_file(result, int64_t{1} << 16));
}

}  // namespace

void add_command_options(OptionSet& set, std::string* strategies) {
  set.begin_group("A program after --");
  set.add_text("strategies", "Run it on a GPU under each of these, such as grab-all,allow-growth,mapped",
               strategies);
}

int compare_command(int argc, char** argv) {
  std::string strategies = "grab-all,allow-growth", limit;
  bool json = false;
  OptionSet set("headroom compare", "Runs a program on a GPU once under each strategy.");
  set.take_command();
  set.add_text("limit", "All GPU memory that its processes may take, as for headroom run", &limit);
  set.add_switch("json", "Print JSON, sizes in bytes", &json);
  add_command_options(set, &strategies);
  set.set_examples(
      "  headroom compare --limit 4GiB --strategies grab-all,allow-growth,mapped -- python train.py\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  const std::vector<std::string>& command = set.command();
  std::vector<std::string_view> names = split(strategies, ",");
  std::erase(names, "");
  std::string result = (std::filesystem::temp_directory_path() / "headroom-result-XXXXXX").string();
  const int file = mkstemp(result.data());
  if (file < 0) throw Error(fmt::format("cannot create {}", result));
  Table table({{"strategy"},
               {"peak MiB", true},
               {"limit MiB", true},
               {"refused", true},
               {"seconds", true},
               {"verdict"}});
  auto rows = nlohmann::ordered_json::array();
  Progress progress(static_cast<double>(names.size()), "runs");
  for (const std::string_view name : names) {
    progress.start(fmt::format("{} under {}", command.front(), name));
    const nlohmann::json run = run_under(std::string(name), limit, result, command);
    const int64_t code = run["exit_code"], peak = run["peak_bytes"], most = run["limit_bytes"];
    const std::string verdict = code == 0 ? "fits" : fmt::format("fails with {}", code);
    table.add({name, format_mib(peak), most == 0 ? "-" : format_mib(most),
               fmt::format("{}", run["refusals"].get<int64_t>()),
               fmt::format("{:.2f}", run["seconds"].get<double>()), verdict});
    nlohmann::ordered_json row = {{"strategy", name}};
    row.update(run);
    rows.push_back(row);
    progress.advance(1);
  }
  progress.finish();
  std::filesystem::remove(result);
  if (json) {
    fmt::print("{}\n", json_text(nlohmann::ordered_json{{"rows", rows}}));
  } else {
    fmt::print("{}", table.text(set.terminal()));
  }
  return kExitDone;
}

}  // namespace headroom::compare
