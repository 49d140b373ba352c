// The calls of NCCL, a library of some hundred MiB, which is loaded when it is needed. Knows no device.
#pragma once

#include <nccl.h>

#include <string>

namespace headroom::cuda {

struct Nccl {
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) init_rank = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) get_async_error = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;

  // Loads libnccl.so.2 at the first call; returns null if it is not installed, or lacks one of the calls.
  static const Nccl* instance();

  // "unhandled cuda error: ...": NCCL's texts for a status and for the last failed call.
  std::string describe(ncclResult_t status) const;
  // Throws LibraryError unless the status is success.
  void check(ncclResult_t status, const char* call) const;
};

}  // namespace headroom::cuda
