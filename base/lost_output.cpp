#include "base/lost_output.h"

#include <atomic>

namespace headroom {
namespace {

std::atomic<bool> lost = false;

}  // namespace

void note_lost_output() noexcept {
  lost = true;
}

bool is_output_lost() noexcept {
  return lost;
}

}  // namespace headroom
