#include "tools/who/account.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "tools/who/process.h"

namespace headroom::who {

int64_t Account::others_bytes() const {
  int64_t bytes = 0;
  for (const Holder& holder : others) bytes += holder.bytes.value_or(0);
  return bytes;
}

int64_t Account::unaccounted_bytes() const {
  return total_bytes - free_bytes - ours.total_bytes() - others_bytes();
}

Account account_of(const PhysicalGpu& gpu, const Ours& ours) {
  Account account{.device = gpu.ordinal ? fmt::format("cuda:{}", *gpu.ordinal) : "hidden",
                  .name = gpu.name,
                  .uuid = gpu.uuid,
                  .total_bytes = gpu.total_bytes,
                  .free_bytes = gpu.free_bytes,
                  .ours = ours,
                  .processes_listed = gpu.processes.has_value()};
  for (const GpuProcess& process : gpu.processes.value_or(std::vector<GpuProcess>{})) {
    if (process.pid == getpid()) continue;
    const ProcessInfo info = find_process(process.pid);
    account.others.push_back({process.pid, info.user, info.command, process.bytes});
  }
  std::ranges::stable_sort(account.others, [](const Holder& a, const Holder& b) {
    return a.bytes.value_or(0) > b.bytes.value_or(0);
  });
  return account;
}

}  // namespace headroom::who
