// Finds many words in a text in one pass: the automaton of Aho and Corasick (CACM 18, 1975), over classes of
// bytes. A line's end counts as a blank. Knows nothing of what the words are for.
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
  // `words` are not empty, and together shorter than 65535 bytes.
  explicit WordScanner(std::span<const std::string_view> words);

  // Calls found(word, begin) for every occurrence, in the order of their ends: the index of the word in the
  // span, and where in `text` it begins.
  template <class Found>
  void scan(std::string_view text, Found&& found) const {
    const uint16_t* const next = next_.data();
    uint32_t state = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      state = next[state * class_count_ + class_of_[static_cast<unsigned char>(text[i])]];
      if (!has_output_[state]) continue;
      for (int32_t word = first_output_[state]; word >= 0; word = next_output_[static_cast<size_t>(word)]) {
        found(static_cast<size_t>(word), i + 1 - lengths_[static_cast<size_t>(word)]);
      }
    }
  }

 private:
  std::array<uint8_t, 256> class_of_{};
  size_t class_count_ = 1;             // class 0: bytes of no word
  std::vector<uint16_t> next_;         // [state][class]
  std::vector<uint8_t> has_output_;    // [state]
  std::vector<int32_t> first_output_;  // [state]: a word that ends there, -1 for none
  std::vector<int32_t> next_output_;   // [word]: the next word that ends at the same place
  std::vector<size_t> lengths_;
};

}  // namespace headroom::explain
