#include "tools/explain/judge_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "tools/explain/log_rules.h"

namespace headroom::explain {
namespace {

using enum Cause;
using enum Confidence;

using Result = std::optional<LogJudgment>;

Result no_failure(const Case& found) {
  if (found.failure != nullptr) return std::nullopt;
  return verdict(kNone, kHigh,
                 found.log->line_count == 0 ? "the log is empty" : "no message of a failure is in this log");
}

// A fault of the GPU that came before memory ran out, or instead.
Result hardware(const Case& found) {
  const bool memory_first = found.is(Kind::kAllocation) && found.figures[Field::kRequested].has_value();
  for (const Failure& failure : found.log->failures) {
    if (memory_first && failure.line > found.failure->line) break;
    if (failure.kind == Kind::kHardware)
      return verdict(kHardware, kHigh,
                     "the GPU, its memory or its link to the machine failed; no setting of the program helps",
                     &failure);
    if (failure.kind != Kind::kXid || !failure.figures[Field::kXid]) continue;
    const int64_t xid = failure.figures[Field::kXid]->bytes;
    const Fault* const fault = found.rules().fault(xid);
    if (fault != nullptr && fault->by_program) continue;
    return verdict(kHardware, fault != nullptr ? kHigh : kMedium,
                   fmt::format("the driver reported Xid {}: {}", xid,
                               fault != nullptr ? fault->meaning : "see NVIDIA's catalog of Xid errors"),
                   &failure);
  }
  if (!found.is(Kind::kXid) || !found.figures[Field::kXid]) return std::nullopt;
  const int64_t xid = found.figures[Field::kXid]->bytes;
  const Fault* const fault = found.rules().fault(xid);
  return verdict(kNotMemory, kMedium,
                 fmt::format("the driver reported Xid {}: {}; the program's own kernels did it, not the GPU",
                             xid, fault != nullptr ? fault->meaning : "a fault"));
}

// A kernel prints its failed check when it fails; the calls that fail after it say anything. Memory that ran
// out before is another failure.
Result index(const Case& found) {
  const bool memory_first = found.is(Kind::kAllocation) && found.figures[Field::kRequested].has_value();
  const auto counts = [&](const Failure* failure) {
    return failure != nullptr && !(memory_first && found.failure->line < failure->line);
  };
  if (const Failure* failure = first_of(*found.log, Kind::kIndex); counts(failure)) {
    if (failure->text.starts_with("IndexError"))
      return verdict(kIndexOutOfRange, kHigh,
                     "an index (a token, a label) is outside its table; the traceback names the call. No "
                     "memory is missing",
                     failure);
    return verdict(kIndexOutOfRange, kHigh,
                   "a kernel found an index outside its table; after that every call on the device fails, "
                   "with any message. No memory is missing",
                   failure);
  }
  if (const Failure* failure = first_of(*found.log, Kind::kAssert); counts(failure)) {
    return verdict(kIndexOutOfRange, kMedium,
                   "a check inside a kernel failed; nearly always it is an index (a label, a token) outside "
                   "its table. After that every call on the device fails, with any message",
                   failure);
  }
  return std::nullopt;
}

// A library or driver that is wrong, or may not be used, explains what fails after it; a request of a known
// size shows that the device was in use all the same.
Result unless_sized(const Case& found, Kind kind, Cause cause, std::string reason) {
  const Failure* failure = first_of(*found.log, kind);
  if (failure == nullptr || has_sized_allocation(*found.log)) return std::nullopt;
  return verdict(cause, kHigh, std::move(reason), failure);
}

Result version(const Case& found) {
  return unless_sized(found, Kind::kVersion, kVersionMismatch,
                      "the log says that a library, the driver or the GPU is not of the version that the "
                      "program was built for; what fails after that need not be about memory");
}

Result permission(const Case& found) {
  return unless_sized(found, Kind::kPermission, kPermission,
                      "this user may not use a file or device that the GPU's libraries need");
}

Result went_on(const Case& found) {
  if (!found.is(Kind::kNotAFailure) || found.failure->progress == 0) return std::nullopt;
  if (found.failure->fell_back)
    return verdict(kNotMemory, kHigh,
                   "the program found another way after this message and went on; nothing failed after all");
  return verdict(
      kNotMemory, kHigh,
      "the training went on after this message, so nothing failed: a smaller batch would avoid it");
}

// Looks for a message that says itself what it is.
Result by_kind(const Case& found) {
  constexpr int64_t kNobodysBytes = int64_t{16} << 40;
  if (found.is(Kind::kHost) && found.requested.value_or(0) > kNobodysBytes)
    return verdict(
        kSizeOverflow, kHigh,
        fmt::format("{} of the machine's memory were requested at once, which no machine has: a size "
                    "was computed wrongly (an overflow, a mistaken shape)",
                    format_bytes(*found.requested)));
  for (const Verdict& row : found.rules().verdicts()) {
    if (!found.is(row.kind) || !has_part(found.failure->text, row.parts)) continue;
    if (!row.setting.empty() && !found.has(row.setting)) continue;
    if (row.parts.empty()) {  // what the program did tells more than the kind alone
      if (Result result = during_on_host(found)) return result;
    }
    std::optional<std::string> filled_in = filled(found, row.reason);
    if (!filled_in) continue;
    std::string reason = *std::move(filled_in);
    const bool has_figures = row.reason.find('{') != std::string_view::npos;
    if (has_figures) return verdict(row.cause, row.confidence, std::move(reason));
    if ((row.cause == kLimit || row.cause == kTooLargeForDevice) && found.requested)
      reason += fmt::format("; {} were requested", format_bytes(*found.requested));
    if (row.kind == Kind::kHost && found.requested) {
      const std::string free = found.free ? fmt::format(" and {} were free", format_bytes(*found.free)) : "";
      reason.insert(std::min(reason.find("; the GPU"), reason.size()),
                    fmt::format(": {} were requested{}", format_bytes(*found.requested), free));
    }
    return verdict(row.cause, row.confidence, std::move(reason));
  }
  return std::nullopt;
}

Result pool_shrunk(const Case& found) {
  if (!found.is(Kind::kPoolShrunk)) return std::nullopt;
  return verdict(kOtherProcess, kLow,
                 "the device gave TensorFlow's pool less than it had reported as free, so another process "
                 "took memory at that time; TensorFlow goes on with less");
}

// A process that only waited for another one says so; a line above may still say why.
Result line_above(const Case& found) {
  constexpr int64_t kTelling = 4;  // two words of memory or limits
  const std::vector<CloseLine>& lines = found.log->close_lines;
  if (!found.is(Kind::kAftermath) || lines.empty() || lines.front().score < kTelling) return std::nullopt;
  return verdict(kUnknown, kLow, "the log names no known cause; these lines look closest to one");
}

// Headroom judged with exact numbers when it failed, and printed the cause.
Result stated(const Case& found) {
  if (found.stated == nullptr) return std::nullopt;
  return verdict(found.stated->cause, kHigh, found.stated->reason);
}

// Adds what else would make the request fit, of two causes that the numbers allow.
void add_other_ways(const Case& found, LogJudgment& judgment) {
  if (found.is_exact || !found.requested || !found.free) return;
  // Estimates are good to 1 GiB.
  const int64_t others = found.others.value_or(0);
  const bool others_are_known = others > (found.others_are_estimated ? kGiB : 0);
  const int64_t idle = found.idle.value_or(0);
  const bool idle_is_enough = idle >= *found.requested;
  // A few megabytes are idle in every full pool, and graphs have pools of their own.
  const bool is_in_pieces = idle_is_enough && *found.requested >= kGiB &&
                            found.framework == Framework::kTorch && !found.in("graphs") &&
                            !found.in(kGraphPools);
  const bool others_are_enough = others_are_known && sum_of_bytes(others, *found.free) >= *found.requested;
  if (others_are_enough && (judgment.cause == kFragmentation || judgment.cause == kExhausted)) {
    judgment.other_ways.push_back(
        {kOtherProcess,
         fmt::format("other processes{} hold {}{}: ending them frees that, and {} are needed",
                     found.named_others, found.others_are_estimated ? "about " : "", format_bytes(others),
                     format_bytes(*found.requested)),
         "headroom who names them"});
  }
  if ((idle_is_enough && judgment.cause == kOtherProcess) || (is_in_pieces && judgment.cause == kExhausted)) {
    judgment.other_ways.push_back(
        {kFragmentation,
         fmt::format(
             "the pool holds {} that it does not use: giving it back, or using it in one piece, frees that, "
             "and {} are needed",
             format_bytes(idle), format_bytes(*found.requested)),
         "it works with expandable segments"});
  }
}

Result activity(const Case& found) {
  Result result = during(found);
  if (result) add_other_ways(found, *result);
  return result;
}

// "tensors of this process hold 23.07 GiB of the device's 23.68 GiB, and 350.00 MiB more were requested with
// ..."
std::string who_holds(const Case& found) {
  const std::optional<int64_t> held = found.allocated ? found.allocated : found.process;
  if (!held || !found.total || !found.requested || *held > *found.total) return {};
  const std::string holder = found.allocated ? "tensors of this process hold" : "this process holds";
  const std::string free = found.free ? fmt::format(" with {} free", format_bytes(*found.free)) : "";
  const int64_t others = found.others.value_or(0);
  const std::string beside =
      others >= kGiB ? fmt::format("; other processes{} hold {}{}", found.named_others,
                                   found.others_are_estimated ? "about " : "", format_bytes(others))
                     : "";
  if (found.in(kLargeRequest))
    return fmt::format("{} were requested at once, in one piece, beside {} of the device's {} in use{}{}",
                       format_bytes(*found.requested), format_bytes(*held), format_bytes(*found.total), free,
                       beside);
  return fmt::format("{} {} of the device's {}, and {} more were requested{}{}", holder, format_bytes(*held),
                     format_bytes(*found.total), format_bytes(*found.requested), free, beside);
}

// Says what does not fit where the log has no more than a request, or not even that.
std::string what_does_not_fit(const Case& found) {
  const std::string& dims = found.failure->dims;
  const std::string more =
      found.requested ? fmt::format("no room for {} more{}: ", format_bytes(*found.requested),
                                    dims.empty() ? "" : fmt::format(" (a tensor of shape [{}])", dims))
                      : "the device's memory is full: ";
  if (found.in(kTraining))
    return more + "weights, gradients, the optimizer's state and activations of a step do not fit together";
  if (found.in(kInference)) return more + "weights and what a step of the model takes do not fit together";
  return more + "what is on the device already and what a step takes do not fit together";
}

Result numbers(const Case& found) {
  const std::optional<Judgment> judgment = judge(found);
  if (!judgment) return std::nullopt;
  LogJudgment result;
  static_cast<Judgment&>(result) = *judgment;
  if (result.cause == kHandleLeak && found.has("own_parts")) {
    result.cause = kExhausted;
    result.reason = fmt::format(
        "this process holds {}, of which the pool has {}: the rest is its engine's, simulator's or "
        "renderer's own (outside the pool)",
        format_bytes(*found.process), format_bytes(*found.reserved));
  }
  // The memory outside the pool may be this program's own: its simulator or renderer, or a second framework.
  if (result.cause == kOtherProcess && found.others_are_estimated && !found.process &&
      found.has("own_parts")) {
    result.cause = kExhausted;
    result.reason = fmt::format(
        "about {} of the device's {} are held outside the pool, by this program's own simulator, "
        "renderer or other framework, or by other processes",
        format_bytes(*found.others), format_bytes(*found.total));
  }
  // A piece of a quarter of the device or more, which a model that only runs asks for, is large before the
  // pool is in pieces.
  const bool is_large_itself = found.in(kLargeRequest) && !found.has("images") &&
                               (found.in(kInference) || found.has("attention_shown"));
  if (result.cause == kFragmentation && is_large_itself) {
    result.cause = kExhausted;
    result.reason = "what is free and what is idle would be enough only together";
  }
  // PyTorch's pool has idle pieces whenever it is full; a few of them are not the cause.
  const bool few_idle = found.framework == Framework::kTorch && !found.largest && found.idle &&
                        found.allocated && *found.idle < (*found.allocated + *found.idle) / 8;
  if (result.cause == kFragmentation && few_idle) {
    const bool device_has_room = found.limit && found.free && *found.free >= found.requested.value_or(0);
    result.cause = device_has_room ? kLimit : kExhausted;
    result.reason = fmt::format("the {} that are idle in the pool are in pieces", format_bytes(*found.idle));
    if (device_has_room)
      result.reason =
          fmt::format("a limit of {} (a memory fraction) refused, while the device had {} free; {}",
                      format_bytes(*found.limit), format_bytes(*found.free), result.reason);
  }
  const bool says_nothing = result.cause == kExhausted && !found.requested && !found.free && !found.allocated;
  if (result.cause == kExhausted && !found.is_exact && !found.free && !found.allocated && !found.process)
    result.reason = what_does_not_fit(found) + "; " + result.reason;
  else if (says_nothing && found.figures.any())
    result.reason = "the device had no room";
  if (const std::string who = result.cause == kExhausted && !found.is_exact &&
                                      result.reason.find("outside the pool") == std::string::npos
                                  ? who_holds(found)
                                  : "";
      !who.empty())
    result.reason = who + "; " + result.reason;
  if (result.cause == kExhausted && found.in(kTinyRequest) && !found.free && !found.total)
    result.reason = fmt::format(
        "the device was full before this request of {}, which is too small to be the cause: what holds the "
        "memory, here "
        "or in another process, decides",
        format_bytes(*found.requested));
  const bool is_usual_cause = result.cause == kPreallocation && !found.free && !found.pool_at_start;
  if (is_usual_cause && first_of(*found.log, Kind::kBrokenVersion) != nullptr) {
    result.confidence = kLow;
    result.reason = fmt::format(
        "{} takes nearly all memory before its libraries start, the usual cause; the log also doubts the "
        "version of the driver or of a library, which may be another cause",
        found.pool_of);
  } else if (is_usual_cause && found.has_setting("cublas_hint")) {
    result.reason += "; its own hint says the same";
  }
  if (result.cause == kLimit && !found.is_exact) {
    if (const auto left = found.bytes(Field::kLimitLeft); left && found.requested)
      result.reason += fmt::format("; {} were requested and {} is left of the limit",
                                   format_bytes(*found.requested), format_bytes(*left));
    const bool is_default = found.takes_three_quarters && !found.has_setting("memory_fraction");
    if (!is_default)
      result.reason += "; the limit is self-made: the program, its settings or its environment set it";
    if (!found.log->fraction.empty()) result.reason += fmt::format(" ({})", found.log->fraction);
  }
  if (result.cause == kExhausted && found.in("optimizer") && found.weight_bytes)
    result.reason += fmt::format("; Adam keeps two more copies of the weights ({} in float32)",
                                 format_bytes(static_cast<int64_t>(*found.parameter_count * 8)));
  add_other_ways(found, result);
  return result;
}

Result doubtful_version(const Case& found) {
  if (!found.is(Kind::kBrokenVersion)) return std::nullopt;
  return verdict(
      kVersionMismatch, kMedium,
      "a library of the version that the program asks for was not found, or the driver is too old");
}

void add_possible(const Case& found, std::string_view list, LogJudgment& judgment) {
  for (const PossibleCause& row : found.rules().possible_causes(list))
    judgment.possible.push_back({row.cause, std::string(row.reason), std::string(row.confirm)});
}

// A status that several causes print, without numbers that tell them apart.
Result ambiguous(const Case& found) {
  if (!found.is(Kind::kAmbiguous) && !found.is(Kind::kLaunch) && !found.is(Kind::kHandle) &&
      !found.is(Kind::kWorkspace))
    return std::nullopt;
  LogJudgment result =
      verdict(kAmbiguous, kLow,
              found.figures.any() ? "this status alone does not say why, and neither do the figures"
                                  : "this status alone does not say why, and the log has no numbers");
  const std::string& status = found.failure->status;
  add_possible(found, found.rules().list_of(status.empty() ? found.failure->text : status), result);
  if (!result.possible.empty())
    result.reason = fmt::format("most likely {}; {}", result.possible.front().reason, result.reason);
  return result;
}

// Judges "out of memory" in words of no known program.
Result some_memory(const Case& found) {
  if (!found.is(Kind::kSomeMemory)) return std::nullopt;
  constexpr std::string_view kDeviceWords =
      "CUDA|cuda|Cuda|GPU|gpu|VRAM|video|hip|HIP|SYCL|accelerator|wgpu|WebGPU|DEVICE_MEMORY|DEVICE_OUT|vk|"
      "thrust|parallel_for|TPU|DRAM|HBM|Level "
      "Zero|level_zero|Vulkan|vulkan|OpenCL|opencl|ROCm|rocm|XPU|xpu|NPU|MUSA|CANN|"
      "hbm|on device|evice "
      "memory|IOAF|Metal|MTL";
  constexpr std::string_view kHostWords =
      "malloc|calloc|realloc|mmap|heap|RAM|ystem memory|ost memory|irtual memory|hysical memory|swap";
  constexpr std::string_view kLinesOfDevices =
      "CUDA|cuda|GPU |gpu|XlaRuntimeError|JaxRuntimeError|hipError|ROCm|TPU|VRAM|D3D|Vulkan|NVRM|OpenCL";
  constexpr std::string_view kLinesOfHosts =
      "/numpy/|/pandas/|/scipy/|/sklearn/|/pyarrow/|/polars/|at org.apache|at java.|goroutine |/go/src/|"
      "node:internal|Failed on request of size";
  const Failure& failure = *found.failure;
  const bool names_device = has_part(failure.text, kDeviceWords);
  const bool of_host =
      !names_device && (has_part(failure.text, kHostWords) || has_part(failure.around, kLinesOfHosts));
  const bool of_device = !of_host && (names_device || has_part(failure.around, kLinesOfDevices));
  std::string asked =
      found.requested ? fmt::format("; {} were requested", format_bytes(*found.requested)) : "";
  if (found.free && found.total)
    asked += fmt::format("; {} of {} were free", format_bytes(*found.free), format_bytes(*found.total));
  if (of_device)
    return verdict(kExhausted, kLow,
                   (found.figures.any() ? "memory of the device ran out"
                                        : "memory of the device ran out; the log does not say for what, nor "
                                          "who holds it") +
                       asked);
  if (of_host)
    return verdict(kHostMemory, kMedium,
                   "the machine, or the job's share of it, ran out of its own memory (RAM), by the words of "
                   "the message; the GPU is not involved" +
                       asked);
  LogJudgment result =
      verdict(kAmbiguous, kLow, "memory ran out, and the message does not say whose" + asked);
  add_possible(found, "some-memory", result);
  return result;
}

Result unknown(const Case& found) {
  if (found.is(Kind::kOtherError) && has_part(found.failure->text, "To enable traceback|ChildFailedError"))
    return verdict(
        kUnknown, kLow,
        "a launcher says that one of its processes failed; what that process printed is not in this "
        "log");
  if (found.is(Kind::kOtherError))
    return verdict(kUnknown, kLow, "the log names no known cause; these lines look closest to one");
  return verdict(kUnknown, kLow,
                 found.figures.any() ? "neither the message nor the figures say why"
                                     : "the message does not say why, and the log has no numbers");
}

struct Rule {
  std::string_view question;
  Result (*judge)(const Case& found);
};

constexpr Rule kRules[] = {
    {"Is there a failure at all?", no_failure},
    {"Did the GPU or its power fail?", hardware},
    {"Did a kernel's own check fail first?", index},
    {"Does the log name versions that do not match?", version},
    {"May this user use the device and its files?", permission},
    {"Did Headroom print the cause?", stated},
    {"Did memory grow from step to step?", growing},
    {"Does a line say that one number is larger than it may be?", number_pair},
    {"Does a line above a consequence tell more?", line_above},
    {"Did the training go on?", went_on},
    {"Does the message say what it is?", by_kind},
    {"Is too little left for a server's cache?", server_cache},
    {"Does a server want a larger share than was free?", server_share},
    {"Did a server fail while it recorded CUDA graphs?", graph_capture},
    {"Do the driver's figures contradict each other?", impossible},
    {"Do other processes of this run hold the device?", own_ranks},
    {"Does what the program was doing tell why?", activity},
    {"Was a part of the model placed on the CPU?", model_in_parts},
    {"Which of llama.cpp's buffers did not fit?", layers_or_cache},
    {"Did it fail while weights moved to the device?", model_too_large},
    {"Did Apple's memory run out?", apple_memory},
    {"Does the log name the largest buffer of a compiled program?", compiled_buffer},
    {"Did NCCL find no room?", collective},
    {"Did a pool get less than was free?", pool_shrunk},
    {"Did the driver refuse without a figure?", bare_refusal},
    {"Do the numbers decide?", numbers},
    {"Does the log doubt a version?", doubtful_version},
    {"Is it a status that several causes print?", ambiguous},
    {"Does it only say that memory ran out?", some_memory},
    {"Nothing decides", unknown},
};

}  // namespace

LogJudgment judge_log(const Case& found) {
  for (const Rule& rule : kRules) {
    Result result = rule.judge(found);
    if (!result) continue;
    const bool fell_back = found.failure != nullptr && found.failure->fell_back;
    if (fell_back && result->witness == nullptr && result->cause != kNotMemory)
      result->reason += "; the program then tried another way, and the log does not show that it worked";
    return *result;
  }
  std::abort();  // the last rule always holds
}

}  // namespace headroom::explain
