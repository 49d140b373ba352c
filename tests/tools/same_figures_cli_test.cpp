// Commands that speak of the same thing print the same bytes: random workloads on random devices.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/side_by_side.h"
#include "tests/run_shell.h"

namespace headroom {
namespace {

using Json = nlohmann::json;

// The value of a key; null where there is none, which then differs from what others say.
Json of(const Json& json, const std::string& key) {
  return json.is_object() ? json.value(key, Json()) : Json();
}
Json first(const Json& list) {
  return list.is_array() && !list.empty() ? list.front() : Json();
}

// Figures of one workload on one device, each with the command that states it.
class Figures {
 public:
  Figures(const ScratchFolder& folder, std::string what) : folder_(folder), what_(std::move(what)) {}

  // Runs a command; it must end as a command does whose answer is yes, or no.
  Outcome run(const std::string& command) {
    const Outcome outcome =
        run_shell(folder_, "env -u TF_FORCE_GPU_ALLOW_GROWTH " HEADROOM_COMMAND " " + command);
    if (outcome.code != 0 && outcome.code != 3) {
      errors_ += fmt::format("\n{}: exit code {}: {}", command, outcome.code, outcome.errors);
    }
    return outcome;
  }
  Json json(const std::string& command) {
    const Outcome outcome = run(command + " --json");
    Json parsed = Json::parse(outcome.out, nullptr, false);
    if (!parsed.is_discarded()) return parsed;
    errors_ += fmt::format("\n{}: no JSON: {}", command, outcome.out);
    return Json::object();
  }
  void add(const std::string& figure, const std::string& command, const Json& value) {
    said_[figure].emplace_back(command, value.dump());
  }
  void expect_text(const std::string& command, const std::string& part) {
    const std::string text = run(command).out;
    if (text.find(part) == std::string::npos) {
      errors_ += fmt::format("\n{}: '{}' is not in\n{}", command, part, text);
    }
  }
  // Returns the figures on which commands contradict each other; empty if they agree.
  std::string contradictions() const {
    std::string text = errors_;
    for (const auto& [figure, said] : said_) {
      bool agree = true;
      for (const auto& [command, value] : said) agree = agree && value == said.front().second;
      if (agree) continue;
      text += "\n" + figure;
      for (const auto& [command, value] : said) text += fmt::format("\n  {} by {}", value, command);
    }
    return text.empty() ? text : what_ + text;
  }

 private:
  const ScratchFolder& folder_;
  const std::string what_;
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> said_;
  std::string errors_;
};

// Adds what `run` says, or the row of a `compare`.
void add_run(Figures& figures, const std::string& command, const Json& run, bool fits) {
  figures.add("fits", command, of(run, "outcome") == "ok");
  if (!fits) return;
  figures.add("peak of the process", command, of(run, "peak_process_bytes"));
  figures.add("peak reserved", command, of(run, "peak_reserved_bytes"));
  figures.add("peak allocated", command, of(run, "peak_allocated_bytes"));
}

// The context of the second line is that of the table.
void add_context(Figures& figures, const std::string& predict, const Json& predicted) {
  const Json context = of(of(predicted, "by_category"), "context");
  if (context.is_number()) figures.expect_text(predict, "context of " + format_bytes(context.get<int64_t>()));
}

void add_peaks(Figures& figures, const std::string& command, const Json& json, const char* process) {
  figures.add("peak of the process", command, of(json, process));
  figures.add("peak reserved", command, of(json, "peak_reserved_bytes"));
  figures.add("peak allocated", command, of(json, "peak_allocated_bytes"));
}

// The smallest device, in figures and in sentences; and the next command speaks of that device.
void add_least(Figures& figures, const std::string& arguments, const Json& predicted) {
  const std::string fit = "fit " + arguments + " --least-memory";
  const Json least = figures.json(fit + " --verify=false");
  if (!of(predicted, "margin_bytes").is_number() || !of(least, "device_bytes").is_number()) return;
  const int64_t margin = of(predicted, "margin_bytes").get<int64_t>();
  const int64_t total = of(predicted, "device_total_bytes").get<int64_t>();
  const int64_t smallest = of(least, "device_bytes").get<int64_t>();
  figures.add("smallest device", fit, smallest);
  // Under a limit the margin may be that of the limit.
  if (arguments.find("--limit") == std::string::npos) {
    figures.add("smallest device", "predict " + arguments, total - margin);
  }
  figures.add("fits", "predict " + arguments, of(predicted, "fits"));
  figures.add("fits", "the sign of its margin", margin >= 0);
  figures.expect_text("predict " + arguments,
                      margin >= 0 ? format_bytes(margin) + " to spare" : "lacks " + format_bytes(-margin));
  const Outcome text = figures.run(fit + " --verify=false");
  const std::string headline = "least memory " + format_bytes(smallest) + ":";
  figures.add("headline of fit", fit, text.out.substr(0, headline.size()));
  figures.add("headline of fit", "its JSON", headline);
  const std::string mark = "\nnext: headroom ";
  const size_t at = text.out.find(mark);
  if (at == std::string::npos) return figures.add("next command", fit, "none");
  std::string next = text.out.substr(at + mark.size());
  next = next.substr(0, next.find('\n'));
  if (next.starts_with("compare")) next.replace(0, 7, "predict");
  const Json there = figures.json(next);
  figures.add("margin on the smallest device", next, of(there, "margin_bytes"));
  figures.add("margin on the smallest device", "by its name", 0);
  figures.add("smallest device", next, of(there, "device_total_bytes"));
}

std::string of_net(const ScratchFolder& folder, const std::string& net, int64_t batch,
                   const std::string& machine) {
  const std::string arguments = fmt::format("--net {} --batch {} {}", net, batch, machine);
  Figures figures(folder, arguments);
  const Json predicted = figures.json("predict " + arguments);
  const Json measured = figures.json("run " + arguments + " --steps 2");
  const Json compared = first(of(figures.json("compare --runs 1 --steps 2 " + arguments), "rows"));
  const bool fits = of(predicted, "fits") == true;
  figures.add("fits", "predict", fits);
  if (fits) add_peaks(figures, "predict", predicted, "total_bytes");
  add_run(figures, "run", measured, fits);
  add_run(figures, "compare", compared, fits);
  add_context(figures, "predict " + arguments, predicted);
  add_least(figures, arguments, predicted);
  return figures.contradictions();
}

std::string of_trace(const ScratchFolder& folder, const std::string& file, const std::string& machine,
                     const std::string& strategy) {
  const std::string device = file + " " + machine, arguments = device + " --strategy " + strategy;
  Figures figures(folder, arguments);
  const Json predicted = figures.json("predict " + arguments);
  // Only `replay` has no option for the size of a device.
  const bool is_whole_card = machine.find(" --") == std::string::npos;
  const Json replayed = is_whole_card ? first(of(figures.json("replay " + arguments), "results")) : predicted;
  const Json compared = first(of(figures.json("compare --runs 1 " + arguments), "rows"));
  const Json reported = figures.json("report " + file);
  const bool fits = of(predicted, "fits") == true;
  figures.add("fits", "predict", fits);
  add_run(figures, "compare", compared, fits);
  add_run(figures, "run", figures.json("run --trace " + arguments), fits);
  add_context(figures, "predict " + arguments, predicted);
  figures.add("live at the peak", "report", of(reported, "peak_bytes"));
  if (fits) {
    add_peaks(figures, "predict", predicted, "total_bytes");
    figures.add("live at the peak", "predict", of(predicted, "peak_requested_bytes"));
    figures.add("live at the peak", "replay", of(replayed, "peak_requested_bytes"));
    figures.add("peak reserved", "replay", of(replayed, "peak_reserved_bytes"));
    figures.add("peak allocated", "replay", of(replayed, "peak_allocated_bytes"));
  }
  add_least(figures, arguments, predicted);
  if (!of(predicted, "margin_bytes").is_number()) return figures.contradictions();
  const int64_t others = of(predicted, "device_others_bytes").get<int64_t>();
  const int64_t total =
      of(predicted, "device_total_bytes").get<int64_t>() - of(predicted, "margin_bytes").get<int64_t>();
  if (!fits) return figures.contradictions();
  for (const int64_t budget : {total - others, (total - others) / kMiB * kMiB - 10 * kMiB}) {
    const std::string solve = fmt::format("solve {} --memory {}", arguments, budget);
    const Json solved = figures.json(solve);
    figures.add("fits in " + format_bytes(budget), solve, of(first(of(solved, "trials")), "keeps"));
    figures.add("fits in " + format_bytes(budget), "predict", budget >= total - others);
    figures.add("least memory as it is", solve, of(first(of(solved, "trials")), "least_memory_bytes"));
    figures.add("least memory as it is", "predict", total - others);
    // All play a budget as a device that leaves the process no more.
    const std::string in_budget = fmt::format("{} --memory {}", arguments, budget);
    Figures there(folder, in_budget);
    const Json within = there.json("predict " + in_budget);
    there.add("fits", "the margin", budget >= total - others);
    there.add("fits", "predict", of(within, "fits"));
    const bool fits_there = of(within, "fits") == true;
    if (fits_there) add_peaks(there, "predict", within, "total_bytes");
    add_run(there, "run", there.json("run --trace " + in_budget), fits_there);
    add_run(there, "compare", first(of(there.json("compare --runs 1 " + in_budget), "rows")), fits_there);
    if (const std::string wrong = there.contradictions(); !wrong.empty()) return wrong;
  }
  return figures.contradictions();
}

// On the device and with the limit of the recording.
std::string of_recording(const ScratchFolder& folder, const std::string& file) {
  Figures figures(folder, file);
  const Json predicted = figures.json("predict " + file);
  const bool fits = of(predicted, "fits") == true;
  figures.add("fits", "predict", fits);
  if (fits) add_peaks(figures, "predict", predicted, "total_bytes");
  add_run(figures, "run --trace", figures.json("run --trace " + file), fits);
  const std::string with = " --runs 1 --strategy " + of(predicted, "strategy").get<std::string>();
  for (const char* name : {"compare ", "compare --trace "})
    add_run(figures, name, first(of(figures.json(name + file + with), "rows")), fits);
  const Json reported = figures.json("report " + file);
  const std::string events =
      fmt::format("{} events, {} block", of(reported, "events").dump(), of(reported, "blocks").dump());
  figures.expect_text("report " + file, events);
  figures.expect_text("replay " + file + " --strategy direct", events);
  return figures.contradictions();
}

// Blocks of up to 32 MiB, mostly with a short life.
void write_trace(const std::string& path, uint32_t seed) {
  std::mt19937 choose(seed);
  std::ofstream file(path);
  file << "op,id,bytes\n";
  std::vector<int> live;
  for (int id = 0; id < 300; ++id) {
    file << fmt::format("a,{},{}\n", id, 1 + choose() % (1u << (10 + choose() % 16)));
    live.push_back(id);
    while (live.size() > 3 && choose() % 8 != 0) {
      std::swap(live[choose() % live.size()], live.back());
      file << fmt::format("f,{},0\n", live.back());
      live.pop_back();
    }
  }
}

TEST(SameFigures, OfNetsByEveryCommand) {
  constexpr size_t kCases = 24;
  const std::vector<std::string> nets = {"lenet", "mlp", "attention"},
                                 devices = {"sim",
                                            "sim:card-6gb",
                                            "sim:rtx-3090",
                                            "sim --device-memory 700MiB",
                                            "sim:four-2080ti --replicas 2",
                                            "sim:four-2080ti --replicas 2 --shard-optimizer"},
                                 strategies = {"allow-growth",
                                               "caching",
                                               "mapped",
                                               "pool",
                                               "arena",
                                               "direct",
                                               "hard-limit --limit 300MiB",
                                               "caching --plan packed",
                                               "packed --limit 200MiB"};
  std::mutex mutex;
  std::string wrong;
  side_by_side(kCases, 4, [&](size_t i) {
    std::mt19937 choose(static_cast<uint32_t>(i));
    const auto one_of = [&](const std::vector<std::string>& list) { return list[choose() % list.size()]; };
    const ScratchFolder folder;
    const std::string net = one_of(nets), device = one_of(devices), strategy = one_of(strategies);
    const std::string found =
        of_net(folder, net, 2 << choose() % 6, fmt::format("--device {} --strategy {}", device, strategy));
    const std::lock_guard lock(mutex);
    if (!found.empty()) wrong += "\n\n" + found;
  });
  EXPECT_EQ(wrong, "");
}

TEST(SameFigures, OfRecordingsOnTheirOwnDevice) {
  const ScratchFolder folder;
  const std::string tests = HEADROOM_SOURCE_DIR "/tests/", ours = folder / "ours.trace",
                    packed = folder / "packed.trace";
  const std::string record = std::string(HEADROOM_COMMAND) + " run --net lenet --batch 8 --steps 2 --record ";
  ASSERT_EQ(run_shell(folder, record + ours).code, 0);
  ASSERT_EQ(run_shell(folder, record + packed + " --plan packed --device h200").code, 0);
  std::string wrong;
  for (const std::string& file : {tests + "tools/report/snapshots/leak-python.pickle.gz",
                                  tests + "tools/report/snapshots/fragmentation-python.pickle.gz",
                                  tests + "tools/trace/recorded/transformer.trace.gz", ours, packed}) {
    if (const std::string found = of_recording(folder, file); !found.empty()) wrong += "\n\n" + found;
  }
  EXPECT_EQ(wrong, "");
  const auto library_bytes =
      nlohmann::json::parse(run_shell(folder, HEADROOM_COMMAND " report " + ours + " --json").out);
  EXPECT_EQ(library_bytes["by_category"]["library_workspaces"], 0) << "no block is one";
  EXPECT_GT(library_bytes["library_bytes"], 0);
}

TEST(SameFigures, OfTracesByEveryCommand) {
  constexpr size_t kCases = 26;
  const std::vector<std::string> devices = {"sim:card-6gb", "sim:rtx-3090", "sim:h200",
                                            "sim --device-memory 700MiB", "sim:card-6gb --others 5750MiB"},
                                 strategies = {"pytorch",  "caching",      "pytorch,expandable_segments:True",
                                               "mapped",   "allow-growth", "direct",
                                               "grab-all", "arena",        "stream-ordered"};
  std::mutex mutex;
  std::string wrong;
  side_by_side(kCases, 4, [&](size_t i) {
    std::mt19937 choose(static_cast<uint32_t>(i));
    const auto one_of = [&](const std::vector<std::string>& list) { return list[choose() % list.size()]; };
    const ScratchFolder folder;
    std::string file = HEADROOM_SOURCE_DIR "/tests/tools/trace/recorded/transformer.trace.gz";
    if (i % 4 != 0) write_trace(file = folder / "drawn.csv", static_cast<uint32_t>(i));
    const std::string device = one_of(devices), strategy = one_of(strategies);
    const std::string found = of_trace(folder, file, "--device " + device, strategy);
    const std::lock_guard lock(mutex);
    if (!found.empty()) wrong += "\n\n" + found;
  });
  EXPECT_EQ(wrong, "");
}

}  // namespace
}  // namespace headroom
