#include "tools/explain/word_scanner.h"

namespace headroom::explain {
namespace {

constexpr uint16_t kNone = 0xffff;

}  // namespace

WordScanner::WordScanner(std::span<const std::string_view> words) : words_(words.begin(), words.end()) {
  blank_ = static_cast<uint8_t>(class_count_++);
  for (const char blank : {' ', '\n', '\r', '\t'}) class_of_[static_cast<unsigned char>(blank)] = blank_;
  size_t most_states = 1;
  for (const std::string_view word : words) {
    most_states += word.size();
    for (const char c : word) {
      uint8_t& byte_class = class_of_[static_cast<unsigned char>(c)];
      if (byte_class == 0) byte_class = static_cast<uint8_t>(class_count_++);
    }
  }

  next_.assign(most_states * class_count_, kNone);
  first_output_.assign(most_states, -1);
  next_output_.assign(words.size(), -1);
  size_t states = 1;
  for (size_t word = 0; word < words.size(); ++word) {
    size_t state = 0;
    for (const char c : words[word]) {
      uint16_t& next = next_[state * class_count_ + class_of_[static_cast<unsigned char>(c)]];
      if (next == kNone) next = static_cast<uint16_t>(states++);
      state = next;
    }
    next_output_[word] = first_output_[state];  // of equal words
    first_output_[state] = static_cast<int32_t>(word);
  }

  // Breadth first: a state's longest proper suffix that is a state is done before the state itself.
  std::vector<uint16_t> suffix(states, 0), queue;
  for (size_t c = 0; c < class_count_; ++c) {
    if (next_[c] == kNone) {
      next_[c] = 0;
    } else {
      queue.push_back(next_[c]);
    }
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    const size_t state = queue[i];
    // Words that end at the suffix end here, too. The chain may be shared, as it is only appended to.
    int32_t* last = &first_output_[state];
    while (*last >= 0) last = &next_output_[static_cast<size_t>(*last)];
    *last = first_output_[suffix[state]];
    for (size_t c = 0; c < class_count_; ++c) {
      uint16_t& next = next_[state * class_count_ + c];
      const uint16_t by_suffix = next_[suffix[state] * class_count_ + c];
      if (next == kNone) {
        next = by_suffix;
      } else {
        suffix[next] = by_suffix;
        queue.push_back(next);
      }
    }
  }
  next_.resize(states * class_count_);
  first_output_.resize(states);
  for (const int32_t word : first_output_) has_output_.push_back(word >= 0);
}

size_t WordScanner::begin_of(std::string_view text, size_t end, std::string_view word) const {
  for (size_t i = word.size(); i > 0; --i) {
    --end;
    if (word[i - 1] != ' ') continue;
    // The first blank of a run is the one that was read; at the word's own begin one is enough.
    while (i > 1 && end > 0 && is_blank(text[end - 1])) --end;
  }
  return end;
}

}  // namespace headroom::explain
