// Finds many words in a text in one pass: the automaton of Aho and Corasick (CACM 18, 1975), over classes of
// bytes. A run of blanks and line ends counts as one blank. Knows nothing of what the words are for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace headroom::explain {

class WordScanner {
 public:
  // `words` are not empty, have no two blanks in a row, and are together shorter than 65535 bytes. Their
  // texts have to outlive the scanner.
  explicit WordScanner(std::span<const std::string_view> words);

  // Calls found(word, begin) for every occurrence, in the order of their ends: the index of the word in the
  // span, and where in `text` it begins.
  template <class Found>
  void scan(std::string_view text, Found&& found) const {
    const uint16_t* const next = next_.data();
    uint32_t state = 0;
    uint8_t last = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const uint8_t byte_class = class_of_[static_cast<unsigned char>(text[i])];
      if (byte_class == blank_ && last == blank_) continue;
      last = byte_class;
      state = next[state * class_count_ + byte_class];
      if (!has_output_[state]) continue;
      for (int32_t word = first_output_[state]; word >= 0; word = next_output_[static_cast<size_t>(word)]) {
        found(static_cast<size_t>(word), begin_of(text, i + 1, words_[static_cast<size_t>(word)]));
      }
    }
  }

 private:
  // Where the word that ends before `end` begins: a blank of it may be several of the text.
  size_t begin_of(std::string_view text, size_t end, std::string_view word) const;
  bool is_blank(char c) const { return class_of_[static_cast<unsigned char>(c)] == blank_; }

  std::array<uint8_t, 256> class_of_{};
  uint8_t blank_ = 0;                  // the class of blanks, set first
  size_t class_count_ = 1;             // class 0: bytes of no word
  std::vector<uint16_t> next_;         // [state][class]
  std::vector<uint8_t> has_output_;    // [state]
  std::vector<int32_t> first_output_;  // [state]: a word that ends there, -1 for none
  std::vector<int32_t> next_output_;   // [word]: the next word that ends at the same place
  std::vector<std::string_view> words_;
};

}  // namespace headroom::explain
