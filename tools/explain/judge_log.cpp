#include "tools/explain/judge_log.h"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "tools/explain/ambiguity.h"
#include "tools/explain/faults.h"
#include "tools/explain/log_rules.h"

namespace headroom::explain {
namespace {

using enum Cause;
using enum Confidence;

using Result = std::optional<LogJudgement>;

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
    const Fault* const fault = fault_of(xid);
    if (fault != nullptr && fault->by_program) continue;
    return verdict(kHardware, fault != nullptr ? kHigh : kMedium,
                   fmt::format("the driver reported Xid {}: {}", xid,
                               fault != nullptr ? fault->meaning : "see NVIDIA's catalogue of Xid errors"),
                   &failure);
  }
  if (!found.is(Kind::kXid) || !found.figures[Field::kXid]) return std::nullopt;
  const int64_t xid = found.figures[Field::kXid]->bytes;
  return verdict(kNotMemory, kMedium,
                 fmt::format("the driver reported Xid {}: {}; the program's own kernels did it, not the GPU",
                             xid, fault_of(xid) != nullptr ? fault_of(xid)->meaning : "a fault"));
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

// Messages that say of themselves what they are. Of several rows for a kind the first counts that has one of
// its parts ("a|b") in the message.
struct KindVerdict {
  Kind kind;
  Cause cause;
  Confidence confidence;
  std::string_view reason;
  std::string_view parts = {};
};

constexpr KindVerdict kVerdicts[] = {
    {Kind::kMisuse, kNotMemory, kHigh,
     "the program names a GPU that this process does not see: fewer are visible than it expects",
     "invalid device ordinal|INVALID_DEVICE"},
    {Kind::kMisuse, kVersionMismatch, kHigh, "this PyTorch was built without CUDA, for the CPU alone",
     "not compiled with CUDA"},
    {Kind::kMisuse, kNotMemory, kHigh,
     "the program used CUDA before it started worker processes by fork, and CUDA does not survive a fork",
     "forked subprocess"},
    {Kind::kMisuse, kNotMemory, kMedium,
     "CUDA could not be initialised in this process: mostly it was started by fork from one that had used "
     "CUDA, or the driver does not answer",
     "initialization error"},
    {Kind::kMisuse, kNotMemory, kHigh,
     "a kernel needs more shared memory, registers or threads of a multiprocessor than this GPU has; the "
     "memory that tensors live in is not involved",
     "out of resource|too many resources requested|OutOfResources|OUT_OF_RESOURCES|shared memory|shared "
     "data"},
    {Kind::kMisuse, kNotMemory, kMedium,
     "a kernel was started with an impossible number of blocks or threads: mostly for an empty tensor, or "
     "one of more than 2^31 elements",
     "invalid configuration|InvalidConfiguration"},
    {Kind::kMisuse, kNotMemory, kHigh,
     "a kernel ran longer than the limit of a GPU that also drives a display, and the driver ended it",
     "launch timed out|LaunchTimeout|LAUNCH_TIMEOUT"},
    {Kind::kMisuse, kNotMemory, kHigh, "a call was made that a CUDA graph cannot record",
     "captur|CaptureUnsupported"},
    {Kind::kMisuse, kNotMemory, kHigh,
     "the GPUs are joined by NVSwitch and wait for Fabric Manager (nvidia-fabricmanager), which is not "
     "running, or not of the driver's version; no memory is missing",
     "system not yet initialized|SystemNotReady|SYSTEM_NOT_READY"},
    {Kind::kMisuse, kNotMemory, kHigh,
     "the container lost its access to the GPU: systemd reloaded its rules while the container ran",
     "NVML: Unknown Error"},
    {Kind::kMisuse, kNotMemory, kHigh,
     "the container has no access to a GPU: NVIDIA's container toolkit is missing, or finds no driver",
     "device driver|nvidia-container-cli"},
    {Kind::kMisuse, kLimit, kHigh,
     "one tensor is larger than the 4 GiB that the driver of this GPU gives in one piece, whatever is free",
     "larger than 4GB"},
    {Kind::kMisuse, kTooLargeForDevice, kHigh,
     "one tensor is larger than the largest buffer that macOS gives a program (Metal's limit)",
     "Invalid buffer size"},
    {Kind::kMisuse, kTooLargeForDevice, kHigh,
     "one buffer is larger than the browser's WebGPU gives a program", "createBuffer failed"},
    {Kind::kTooLargeModel, kModelTooLarge, kHigh,
     "the program says itself that the weights do not fit on the device beside what a step needs"},
    {Kind::kDisturbed, kOtherProcess, kHigh,
     "another process took or gave back memory of the device while the server measured what is free, so "
     "that its figures contradict each other"},
    {Kind::kBusy, kOtherProcess, kMedium,
     "the driver lets no further process use the device: one that runs in exclusive mode has it, or the "
     "device is out of order"},
    {Kind::kSharedMemory, kSharedMemory, kHigh,
     "a process found no room in the machine's shared memory (/dev/shm), where loader workers and libraries "
     "hand each other data; a container has 64 MiB of it unless told otherwise. The GPU is not involved"},
    {Kind::kOpenFiles, kNotMemory, kHigh,
     "the process reached its limit of open files, which tensors shared between loader workers use up; no "
     "memory is missing"},
    {Kind::kLockedMemory, kNotMemory, kHigh,
     "a network adapter may not lock memory: the limit of locked memory (ulimit -l) is too low; no memory of "
     "the GPU is missing"},
    {Kind::kDisk, kNotMemory, kHigh, "a disk or a quota is full; the GPU's memory is not the cause"},
    {Kind::kStopped, kNotMemory, kHigh,
     "somebody, or a scheduler's limit of time, ended the run; memory is not the cause"},
    {Kind::kHost, kHostMemory, kHigh,
     "the heap of a Java virtual machine is full: it has a limit of its own (-Xmx); the GPU is not involved",
     "java.lang.OutOfMemoryError"},
    {Kind::kHost, kHostMemory, kHigh,
     "the heap of Node.js is full: it has a limit of its own; the GPU is not involved", "JavaScript heap"},
    {Kind::kHost, kHostMemory, kHigh,
     "a compiler found no room in the machine's memory (RAM), or was ended for what it took; the GPU is not "
     "involved",
     "terminated program|internal compiler error|died due to signal|memory exhausted|ld terminated|LLVM "
     "ERROR"},
    {Kind::kHost, kHostMemory, kHigh,
     "the machine, or the job's share of it, ran out of its own memory (RAM); the GPU is not involved"},
    {Kind::kHostLikely, kHostMemory, kMedium,
     "a process was killed from outside (SIGKILL): nearly always the kernel or a job's limit does that when "
     "the machine's own memory (RAM) runs out; the GPU is not involved"},
    {Kind::kDeviceMissing, kNotMemory, kMedium,
     "the program found no GPU that it can use: the driver is not loaded, or the device is hidden or faulty; "
     "no memory is missing"},
    {Kind::kLateSetting, kNotMemory, kHigh,
     "a memory setting was made after the GPU had been initialised, or differs between GPUs; no memory is "
     "missing"},
    {Kind::kCrash, kNotMemory, kMedium,
     "the GPU did not answer in time, and the driver reset it or took it away: a kernel that ran too long, a "
     "fault of the driver, or of the GPU",
     "DXGI_ERROR|GPU Hang|DEVICE_LOST|DeviceLost|ring "},
    {Kind::kCrash, kNotMemory, kMedium,
     "a process crashed in its own code or a library's (a segmentation fault), on the machine and not on the "
     "GPU; no memory is missing",
     "Segmentation fault|SIGSEGV"},
    {Kind::kCrash, kNotMemory, kMedium,
     "a kernel crashed (an address outside its memory, or a fault of the device); no memory is missing"},
    {Kind::kNotAFailure, kNotMemory, kHigh,
     "the message itself says that this is no failure: the program goes on another way, with less memory"},
    {Kind::kAftermath, kUnknown, kLow,
     "this process waited for another one of the run, which failed, hangs or was ended first: the cause is "
     "in that one's log"},
};

Result by_kind(const Case& found) {
  constexpr int64_t kNobodysBytes = int64_t{16} << 40;
  if (found.is(Kind::kHost) && found.requested.value_or(0) > kNobodysBytes)
    return verdict(
        kSizeOverflow, kHigh,
        fmt::format("{} of the machine's memory were requested at once, which no machine has: a size "
                    "was computed wrongly (an overflow, a mistaken shape)",
                    format_bytes(*found.requested)));
  for (const KindVerdict& row : kVerdicts) {
    if (!found.is(row.kind) || !has_part(found.failure->text, row.parts)) continue;
    std::string reason(row.reason);
    if ((row.cause == kLimit || row.cause == kTooLargeForDevice) && found.requested)
      reason += fmt::format("; {} were requested", format_bytes(*found.requested));
    if (row.kind == Kind::kHost && found.requested) {
      reason += fmt::format("; {} were requested", format_bytes(*found.requested));
      if (found.free) reason += fmt::format(" and {} were free", format_bytes(*found.free));
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

// Headroom judged with exact numbers when it failed, and printed the cause.
Result stated(const Case& found) {
  if (found.stated == nullptr) return std::nullopt;
  return verdict(found.stated->cause, kHigh, found.stated->reason);
}

Result numbers(const Case& found) {
  const std::optional<Judgement> judgement = judge(found);
  if (!judgement) return std::nullopt;
  LogJudgement result;
  static_cast<Judgement&>(result) = *judgement;
  const bool is_usual_cause = result.cause == kPreallocation && !found.free && !found.pool_at_start;
  if (is_usual_cause && first_of(*found.log, Kind::kBrokenVersion) != nullptr) {
    result.confidence = kLow;
    result.reason = fmt::format(
        "{} takes nearly all memory before its libraries start, the usual cause; the log also doubts the "
        "version of the driver or of a library, which may be another cause",
        found.pool_of);
  } else if (is_usual_cause && found.log->cublas_hint) {
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

// A status that several causes print, without numbers that tell them apart.
Result ambiguous(const Case& found) {
  if (!found.is(Kind::kAmbiguous) && !found.is(Kind::kLaunch) && !found.is(Kind::kHandle) &&
      !found.is(Kind::kWorkspace))
    return std::nullopt;
  LogJudgement result =
      verdict(kAmbiguous, kLow,
              "this status alone does not say why, and the log has no numbers that tell its causes apart");
  const std::string& status = found.failure->status;
  for (const PossibleCause& row : ambiguous_status(status.empty() ? found.failure->text : status).causes)
    result.possible.push_back({row.cause, std::string(row.reason), std::string(row.confirm)});
  return result;
}

// "Out of memory" in nobody's words.
Result some_memory(const Case& found) {
  if (!found.is(Kind::kSomeMemory)) return std::nullopt;
  constexpr std::string_view kDeviceWords =
      "CUDA|cuda|Cuda|GPU|gpu|VRAM|video|hip|HIP|SYCL|accelerator|wgpu|WebGPU|DEVICE_MEMORY|DEVICE_OUT|vk|"
      "TPU|DRAM|HBM|"
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
  const std::string asked =
      found.requested ? fmt::format("; {} were requested", format_bytes(*found.requested)) : "";
  if (of_device)
    return verdict(kExhausted, kLow,
                   "memory of the device ran out; the log does not say for what, nor who holds it" + asked);
  if (of_host)
    return verdict(kHostMemory, kMedium,
                   "the machine, or the job's share of it, ran out of its own memory (RAM), by the words of "
                   "the message; the GPU is not involved" +
                       asked);
  LogJudgement result =
      verdict(kAmbiguous, kLow, "memory ran out, and the message does not say whose" + asked);
  result.possible.push_back({kExhausted, "the device's memory is full", std::string(kNearlyFull)});
  result.possible.push_back({kHostMemory, "the machine's own memory (RAM), or the job's share of it, is full",
                             "free -h shows little, or dmesg names a killed process"});
  return result;
}

Result unknown(const Case& found) {
  if (found.is(Kind::kOtherError) && has_part(found.failure->text, "To enable traceback|ChildFailedError"))
    return verdict(
        kUnknown, kLow,
        "a launcher says that one of its processes failed; what that process printed is not in this "
        "log");
  if (found.is(Kind::kOtherError))
    return verdict(kUnknown, kLow, "the log has an error, but not one of memory that is known here");
  return verdict(kUnknown, kLow, "the message does not say why, and the log has no numbers that decide");
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
    {"Does the message say what it is?", by_kind},
    {"Is too little left for a server's cache?", server_cache},
    {"Does a server want a larger share than was free?", server_share},
    {"Did a server fail while it recorded CUDA graphs?", graph_capture},
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

LogJudgement judge_log(const Case& found) {
  for (const Rule& rule : kRules) {
    if (Result result = rule.judge(found)) return *result;
  }
  std::abort();  // the last rule always holds
}

}  // namespace headroom::explain
