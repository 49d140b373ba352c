#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "allocators/strategies/strategy_text.h"
#include "base/errors.h"
#include "base/files.h"
#include "device/host/cpu_device.h"
#include "examples/models/mnist/checkpoint.h"
#include "examples/models/mnist/digits.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"

namespace {

using namespace headroom;

// A training of the examples' net that has run no step, and its checkpoint of some hundred KiB.
struct Training {
  static TrainSettings small() {
    TrainSettings settings;
    settings.batch = 4;
    return settings;
  }

  Training() {
    settings.save = "/tmp/headroom_checkpoint_fuzz." + std::to_string(getpid());
    Checkpoint(settings, net, data, variables, nullptr).save({1, 0.5});
    whole = read_file(settings.save, int64_t{1} << 28);
    std::filesystem::remove(settings.save);
  }

  TrainSettings settings = small();
  Dataset data = draw_digits(8, 1);
  TrainingGraph net{settings, {8, 8, 2}, 0};
  CpuDevice device;
  std::unique_ptr<Allocator> allocator = make_allocator(parse_strategy("direct"), device);
  Variables variables{net.graph, device, *allocator};
  std::string whole;
};

}  // namespace

// The input takes the place of the header, whose JSON says where each tensor lies and how far the training
// is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Training* const training = new Training;
  uint64_t header = 0;
  std::memcpy(&header, training->whole.data(), sizeof header);
  std::string bytes(sizeof header + size, '\0');
  const uint64_t length = size;
  std::memcpy(bytes.data(), &length, sizeof length);
  if (size > 0) std::memcpy(bytes.data() + sizeof length, data, size);
  bytes += training->whole.substr(sizeof header + header);
  const MemoryFile file(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  TrainSettings settings = training->settings;
  settings.save.clear();
  settings.resume = file.path();
  try {
    const Position position =
        Checkpoint(settings, training->net, training->data, training->variables, nullptr).load();
    if (position.steps < 1) std::abort();
  } catch (const InvalidArgument&) {
  }
  return 0;
}
