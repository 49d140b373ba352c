#include "tools/explain/rule_texts.h"

#include <algorithm>

#include "base/text.h"

namespace headroom::explain {
namespace {

// Gives the place of the first hole that is a choice; npos where there is none.
size_t choice_in(std::string_view text) {
  size_t open = text.find('{');
  while (open != text.npos) {
    const std::string_view hole = text.substr(open, text.find('}', open) - open);
    if (hole.find('|') != hole.npos && text.find('}', open) != text.npos) return open;
    open = text.find('{', open + 1);
  }
  return open;
}

}  // namespace

std::string_view take_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

std::string_view without_quotes(std::string_view text) {
  const bool has_quotes = text.size() > 1 && text.front() == '"' && text.back() == '"';
  return has_quotes ? text.substr(1, text.size() - 2) : text;
}

std::string_view windows_path(std::string_view text, std::deque<std::string>& made) {
  if (text.find('/') == text.npos || text.find('\\') != text.npos) return {};
  made.emplace_back(text);
  std::ranges::replace(made.back(), '/', '\\');
  return made.back();
}

std::string_view with_capital(std::string_view text, std::deque<std::string>& made) {
  if (text[0] < 'a' || text[0] > 'z') return {};
  made.emplace_back(text);
  made.back()[0] = static_cast<char>(text[0] - 'a' + 'A');
  return made.back();
}

std::optional<std::vector<std::string_view>> texts_of(std::string_view row, std::deque<std::string>& made) {
  std::vector<std::string_view> texts, chosen;
  for (const std::string_view text : split(row, kOr)) texts.push_back(without_quotes(text));
  while (!texts.empty() && texts.size() + chosen.size() <= kMostTexts) {
    const std::string_view text = texts.front();
    texts.erase(texts.begin());
    const size_t open = choice_in(text);
    if (open == text.npos) {
      chosen.push_back(text);
      continue;
    }
    const size_t close = text.find('}', open);
    std::vector<std::string_view> made_here;
    for (const std::string_view choice : split(text.substr(open + 1, close - open - 1), "|")) {
      made.push_back(std::string(text.substr(0, open)).append(choice).append(text.substr(close + 1)));
      made_here.push_back(made.back());
    }
    texts.insert(texts.begin(), made_here.begin(), made_here.end());
  }
  if (!texts.empty()) return std::nullopt;
  return chosen;
}

}  // namespace headroom::explain
