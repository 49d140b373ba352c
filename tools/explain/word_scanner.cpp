#include "tools/explain/word_scanner.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <utility>

namespace headroom::explain {
namespace {

constexpr uint16_t kNoState = 0xffff;
constexpr size_t kLeastBytes = 4096;  // size of a text that is worth several lanes

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

  next_.assign(most_states * class_count_, kNoState);
  first_output_.assign(most_states, -1);
  next_output_.assign(words.size(), -1);
  depth_.assign(most_states, 0);
  size_t states = 1;
  for (size_t word = 0; word < words.size(); ++word) {
    size_t state = 0;
    for (const char c : words[word]) {
      uint16_t& next = next_[state * class_count_ + class_of_[static_cast<unsigned char>(c)]];
      if (next == kNoState) {
        depth_[states] = static_cast<uint16_t>(depth_[state] + 1);
        // In a run of blanks the state stays what the first of them made it.
        if (is_blank(c)) next_[states * class_count_ + blank_] = static_cast<uint16_t>(states);
        next = static_cast<uint16_t>(states++);
      }
      state = next;
    }
    next_output_[word] = first_output_[state];  // next of equal words
    first_output_[state] = static_cast<int32_t>(word);
  }

  // Breadth first: a state's longest proper suffix that is a state is done before the state itself.
  std::vector<uint16_t> suffix(states, 0), queue;
  for (size_t c = 0; c < class_count_; ++c) {
    if (next_[c] == kNoState) {
      next_[c] = 0;
    } else {
      queue.push_back(next_[c]);
    }
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    const size_t state = queue[i];
    // Words that end at the suffix also end here. The chain may be shared, as it is only appended to.
    int32_t* last = &first_output_[state];
    while (*last >= 0) last = &next_output_[static_cast<size_t>(*last)];
    *last = first_output_[suffix[state]];
    for (size_t c = 0; c < class_count_; ++c) {
      uint16_t& next = next_[state * class_count_ + c];
      const uint16_t by_suffix = next_[suffix[state] * class_count_ + c];
      if (next == kNoState) {
        next = by_suffix;
      } else if (next != state) {
        suffix[next] = by_suffix;
        queue.push_back(next);
      }
    }
  }
  next_.resize(states * class_count_);
  first_output_.resize(states);
  depth_.resize(states);
  put_states_with_output_last();
}

// One comparison with a register then says whether a word ends.
void WordScanner::put_states_with_output_last() {
  const size_t states = depth_.size();
  std::vector<uint16_t> order(states), number(states);
  std::iota(order.begin(), order.end(), uint16_t{0});
  const auto first = std::stable_partition(order.begin(), order.end(),
                                           [&](uint16_t state) { return first_output_[state] < 0; });
  first_with_output_ = static_cast<uint32_t>(first - order.begin());
  for (size_t i = 0; i < states; ++i) number[order[i]] = static_cast<uint16_t>(i);
  const std::vector<uint16_t> next = next_, depth = depth_;
  const std::vector<int32_t> first_output = first_output_;
  for (size_t i = 0; i < states; ++i) {
    for (size_t c = 0; c < class_count_; ++c)
      next_[i * class_count_ + c] = number[next[order[i] * class_count_ + c]];
    depth_[i] = depth[order[i]];
    first_output_[i] = first_output[order[i]];
  }
}

void WordScanner::add(Lane& lane, std::string_view text, uint32_t state, size_t end) const {
  if (repeats_blank(text, end)) return;  // the first of the run was noted
  for (int32_t word = first_output_[state]; word >= 0; word = next_output_[static_cast<size_t>(word)])
    lane.found.push_back({end, word});
}

inline void WordScanner::step(Lane& lane, std::string_view text) const {
  lane.state = next_[lane.state * class_count_ + class_of_[static_cast<unsigned char>(text[lane.at++])]];
  if (lane.state >= first_with_output_) add(lane, text, lane.state, lane.at);
}

// On to the end of a word that begins in the lane; those that begin after it are the next lane's.
void WordScanner::read_behind_end(Lane& lane, std::string_view text) const {
  const size_t own = lane.found.size();
  for (size_t behind = 0; lane.at < text.size() && depth_[lane.state] > behind;) {
    step(lane, text);
    behind += repeats_blank(text, lane.at) ? 0 : 1;
  }
  const auto is_next_lanes = [&](const Occurrence& occurrence) {
    return begin_of(text, occurrence.end, words_[static_cast<size_t>(occurrence.word)]) >= lane.end;
  };
  lane.found.erase(
      std::remove_if(lane.found.begin() + static_cast<std::ptrdiff_t>(own), lane.found.end(), is_next_lanes),
      lane.found.end());
}

// Does step for all lanes up to the end of the shortest; what changes is kept in registers.
void WordScanner::read_side_by_side(std::array<Lane, kLanes>& lanes, std::string_view text) const {
  std::array<uint32_t, kLanes> state{};
  std::array<const char*, kLanes> from{};
  size_t steps = text.size();
  for (size_t j = 0; j < kLanes; ++j) {
    from[j] = text.data() + lanes[j].at;
    steps = std::min(steps, lanes[j].end - lanes[j].at);
  }
  const uint16_t* const next = next_.data();
  const size_t classes = class_count_;
  const uint32_t first_with_output = first_with_output_;
  for (size_t i = 0; i < steps; ++i) {
    for (size_t j = 0; j < kLanes; ++j) {
      state[j] = next[state[j] * classes + class_of_[static_cast<unsigned char>(from[j][i])]];
      if (state[j] >= first_with_output) add(lanes[j], text, state[j], lanes[j].at + i + 1);
    }
  }
  for (size_t j = 0; j < kLanes; ++j) {
    lanes[j].at += steps;
    lanes[j].state = state[j];
  }
}

std::vector<WordScanner::Occurrence> WordScanner::occurrences(std::string_view text) const {
  const size_t count = text.size() < kLeastBytes ? 1 : kLanes;
  std::array<Lane, kLanes> lanes;
  for (size_t i = 0; i < count; ++i) {
    lanes[i].at = text.size() / count * i;
    // A run of blanks is one lane's.
    while (i > 0 && lanes[i].at < text.size() && is_blank(text[lanes[i].at - 1])) ++lanes[i].at;
    if (i > 0) lanes[i - 1].end = lanes[i].at;
  }
  lanes[count - 1].end = text.size();
  if (count == kLanes) read_side_by_side(lanes, text);
  size_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    while (lanes[i].at < lanes[i].end) step(lanes[i], text);
    read_behind_end(lanes[i], text);
    found += lanes[i].found.size();
  }
  std::vector<Occurrence> all = std::move(lanes[0].found);
  all.reserve(found);
  const auto is_before = [](const Occurrence& one, const Occurrence& other) { return one.end < other.end; };
  for (size_t i = 1; i < count; ++i) {
    const auto own = static_cast<std::ptrdiff_t>(all.size());
    all.insert(all.end(), lanes[i].found.begin(), lanes[i].found.end());
    // Words that end behind a lane's end may end after the next lane's first.
    if (own == 0 || own == std::ssize(all)) continue;
    const auto middle = all.begin() + own;
    std::inplace_merge(std::upper_bound(all.begin(), middle, *middle, is_before), middle, all.end(),
                       is_before);
  }
  return all;
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
