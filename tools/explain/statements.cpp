#include "tools/explain/statements.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "tools/explain/characters.h"

namespace headroom::explain {
namespace {

bool contains_word(std::string_view text, std::string_view words) {
  const size_t at = text.rfind(words);
  return at != std::string_view::npos && (at == 0 || !is_word_character(text[at - 1]));
}

// "OOM: 0", "oom=False", "OOMs | 0": a value that says no.
bool is_no(std::string_view rest) {
  if (rest.starts_with("s ") || rest.starts_with("s:") || rest.starts_with("s=")) rest.remove_prefix(1);
  const size_t value = rest.find_first_not_of(" :=|\"'");
  if (value == std::string_view::npos || rest.substr(0, value).find_first_of(":=|") == std::string_view::npos)
    return false;
  rest.remove_prefix(value);
  for (const std::string_view word :
       {"0", "false", "False", "no", "No", "none", "None", "null", "off", "disabled"}) {
    if (!rest.starts_with(word)) continue;
    if (rest.size() == word.size()) return true;
    const char next = rest[word.size()];
    if (!is_word_character(next) && next != '.' && next != ' ') return true;
    if (next == ' ' && word == "0") return true;
  }
  return false;
}

// "out of memory events", "OOM killer", "OOM policy": the name of a thing, and not what happened.
bool is_named(std::string_view rest) {
  constexpr std::string_view kThings[] = {
      "event", "errors",   "handl",  "killer",    "Killer", "count",      "retr",  "score",
      "Score", "protect",  "policy", "Policy",    "guard",  "detect",     "recov", "test",
      "_",     "callback", "check",  "situation", "issue",  "exceptions", "s (",   "conditions",
      "safe",  "hook",     "margin", "budget",    "risk"};
  while (!rest.empty() && (rest[0] == ' ' || rest[0] == ')' || rest[0] == '-' || rest[0] == '"'))
    rest.remove_prefix(1);
  return std::ranges::any_of(kThings, [&](std::string_view thing) { return rest.starts_with(thing); });
}

// "if CUDA runs out of memory", "skipped 3 samples that ran out of memory", "--oom": of what may come, or of
// what the program coped with.
bool is_condition(std::string_view lead) {
  const std::string_view line = trimmed(lead);
  if (line.starts_with("# ") || line == "#" || line.starts_with("//") || line.starts_with("--") ||
      lead.ends_with("--") || lead.ends_with("-on-"))
    return true;
  for (const std::string_view word : {"Fixed:", "fixed:", "Fix:", "fix:", "Added:", "Changed:"}) {
    if (lead.find(word) != std::string_view::npos) return true;  // a list of changes
  }
  for (const std::string_view end : {". ", ": ", "] "}) {
    if (const size_t at = lead.rfind(end); at != std::string_view::npos) lead.remove_prefix(at + end.size());
  }
  constexpr std::string_view kWords[] = {
      "Fix ",      "fix ",      "Fixes ",    "fixes ",    "Fixed ",    "Handle ",     "handle ",
      "handles ",  "raises ",   "if ",       "If ",       "when ",     "When ",       "unless ",
      "until ",    "whether ",  "case of ",  "on an ",    "do on ",    "instead of ", "without ",
      "Skipping ", "skipping ", "Skipped ",  "skipped ",  "ecovered ", "recover ",    "Caught ",
      "caught ",   "avoid ",    "risk of ",  "grep ",     "prevents ", "against ",    "simulat",
      "Estimat",   "expected ", "0 batches", "0 samples", "0 steps",   "0 requests",  "0 jobs"};
  return std::ranges::any_of(kWords, [&](std::string_view words) { return contains_word(lead, words); }) ||
         lead.find("ecovered ") != std::string_view::npos;
}

// "CUDA OOM caught, continuing with micro-batch 4"
bool is_coped_with(std::string_view rest) {
  for (const std::string_view word :
       {" caught", "continuing", "recovered", "skipping", "skipped", "retrying", ", trying "}) {
    if (rest.find(word) != std::string_view::npos) return true;
  }
  return false;
}

// "my script says CUDA out of memory, what can I do?": up to the end of its sentence.
bool is_asked(std::string_view rest) {
  rest = rest.substr(0, rest.find(". "));
  const size_t at = rest.find('?');
  return at != std::string_view::npos &&
         (at + 1 == rest.size() || rest[at + 1] == ' ' || rest[at + 1] == '"');
}

// "Worker 3 ran out of memory", "cudaCustomAllocator out of memory": somebody, and that it happened.
bool is_told_of_one(std::string_view before, std::string_view rest) {
  for (const std::string_view verb : {"ran", "Ran"}) {
    if (before.ends_with(verb) &&
        (before.size() == verb.size() || !is_word_character(before[before.size() - 4])))
      return true;
  }
  return before.find(' ') == std::string_view::npos &&
         trimmed(rest).find_first_not_of(".!") == std::string_view::npos;
}

// "test_oom PASSED", "ok 12 - out of memory is reported"
bool is_of_a_passed_test(std::string_view lead, std::string_view rest) {
  for (const std::string_view mark : {"PASSED", "... ok", " passed", "[       OK ]", "✓", "✔"}) {
    if (lead.find(mark) != std::string_view::npos || rest.find(mark) != std::string_view::npos) return true;
  }
  return trimmed(lead).starts_with("ok ");
}

}  // namespace

bool is_denied(std::string_view lead) {
  lead = trimmed(lead);
  for (const std::string_view verb : {" been", " be", " recently"}) {  // "has not been OOM killed"
    if (lead.ends_with(verb)) lead = trimmed(lead.substr(0, lead.size() - verb.size()));
  }
  for (const std::string_view word : {"0", "no", "No", "zero", "without", "never", "not", "any"}) {
    if (!lead.ends_with(word)) continue;
    const size_t before = lead.size() - word.size();
    if (before == 0 || !(is_word_character(lead[before - 1]) || lead[before - 1] == '.')) return true;
  }
  return false;
}

bool is_measured(std::string_view rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const size_t end = std::min(rest.find_first_not_of("0123456789."), rest.size());
  if (end == 0) return false;
  const bool has_decimals = rest.substr(0, end).find('.') < end - 1;
  return has_decimals || end == rest.size() ||
         std::string_view(",;)]%").find(rest[end]) != std::string_view::npos;
}

bool is_only_spoken_of(std::string_view lead, std::string_view rest) {
  return is_coped_with(rest) || is_asked(rest) || is_denied(lead) || is_no(rest) || is_named(rest) ||
         is_condition(lead) || is_of_a_passed_test(lead, rest);
}

bool is_stated(std::string_view lead, std::string_view rest) {
  const std::string_view before = trimmed(lead);
  if (before.empty() || std::string_view(":;]>)!|-").find(before.back()) != std::string_view::npos)
    return true;
  if (is_told_of_one(before, rest)) return true;
  constexpr std::string_view kSigns[] = {
      "rror",     "RROR",    "ail",      "FAIL",   "atal",   "FATAL", "erminat",  "bort",     "ABORT", "anic",
      "xception", "ritical", "CRITICAL", "kill",   "Kill",   "annot", "ould not", "nable to", "lost",  "rash",
      "died",     "ran out", "Ran out",  "due to", "xhaust", "!!",    "WARN",     "{\""};
  return std::ranges::any_of(kSigns, [&](std::string_view sign) {
    return lead.find(sign) != std::string_view::npos || rest.find(sign) != std::string_view::npos;
  });
}

bool is_exit_code(std::string_view lead, std::string_view rest) {
  // "exitStatus in [143,137,104]": one of a list.
  if (lead.ends_with(",") || lead.ends_with(", ") || (rest.size() > 1 && rest[0] == ',')) return false;
  constexpr std::string_view kWords[] = {"exit", "Exit", "EXIT", "code", "Code", "status", "Status", "rc="};
  return std::ranges::any_of(
             kWords, [&](std::string_view word) { return lead.find(word) != std::string_view::npos; }) &&
         lead.find("HTTP") == std::string_view::npos;
}

}  // namespace headroom::explain
