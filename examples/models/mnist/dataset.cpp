#include "examples/models/mnist/dataset.h"

#include <cstddef>
#include <numeric>
#include <utility>

#include "runtime/base/random.h"

namespace headroom {

std::vector<int64_t> epoch_order(int64_t count, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  // Fisher-Yates. Philox block i decides the swap of place i; 64 bits modulo at most 2^31 places leave no
  // bias that could be measured.
  for (size_t i = order.size(); i > 1; --i) {
    const PhiloxCounter words = random_words(seed, static_cast<uint64_t>(epoch), i);
    const uint64_t draw = uint64_t{words[0]} << 32 | words[1];
    std::swap(order[i - 1], order[draw % i]);
  }
  return order;
}

}  // namespace headroom
