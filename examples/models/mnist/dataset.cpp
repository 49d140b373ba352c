#include "examples/models/mnist/dataset.h"

#include <fmt/format.h>

#include <cstddef>
#include <future>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "examples/models/mnist/digits.h"
#include "examples/models/mnist/idx.h"

namespace headroom {

std::vector<int64_t> epoch_order(int64_t count, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  // Fisher-Yates. Philox block i decides the swap of place i. 64 bits modulo at most 2^31 places have no
  // measurable bias.
  for (size_t i = order.size(); i > 1; --i) {
    const PhiloxCounter words = random_words(seed, static_cast<uint64_t>(epoch), i);
    const uint64_t draw = uint64_t{words[0]} << 32 | words[1];
    std::swap(order[i - 1], order[draw % i]);
  }
  return order;
}

TrainingData load_or_draw(const std::string& folder, uint64_t seed) {
  if (folder.empty()) {
    return {draw_digits(kDrawnTraining, seed), draw_digits(kDrawnTest, seed, kDrawnTraining),
            fmt::format("{} generated digits", kDrawnTraining)};
  }
  std::future<Dataset> test = std::async(std::launch::async, load_mnist, folder, MnistSplit::kTest);
  Dataset training = load_mnist(folder, MnistSplit::kTrain);
  TrainingData data{std::move(training), test.get(), {}};
  data.origin = fmt::format("{} images of {}", data.training.count, folder);
  return data;
}

}  // namespace headroom
