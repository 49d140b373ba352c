// headroom explain: why a log's first failure on a GPU happened, and what to do.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/app/option_set.h"
#include "runtime/base/bytes.h"
#include "runtime/base/errors.h"
#include "runtime/base/files.h"
#include "tools/explain/explanation.h"
#include "tools/explain/log_reader.h"
#include "tools/subcommands.h"

namespace headroom::explain {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

Log read(const std::string& path) {
  InputFile file(path == "-" ? "/dev/stdin" : path);
  LogReader reader;
  std::string piece(kPieceBytes, '\0');
  while (true) {
    const auto got = static_cast<size_t>(file.read(piece.data(), static_cast<int64_t>(piece.size())));
    reader.feed(std::string_view(piece).substr(0, got));
    if (got < piece.size()) return reader.finish();
  }
}

// A message's words in the table: its begin, as the log itself has the rest.
std::string shortened(const std::string& text) {
  constexpr size_t kWidth = 100;
  if (text.size() <= kWidth) return text;
  size_t end = kWidth;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

void print_text(const Explanation& explanation) {
  const LogJudgement& judgement = explanation.judgement;
  const std::string_view framework = name_of(explanation.framework);
  fmt::print("{}: {} (confidence {})\n{}{}\n", name_of(judgement.cause), meaning_of(judgement.cause),
             to_string(judgement.confidence), framework.empty() ? "" : fmt::format("{}. ", framework),
             judgement.reason);
  if (explanation.failure_count > 1) {
    fmt::print("{} messages of failures in {} lines; the first that counts is explained.\n",
               explanation.failure_count, explanation.line_count);
  }
  if (!explanation.evidence.empty()) fmt::print("\n{:<31} {:>10} {:>7}\n", "evidence", "MiB", "line");
  for (const Evidence& evidence : explanation.evidence) {
    const std::string row = fmt::format(
        "{:<31} {:>10} {:>7}  {}", evidence.name, evidence.bytes ? format_mib(*evidence.bytes) : "",
        evidence.line ? fmt::format("{}", *evidence.line) : "", shortened(evidence.text));
    fmt::print("{}\n", row.substr(0, row.find_last_not_of(' ') + 1));
  }
  fmt::print("\n");
  for (const Advice& advice : explanation.next)
    fmt::print("next: {}\n      {}\n", advice.command, advice.why);
}

nlohmann::ordered_json to_json(const Explanation& explanation) {
  nlohmann::ordered_json json;
  json["cause"] = name_of(explanation.judgement.cause);
  json["confidence"] = to_string(explanation.judgement.confidence);
  json["reason"] = explanation.judgement.reason;
  json["framework"] = name_of(explanation.framework);
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
  json["failures"] = explanation.failure_count;
  json["lines"] = explanation.line_count;
  return json;
}

}  // namespace

int run_explain(int argc, char** argv) {
  std::vector<std::string> paths;
  bool json = false;
  OptionSet set(
      "headroom explain",
      "Says why a log's first failure on a GPU happened (memory, another process, pieces, a limit, an index, "
      "versions ...), what it rests on, and what to do next. It needs no GPU.");
  set.add_arguments("LOG", "A file, gzipped or not; - reads what is piped in", &paths);
  set.add_switch("json", "Print JSON, sizes in bytes", &json);
  set.set_examples(
      "  headroom explain train.log\n"
      "  python train.py 2>&1 | headroom explain -\n"
      "  kubectl logs pod/trainer | headroom explain - --json | jq -r .cause\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (paths.size() > 1)
    throw InvalidArgument(fmt::format("explain: one log at a time, not {}", paths.size()));
  const Explanation explanation = explain(read(paths.front()));
  if (json) {
    fmt::print("{}\n", to_json(explanation).dump(2));
  } else {
    print_text(explanation);
  }
  return kExitDone;
}

}  // namespace headroom::explain
