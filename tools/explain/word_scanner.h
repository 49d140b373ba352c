// Finds many words in a text in one pass: the automaton of Aho and Corasick (CACM 18, 1975), over classes of
// bytes. A run of blanks and line ends counts as one blank. Knows nothing of what the words are for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace headroom::explain {

class WordScanner {
 public:
  // `words` are not empty and have no two blanks in a row; more than 65535 different beginnings of them are
  // an InvalidArgument. Their texts have to outlive the scanner.
  explicit WordScanner(std::span<const std::string_view> words);

  // Calls found(word, begin) for every occurrence, in the order of their ends: the index of the word in the
  // span, and where in `text` it begins.
  template <class Found>
  void scan(std::string_view text, Found&& found) const {
    for (const Occurrence& occurrence : occurrences(text)) {
      const std::string_view word = words_[static_cast<size_t>(occurrence.word)];
      found(static_cast<size_t>(occurrence.word), begin_of(text, occurrence.end, word));
    }
  }

 private:
  struct Occurrence {
    size_t end = 0;
    int32_t word = 0;
  };
  // One of several parts of a text that are read side by side: each step waits for the last one's memory, so
  // a processor does four in little more than the time of one.
  struct Lane {
    size_t at = 0, end = 0;
    uint32_t state = 0;
    std::vector<Occurrence> found;
  };
  static constexpr size_t kLanes = 4;
  std::vector<Occurrence> occurrences(std::string_view text) const;
  void read_side_by_side(std::array<Lane, kLanes>& lanes, std::string_view text) const;
  class Tree;
  void fill(const Tree& tree, const std::vector<int32_t>& first_output);
  void add(Lane& lane, std::string_view text, uint32_t state, size_t end) const;
  void step(Lane& lane, std::string_view text) const;
  void read_behind_end(Lane& lane, std::string_view text) const;

  // Finds where the word that ends before `end` begins: a blank of it may be several of the text.
  size_t begin_of(std::string_view text, size_t end, std::string_view word) const;
  bool is_blank(char c) const { return class_of_[static_cast<unsigned char>(c)] == blank_; }
  // Tells whether the character before `at` is another blank than the first of its run.
  bool repeats_blank(std::string_view text, size_t at) const {
    return at > 1 && is_blank(text[at - 1]) && is_blank(text[at - 2]);
  }

  std::array<uint8_t, 256> class_of_{};
  uint8_t blank_ = 0;                  // the class of blanks, set first
  size_t class_count_ = 1;             // class 0: bytes of no word
  std::unique_ptr<uint16_t[]> next_;   // [state][class]
  uint32_t first_with_output_ = 0;     // words end at this state and all later ones, and at no other
  std::vector<uint16_t> depth_;        // [state]: characters of the word that it is in
  std::vector<int32_t> first_output_;  // [state]: a word that ends there, -1 for none
  std::vector<int32_t> next_output_;   // [word]: the next word that ends at the same place
  std::vector<std::string_view> words_;
};

}  // namespace headroom::explain
