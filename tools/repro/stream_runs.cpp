// B6 and D: threads, and the statements of PyTorch's documents about streams, on the clock of a simulated
// GPU.

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "base/errors.h"
#include "device/host/simulated_gpu.h"
#include "device/host_buffer.h"
#include "tools/repro/runs.h"

namespace headroom::repro {
namespace {

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
    gpu_.streams().queue(stream, {[to](Stream) { *to = 1; }, "normal_", {}, {use(true)}, 1000.0});
  }
  // Reads after 10 us.
  void read(Stream stream, float* to) {
    const float* const from = value();
    gpu_.streams().queue(stream, {[from, to](Stream) { *to = *from; }, "sum", {}, {use(false)}, 10.0});
  }

 private:
  MemoryUse use(bool writes) const { return {data_, sizeof(float), writes, "A"}; }

  SimulatedGpu& gpu_;
  void* const data_;
};

// The conv net, fed from the host.
TrainResult train_from_host(const RuntimeOptions& options, int64_t loader_depth) {
  TrainSettings settings;
  settings.data_on = DataOn::kHost;
  settings.loader_depth = loader_depth;
  settings.plan = options.plan;
  Runtime runtime(options);
  return train_four_steps(settings, runtime);
}

// Returns true if both trained to the same weights; otherwise the error of the one that did not train.
std::string compare_weights(const TrainResult& one, const TrainResult& other) {
  if (one.outcome != RunOutcome::kOk || other.outcome != RunOutcome::kOk) return one.error + other.error;
  return one.weights_checksum == other.weights_checksum ? "the same bits" : "other bits";
}

}  // namespace

Measured run_b6(const Stage&) {
  const Environment inter("TF_NUM_INTEROP_THREADS", nullptr);
  Measured measured;
  const auto options = [](int64_t intra_op, int64_t inter_op) {
    return RuntimeOptions{.device = "cpu",
                          .plan = PlanMode::kParallel,
                          .intra_op_threads = intra_op,
                          .inter_op_threads = inter_op};
  };
  {
    const Environment intra("TF_NUM_INTRAOP_THREADS", nullptr);
    measured.add("intra_op_threads", Runtime(options(2, 3)).device().kernel_target().threads->threads());
    measured.add("inter_op_threads", cpu_threads(options(2, 3)).inter_op);
    const int chosen = Runtime(options(0, 0)).device().kernel_target().threads->threads();
    measured.add("chosen_for_0", chosen >= 1 ? "one or more" : "none");
    measured.lines.push_back(fmt::format("0 chooses {} on this machine", chosen));
  }
  const Environment intra("TF_NUM_INTRAOP_THREADS", "5");
  measured.add("of_the_variable", Runtime(options(0, 0)).device().kernel_target().threads->threads());
  measured.add("weights",
               compare_weights(train_from_host(options(1, 1), 0), train_from_host(options(2, 2), 0)));
  return measured;
}

Measured run_d2(const Stage& stage) {
  const Environment blocking("CUDA_LAUNCH_BLOCKING", stage.fixed ? "1" : nullptr);
  Runtime runtime(stage.card(kSixGb));
  auto& gpu = dynamic_cast<SimulatedGpu&>(runtime.device());
  Measured measured;
  const auto note = [&](const char* where, const InvalidArgument& error) {
    measured.add("failure_comes_out_at", where);
    measured.lines.push_back(fmt::format("{}: {}", where, error.what()));
  };
  bool failed = false;
  gpu.streams().queue({}, {[](Stream) {}, "matmul", {}, {}, 1000.0});
  measured.add("call_returns_at_us", now_us(gpu));
  try {
    gpu.streams().queue(
        {}, {[](Stream) { throw InvalidArgument("index out of range"); }, "gather", {}, {}, 10.0});
  } catch (const InvalidArgument& error) {
    note("the call that failed", error);
    failed = true;
  }
  try {
    gpu.streams().synchronize({});
  } catch (const InvalidArgument& error) {
    if (!failed) note("synchronize", error);
  }
  return measured;
}

Measured run_d3(const Stage&) {
  SimulatedGpu gpu(find_profile(kSixGb));
  const Stream stream = gpu.streams().new_stream();
  gpu.streams().occupy(stream, 1000);
  const std::unique_ptr<Event> done = gpu.streams().record_event(stream);
  Measured measured;
  measured.add("host_goes_on_at_us", now_us(gpu));
  measured.add("work_is_done_then", done->done() ? "yes" : "no");
  gpu.streams().synchronize(stream);
  measured.add("synchronize_returns_at_us", now_us(gpu));
  measured.add("work_is_done_at_the_end", done->done() ? "yes" : "no");
  return measured;
}

Measured run_d4(const Stage& stage) {
  Measured measured;
  for (const bool checks : {false, true}) {
    SimulatedGpu gpu(find_profile(kSixGb));
    if (checks) gpu.streams().check_waits();
    const Stream writer = gpu.streams().new_stream(), reader = gpu.streams().new_stream();
    Scalar a(gpu);
    float read = -1;
    std::string found = "nothing";
    a.write(writer);
    const std::unique_ptr<Event> written = gpu.streams().record_event(writer);
    if (stage.fixed) gpu.streams().wait(reader, writer);
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
    gpu.streams().synchronize(reader);
    measured.add("read_at_us", now_us(gpu));
    measured.add("written_by_then", written->done() ? "yes" : "no");
    measured.add("value_read", std::llround(read));
  }
  return measured;
}

// Eight batches; copying one takes as long as processing it.
Measured run_d6(const Stage& stage) {
  constexpr int64_t kBatchBytes = 1'000'000;
  DeviceProfile profile = find_profile(kSixGb);
  profile.copy_bytes_per_us = 1000;
  SimulatedGpu gpu(profile);
  gpu.streams().check_waits();
  std::vector<std::byte> pageable(kBatchBytes);
  const HostBuffer pinned(gpu.memory(), kBatchBytes);
  const std::byte* const host = stage.fixed ? pinned.data() : pageable.data();
  const Stream work = {}, copies = stage.fixed ? gpu.streams().new_stream() : work;
  std::array<void*, 2> batches = {gpu.memory().try_allocate(kBatchBytes),
                                  gpu.memory().try_allocate(kBatchBytes)};
  std::array<std::unique_ptr<Event>, 2> used;
  for (size_t i = 0; i < 8; ++i) {
    void* const batch = batches[i % 2];
    if (used[i % 2] != nullptr) gpu.streams().wait(copies, *used[i % 2]);
    gpu.memory().copy_to_device(batch, host, kBatchBytes, copies);
    gpu.streams().wait(work, copies);
    gpu.streams().queue(work, {[](Stream) {}, "step", {}, {{batch, kBatchBytes, false, "batch"}}, 1000.0});
    used[i % 2] = gpu.streams().record_event(work);
  }
  gpu.streams().synchronize(work);
  Measured measured;
  measured.add("eight_steps_end_at_us", now_us(gpu));
  for (void* batch : batches) gpu.memory().release(batch, kBatchBytes);
  const RuntimeOptions card = stage.card(kSixGb);
  measured.add("weights_with_a_loader", compare_weights(train_from_host(card, 0), train_from_host(card, 4)));
  return measured;
}

}  // namespace headroom::repro
