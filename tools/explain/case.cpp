#include "tools/explain/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/bytes.h"
#include "tools/explain/line_parts.h"
#include "tools/explain/log_rules.h"

namespace headroom::explain {
namespace {

// Context, libraries and kernels of one process took 0.4 to 0.6 GiB wherever this project measured them
// (docs/gpu.md); frameworks load more kernels.
constexpr int64_t kOwnOverheadBytes = kGiB;

// Two sizes of two decimals of a GiB, each half a unit off at most.
constexpr int64_t kPrintedBytes = kGiB / 100;

// These kinds count only if there is nothing else, in this order.
constexpr Kind kLastResorts[] = {Kind::kHostLikely, Kind::kSomeMemory, Kind::kBrokenVersion,
                                 Kind::kAftermath,  Kind::kPoolShrunk, Kind::kNotAFailure,
                                 Kind::kOtherError};

bool is_fatal(Kind kind) {
  return kind != Kind::kNotAFailure && kind != Kind::kPoolShrunk && kind != Kind::kBrokenVersion &&
         kind != Kind::kAftermath && kind != Kind::kOtherError && kind != Kind::kHostLikely &&
         kind != Kind::kSomeMemory;
}

bool is_sized(const Failure& failure) {
  const bool allocation =
      failure.kind == Kind::kAllocation || failure.kind == Kind::kLimit || failure.kind == Kind::kWorkspace;
  return allocation && (failure.figures[Field::kRequested] || !failure.dims.empty());
}

// A warning about versions is no cause where memory ran out after all.
bool can_be_first(const Failure& failure, bool sized) {
  return is_fatal(failure.kind) &&
         !(sized && (failure.kind == Kind::kVersion || failure.kind == Kind::kPermission));
}

// The launcher's word for which process failed first, or that of the log's order.
const Failure* first_fatal(const Log& log) {
  const bool sized = has_sized_allocation(log);
  const auto find = [&](const auto& counts) {
    const auto found = std::ranges::find_if(log.failures, [&](const Failure& failure) {
      return can_be_first(failure, sized) && counts(failure);
    });
    return found == log.failures.end() ? nullptr : &*found;
  };
  if (log.root_rank) {
    const Failure* root =
        find([&](const Failure& failure) { return number_of_rank(failure.rank) == log.root_rank; });
    if (root != nullptr) return root;
  }
  return find([](const Failure&) { return true; });
}

const Failure* choose(const Log& log) {
  if (const Failure* failure = first_fatal(log)) return failure;
  for (const Kind kind : kLastResorts) {
    if (const Failure* failure = first_of(log, kind)) return failure;
  }
  return nullptr;
}

bool has_figures(const Failure& failure) {
  return failure.figures[Field::kTotal] || failure.figures[Field::kAllocated] ||
         failure.figures[Field::kFree] || failure.figures[Field::kRequested] ||
         failure.figures[Field::kLimit] || !failure.dims.empty();
}

// A library that does not start prints no figure; a later failure of the same process does.
const Failure* choose_lender(const Log& log, const Failure& failure) {
  if (has_figures(failure)) return nullptr;
  const Failure* nearest = nullptr;
  for (const Failure& other : log.failures) {
    if (other.kind == Kind::kHost || other.kind == Kind::kSharedMemory) continue;
    if (other.rank != failure.rank || !has_figures(other) || !is_fatal(other.kind)) continue;
    if (nearest == nullptr || std::abs(other.line - failure.line) < std::abs(nearest->line - failure.line)) {
      nearest = &other;
    }
  }
  return nearest;
}

Framework choose_framework(const Log& log, const Failure* failure) {
  // Headroom prints TensorFlow's messages if it fails in the same way.
  if (log.mentioned.contains(Framework::kHeadroom)) return Framework::kHeadroom;
  for (const Failure& other : log.failures) {
    if (other.framework == Framework::kHeadroom) return Framework::kHeadroom;
  }
  Framework own = failure != nullptr ? failure->framework : Framework::kNone;
  // In a log of llama.cpp or Ollama the same words of the driver are theirs.
  for (const Framework tool : {Framework::kOllama, Framework::kLlamaCpp}) {
    if (log.mentioned.contains(tool) && !log.mentioned.contains(Framework::kTorch) &&
        (own == Framework::kTorch || own == Framework::kNone || (*log.rules)[own].is_tool))
      return tool;
  }
  // Both use XLA and print its messages. JAX's logs name TensorFlow's files also, so JAX comes first.
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
  for (const bool is_tool : {false, true}) {
    for (const Framework framework : log.rules->frameworks()) {
      if ((*log.rules)[framework].is_tool == is_tool && log.mentioned.contains(framework)) return framework;
    }
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

// A request may be any number; the memory that somebody holds is bounded, and sums of it then stay in range.
void drop_unset(Figures& figures) {
  for (const Field field : enum_values<Field>()) {
    if (field != Field::kRequested && figures[field] && figures[field]->bytes >= kImpossibleBytes)
      figures[field].reset();
  }
}

// Inside a container a process does not know its own pid, so PyTorch lists it among the others: as the one
// that holds just more than the pool. Where the list explains all that is in use, it must be in it.
void find_own_among_holders(Case& result) {
  if (result.process) return;
  // A process that fails has a context, so one that leaves no room for another's context is itself.
  constexpr int64_t kLeastContextBytes = 128 * kMiB;
  if (!result.reserved && !result.allocated && result.holders.size() == 1 && result.total && result.free &&
      *result.total - *result.free - result.holders[0].bytes < kLeastContextBytes) {
    result.process = result.holders[0].bytes;
    result.own_pid = result.holders[0].pid;
    result.holders.clear();
  }
  if (!result.reserved) return;
  int64_t listed = 0;
  for (const Holder& holder : result.holders) listed = sum_of_bytes(listed, holder.bytes);
  const bool list_is_whole =
      result.total && result.free && *result.total - *result.free - listed < *result.reserved / 2;
  auto own = result.holders.end();
  for (auto holder = result.holders.begin(); holder != result.holders.end(); ++holder) {
    const int64_t beside = holder->bytes - *result.reserved;
    if (beside < -kPrintedBytes || (beside > 2 * kOwnOverheadBytes && !list_is_whole)) continue;
    if (own == result.holders.end() || holder->bytes < own->bytes) own = holder;
  }
  // A server's engine holds its memory outside the pool; the only process that uses the device is this one.
  const auto serves = [&](Framework tool) { return result.rules()[tool].serves; };
  const bool is_engine = std::ranges::any_of(result.tools, serves);
  if (own == result.holders.end() && result.holders.size() == 1 && is_engine && result.total && result.free &&
      *result.total - *result.free - listed < kOwnOverheadBytes && *result.reserved < listed / 20)
    own = result.holders.begin();
  if (own == result.holders.end()) return;
  result.process = own->bytes;
  result.own_pid = own->pid;
  result.holders.erase(own);
}

// Several processes of one run have pids that are near each other, or near the failed one's or one that the
// log names. They are no strangers: nothing would be gained by ending them.
void find_ranks_of_the_run(Case& result) {
  constexpr int64_t kNear = 16;
  const auto is_near = [](int64_t one, int64_t other) {
    return one != other && std::abs(one - other) <= kNear;
  };
  const bool has_rank = result.failure != nullptr && number_of_rank(result.failure->rank).has_value();
  const bool is_of_several =
      has_rank || result.has_setting("several_processes") || result.in("deserializing");
  // A run of several GPUs has one process on each: three on one GPU are those of a run that did not choose.
  constexpr int64_t kMany = 3;
  std::vector<Holder> strangers;
  for (const Holder& holder : result.holders) {
    const auto of_log = [&](int64_t pid) { return pid == holder.pid || is_near(pid, holder.pid); };
    const auto beside = [&](const Holder& other) { return is_near(other.pid, holder.pid); };
    const bool is_own = std::ranges::any_of(result.log->pids, of_log) ||
                        (result.own_pid && is_near(*result.own_pid, holder.pid)) ||
                        (is_of_several && std::ranges::any_of(result.holders, beside)) ||
                        std::ranges::count_if(result.holders, beside) + 1 >= kMany;
    (is_own ? result.ranks : strangers).push_back(holder);
  }
  result.holders = std::move(strangers);
  if (!result.ranks.empty()) result.derived.insert(kOwnRanks);
}

// More free than there is: an underflow, or a unit of another kind. It says something of the driver and is no
// input.
void drop_impossible(Case& result) {
  std::optional<Figure>& free = result.figures[Field::kFree];
  const std::optional<Figure>& total = result.figures[Field::kTotal];
  if (free &&
      (free->bytes >= kImpossibleBytes || (total && total->bytes > 0 && free->bytes > total->bytes))) {
    free.reset();
    result.is_impossible = true;
  }
  constexpr int64_t kLargestCarveOut = 4 * kGiB;
  if (result.has_setting("amd") && total && total->bytes <= kLargestCarveOut)
    result.derived.insert(kCarveOut);
}

// Free before less free after the weights were loaded.
void find_loaded_weights(Figures& figures) {
  const std::optional<Figure>&before = figures[Field::kFreeBefore], &after = figures[Field::kFreeAfter];
  if (figures[Field::kWeights] || !before || !after || before->bytes <= after->bytes) return;
  figures[Field::kWeights] =
      Figure{before->bytes - after->bytes, after->line, before->precision + after->precision};
}

// A library's failure may say what it requested only where it is ours.
MemoryNumbers::Request request_of(const Case& found) {
  using Request = MemoryNumbers::Request;
  switch (found.failure->kind) {
    case Kind::kAllocation:
    case Kind::kBareRefusal:
    case Kind::kLimit:
      return Request::kTensor;
    case Kind::kWorkspace:
      return Request::kWorkspace;
    case Kind::kHandle:
    case Kind::kLaunch:
      return found.is_exact && found.requested ? Request::kTensor : Request::kLibrary;
    case Kind::kContext:
      return Request::kContext;
    default:
      return Request::kNone;
  }
}

const StatedCause* choose_stated(const Case& found) {
  if (found.framework != Framework::kHeadroom) return nullptr;
  constexpr int64_t kNear = 2;  // lines: a report prints the cause on the line before the message
  for (const StatedCause& stated : found.log->stated) {
    if (std::abs(stated.line - found.failure->line) <= kNear) return &stated;
  }
  return nullptr;
}

// A library that only runs models, and failed, takes no options of a trainer that the log also names.
bool trains(Framework framework) {
  return framework == Framework::kNone || framework == Framework::kTorch || framework == Framework::kJax ||
         framework == Framework::kTensorflow || framework == Framework::kHeadroom;
}

void find_tools(Case& found) {
  for (const Framework framework : found.rules().frameworks()) {
    const bool is_failed = found.framework == framework;
    if (found.rules()[framework].trains && !is_failed && !found.rules()[found.framework].is_tool &&
        !trains(found.framework))
      continue;
    if (found.rules()[framework].is_tool &&
        (found.log->mentioned.contains(framework) || found.framework == framework ||
         (found.failure != nullptr && found.failure->framework == framework)))
      found.tools.push_back(framework);
  }
  // Ollama runs llama.cpp, and its users set options in Ollama's words.
  if (found.uses(Framework::kOllama)) std::erase(found.tools, Framework::kLlamaCpp);
}

struct DtypeBytes {
  std::string_view name;
  double bytes;
};
constexpr DtypeBytes kDtypes[] = {{"float32", 4}, {"float16", 2}, {"bfloat16", 2}, {"half", 2}, {"auto", 2},
                                  {"float", 4},   {"8bit", 1},    {"4bit", 0.5},   {"int8", 1}, {"fp8", 1}};

// The bytes of a model's weights, by the count that its name or the log says and the type.
void find_model(Case& found) {
  const Log& log = *found.log;
  found.parameter_count = parameter_count(log.parameters);
  if (const auto& count = log.background[Field::kCount];
      !found.parameter_count && count && count->bytes > 1'000'000)
    found.parameter_count = static_cast<double>(count->bytes);
  if (!found.parameter_count) return;
  std::string_view dtype = log.dtype;
  for (const std::string_view quote : {"'", "\""}) {
    if (dtype.starts_with(quote)) dtype.remove_prefix(1);
  }
  if (dtype.starts_with("torch.")) dtype.remove_prefix(6);
  const bool quantized = log.parameters.ends_with("bit");
  if (quantized) dtype = std::string_view(log.parameters).substr(log.parameters.size() - 4);
  if (found.has_setting("four_bits")) dtype = "4bit";
  if (found.has_setting("eight_bits")) dtype = "8bit";
  const bool served =
      found.uses(Framework::kVllm) || found.uses(Framework::kSglang) || found.uses(Framework::kTgi);
  found.dtype = dtype.empty() ? (served ? "bfloat16" : "float32") : dtype;
  found.dtype_is_named = !dtype.empty();
  const auto known =
      std::ranges::find_if(kDtypes, [&](const DtypeBytes& row) { return row.name == found.dtype; });
  if (known == std::end(kDtypes)) return;
  found.weight_bytes = static_cast<int64_t>(*found.parameter_count * known->bytes);
}

// Finds the limits and pools that count: a framework whose pool takes all memory does so unless a setting
// stops it.
void find_limits(Case& result) {
  for (const Field field : {Field::kLimit, Field::kProcessLimit, Field::kReserveLimit}) {
    if (result.limit || !result.figures[field]) continue;
    result.limit = result.figures[field]->bytes;
    result.limit_is_on_process = field == Field::kProcessLimit;
    result.limit_is_reserve = field == Field::kReserveLimit;
  }
  result.limit_refused = result.is(Kind::kLimit);
  const bool is_self_made = result.has_setting("memory_limit") || result.has_setting("memory_fraction");
  if (!result.limit && is_self_made) result.limit = result.capacity;
  result.takes_three_quarters = result.framework == Framework::kJax;
  result.takes_capacity = !result.has_setting("allow_growth") && !result.has_setting("cuda_malloc_async") &&
                          !result.has_setting("no_preallocation");
  if (!result.takes_capacity) return;
  if (result.framework == Framework::kTensorflow || result.framework == Framework::kJax) {
    result.pool_of = result.rules()[result.framework].name;
  } else if (result.framework == Framework::kTorch && result.pool_at_start) {
    result.pool_of = result.rules()[Framework::kTensorflow].name;
    result.pool_is_foreign = true;
  }
}

// JAX in the same process takes its pool at its start; what this framework's pool does not have shows it.
void find_pool_beside(Case& result) {
  if (result.pool_at_start || !result.has("pool_beside")) return;
  if (result.process) {
    result.pool_at_start = result.own_outside_pool;
  } else if (result.others_are_estimated) {
    result.pool_at_start = result.others;
  }
  result.pool_of = result.rules()[Framework::kJax].name;
  result.pool_is_foreign = true;
}

void derive(Case& result) {
  const std::optional<int64_t>& total = result.total;
  const std::optional<int64_t>& free = result.free;
  const std::optional<int64_t>& allocated = result.allocated;
  if (!result.reserved && allocated && result.idle) result.reserved = sum_of_bytes(*allocated, *result.idle);
  if (!result.idle && allocated && result.reserved && *result.reserved >= *allocated) {
    result.idle = *result.reserved - *allocated;
  }
  find_own_among_holders(result);
  find_ranks_of_the_run(result);
  if (total && free && result.reserved) result.outside = *total - *free - *result.reserved;
  if (free && result.idle) result.best = sum_of_bytes(*room_of(result), *result.idle);
  if (result.process && result.reserved) result.own_outside_pool = *result.process - *result.reserved;

  if (const std::optional<int64_t> named = bytes_of(result.figures, Field::kOthers)) {
    result.others = named;
  } else if (!result.holders.empty() || !result.ranks.empty()) {
    int64_t sum = 0;
    for (const Holder& holder : result.holders) {
      sum = sum_of_bytes(sum, holder.bytes);
      result.named_others += fmt::format("{}{}", result.named_others.empty() ? " (pid " : ", ", holder.pid);
    }
    result.others = sum;
    if (!result.holders.empty()) result.named_others += ")";
  } else if (total && free && result.process) {
    result.others = std::max<int64_t>(0, *total - *free - *result.process);
    result.others_are_estimated = true;
  } else if (result.outside) {
    result.others = std::max<int64_t>(0, *result.outside - kOwnOverheadBytes);
    result.others_are_estimated = true;
  }
}

}  // namespace

bool Case::uses(Framework any) const {
  return framework == any || std::ranges::find(tools, any) != tools.end();
}

bool Case::has(std::string_view fact) const {
  const auto has_id = [&](Framework any) { return any != Framework::kNone && rules()[any].id == fact; };
  return in(fact) || has_setting(fact) || has_id(framework) || std::ranges::any_of(tools, has_id);
}

std::optional<int64_t> Case::bytes(Field field) const {
  return bytes_of(figures, field);
}

bool Case::is_apple() const {
  const auto says = [&](std::string_view word) { return failure->text.find(word) != std::string::npos; };
  return failure != nullptr && (says("MPS") || says("IOGPU"));
}

const Failure* first_of(const Log& log, Kind kind) {
  const auto found =
      std::ranges::find_if(log.failures, [&](const Failure& failure) { return failure.kind == kind; });
  return found == log.failures.end() ? nullptr : &*found;
}

bool has_sized_allocation(const Log& log) {
  return std::ranges::any_of(log.failures, is_sized);
}

Case make_case(const Log& log) {
  Case result;
  result.log = &log;
  result.failure = choose(log);
  result.framework = choose_framework(log, result.failure);
  if (result.failure == nullptr) {
    find_tools(result);
    return result;
  }
  result.lender = choose_lender(log, *result.failure);
  find_tools(result);
  const Failure& source = result.lender != nullptr ? *result.lender : *result.failure;
  result.figures = source.figures;
  // In a container the driver may not know, and PyTorch prints 2^64 bytes.
  std::copy_if(
      source.holders.begin(), source.holders.end(), std::back_inserter(result.holders),
      [](const Holder& holder) { return holder.bytes > 0 && holder.bytes < kImpossibleBytes / 1024; });
  result.strategy = source.strategy;
  if (!result.figures[Field::kRequested]) {
    if (const auto bytes = tensor_bytes(source.dims, source.type)) {
      result.figures[Field::kRequested] = Figure{*bytes, source.line};
    }
  }
  for (const Field field : {Field::kTotal, Field::kFree, Field::kStartFree, Field::kPool,
                            Field::kProcessLimit, Field::kWeights, Field::kActivations, Field::kCacheShort,
                            Field::kCache, Field::kGraphs, Field::kFreeBefore, Field::kFreeAfter}) {
    if (!result.figures[field]) result.figures[field] = log.background[field];
  }
  find_loaded_weights(result.figures);
  drop_impossible(result);
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
  // In a container the driver may say 0.
  if (result.process && result.allocated && *result.process < *result.allocated) {
    result.process.reset();
    result.figures[Field::kProcess].reset();
  }
  result.capacity = bytes_of(result.figures, Field::kCapacity);
  result.largest = bytes_of(result.figures, Field::kLargest);
  result.free_at_start = bytes_of(result.figures, Field::kStartFree);
  result.pool_at_start = bytes_of(result.figures, Field::kPool);
  find_model(result);
  result.is_exact = result.framework == Framework::kHeadroom;
  result.request = request_of(result);
  find_limits(result);
  derive(result);
  const std::string& op = result.failure->op;
  const auto op_has = [&](std::string_view part) { return op.find(part) != std::string::npos; };
  result.attention_scores = op_has("hqk") || (op_has("attention") && op_has("softmax"));
  result.attention_scores |=
      has_scores_shape(result.failure->shape) || result.in("attention") ||
      (result.framework != Framework::kTorch && has_scores_shape(source.dims) &&
       has_part(source.text + source.op, "ttention|ttn|oftmax|einsum|Einsum|MatMul|hqk"));
  find_facts(result);
  find_pool_beside(result);
  result.stated = result.request == MemoryNumbers::Request::kNone ? nullptr : choose_stated(result);
  return result;
}

}  // namespace headroom::explain
