// headroom explain: why a log's first failure on a GPU happened, and what to do.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <future>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "base/text.h"
#include "runtime/app/option_set.h"
#include "tools/explain/explanation.h"
#include "tools/explain/file_kind.h"
#include "tools/explain/log_reader.h"
#include "tools/subcommands.h"

namespace headroom::explain {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr int64_t kMostRulesBytes = int64_t{1} << 20;

// Tells whether the beginning of a file is no text in any encoding: NUL is half of UTF-16, and colors and
// bars of progress have a few other control characters.
bool is_binary(std::string_view beginning) {
  if (beginning.starts_with("\xff\xfe") || beginning.starts_with("\xfe\xff")) return false;
  beginning = beginning.substr(0, 4096);
  const auto controls = std::ranges::count_if(beginning, [](char c) {
    return (c > '\0' && c < '\a') || (c > '\r' && c < ' ' && c != '\x1b') || c == '\x7f';
  });
  return 20 * controls > std::ssize(beginning) - std::ranges::count(beginning, '\0');
}

struct ReadLog {
  Log log;
  bool is_binary = false;
};

// Gunzips the next piece while the last one is read.
ReadLog read(const std::string& path, const Rules& rules) {
  InputFile file(path == "-" ? "/dev/stdin" : path);
  LogReader reader(rules);
  std::string piece, next(kPieceBytes, '\0');
  const auto fill = [&file](std::string& target) {
    target.resize(static_cast<size_t>(file.read(target.data(), static_cast<int64_t>(target.size()))));
  };
  Progress progress(0, "MiB of the log");
  if (path != "-") progress.start("reading " + printable(path));
  fill(next);
  const std::string why = why_no_log(next, path);
  if (!why.empty())
    throw InvalidArgument(fmt::format("{} {}", path == "-" ? "standard input" : printable(path), why));
  const bool has_no_text = is_binary(next);
  while (next.size() == kPieceBytes) {
    progress.advance(1);
    piece.swap(next);
    next.resize(kPieceBytes);
    std::future<void> filled = std::async(std::launch::async, fill, std::ref(next));
    reader.feed(piece);
    filled.get();
    if (const std::optional<double> share = file.share_read()) progress.reach(*share);
  }
  reader.feed(next);
  return {reader.finish(), has_no_text};
}

constexpr size_t kEvidenceWidth = 100;  // of a table in a pipe
constexpr size_t kFirstSteps = 2;

Color color_of(Cause cause) {
  switch (cause) {
    case Cause::kNone:
      return Color::kGreen;
    case Cause::kAmbiguous:
    case Cause::kUnknown:
      return Color::kYellow;
    default:
      return Color::kRed;
  }
}

// "PyTorch under vLLM", of several tools the first.
std::string whose(const Explanation& explanation) {
  const std::string text(explanation.framework);
  if (explanation.tools.empty() || explanation.tools.front() == text) return text;
  return (text.empty() ? "" : text + " under ") + std::string(explanation.tools.front());
}

// "a fits; b does not" is "A fits." and "B does not.": the figure that decides stands in the first.
std::pair<std::string, std::string> in_two_sentences(const std::string& reason) {
  const size_t end = reason.find("; ");
  if (end == std::string::npos) return {reason, ""};
  std::string rest = reason.substr(end + 2);
  rest[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(rest[0])));
  return {reason.substr(0, end) + ".", rest};
}

// The cause and the first two steps, before all else. A command stays on one line, so that it can be copied.
void print_answer(const Explanation& explanation, const Terminal& terminal) {
  const LogJudgment& judgment = explanation.judgment;
  const bool is_none = judgment.cause == Cause::kNone;
  const std::string name = is_none ? "No failure found in this log" : std::string(name_of(judgment.cause));
  const std::string text = ": " + in_two_sentences(judgment.reason).first;
  fmt::print("{}{}\n", terminal.painted(name, color_of(judgment.cause)),
             terminal.wrapped(text, 0, characters(name)));
  for (size_t i = 0; i < kFirstSteps; ++i)
    fmt::print("next: {}\n", terminal.painted(explanation.next[i].command, Color::kBold));
  for (const MisspelledVariable& variable : explanation.misspelled)
    fmt::print("note: {}\n", terminal.wrapped(variable.text(), 0, 6));
  fmt::print("\n");
}

void print_reasons(const Explanation& explanation, const Terminal& terminal) {
  const LogJudgment& judgment = explanation.judgment;
  const std::string framework = whose(explanation);
  std::string rest = in_two_sentences(judgment.reason).second;
  // The cause's own words may say it already.
  if (rest.size() > 1 &&
      meaning_of(judgment.cause).find(rest.substr(1, rest.size() - 2)) != std::string_view::npos)
    rest.clear();
  if (judgment.cause != Cause::kNone)
    fmt::print("{}\n", terminal.wrapped(
                           fmt::format("{}{} (confidence {}).{}{}", framework.empty() ? "" : framework + ": ",
                                       meaning_of(judgment.cause), to_string(judgment.confidence),
                                       rest.empty() ? "" : " ", rest)));
  for (size_t i = 0; i < explanation.next.size(); ++i) {
    const Advice& advice = explanation.next[i];
    if (i >= kFirstSteps) fmt::print("next: {}\n", terminal.painted(advice.command, Color::kBold));
    const std::string lead = i >= kFirstSteps ? "      " : fmt::format("step {}: ", i + 1);
    fmt::print("{}{}\n", lead, terminal.wrapped(advice.why, lead.size(), lead.size()));
  }
}

void print_possible(const std::vector<Possibility>& possible, std::string_view heading,
                    const Terminal& terminal) {
  if (possible.empty()) return;
  fmt::print("\n{}\n", heading);
  int64_t number = 0;
  for (const Possibility& other : possible) {
    const std::string lead = fmt::format("{}. ", ++number), indent(lead.size(), ' ');
    fmt::print("{}{}\n", lead,
               terminal.wrapped(fmt::format("{}: {}", name_of(other.cause), other.reason), lead.size(),
                                lead.size()));
    fmt::print("{}{}\n", indent, terminal.wrapped("confirmed if " + other.confirm, lead.size(), lead.size()));
  }
}

void print_evidence(const Explanation& explanation, const Terminal& terminal) {
  if (explanation.evidence.empty()) return;
  fmt::print("\n{:<31} {:>10} {:>7}\n", "evidence", "MiB", "line");
  // Beside the figures there has to be room for some words; else they go on a line of their own.
  constexpr size_t kFigures = 52, kFewestCharacters = 40, kIndent = 2;
  const bool goes_below = terminal.width() > 0 && terminal.width() < kFigures + kFewestCharacters;
  for (const Evidence& evidence : explanation.evidence) {
    const std::string row =
        fmt::format("{:<31} {:>10} {:>7}  ", evidence.name, evidence.bytes ? format_mib(*evidence.bytes) : "",
                    evidence.line ? fmt::format("{}", *evidence.line) : "");
    const size_t begin = goes_below ? kIndent : characters(row);
    const std::string words = terminal.cut(evidence.text, begin, kEvidenceWidth);
    std::string text = goes_below ? row : row + words;
    text.erase(text.find_last_not_of(' ') + 1);
    if (goes_below && !words.empty()) text += "\n" + std::string(kIndent, ' ') + words;
    fmt::print("{}\n", text);
  }
}

// On lines as they are, so that they can be copied.
void print_code(const Code& code, const Terminal& terminal) {
  if (code.lines.empty()) return;
  fmt::print("\n{}\n", terminal.wrapped(code.heading + ":"));
  for (const std::string& line : code.lines) fmt::print("    {}\n", line);
}

void print_text(const Explanation& explanation, const Terminal& terminal) {
  print_answer(explanation, terminal);
  print_reasons(explanation, terminal);
  if (explanation.failure_count > 1) {
    fmt::print("{}\n", terminal.wrapped(fmt::format(
                           "Found {} error messages in {} lines; explaining the first that matters{}.",
                           explanation.failure_count, explanation.line_count,
                           explanation.rank.empty() ? "" : " (" + explanation.rank + ")")));
  } else if (!explanation.rank.empty()) {
    fmt::print("The failure is from {}.\n", explanation.rank);
  }
  const LogJudgment& judgment = explanation.judgment;
  print_possible(
      judgment.possible,
      judgment.cause == Cause::kAmbiguous ? "possible causes, likeliest first" : "other possible causes",
      terminal);
  print_possible(judgment.other_ways, "another way out", terminal);
  print_evidence(explanation, terminal);
  print_code(explanation.code, terminal);
}

nlohmann::ordered_json to_json(const std::vector<Possibility>& possible) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Possibility& other : possible) {
    nlohmann::ordered_json row;
    row["cause"] = name_of(other.cause);
    row["reason"] = other.reason;
    row["confirm"] = other.confirm;
    rows.push_back(row);
  }
  return rows;
}

nlohmann::ordered_json to_json(const Explanation& explanation) {
  nlohmann::ordered_json json;
  json["cause"] = name_of(explanation.judgment.cause);
  json["confidence"] = to_string(explanation.judgment.confidence);
  json["reason"] = explanation.judgment.reason;
  json["framework"] = explanation.framework;
  json["tools"] = explanation.tools;
  json["possible"] = to_json(explanation.judgment.possible);
  json["other_ways"] = to_json(explanation.judgment.other_ways);
  json["evidence"] = nlohmann::ordered_json::array();
  for (const Evidence& evidence : explanation.evidence) {
    nlohmann::ordered_json row;
    row["name"] = evidence.name;
    row["bytes"] = evidence.bytes ? nlohmann::ordered_json(*evidence.bytes) : nlohmann::ordered_json();
    row["line"] = evidence.line ? nlohmann::ordered_json(*evidence.line) : nlohmann::ordered_json();
    row["text"] = evidence.text;
    json["evidence"].push_back(row);
  }
  json["next"] = nlohmann::ordered_json::array();
  json["why"] = nlohmann::ordered_json::array();
  for (const Advice& advice : explanation.next) {
    json["next"].push_back(advice.command);
    json["why"].push_back(advice.why);
  }
  json["code"] = explanation.code.lines;
  json["phase"] = explanation.phases;
  json["activity"] = explanation.judgment.activity;
  json["facts"] = explanation.facts;
  json["figures"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : explanation.figures) json["figures"][std::string(name)] = value;
  json["already_on"] = explanation.already_on;
  json["misspelled"] = nlohmann::ordered_json::object();
  for (const MisspelledVariable& variable : explanation.misspelled)
    json["misspelled"][variable.name] = variable.intended;
  json["rank"] = explanation.rank;
  json["failures"] = explanation.failure_count;
  json["lines"] = explanation.line_count;
  return json;
}

}  // namespace

int run_explain(int argc, char** argv) {
  std::vector<std::string> paths;
  std::string rules_path;
  bool json = false;
  OptionSet set("headroom explain",
                "Explains the first GPU failure in a log: its cause (memory, another process, fragmentation, "
                "a limit, an "
                "index, versions ...), the evidence, and the next step. Needs no GPU.");
  set.add_arguments("LOG...", "Log files, gzipped or not (default, or -: standard input)", &paths, false);
  set.add_text("rules", "A file of your own rules, which count before the others (docs/explain.md)",
               &rules_path);
  set.add_switch("json", "Print JSON, sizes in bytes; for several logs, an array", &json);
  set.set_examples(
      "  headroom explain train.log\n"
      "  python train.py 2>&1 | headroom explain\n"
      "  headroom explain logs/rank*.log\n"
      "  headroom explain --rules our.txt train.log\n"
      "  kubectl logs pod/trainer | headroom explain --json | jq -r .cause\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (paths.empty() && isatty(STDIN_FILENO) != 0)
    throw InvalidArgument(
        "explain: no log given; name a file, pipe one in (python train.py 2>&1 | headroom explain), or "
        "paste it after headroom explain -");
  if (paths.empty()) paths.push_back("-");
  std::optional<Rules> own;
  if (!rules_path.empty()) own.emplace(RulesFile{rules_path, read_file(rules_path, kMostRulesBytes)});
  const Rules* const rules = own ? &*own : &Rules::built_in();
  const Terminal terminal = set.terminal();
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const std::string& path : paths) {
    const ReadLog read_log = read(path, *rules);
    const Explanation explanation = explain(read_log.log);
    const Cause cause = explanation.judgment.cause;
    if (read_log.is_binary && (cause == Cause::kNone || cause == Cause::kUnknown)) {
      throw InvalidArgument(fmt::format(
          "{} is not a log, it holds binary data; memory snapshots and traces are read by headroom report",
          path == "-" ? "standard input" : printable(path)));
    }
    if (json) {
      all.push_back(to_json(explanation));
      if (paths.size() > 1) all.back()["file"] = path;
      continue;
    }
    if (paths.size() > 1) fmt::print("{}{}:\n", &path == &paths.front() ? "" : "\n", printable(path));
    print_text(explanation, terminal);
  }
  if (json) fmt::print("{}\n", json_text(paths.size() > 1 ? all : all.front(), 2));
  return kExitDone;
}

}  // namespace headroom::explain
