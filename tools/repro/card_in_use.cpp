#include "tools/repro/card_in_use.h"

#include <fmt/format.h>

#include "runtime/base/bytes.h"
#include "runtime/base/errors.h"
#include "runtime/device/gpus.h"

namespace headroom::repro {
namespace {

// The driver's own is 9 MiB at most on an H200, the context of any process some hundred.
constexpr int64_t kOfTheDriver = 64 * kMiB;

}  // namespace

void require_unused_card(int ordinal) {
  const size_t visible = visible_gpus().size();
  if (static_cast<size_t>(ordinal) >= visible) {
    throw InvalidArgument(fmt::format("no GPU {}: {} visible, counted from 0", ordinal, visible));
  }
  const GpuList list = list_gpus();
  const PhysicalGpu* gpu = list.find(ordinal);
  if (gpu == nullptr) {
    throw InvalidArgument(fmt::format(
        "nothing tells whether others use cuda:{0} (no management library), and a scenario takes all "
        "that is free of it: --force to run nevertheless",
        ordinal));
  }
  if (gpu->used_bytes <= kOfTheDriver) return;
  throw InvalidArgument(fmt::format(
      "others hold {} of cuda:{}, and a scenario takes all that is free of it, which can make them fail: "
      "--force to run nevertheless",
      format_bytes(gpu->used_bytes), ordinal));
}

}  // namespace headroom::repro
