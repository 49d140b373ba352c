#include "allocators/strategies/caching_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/text.h"

namespace headroom {
namespace {

// PyTorch's kSmallBuffer, kMinLargeAlloc and kRoundLarge.
constexpr int64_t kSmallSegmentBytes = 2 * kMiB;
constexpr int64_t kMinLargeBytes = 10 * kMiB;
constexpr int64_t kRoundLargeBytes = 2 * kMiB;

int floor_log2(int64_t value) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(value))) - 1;
}

size_t interval_of(int64_t bytes) {
  constexpr int kLast = static_cast<int>(CachingRules::Divisions().size()) - 1;
  return static_cast<size_t>(std::clamp(floor_log2(bytes) - floor_log2(kMiB), 0, kLast));
}

// Parses a power of two, or zero if allowed; nullopt for other text.
std::optional<int64_t> parse_power(std::string_view text, bool zero_allowed) {
  const auto value = parse_number<int64_t>(text);
  if (!value || *value < 0) return std::nullopt;
  const bool fits = *value == 0 ? zero_allowed : std::has_single_bit(static_cast<uint64_t>(*value));
  return fits && *value <= int64_t{1} << 40 ? value : std::nullopt;
}

}  // namespace

int64_t CachingRules::divided(int64_t bytes) const {
  if (bytes < kMinBlockBytes) return kMinBlockBytes;
  const int64_t divisions = (*power2_divisions)[interval_of(bytes)];
  if (divisions > 1 && bytes > kMinBlockBytes * divisions) return round_up_power2(bytes, divisions);
  return round_up(bytes, kMinBlockBytes);
}

CachingRules caching_rules(const StrategyOptions& options) {
  CachingRules rules;
  if (const auto bytes = options.bytes("max_split")) {
    // PyTorch's own bound: segments of 20 MiB are meant to be cut.
    if (*bytes < CachingRules{}.large_segment_bytes) {
      throw InvalidArgument(fmt::format("max_split of {}: it must be at least {}", format_bytes(*bytes),
                                        format_bytes(CachingRules{}.large_segment_bytes)));
    }
    rules.max_split_bytes = *bytes;
  }
  rules.max_non_split_rounding_bytes =
      options.bytes("max_non_split_rounding").value_or(rules.max_non_split_rounding_bytes);
  rules.large_segment_bytes = options.bytes("large_segment").value_or(rules.large_segment_bytes);
  if (rules.large_segment_bytes < kMinLargeBytes || rules.large_segment_bytes % kRoundLargeBytes != 0) {
    throw InvalidArgument(fmt::format("large_segment of {}: it must be a multiple of {} and at least {}",
                                      format_bytes(rules.large_segment_bytes), format_bytes(kRoundLargeBytes),
                                      format_bytes(kMinLargeBytes)));
  }
  rules.gc_share = options.share("gc").value_or(rules.gc_share);
  if (const auto text = options.text("roundup_power2")) {
    rules.power2_divisions = parse_power2_divisions(*text, "roundup_power2");
  }
  rules.expandable_segments = options.flag("expandable_segments").value_or(false);
  return rules;
}

int64_t CachingRules::segment_bytes(int64_t block_bytes) const {
  if (is_small_block(block_bytes)) return kSmallSegmentBytes;
  if (block_bytes < kMinLargeBytes) return large_segment_bytes;
  return round_up(block_bytes, kRoundLargeBytes);
}

int64_t round_up_power2(int64_t bytes, int64_t divisions) {
  if (std::has_single_bit(static_cast<uint64_t>(bytes))) return bytes;
  const int64_t floor = int64_t{1} << floor_log2(bytes);
  const int64_t division = floor >> floor_log2(divisions);
  return division == 0 ? 2 * floor : round_up(bytes, division);
}

// Like PyTorch: the first number also applies to all smaller sizes, and '>' to all above the last one.
CachingRules::Divisions parse_power2_divisions(std::string_view text, std::string_view what) {
  const auto refuse = [&] {
    return InvalidArgument(
        fmt::format("{} is '{}': it must be a power of two, or a list of them by size in MiB such as "
                    "[256:1,512:2,1024:4,>:8]",
                    what, text));
  };
  CachingRules::Divisions result = {};
  if (text.empty() || text.front() != '[') {
    const auto divisions = parse_power(text, true);
    if (!divisions) throw refuse();
    result.fill(*divisions);
    return result;
  }
  if (text.size() < 2 || text.back() != ']') throw refuse();
  std::string_view rest = text.substr(1, text.size() - 2);
  std::optional<size_t> last;
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    const std::string_view item = rest.substr(0, comma);
    if (more) rest.remove_prefix(comma + 1);
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos) throw refuse();
    const std::string_view size = item.substr(0, colon);
    const auto divisions = parse_power(item.substr(colon + 1), true);
    if (!divisions) throw refuse();
    if (size == ">") {
      std::fill(result.begin() + static_cast<std::ptrdiff_t>(last ? *last + 1 : 0), result.end(), *divisions);
      continue;
    }
    const auto mebibytes = parse_power(size, false);
    if (!mebibytes) throw refuse();
    const size_t index = interval_of(*mebibytes * kMiB);
    if (!last) std::fill_n(result.begin(), index, *divisions);
    result[index] = *divisions;
    last = index;
  }
  return result;
}

}  // namespace headroom
