// D: what PyTorch's documents say of streams, on the clock of a simulated GPU.

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "runtime/core/errors.h"
#include "runtime/core/sim/simulated_gpu.h"
#include "runtime/runtime.h"
#include "tools/repro/environment.h"
#include "tools/repro/runs.h"

namespace headroom {
namespace {

constexpr std::string_view kStreamCard = "card-6gb";

int64_t now_us(SimulatedGpu& gpu) {
  return std::llround(gpu.streams().now_us());
}

// A float on the GPU, 0 at first.
class Scalar {
 public:
  explicit Scalar(SimulatedGpu& gpu) : gpu_(gpu), data_(gpu.memory().try_allocate(sizeof(float))) {
    *value() = 0;
  }
  ~Scalar() { gpu_.memory().release(data_, sizeof(float)); }
  Scalar(const Scalar&) = delete;
  Scalar& operator=(const Scalar&) = delete;

  float* value() const { return static_cast<float*>(data_); }
  // Writes 1 after 1000 us of work.
  void write(Stream stream) {
    float* const to = value();
    gpu_.queue(stream, {[to](Stream) { *to = 1; }, "normal_", {}, {use(true)}, 1000.0});
  }
  // Reads after 10 us.
  void read(Stream stream, float* to) {
    const float* const from = value();
    gpu_.queue(stream, {[from, to](Stream) { *to = *from; }, "sum", {}, {use(false)}, 10.0});
  }

 private:
  MemoryUse use(bool writes) const { return {data_, sizeof(float), writes, "A"}; }

  SimulatedGpu& gpu_;
  void* const data_;
};

}  // namespace

Measured run_d2(const Place& place) {
  const Environment blocking("CUDA_LAUNCH_BLOCKING", place.cured ? "1" : nullptr);
  Runtime runtime(place.card(kStreamCard));
  auto& gpu = dynamic_cast<SimulatedGpu&>(runtime.device());
  Measured measured;
  const auto note = [&](const char* where, const InvalidArgument& error) {
    measured.add("failure_comes_out_at", where);
    measured.lines.push_back(fmt::format("{}: {}", where, error.what()));
  };
  bool failed = false;
  gpu.queue({}, {[](Stream) {}, "matmul", {}, {}, 1000.0});
  measured.add("call_returns_at_us", now_us(gpu));
  try {
    gpu.queue({}, {[](Stream) { throw InvalidArgument("index out of range"); }, "gather", {}, {}, 10.0});
  } catch (const InvalidArgument& error) {
    note("the call that failed", error);
    failed = true;
  }
  try {
    gpu.synchronize({});
  } catch (const InvalidArgument& error) {
    if (!failed) note("synchronize", error);
  }
  return measured;
}

Measured run_d3(const Place&) {
  SimulatedGpu gpu(find_profile(kStreamCard));
  const Stream stream = gpu.new_stream();
  gpu.streams().occupy(stream, 1000);
  const std::unique_ptr<Event> done = gpu.record_event(stream);
  Measured measured;
  measured.add("host_goes_on_at_us", now_us(gpu));
  measured.add("work_is_done_then", done->done() ? "yes" : "no");
  gpu.synchronize(stream);
  measured.add("synchronize_returns_at_us", now_us(gpu));
  measured.add("work_is_done_at_the_end", done->done() ? "yes" : "no");
  return measured;
}

Measured run_d4(const Place& place) {
  Measured measured;
  for (const bool checks : {false, true}) {
    SimulatedGpu gpu(find_profile(kStreamCard));
    if (checks) gpu.streams().check_waits();
    const Stream writer = gpu.new_stream(), reader = gpu.new_stream();
    Scalar a(gpu);
    float read = -1;
    std::string found = "nothing";
    a.write(writer);
    const std::unique_ptr<Event> written = gpu.record_event(writer);
    if (place.cured) gpu.wait(reader, writer);
    try {
      a.read(reader, &read);
    } catch (const StreamHazard& hazard) {
      found = "a missing wait";
      measured.lines.emplace_back(hazard.what());
    }
    if (checks) {
      measured.add("check_streams_finds", found);
      continue;
    }
    gpu.synchronize(reader);
    measured.add("read_at_us", now_us(gpu));
    measured.add("written_by_then", written->done() ? "yes" : "no");
    measured.add("value_read", std::llround(read));
  }
  return measured;
}

}  // namespace headroom
