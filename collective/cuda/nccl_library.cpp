#include "collective/cuda/nccl_library.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "base/errors.h"
#include "device/cuda/shared_library.h"

namespace headroom::cuda {
namespace {

// The names of ncclResult_t, in its order.
constexpr std::array kStatusNames = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                     "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                     "ncclRemoteError",   "ncclInProgress"};

std::string status_name(ncclResult_t status) {
  const auto index = static_cast<size_t>(status);
  return index < kStatusNames.size() ? kStatusNames[index] : fmt::format("ncclResult {}", index);
}

std::optional<Nccl> load_from(const char* file) {
  const SharedLibrary library(file);
  Nccl nccl;
  const bool found =
      library.find("ncclGetUniqueId", nccl.get_unique_id) &&
      library.find("ncclCommInitRank", nccl.init_rank) && library.find("ncclCommAbort", nccl.abort) &&
      library.find("ncclCommGetAsyncError", nccl.get_async_error) &&
      library.find("ncclAllReduce", nccl.all_reduce) && library.find("ncclBroadcast", nccl.broadcast) &&
      library.find("ncclGroupStart", nccl.group_start) && library.find("ncclGroupEnd", nccl.group_end) &&
      library.find("ncclGetErrorString", nccl.error_string) &&
      library.find("ncclGetLastError", nccl.last_error);
  if (!found) return {};
  return nccl;
}

std::optional<Nccl> load() {
  // NVLink multicast (NVLS) needs a fabric manager that is set up for it: without one, making a communicator
  // fails or hangs, and a killed rank can leave a GPU's multicast groups allocated. It is used only if the
  // user enables it. NCCL reads its variables when the first communicator is made.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  // All connections are made with the communicator: later, to queue a call waits for no other rank, which may
  // have died.
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  // NCCL orders graphs on several streams, and calls outside graphs after graphs; that costs 8 us a step on
  // two H200s. Not needed: a rank's work is all on one stream, and a session calls NCCL outside a graph only
  // before its first graph and while nothing is queued.
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
  // Our contexts reserve no stacks for kernels (CudaGpu::give_stacks_back). If the driver reserved them at
  // the launch of an NCCL kernel, it might wait for a kernel that waits for this one.
  setenv("NCCL_SET_STACK_SIZE", "1", 0);
  std::optional<Nccl> nccl = load_from("libnccl.so.2");
  // Loads the library from the place that the build found, for toolkits outside the loader's path.
  return nccl ? nccl : load_from(HEADROOM_NCCL_LIBRARY);
}

}  // namespace

const Nccl* Nccl::instance() {
  static const std::optional<Nccl> nccl = load();
  return nccl ? &*nccl : nullptr;
}

std::string Nccl::describe(ncclResult_t status) const {
  const char* detail = last_error(nullptr);
  return detail == nullptr || *detail == '\0' ? error_string(status)
                                              : fmt::format("{}: {}", error_string(status), detail);
}

void Nccl::check(ncclResult_t status, const char* call) const {
  if (status == ncclSuccess) return;
  throw LibraryError(fmt::format("{}: {}: {}", call, status_name(status), describe(status)), call,
                     status_name(status), {});
}

}  // namespace headroom::cuda
