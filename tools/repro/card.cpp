#include "tools/repro/card.h"

#include <fmt/format.h>

#include "allocators/strategies/strategy_text.h"
#include "allocators/trace_recorder.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "device/gpus.h"
#include "trace/trace_builder.h"

namespace headroom::repro {
namespace {

// The driver itself uses 9 MiB at most on an H200; the context of any process takes some hundred.
constexpr int64_t kDriverBytes = 64 * kMiB;

}  // namespace

Card::Card(const Stage& stage, std::string_view profile, const std::string& strategy)
    : device_(make_device(stage.card(profile))), recording_(stage.recording) {
  device_->initialize();
  context_bytes_ = process_bytes();
  allocator_ = make_allocator(parse_strategy(strategy), *device_);
  if (recording_ != nullptr) allocator_->set_observer(trace_recorder(*recording_));
}

void Card::begin_step() {
  ++steps_;
  if (recording_ != nullptr) recording_->mark(steps_, StepPhase::kForward, 0);
}

Card::Tensor Card::randn(std::initializer_list<int64_t> shape) {
  int64_t bytes = sizeof(float);
  for (const int64_t extent : shape) bytes *= extent;
  return {*allocator_, bytes};
}

void require_unused_card(int ordinal) {
  const size_t visible = visible_gpus().size();
  if (static_cast<size_t>(ordinal) >= visible) {
    throw InvalidArgument(fmt::format("no GPU {}: {} visible, counted from 0", ordinal, visible));
  }
  const GpuList list = list_gpus();
  const PhysicalGpu* gpu = list.find(ordinal);
  if (gpu == nullptr) {
    throw InvalidArgument(
        fmt::format("cannot tell if other processes use cuda:{0} (no management library), and a scenario "
                    "allocates all free memory; --force runs anyway",
                    ordinal));
  }
  if (gpu->used_bytes <= kDriverBytes) return;
  throw InvalidArgument(
      fmt::format("other processes use {} of cuda:{}, and a scenario allocates all free memory, which can "
                  "make them fail; --force runs anyway",
                  format_bytes(gpu->used_bytes), ordinal));
}

}  // namespace headroom::repro
