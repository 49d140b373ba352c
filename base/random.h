// Counter-based random numbers: a number depends only on (seed, stream, element), so any element can be drawn
// again, in any order and on any device. Also a number that is unique to the process.
//
// Philox4x32-10 of Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace headroom {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// One of Philox's ten rounds, on words held apart so that a loop over counters vectorizes.
constexpr void philox_round(uint32_t& word0, uint32_t& word1, uint32_t& word2, uint32_t& word3,
                            PhiloxKey key) {
  // The multipliers are those of the paper's reference code, Random123.
  const uint64_t product0 = uint64_t{0xD2511F53} * word0;
  const uint64_t product1 = uint64_t{0xCD9E8D57} * word2;
  word0 = static_cast<uint32_t>(product1 >> 32) ^ word1 ^ key[0];
  word1 = static_cast<uint32_t>(product1);
  word2 = static_cast<uint32_t>(product0 >> 32) ^ word3 ^ key[1];
  word3 = static_cast<uint32_t>(product0);
}

// The key of the following round: a Weyl sequence with the golden ratio and sqrt(3) - 1.
constexpr PhiloxKey next_key(PhiloxKey key) {
  return {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
}

inline constexpr int kPhiloxRounds = 10;

// Four random words of a counter under a key.
constexpr PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    philox_round(counter[0], counter[1], counter[2], counter[3], key);
    key = next_key(key);
  }
  return counter;
}

// The random words of the elements [4 * block, 4 * block + 4) of one of a seed's streams.
constexpr PhiloxCounter random_words(uint64_t seed, uint64_t stream, uint64_t block) {
  return philox4x32_10({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                        static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                       {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

// A float in [0, 1): the word's upper 24 bits, as many as a float holds exactly.
constexpr float unit_float(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// A uniform float in [0, 1) for one element.
constexpr float random_unit_float(uint64_t seed, uint64_t stream, uint64_t element) {
  return unit_float(random_words(seed, stream, element / 4)[element % 4]);
}

// Returns the same number at each call, unique to this process on any host and in any container, where pids
// repeat.
uint64_t process_nonce();

}  // namespace headroom
