#include "tools/explain/log_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"
#include "tools/explain/line_parts.h"

namespace headroom::explain {
namespace {

using enum Cause;
using enum Confidence;
using Result = std::optional<LogJudgment>;

std::optional<double> number_in(std::string_view text) {
  double number = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc()) return std::nullopt;
  return number > 0 && number <= 1 ? std::optional(number) : std::nullopt;
}

double ratio(int64_t a, int64_t b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

// "13.0 billion parameters in float16 are 24.21 GiB"
std::string weights_text(const Case& found) {
  return fmt::format("{:.3g} billion parameters in {}{} are {}", *found.parameter_count / 1e9, found.dtype,
                     found.dtype_is_named ? "" : " (the log names no type)",
                     format_bytes(*found.weight_bytes));
}

bool others_hold_much(const Case& found) {
  return found.others && found.total && *found.others >= *found.total / 4;
}

}  // namespace

bool has_part(std::string_view text, std::string_view parts) {
  const std::vector<std::string_view> all = split(parts, "|");
  return std::ranges::any_of(all, [&](std::string_view part) { return text.find(part) != text.npos; });
}

LogJudgment verdict(Cause cause, Confidence confidence, std::string reason, const Failure* witness) {
  LogJudgment result;
  result.cause = cause;
  result.confidence = confidence;
  result.reason = std::move(reason);
  result.witness = witness;
  return result;
}

std::optional<std::string> filled(const Case& found, std::string_view text) {
  std::string result;
  while (true) {
    const size_t open = text.find('{');
    result += text.substr(0, open);
    if (open == std::string_view::npos) return result;
    const size_t close = text.find('}', open);
    const auto field = parse_enum<Field>(text.substr(open + 1, close - open - 1), "field");
    const std::optional<int64_t> value = found.bytes(field);
    if (!value || *value < 0 || *value >= kImpossibleBytes) return std::nullopt;
    result += is_count(field) ? fmt::format("{}", *value) : format_bytes(*value);
    text.remove_prefix(close + 1);
  }
}

std::optional<LogJudgment> impossible(const Case& found) {
  if (!found.is_impossible || !found.is(Kind::kAllocation) || !found.total) return std::nullopt;
  const std::string asked = found.requested ? fmt::format("{} were requested", format_bytes(*found.requested))
                                            : "the request failed";
  if (found.in(kCarveOut))
    return verdict(
        kExhausted, kHigh,
        fmt::format("the GPU has {} of the machine's memory for itself (an APU's carve-out), and {}; "
                    "the driver's figure of what is free is impossible, because it counts the "
                    "machine's memory with it",
                    format_bytes(*found.total), asked));
  return verdict(
      kExhausted, kLow,
      fmt::format("{} of a device of {}; the driver says that more is free than the device has, so that "
                  "figure cannot be used",
                  asked, format_bytes(*found.total)));
}

std::optional<LogJudgment> own_ranks(const Case& found) {
  const bool has_engine = found.has("engine_beside");
  if (!found.is(Kind::kAllocation) || !found.total || (!has_engine && others_hold_much(found)))
    return std::nullopt;
  const std::optional<int64_t> own_pid = number_of_rank(found.failure->rank);
  int64_t held = 0;
  for (const Holder& rank : found.ranks) held = sum_of_bytes(held, rank.pid == own_pid ? 0 : rank.bytes);
  for (const Holder& engine : found.holders) held = sum_of_bytes(held, has_engine ? engine.bytes : 0);
  if (held == 0 || held < *found.total / 8) return std::nullopt;
  if (has_engine)
    return verdict(kExhausted, kHigh,
                   fmt::format("the engine beside the trainer, or another process of this run, holds {} of "
                               "the device's {}",
                               format_bytes(held), format_bytes(*found.total)));
  return verdict(
      kExhausted, kHigh,
      fmt::format(
          "{} other process{} of this run hold{} {} of the device's {}: each {}{}", found.ranks.size(),
          found.ranks.size() > 1 ? "es" : "", found.ranks.size() > 1 ? "" : "s", format_bytes(held),
          format_bytes(*found.total),
          found.has("web_workers") ? "worker loads the model for itself" : "should use a GPU of its own",
          found.in("deserializing") ? "; each loads the checkpoint to the GPU that it was saved from" : ""));
}

std::optional<LogJudgment> number_pair(const Case& found) {
  if (!found.pair) return std::nullopt;
  const NumberPair& pair = *found.pair;
  const auto shown = [&](int64_t number, const std::string& name) {
    return (pair.is_size ? format_bytes(number) : fmt::format("{}", number)) +
           (name.empty() ? "" : fmt::format(" ({})", name));
  };
  return verdict(kLimit, kMedium,
                 fmt::format("the log says that one number is larger than it may be: {} is more than {}",
                             shown(pair.asked, pair.asked_name), shown(pair.most, pair.most_name)));
}

namespace {

// The first row whose activity the log shows; rows of the machine's own memory are for its failures alone. A
// process that was killed leaves no frames: what it printed last counts.
Result first_during(const Case& found, bool is_on_host) {
  Result first;
  int64_t last_line = -1;
  for (const During& row : found.rules().during()) {
    if ((row.cause == kHostMemory) != is_on_host) continue;
    if (!found.has(row.phase) || (!row.setting.empty() && !found.has(row.setting))) continue;
    const auto phase = found.failure->phases.find(row.phase);
    const int64_t line = phase == found.failure->phases.end() ? 0 : phase->second;
    if (line <= last_line) continue;
    if (std::optional<std::string> reason = filled(found, row.reason)) {
      first = verdict(row.cause, row.confidence, *std::move(reason));
      first->activity = row.phase;
      last_line = line;
    }
    if (first && !found.is(Kind::kHostLikely)) break;
  }
  return first;
}

}  // namespace

std::optional<LogJudgment> during(const Case& found) {
  const bool refused =
      found.is(Kind::kAllocation) || found.is(Kind::kBareRefusal) || found.is(Kind::kSomeMemory);
  if (!refused || others_hold_much(found)) return std::nullopt;
  return first_during(found, false);
}

std::optional<LogJudgment> during_on_host(const Case& found) {
  constexpr int64_t kNobodysBytes = int64_t{16} << 40;
  if (!found.is(Kind::kHost) && !found.is(Kind::kHostLikely)) return std::nullopt;
  if (found.requested.value_or(0) > kNobodysBytes) return std::nullopt;
  Result result = first_during(found, true);
  if (result && found.requested)
    result->reason += fmt::format("; {} were requested", format_bytes(*found.requested));
  return result;
}

std::optional<int64_t> tokens_that_fit(const Case& found) {
  constexpr int64_t kBlock = 16;  // tokens
  std::optional<int64_t> fit = found.bytes(Field::kTokensFit);
  const auto tokens = found.bytes(Field::kTokens), needed = found.bytes(Field::kCacheNeeded),
             free = found.bytes(Field::kCacheFree);
  if (!fit && tokens && needed && free && *needed > 0)
    fit = static_cast<int64_t>(static_cast<double>(*tokens) * ratio(*free, *needed));
  if (!fit || *fit < kBlock) return std::nullopt;
  return *fit / kBlock * kBlock;
}

std::string share_that_fits(const Case& found) {
  const std::optional<double> share = number_in(found.log->share);
  if (found.is(Kind::kShareNotFree) && found.free && found.total && *found.total > 0) {
    const double fits = std::floor(ratio(*found.free, *found.total) * 100 - 0.5) / 100;
    // A server that asked for much more has weights that need it.
    return fits >= 0.05 && fits >= share.value_or(0) / 2 ? fmt::format("{:.2f}", fits) : "";
  }
  // Adds a little for the cache itself to what is missing.
  const auto missing = [&]() -> std::optional<int64_t> {
    const auto needed = found.bytes(Field::kCacheNeeded), free = found.bytes(Field::kCacheFree);
    if (needed && free) return *needed - *free;
    const auto shortage = found.bytes(Field::kCacheShort);
    return shortage ? std::optional(sum_of_bytes(*shortage, kGiB)) : std::nullopt;
  }();
  if (!missing || !share || !found.total) return "";
  const double needed = std::ceil((*share + ratio(*missing, *found.total)) * 100) / 100;
  return needed <= 0.97 ? fmt::format("{:.2f}", needed) : "";
}

std::optional<LogJudgment> server_cache(const Case& found) {
  if (found.is(Kind::kCacheTooSmall)) {
    const auto tokens = found.bytes(Field::kTokens), fit = tokens_that_fit(found);
    const auto needed = found.bytes(Field::kCacheNeeded), free = found.bytes(Field::kCacheFree);
    std::string reason = tokens ? fmt::format("one request may have {} tokens", *tokens)
                                : "one request may be longer than the cache";
    if (needed && free && *needed > *free)
      reason += fmt::format(", which need {} of cache; {} is left after the weights, {} too little",
                            format_bytes(*needed), format_bytes(*free), format_bytes(*needed - *free));
    if (fit) reason += fmt::format("; {} tokens fit", *fit);
    if (tokens && fit && !needed && *fit > 0)
      reason += fmt::format(", so the cache has {:.0f} % of what it needs", 100 * ratio(*fit, *tokens));
    return verdict(kKvCache, kHigh, reason);
  }
  if (!found.is(Kind::kNoCache)) return std::nullopt;
  std::string reason =
      "weights and one step take all of the server's share of the device, and nothing is left for "
      "the cache";
  const auto weights = found.bytes(Field::kWeights), activations = found.bytes(Field::kActivations);
  const auto limit = found.bytes(Field::kProcessLimit), shortage = found.bytes(Field::kCacheShort);
  if (limit && found.total)
    reason +=
        fmt::format(": {} of {} is {}", found.log->share, format_bytes(*found.total), format_bytes(*limit));
  if (weights) reason += fmt::format("; weights take {}", format_bytes(*weights));
  if (!weights && found.in(kSmallShare))
    reason += "; what another server takes of the device while this one starts may count as this one's";
  if (activations) reason += fmt::format(", a step {}", format_bytes(*activations));
  if (shortage) reason += fmt::format("; {} too little before the first block", format_bytes(*shortage));
  return verdict(kKvCache, kHigh, reason);
}

std::optional<LogJudgment> server_share(const Case& found) {
  if (!found.is(Kind::kShareNotFree)) return std::nullopt;
  if (!found.free || !found.total || *found.free > *found.total)
    return verdict(kOtherProcess, kMedium,
                   "less is free on the device than the share that the server may take");
  const std::string wanted =
      found.requested ? fmt::format("a share of {} is {}", found.log->share, format_bytes(*found.requested))
                      : "the server's share is larger";
  const std::string fits = share_that_fits(found);
  return verdict(
      kOtherProcess, kHigh,
      fmt::format("others hold {} of the device's {} before the server starts: {} are free, and {}{}",
                  format_bytes(*found.total - *found.free), format_bytes(*found.total),
                  format_bytes(*found.free), wanted,
                  fits.empty() ? "" : fmt::format("; a share of {} fits", fits)));
}

std::optional<LogJudgment> graph_capture(const Case& found) {
  const bool is_server = found.uses(Framework::kVllm) || found.uses(Framework::kSglang);
  if (!is_server || !found.is(Kind::kAllocation) || !found.in("graphs") || !found.requested || !found.free)
    return std::nullopt;
  if (*found.free >= *found.requested || others_hold_much(found)) return std::nullopt;
  std::string reason = fmt::format(
      "{} were requested while CUDA graphs were recorded, which take memory beside the server's "
      "share; {} were free",
      format_bytes(*found.requested), format_bytes(*found.free));
  if (found.idle.value_or(0) >= *found.requested)
    reason += fmt::format(", and graphs have pools of their own, so that the {} idle do not help",
                          format_bytes(*found.idle));
  return verdict(kExhausted, kHigh, reason);
}

std::optional<LogJudgment> model_in_parts(const Case& found) {
  if (!found.is(Kind::kDispatched)) return std::nullopt;
  return verdict(
      kModelTooLarge, kHigh,
      "device_map placed a part of the model on the CPU or the disk, because the GPU is too small for "
      "all of it" +
          (found.weight_bytes ? fmt::format(": {}", weights_text(found)) : ""));
}

std::optional<LogJudgment> model_too_large(const Case& found) {
  if (found.framework == Framework::kLlamaCpp || found.framework == Framework::kOllama) return std::nullopt;
  const bool refused =
      found.is(Kind::kAllocation) || (found.is(Kind::kBareRefusal) && found.lender != nullptr);
  if (!refused || !found.in("loading") || found.in("step") || found.in("graphs") || found.in("sampler"))
    return std::nullopt;
  if (found.requested && found.total && *found.requested > *found.total) {
    if (!found.in("warmup")) return std::nullopt;
    return verdict(kModelTooLarge, kHigh,
                   fmt::format("the loader reserved room for the weights of this device at once: {}, and the "
                               "device has {}",
                               format_bytes(*found.requested), format_bytes(*found.total)));
  }
  if (found.weight_bytes && found.total && *found.weight_bytes > *found.total / 100 * 92) {
    return verdict(kModelTooLarge, kHigh,
                   fmt::format("{}, and the device has {}: the weights alone do not fit, whatever the batch",
                               weights_text(found), format_bytes(*found.total)));
  }
  if (others_hold_much(found)) return std::nullopt;
  // The log names what is in use: tensors, else the process, else all that is not free.
  const std::optional<int64_t> in_use = found.allocated ? found.allocated
                                        : found.process ? found.process
                                        : found.total && found.free
                                            ? std::optional(*found.total - *found.free)
                                            : std::nullopt;
  if (found.total && in_use) {
    if (*in_use < *found.total / 10 * 6) return std::nullopt;
    return verdict(
        kModelTooLarge, kMedium,
        fmt::format("it failed while weights moved to the device: {} of its {} were in use, and more "
                    "weights were to come{}; the batch does not matter yet",
                    format_bytes(*in_use), format_bytes(*found.total),
                    found.weight_bytes ? fmt::format(" ({})", weights_text(found)) : ""));
  }
  if (found.total || found.is(Kind::kBareRefusal)) return std::nullopt;
  return verdict(kModelTooLarge, kMedium,
                 "it failed while weights moved to the device; the batch does not matter yet" +
                     (found.weight_bytes ? fmt::format(" ({})", weights_text(found)) : ""));
}

std::optional<LogJudgment> layers_or_cache(const Case& found) {
  if (found.framework != Framework::kLlamaCpp && found.framework != Framework::kOllama) return std::nullopt;
  if (!found.is(Kind::kAllocation) && !found.is(Kind::kBareRefusal)) return std::nullopt;
  if (found.in("first_use") && !found.requested)
    return verdict(kOtherProcess, kMedium,
                   "the driver itself refused before anything was loaded: somebody else holds the device, so "
                   "that not even a context fits");
  const std::string asked = found.requested ? format_bytes(*found.requested) + " " : "";
  const std::string had = found.free_at_start
                              ? fmt::format("; {} were free at the start", format_bytes(*found.free_at_start))
                              : "";
  if (found.in("compute"))
    return verdict(
        kWorkspace, kHigh,
        fmt::format("the compute buffers {}did not fit beside the weights and the cache; they grow with "
                    "the micro-batch and the context{}",
                    asked.empty() ? "" : "of " + asked, had));
  if (found.in("cache") && !found.in("layers"))
    return verdict(kKvCache, kHigh,
                   fmt::format("the cache of the context {}did not fit beside the weights{}",
                               asked.empty() ? "" : "of " + asked, had));
  const bool weights = found.in("layers") || found.in("tensors");
  const auto& layers = found.log->background[Field::kLayers];
  if (!weights && layers && layers->bytes == 0)
    return verdict(kHostMemory, kMedium,
                   "no layer was to go to the GPU: all that the model needs is in the machine's memory");
  if (weights || (found.framework == Framework::kLlamaCpp && (found.requested || layers))) {
    const bool is_piece = found.requested && *found.requested < kGiB;  // one of many
    std::string size = found.requested ? format_bytes(*found.requested) : "";
    return verdict(kModelTooLarge, weights ? kHigh : kMedium,
                   fmt::format("the weights of the layers given to the GPU {}do not fit{}{}{}",
                               size.empty() || is_piece ? "" : fmt::format("({}) ", size),
                               layers ? fmt::format(": {} layers were to go there", layers->bytes) : "",
                               is_piece ? fmt::format("; the piece that failed is {}", size) : "", had));
  }
  return verdict(kExhausted, kMedium,
                 "layers, the context's cache and the compute buffers together do not fit on the GPU" + had);
}

std::optional<LogJudgment> apple_memory(const Case& found) {
  if (!found.is(Kind::kAllocation) || !found.is_apple()) return std::nullopt;
  const auto other = found.bytes(Field::kPrivate);
  if (!found.allocated || !found.capacity || !found.requested || !other)
    return verdict(kExhausted, kMedium, "the memory that macOS lets the GPU use is full");
  const int64_t used = sum_of_bytes(*found.allocated, *other);
  std::string reason = fmt::format(
      "this process's tensors hold {} and its other allocations {}, together {} of the {} allowed, and {} "
      "more "
      "were requested",
      format_bytes(*found.allocated), format_bytes(*other), format_bytes(used), format_bytes(*found.capacity),
      format_bytes(*found.requested));
  if (sum_of_bytes(used, *found.requested) < *found.capacity)
    reason += "; the pool rounds large requests up, and pieces of it are idle";
  else if (*other > *found.allocated)
    reason += "; most of it is outside the tensors: idle pieces of the pool, graphs and buffers of Metal";
  return verdict(kExhausted, kHigh, reason);
}

std::optional<LogJudgment> compiled_buffer(const Case& found) {
  const bool names_none = found.failure->shape.empty() && found.failure->op.empty();
  if (found.is(Kind::kAllocation) && names_none && found.requested && found.total &&
      has_part(found.failure->text, "memory in memory space"))
    return verdict(kExhausted, kHigh,
                   fmt::format("the compiled program needs {}, the device has {}",
                               format_bytes(*found.requested), format_bytes(*found.total)));
  const int64_t whole = found.framework == Framework::kJax ? found.bytes(Field::kProcess).value_or(0) : 0;
  if (!found.is(Kind::kAllocation) || (names_none && !(whole > 0 && found.requested))) return std::nullopt;
  if (names_none)
    return verdict(
        kExhausted, kHigh,
        fmt::format("the compiled program needs {} in all, with arguments and results, and {} of it in "
                    "one piece were refused",
                    format_bytes(whole), format_bytes(*found.requested)));
  const auto largest = found.bytes(Field::kBuffer);
  if (!largest) return std::nullopt;
  std::string reason;
  if (whole > 0 && found.in(kTinyRequest))
    reason = fmt::format(
        "the device was full before: this compiled program needs {} in all, and what another process, "
        "or this one, keeps there decides; ",
        format_bytes(whole));
  reason += fmt::format("the largest buffer of the compiled program is {}", format_bytes(*largest));
  if (!found.failure->shape.empty()) reason += fmt::format(" ({}])", found.failure->shape);
  if (found.attention_scores) reason += ", attention scores";
  if (!found.failure->source.empty()) {
    reason += fmt::format(", made at {}", found.failure->source);
    if (const auto line = found.bytes(Field::kCount)) reason += fmt::format(":{}", *line);
  }
  if (!found.failure->op.empty()) {
    constexpr size_t kLongestOp = 120;
    const std::string& op = found.failure->op;
    reason += fmt::format(" by {}", op.size() > kLongestOp ? "..." + op.substr(op.size() - kLongestOp) : op);
  }
  if (found.requested && found.total)
    reason += fmt::format("; the program needs {}, the device has {}", format_bytes(*found.requested),
                          format_bytes(*found.total));
  else if (found.requested)
    reason += fmt::format("; {} were requested at once for the program's temporaries",
                          format_bytes(*found.requested));
  return verdict(kExhausted, kHigh, reason);
}

std::optional<LogJudgment> collective(const Case& found) {
  if (!found.is(Kind::kCollective)) return std::nullopt;
  // One channel and peer take 10 MiB for data, 2 MiB for its connection (NVIDIA/nccl#1685).
  constexpr int64_t kChannelBytes = 12 * kMiB;
  constexpr int64_t kMostChannels = 1024;  // NCCL has 64; a log may say anything
  if (found.in(kTinyRequest))
    return verdict(
        kCollectiveBuffers, kHigh,
        fmt::format("the device was full before NCCL asked for {}: weights, the optimizer's state and "
                    "activations leave its buffers, which are outside the framework's pool, no room",
                    format_bytes(*found.requested)));
  std::string reason = "NCCL's buffers did not fit on the device; they are outside the framework's pool";
  const auto& channels = found.log->background[Field::kChannels];
  if (channels && channels->bytes <= kMostChannels)
    reason += fmt::format(": {} channels take about {} for each neighbor in a ring", channels->bytes,
                          format_bytes(channels->bytes * kChannelBytes));
  else
    reason += ": 0.3 to 2 GiB for each group of processes on fast links, 12 MiB a channel and neighbor";
  if (found.requested)
    reason += fmt::format("; the piece that failed was {}", format_bytes(*found.requested));
  return verdict(kCollectiveBuffers, kHigh, reason);
}

std::optional<LogJudgment> growing(const Case& found) {
  const Samples& samples = found.log->samples;
  const Kind kind = found.failure->kind;
  const bool may_leak = kind == Kind::kAllocation || kind == Kind::kHost || kind == Kind::kHostLikely ||
                        kind == Kind::kLimit || kind == Kind::kBareRefusal || kind == Kind::kWorkspace;
  if (!may_leak || samples.count < 4 || samples.first <= 0 || samples.falls * 8 > samples.count)
    return std::nullopt;
  const int64_t growth = samples.last - samples.first;
  const bool steady =
      (samples.last - samples.middle > growth / 4 && samples.middle - samples.first > growth / 8) ||
      (samples.falls == 0 && growth > 2 * samples.first);
  if (growth < samples.first / 4 || !steady) return std::nullopt;
  const auto shown = [&](int64_t value) {
    return samples.has_unit ? format_bytes(value) : fmt::format("{}", value);
  };
  std::string reason = fmt::format(
      "memory in use grew from {} (line {}) to {} (line {}) and did not come back: something is kept "
      "from step to step",
      shown(samples.first), samples.first_line, shown(samples.last), samples.last_line);
  if (const auto& limit = found.limit)
    reason += fmt::format("; the limit of {} only decides when it fails", format_bytes(*limit));
  return verdict(kLeak, kMedium, reason);
}

std::optional<LogJudgment> bare_refusal(const Case& found) {
  if (!found.is(Kind::kBareRefusal) || found.lender != nullptr) return std::nullopt;
  if (found.in("pinning")) return first_during(found, true);
  const bool at_start = found.in("first_use") || found.in("loading") || found.in("deserializing");
  const bool is_at_work = found.in("step") || found.in("evaluation") || found.in("generation");
  if (is_at_work && !at_start) return std::nullopt;
  const Possibility others = {kOtherProcess,
                              "somebody else holds the device, so that not even a context fits",
                              "headroom who, or nvidia-smi, shows another process on the device"};
  LogJudgment result =
      at_start
          ? verdict(kOtherProcess, kMedium,
                    "the driver itself refused at the first use of the device, and not the framework's pool, "
                    "which would have printed sizes: " +
                        others.reason)
          : verdict(
                kAmbiguous, kLow,
                "the driver itself refused, and not the framework's pool, which would have printed sizes; "
                "the log does not say at which call");
  if (!at_start) result.possible.push_back(others);
  if (found.in("deserializing"))
    result.possible.push_back({kOtherProcess,
                               "the file was saved on another device than this process uses, and loads there",
                               "it works with torch.load(..., map_location=\"cpu\")"});
  result.possible.push_back({kExhausted,
                             "this process filled the device itself, and a kernel or a library found no room",
                             "nvidia-smi shows this process alone on the device"});
  if (!at_start)
    result.possible.push_back({kHostMemory,
                               "the machine's memory was too short to lock a part of it for copies",
                               "free -h shows little, and it works with pin_memory=False"});
  return result;
}

}  // namespace headroom::explain
