#include "base/random.h"

#include <random>

namespace headroom {

uint64_t process_nonce() {
  static const uint64_t nonce = [] {
    std::random_device random;
    return (uint64_t{random()} << 32) + random();
  }();
  return nonce;
}

}  // namespace headroom
