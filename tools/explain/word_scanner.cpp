#include "tools/explain/word_scanner.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/errors.h"

namespace headroom::explain {
namespace {

constexpr uint16_t kNoState = 0xffff;
constexpr size_t kLeastBytes = 4096;  // size of a text that is worth several lanes

}  // namespace

// The words as a tree of states, before it is an automaton: children are lists, so that it is small.
class WordScanner::Tree {
 public:
  Tree() { add_state(0, 0); }

  uint16_t child(uint16_t state, uint8_t c) const {
    if (state == 0) return root_children_[c];
    uint16_t found = first_child_[state];
    while (found != kNoState && label_[found] != c) found = next_sibling_[found];
    return found;
  }

  uint16_t make_child(uint16_t state, uint8_t c) {
    if (const uint16_t known = child(state, c); known != kNoState) return known;
    if (first_child_.size() >= kNoState) throw InvalidArgument("these are too many words for one pass");
    const auto made = static_cast<uint16_t>(first_child_.size());
    add_state(c, static_cast<uint16_t>(depth_[state] + 1));
    next_sibling_[made] = first_child_[state];
    first_child_[state] = made;
    if (state == 0) root_children_[c] = made;
    return made;
  }

  template <class Visit>
  void each_child(uint16_t state, Visit&& visit) const {
    for (uint16_t next = first_child_[state]; next != kNoState; next = next_sibling_[next])
      visit(next, label_[next]);
  }

  // States by depth, and for each its longest proper suffix that is a state.
  void find_suffixes() {
    suffix_.assign(size(), 0);
    by_depth_.push_back(0);
    for (size_t i = 0; i < by_depth_.size(); ++i) {
      const uint16_t state = by_depth_[i];
      each_child(state, [&](uint16_t next, uint8_t c) {
        by_depth_.push_back(next);
        if (state == 0) return;
        uint16_t from = suffix_[state];
        while (from != 0 && child(from, c) == kNoState) from = suffix_[from];
        const uint16_t found = child(from, c);
        suffix_[next] = found == kNoState ? 0 : found;
      });
    }
  }

  size_t size() const { return first_child_.size(); }
  uint8_t label(uint16_t state) const { return label_[state]; }
  uint16_t depth(uint16_t state) const { return depth_[state]; }
  uint16_t suffix(uint16_t state) const { return suffix_[state]; }
  const std::vector<uint16_t>& by_depth() const { return by_depth_; }

 private:
  void add_state(uint8_t label, uint16_t depth) {
    first_child_.push_back(kNoState);
    next_sibling_.push_back(kNoState);
    label_.push_back(label);
    depth_.push_back(depth);
    if (depth == 0) root_children_.fill(kNoState);
  }

  std::array<uint16_t, 256> root_children_{};
  std::vector<uint16_t> first_child_, next_sibling_, depth_, suffix_, by_depth_;
  std::vector<uint8_t> label_;
};

WordScanner::WordScanner(std::span<const std::string_view> words) : words_(words.begin(), words.end()) {
  blank_ = static_cast<uint8_t>(class_count_++);
  for (const char blank : {' ', '\n', '\r', '\t'}) class_of_[static_cast<unsigned char>(blank)] = blank_;
  for (const std::string_view word : words) {
    for (const char c : word) {
      uint8_t& byte_class = class_of_[static_cast<unsigned char>(c)];
      if (byte_class == 0) byte_class = static_cast<uint8_t>(class_count_++);
    }
  }
  Tree tree;
  std::vector<int32_t> first_output(1, -1);  // [state]
  next_output_.assign(words.size(), -1);
  for (size_t word = 0; word < words.size(); ++word) {
    uint16_t state = 0;
    for (const char c : words[word]) state = tree.make_child(state, class_of_[static_cast<unsigned char>(c)]);
    first_output.resize(tree.size(), -1);
    next_output_[word] = first_output[state];  // next of equal words
    first_output[state] = static_cast<int32_t>(word);
  }
  tree.find_suffixes();
  for (const uint16_t state : tree.by_depth()) {
    if (state == 0) continue;
    // Words that end at the suffix also end here. The chain may be shared, as it is only appended to.
    int32_t* last = &first_output[state];
    while (*last >= 0) last = &next_output_[static_cast<size_t>(*last)];
    *last = first_output[tree.suffix(state)];
  }
  fill(tree, first_output);
}

// States at which a word ends come last: one comparison with a register then says whether one does.
void WordScanner::fill(const Tree& tree, const std::vector<int32_t>& first_output) {
  const size_t states = tree.size();
  std::vector<uint16_t> order(states), number(states);
  std::iota(order.begin(), order.end(), uint16_t{0});
  const auto first = std::stable_partition(order.begin(), order.end(),
                                           [&](uint16_t state) { return first_output[state] < 0; });
  first_with_output_ = static_cast<uint32_t>(first - order.begin());
  depth_.resize(states);
  first_output_.resize(states);
  for (size_t i = 0; i < states; ++i) {
    number[order[i]] = static_cast<uint16_t>(i);
    depth_[i] = tree.depth(order[i]);
    first_output_[i] = first_output[order[i]];
  }
  next_ = std::make_unique_for_overwrite<uint16_t[]>(states * class_count_);
  // Each state goes where its suffix does, except to its own children.
  for (const uint16_t state : tree.by_depth()) {
    uint16_t* const row = &next_[number[state] * class_count_];
    if (state == 0)
      std::fill_n(row, class_count_, number[0]);
    else
      std::copy_n(&next_[number[tree.suffix(state)] * class_count_], class_count_, row);
    // In a run of blanks the state stays what the first of them made it.
    if (state != 0 && tree.label(state) == blank_) row[blank_] = number[state];
    tree.each_child(state, [&](uint16_t next, uint8_t c) { row[c] = number[next]; });
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
  const uint16_t* const next = next_.get();
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
