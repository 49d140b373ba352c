#include "tools/explain/case.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "runtime/base/bytes.h"

namespace headroom::explain {
namespace {

// Context, libraries and kernels of one process took 0.4 to 0.6 GiB wherever this project measured them
// (docs/gpu.md); frameworks load more kernels.
constexpr int64_t kOwnOverheadBytes = kGiB;
// A limit that nobody set is printed as the largest number: "17179869184.00 GiB" (pytorch#110194).
constexpr int64_t kUnsetBytes = int64_t{1} << 60;

// Two sizes of two decimals of a GiB, each half a unit off at most.
constexpr int64_t kPrintedBytes = kGiB / 100;

bool is_fatal(Kind kind) {
  return kind != Kind::kNotAFailure && kind != Kind::kPoolShrunk && kind != Kind::kBrokenVersion;
}

bool is_sized(const Failure& failure) {
  const bool allocation =
      failure.kind == Kind::kAllocation || failure.kind == Kind::kCap || failure.kind == Kind::kWorkspace;
  return allocation && (failure.figures[Field::kRequested] || !failure.dims.empty());
}

// A warning about versions is no cause where memory ran out after all, and a host's lack of memory that was
// printed before is another matter.
bool can_be_first(const Failure& failure, bool sized) {
  return is_fatal(failure.kind) &&
         !(sized && (failure.kind == Kind::kVersion || failure.kind == Kind::kPermission));
}

const Failure* choose(const Log& log) {
  const bool sized = has_sized_allocation(log);
  const auto fatal = std::find_if(log.failures.begin(), log.failures.end(),
                                  [&](const Failure& failure) { return can_be_first(failure, sized); });
  if (fatal != log.failures.end()) return &*fatal;
  for (const Kind kind : {Kind::kBrokenVersion, Kind::kPoolShrunk, Kind::kNotAFailure}) {
    if (const Failure* failure = first_of(log, kind)) return failure;
  }
  return nullptr;
}

bool has_figures(const Failure& failure) {
  return failure.figures[Field::kTotal] || failure.figures[Field::kAllocated] ||
         failure.figures[Field::kFree] || failure.figures[Field::kRequested] ||
         failure.figures[Field::kLimit] || !failure.dims.empty();
}

// A library that does not start says no figure; a failure of the same process that follows does.
const Failure* choose_lender(const Log& log, const Failure& failure) {
  if (has_figures(failure)) return nullptr;
  const Failure* nearest = nullptr;
  for (const Failure& other : log.failures) {
    if (other.rank != failure.rank || !has_figures(other) || !is_fatal(other.kind)) continue;
    if (nearest == nullptr || std::abs(other.line - failure.line) < std::abs(nearest->line - failure.line)) {
      nearest = &other;
    }
  }
  return nearest;
}

Framework choose_framework(const Log& log, const Failure* failure) {
  // Headroom prints TensorFlow's words where it fails alike.
  if (log.mentioned.contains(Framework::kHeadroom)) return Framework::kHeadroom;
  for (const Failure& other : log.failures) {
    if (other.framework == Framework::kHeadroom) return Framework::kHeadroom;
  }
  const Framework own = failure != nullptr ? failure->framework : Framework::kNone;
  // Both stand on XLA and print its words. JAX's logs name TensorFlow's files, too, so JAX comes first.
  if (own == Framework::kTensorflow || own == Framework::kJax) {
    for (const Framework framework : {Framework::kJax, Framework::kTensorflow}) {
      if (log.mentioned.contains(framework)) return framework;
    }
  }
  if (own != Framework::kNone) return own;
  for (const Framework framework :
       {Framework::kJax, Framework::kTorch, Framework::kOnnx, Framework::kTensorflow}) {
    if (log.mentioned.contains(framework)) return framework;
  }
  for (const Failure& other : log.failures) {
    if (other.framework != Framework::kNone) return other.framework;
  }
  return Framework::kNone;
}

std::optional<int64_t> bytes_of(const Figures& figures, Field field) {
  const std::optional<Figure>& figure = figures[field];
  return figure ? std::optional(figure->bytes) : std::nullopt;
}

// What was requested may be any number; what somebody holds is bounded, and sums of it then stay in range.
void drop_unset(Figures& figures) {
  for (size_t i = 0; i < kFieldCount; ++i) {
    const auto field = static_cast<Field>(i);
    if (field != Field::kRequested && figures[field] && figures[field]->bytes >= kUnsetBytes)
      figures[field].reset();
  }
}

// Inside a container a process does not know its own pid, so PyTorch lists it among the others: as the one
// that holds just more than the pool.
void find_own_among_holders(Case& result) {
  if (result.process || !result.reserved) return;
  auto own = result.holders.end();
  for (auto holder = result.holders.begin(); holder != result.holders.end(); ++holder) {
    const int64_t beside = holder->bytes - *result.reserved;
    if (beside < -kPrintedBytes || beside > 2 * kOwnOverheadBytes) continue;
    if (own == result.holders.end() || holder->bytes < own->bytes) own = holder;
  }
  if (own == result.holders.end()) return;
  result.process = own->bytes;
  result.own_pid = own->pid;
  result.holders.erase(own);
}

void derive(Case& result) {
  const std::optional<int64_t>& total = result.total;
  const std::optional<int64_t>& free = result.free;
  const std::optional<int64_t>& allocated = result.allocated;
  if (!result.reserved && allocated && result.idle) result.reserved = *allocated + *result.idle;
  if (!result.idle && allocated && result.reserved && *result.reserved >= *allocated) {
    result.idle = *result.reserved - *allocated;
  }
  find_own_among_holders(result);
  if (total && free && result.reserved) result.outside = *total - *free - *result.reserved;
  if (free && result.idle) result.best = *free + *result.idle;
  if (result.process && result.reserved) result.own_outside_pool = *result.process - *result.reserved;

  if (const std::optional<int64_t> named = bytes_of(result.figures, Field::kOthers)) {
    result.others = named;
    result.others_named = true;
  } else if (!result.holders.empty()) {
    int64_t sum = 0;
    for (const Holder& holder : result.holders) sum += holder.bytes;
    result.others = sum;
    result.others_named = true;
  } else if (total && free && result.process) {
    result.others = std::max<int64_t>(0, *total - *free - *result.process);
  } else if (result.outside) {
    result.others = std::max<int64_t>(0, *result.outside - kOwnOverheadBytes);
  }
}

}  // namespace

const Failure* first_of(const Log& log, Kind kind) {
  const auto found = std::find_if(log.failures.begin(), log.failures.end(),
                                  [&](const Failure& failure) { return failure.kind == kind; });
  return found == log.failures.end() ? nullptr : &*found;
}

bool has_sized_allocation(const Log& log) {
  return std::any_of(log.failures.begin(), log.failures.end(), is_sized);
}

std::optional<int64_t> tensor_bytes(const std::string& dims, const std::string& type) {
  constexpr std::pair<std::string_view, int64_t> kTypes[] = {
      {"float", 4},    {"float32", 4}, {"double", 8}, {"float64", 8}, {"half", 2},      {"float16", 2},
      {"bfloat16", 2}, {"int8", 1},    {"uint8", 1},  {"int16", 2},   {"uint16", 2},    {"int32", 4},
      {"uint32", 4},   {"int64", 8},   {"uint64", 8}, {"bool", 1},    {"complex64", 8}, {"complex128", 16}};
  const auto known =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& row) { return row.first == type; });
  if (known == std::end(kTypes) || dims.empty()) return std::nullopt;
  int64_t bytes = known->second;
  const char* at = dims.data();
  const char* const end = at + dims.size();
  while (true) {
    while (at != end && *at == ' ') ++at;
    int64_t extent = 0;
    const auto [stop, error] = std::from_chars(at, end, extent);
    if (error != std::errc() || extent < 0) return std::nullopt;
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::numeric_limits<int64_t>::max();
    if (stop == end) return bytes;
    if (*stop != ',') return std::nullopt;
    at = stop + 1;
  }
}

Case make_case(const Log& log) {
  Case result;
  result.log = &log;
  result.failure = choose(log);
  result.framework = choose_framework(log, result.failure);
  if (result.failure == nullptr) return result;
  result.lender = choose_lender(log, *result.failure);
  const Failure& source = result.lender != nullptr ? *result.lender : *result.failure;
  result.figures = source.figures;
  // In a container the driver may not tell, and PyTorch prints 2^64 bytes.
  std::copy_if(source.holders.begin(), source.holders.end(), std::back_inserter(result.holders),
               [](const Holder& holder) { return holder.bytes < kUnsetBytes / 1024; });
  result.strategy = source.strategy;
  if (!result.figures[Field::kRequested]) {
    if (const auto bytes = tensor_bytes(source.dims, source.type)) {
      result.figures[Field::kRequested] = Figure{*bytes, source.line};
    }
  }
  for (const Field field : {Field::kTotal, Field::kFree, Field::kStartFree, Field::kPool}) {
    if (!result.figures[field]) result.figures[field] = log.background[field];
  }
  drop_unset(result.figures);
  if (result.figures[Field::kTotal] && result.figures[Field::kTotal]->bytes == 0)
    result.figures[Field::kTotal].reset();
  result.requested = bytes_of(result.figures, Field::kRequested);
  result.total = bytes_of(result.figures, Field::kTotal);
  result.free = bytes_of(result.figures, Field::kFree);
  result.allocated = bytes_of(result.figures, Field::kAllocated);
  result.reserved = bytes_of(result.figures, Field::kReserved);
  result.idle = bytes_of(result.figures, Field::kIdle);
  result.process = bytes_of(result.figures, Field::kProcess);
  result.limit = bytes_of(result.figures, Field::kLimit);
  result.capacity = bytes_of(result.figures, Field::kCapacity);
  result.largest = bytes_of(result.figures, Field::kLargest);
  derive(result);
  return result;
}

}  // namespace headroom::explain
