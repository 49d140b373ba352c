// Sizes in text: "1GiB" from a user, "1.00 GiB" to one.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace headroom {

inline constexpr int64_t kKiB = int64_t{1} << 10;
inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;

// Parses bytes from "1024", "64KiB", "1.5GiB", "512 MB" (K, M, G, T; with iB or alone powers of 1024, with B
// powers of 1000; case does not matter). "1.3GiB" rounds down. Throws InvalidArgument naming `what` for
// anything else, for a negative size, for a fraction of a byte without unit ("1.5") and for sizes of 2^60
// bytes and above.
int64_t parse_bytes(std::string_view text, std::string_view what);

// "1.43 GiB", "186.44 MiB", "12.50 KiB", "17 B"; keeps the sign.
std::string format_bytes(int64_t bytes);

// Returns the sum of two sizes that are not negative: a log or a request may name any number, and a sum beyond 64 bits
// becomes the largest that they hold.
inline int64_t sum_of_bytes(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

// Formats bytes as a setting that parse_bytes reads back exactly, in the largest unit without a fraction:
// "750MiB", "31476KiB", "1000".
std::string exact_size(int64_t bytes);

// "1455.0" : MiB with one decimal, for columns whose head says MiB.
std::string format_mib(int64_t bytes);

constexpr int64_t round_up(int64_t bytes, int64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace headroom
