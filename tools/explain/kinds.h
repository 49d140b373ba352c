// The words of the rules that code decides by: kinds of messages, their figures, and a few frameworks. Each
// name here is the word in a rules file. Knows no rule.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/enum_names.h"

namespace headroom::explain {

// No device has so much: an amount from here on is a limit that is not set ("17179869184.00 GiB",
// pytorch#110194), a wrong unit or a number that wrapped around.
inline constexpr int64_t kImpossibleBytes = int64_t{1} << 60;

// A framework or a tool: an index into Rules::frameworks(). Only those that code treats in a way of their own
// have names here; rules define them all.
enum class Framework : uint8_t {
  kNone,
  kTensorflow,
  kTorch,
  kJax,
  kOnnx,
  kHeadroom,
  kVllm,
  kSglang,
  kTgi,
  kOllama,
  kLlamaCpp,
};
inline constexpr std::array<std::string_view, 11> kNamedFrameworks = {
    "", "tensorflow", "pytorch", "jax", "onnx", "headroom", "vllm", "sglang", "tgi", "ollama", "llama.cpp"};

// Tells what a message is about. Of several on one line the first in this order names the failure: it is
// nearer to the cause.
enum class Kind : uint8_t {
  kIndex,          // an index outside its table
  kHardware,       // the GPU, its memory or its power failed
  kXid,            // the driver's report of a fault, with its number
  kVersion,        // versions that do not match
  kPermission,     // access denied to a file or device
  kNotAFailure,    // no room, but the message itself says that it does no harm
  kBusy,           // another process has the device to itself
  kSharedMemory,   // /dev/shm
  kMisuse,         // a call that cannot work, whatever the memory; its words say why
  kOpenFiles,      // too many files or mappings, which looks like shared memory
  kLockedMemory,   // a network adapter may not lock memory
  kDisk,           // a disk is full
  kStopped,        // a scheduler or a person ended the run
  kHost,           // the machine's own memory, not the GPU's
  kDispatched,     // parts of a model were placed on the CPU
  kTooLargeModel,  // a program says itself that a model does not fit
  kCacheTooSmall,  // a server's cache holds fewer tokens than one request may have
  kNoCache,        // no memory was left for a server's cache
  kDisturbed,      // another process freed or took memory while a server measured
  kShareNotFree,   // a server wants a larger share than was free at its start
  kLimit,          // a limit that someone set
  kExceeds,  // one number is larger than another may be: a request and the largest one, sequences and blocks
  kContext,  // the driver could not make a context
  kCollective,     // NCCL found no room
  kHandle,         // a library did not start
  kWorkspace,      // no algorithm or scratch memory for an op
  kAllocation,     // no room for a tensor
  kBareRefusal,    // the driver had no room; who asked for how much is not said
  kAmbiguous,      // a status that several causes print
  kLaunch,         // a library's call failed: mostly because the library had not started
  kAssert,         // a kernel's check failed; an earlier message says which
  kCrash,          // a kernel crashed
  kDeviceMissing,  // no device was found
  kLateSetting,    // a setting made too late or twice
  kHostLikely,     // a process was killed: nearly always by the machine for its memory
  kPoolShrunk,     // TensorFlow's pool got less than it asked for and goes on
  kBrokenVersion,  // as kVersion, but a working setup also prints it
  kSomeMemory,     // memory ran out, the device's or the machine's
  kAftermath,      // another process of the run failed first
  kOtherError,     // an error whose cause is not known
  // No failures, but parts of one, or facts about the whole log:
  kDetail,  // detail of the failure right before it
  kPiece,   // the same, in words that nothing else prints: it also stands for a failure whose head is cut off
  kRecovered,  // the failures right before it did no harm: the program found another way
  kFallback,  // the program tries another way after them; an exception counts until more shows that it worked
  kProgress,  // a training went on
  kBackground,   // a fact: its figures, or that the framework is in use
  kCommand,      // the message is a command that someone typed
  kRootCause,    // a launcher is about to name the process that failed first
  kMention,      // the framework is in use
  kModelName,    // a model's name follows on the line
  kSample,       // memory in use at some step
  kTip,          // the program says itself what to change
  kHint,         // words of memory or limits: their line is shown where no cause is known
  kPython,       // the log is of a program of Python
  kVariable,     // the name of an environment variable may begin here
  kStatedCause,  // Headroom's own judgment: "limit: 16.00 MiB are needed, ..."; no rule has it
};

// A figure of a message. From kPid to kRootRank they are counts, from kVersion on texts, the others bytes.
enum class Field : uint8_t {
  kRequested,
  kTotal,
  kFree,
  kAllocated,
  kReserved,
  kIdle,          // reserved and not allocated
  kPrivate,       // allocated in pools of recorded graphs
  kProcess,       // all that this process holds
  kHolder,        // all that another process holds
  kOthers,        // all that all others hold
  kLimit,         // on the pool, set by someone
  kProcessLimit,  // on all that the process holds, set by someone
  kReserveLimit,  // on the pool, to leave libraries room
  kLimitLeft,     // rest of a limit that the log does not name
  kCapacity,      // maximum size of the framework's pool: a limit, or the memory that was free
  kLargest,       // largest free block inside the pool
  kStartFree,
  kPool,
  kWeights,      // weights of a model
  kActivations,  // and all else that a server measured before its cache
  kCacheNeeded,
  kCacheFree,
  kCacheShort,  // bytes missing before the cache can have any
  kCache,       // a server's cache
  kGraphs,      // recorded graphs
  kHostUsed,    // of the machine's own memory
  kHostTotal,
  kFreeBefore,  // free on the device before the weights were loaded, and after
  kFreeAfter,
  kBuffer,  // the largest buffer of a program
  kSample,
  kPid,
  kCount,   // number of parameters
  kTokens,  // that one request may have
  kTokensFit,
  kContext,  // of a server, in tokens, and each request's part of it
  kSequence,
  kLayers,
  kChannels,
  kXid,
  kPlainSample,  // as kSample, in an unknown unit
  kAsked,        // a number of things, and where
  kMost,         // so many are the most
  kBatch,
  kLength,    // of a sequence that is trained, in tokens
  kRootRank,  // that failed first, as a launcher says
  kVersion,
  kDims,
  kType,
  kStatus,
  kStrategy,
  kScript,
  kCommand,
  kShare,     // share of the device for a server: "0.90"
  kFraction,  // that someone set: "0.25"
  kDtype,
  kOp,
  kSource,
  kShape,
};
constexpr bool is_text(Field field) {
  return field >= Field::kVersion;
}

constexpr bool is_count(Field field) {
  return field >= Field::kPid && field < Field::kVersion && field != Field::kPlainSample;
}

// A server that is started by a command takes flags, one inside a program takes arguments.
enum class When : uint8_t { kAlways, kCommand, kScript };

constexpr auto value_names(Kind) {
  return std::to_array<std::string_view>({"index",
                                          "hardware",
                                          "xid",
                                          "version",
                                          "permission",
                                          "not-a-failure",
                                          "busy",
                                          "shared-memory",
                                          "misuse",
                                          "open-files",
                                          "locked-memory",
                                          "disk",
                                          "stopped",
                                          "host",
                                          "dispatched",
                                          "too-large-model",
                                          "cache-too-small",
                                          "no-cache",
                                          "disturbed",
                                          "share-not-free",
                                          "limit",
                                          "exceeds",
                                          "context",
                                          "collective",
                                          "handle",
                                          "workspace",
                                          "allocation",
                                          "bare-refusal",
                                          "ambiguous",
                                          "launch",
                                          "assert",
                                          "crash",
                                          "device-missing",
                                          "late-setting",
                                          "host-likely",
                                          "pool-shrunk",
                                          "broken-version",
                                          "some-memory",
                                          "aftermath",
                                          "other-error",
                                          "detail",
                                          "piece",
                                          "recovered",
                                          "fallback",
                                          "progress",
                                          "background",
                                          "command",
                                          "root-cause",
                                          "mention",
                                          "model-name",
                                          "sample",
                                          "tip",
                                          "hint",
                                          "python",
                                          "variable"});
}

constexpr auto value_names(Field) {
  return std::to_array<std::string_view>(
      {"requested",     "total",       "free",         "allocated",   "reserved",     "idle",
       "private",       "process",     "holder",       "others",      "limit",        "process_limit",
       "reserve_limit", "limit_left",  "capacity",     "largest",     "start_free",   "pool",
       "weights",       "activations", "cache_needed", "cache_free",  "cache_short",  "cache",
       "graphs",        "host_used",   "host_total",   "free_before", "free_after",   "buffer",
       "sample",        "pid",         "count",        "tokens",      "tokens_fit",   "context",
       "sequence",      "layers",      "channels",     "xid",         "plain_sample", "asked",
       "most",          "batch",       "length",       "root_rank",   "version",      "dims",
       "type",          "status",      "strategy",     "script",      "command",      "share",
       "fraction",      "dtype",       "op",           "source",      "shape"});
}

}  // namespace headroom::explain
