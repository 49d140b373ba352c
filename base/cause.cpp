#include "base/cause.h"

#include <cstddef>

namespace headroom {
namespace {

using enum Cause;

constexpr CauseInfo kCauses[] = {
    {kPreallocation, "preallocation", "a pool took the memory that a library needs"},
    {kLibraryReserve, "library-reserve", "the pool leaves room for libraries"},
    {kOtherProcess, "other-process", "another process holds the memory"},
    {kLimit, "limit", "a limit refused the request"},
    {kTooLargeForDevice, "too-large-for-device", "one request is larger than the device"},
    {kFragmentation, "fragmentation", "enough memory is idle, but in pieces"},
    {kRounding, "rounding", "the request fits, but not after the strategy rounds it up"},
    {kWorkspace, "workspace", "an op's workspace did not fit"},
    {kHandleLeak, "handle-leak", "this process uses much memory outside its pool"},
    {kHostSpill, "host-spill", "more is allocated than the device has; the rest is in host memory"},
    {kSizeOverflow, "size-overflow", "a size was computed wrongly; memory is not the cause"},
    {kExhausted, "exhausted", "the memory is used up"},
    {kIndexOutOfRange, "index-out-of-range", "an index is out of range; memory is not the cause"},
    {kVersionMismatch, "version-mismatch", "versions do not match; memory is not the cause"},
    {kPermission, "permission", "access was denied; memory is not the cause"},
    {kNotMemory, "not-memory", "the GPU's memory is not the cause"},
    {kGraphsKept, "graphs-kept", "graphs for backward are kept but not used"},
    {kLossesKept, "losses-kept", "losses are added up together with their graphs"},
    {kGrowingBatch, "growing-batch", "the batch is larger than in the steps before"},
    {kGradientsKept, "gradients-kept", "gradients stay allocated during forward"},
    {kOptimizerState, "optimizer-state", "the optimizer's first step allocates its state"},
    {kHostMemory, "host-memory", "the machine ran out of its own memory; the GPU is not involved"},
    {kSharedMemory, "shared-memory", "/dev/shm is too small; the GPU is not involved"},
    {kHardware, "hardware", "the GPU, its memory or its power failed"},
    {kModelTooLarge, "model-too-large", "the weights alone do not fit"},
    {kKvCache, "kv-cache", "too little memory is left for the server's cache"},
    {kCollectiveBuffers, "collective-buffers", "NCCL's buffers did not fit on the device"},
    {kLeak, "leak", "memory grows from step to step"},
    {kAmbiguous, "ambiguous", "several causes produce this message"},
    {kNone, "none", "no failure found in this log"},
    {kUnknown, "unknown", "the log does not say why"},
};

}  // namespace

std::span<const CauseInfo> causes() {
  return kCauses;
}

std::string_view name_of(Cause cause) {
  return kCauses[static_cast<size_t>(cause)].name;
}

std::string_view meaning_of(Cause cause) {
  return kCauses[static_cast<size_t>(cause)].meaning;
}

}  // namespace headroom
