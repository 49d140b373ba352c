// D: what PyTorch's documents say of memory, streams and devices.

#include <fmt/format.h>

#include <cmath>

#include "examples/mnist/digits.h"
#include "examples/mnist/trainer.h"
#include "runtime/core/bytes.h"
#include "runtime/core/sim/simulated_gpu.h"
#include "tools/repro/card.h"
#include "tools/repro/runs.h"

namespace headroom {
namespace {

constexpr std::string_view kCard = "card-6gb";

int64_t now_us(SimulatedGpu& gpu) {
  return std::llround(gpu.streams().now_us());
}

}  // namespace

Measured run_d3(const Place&) {
  SimulatedGpu gpu(find_profile(kCard));
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

// The writer takes 1000 us, the reader 10.
Measured run_d4(const Place& place) {
  SimulatedGpu gpu(find_profile(kCard));
  const Stream writer = gpu.new_stream(), reader = gpu.new_stream();
  gpu.streams().occupy(writer, 1000);
  const std::unique_ptr<Event> written = gpu.record_event(writer);
  if (place.cured) gpu.wait(reader, writer);
  gpu.streams().occupy(reader, 10);
  gpu.synchronize(reader);
  Measured measured;
  measured.add("read_at_us", now_us(gpu));
  measured.add("written_by_then", written->done() ? "yes" : "no");
  return measured;
}

Measured run_d5(const Place& place) {
  Card card(place, kCard);
  Allocator& allocator = card.allocator();
  Measured measured;
  {
    const Card::Tensor x = card.randn({200, 300, 200, 20});
    measured.add("memory_allocated_bytes", allocator.statistics().allocated.current);
    measured.add("memory_reserved_bytes", allocator.statistics().reserved.current);
  }
  measured.add("allocated_after_del_bytes", allocator.statistics().allocated.current);
  measured.add("reserved_after_del_bytes", allocator.statistics().reserved.current);
  allocator.trim();
  measured.add("reserved_after_empty_cache_bytes", allocator.statistics().reserved.current);
  measured.add("max_memory_allocated_bytes", allocator.statistics().allocated.peak);
  measured.add("max_memory_reserved_bytes", allocator.statistics().reserved.peak);
  return measured;
}

Measured run_d7(const Place& place) {
  TrainSettings settings;
  settings.epochs = 1;
  settings.fused = false;
  settings.math = Math::kF32;
  const Dataset training = draw_digits(4 * settings.batch, 1);
  const Dataset test = draw_digits(settings.batch, 1, training.count);
  const auto train_on = [&](const RuntimeOptions& options) {
    Runtime runtime(options);
    return train(settings, training, test, runtime);
  };
  const TrainResult cpu = train_on({.device = "cpu"});
  const TrainResult gpu = train_on(place.card(kCard));
  // A GPU adds in another order; a thousandth of the loss after four steps is far above what that makes.
  const bool agree = std::abs(cpu.final_loss - gpu.final_loss) <= 1e-3 * std::abs(cpu.final_loss);
  Measured measured;
  measured.add("on_the_cpu", cpu.outcome);
  measured.add("on_the_gpu", gpu.outcome);
  measured.add("losses_agree", agree ? "yes" : "no");
  measured.add("weights",
               cpu.weights_checksum == gpu.weights_checksum ? "the same bits" : "differ by rounding");
  for (const TrainResult* result : {&cpu, &gpu}) {
    measured.lines.push_back(fmt::format("--device {}: loss {:.4f}, weights {}", result->device,
                                         result->final_loss, result->weights_checksum));
  }
  return measured;
}

}  // namespace headroom
