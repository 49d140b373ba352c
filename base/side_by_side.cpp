#include "base/side_by_side.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace headroom {

void side_by_side(size_t count, size_t most_threads, const std::function<void(size_t i)>& work) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<size_t> next = 0;
  const auto take_pieces = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> others;
  while (others.size() + 1 < std::min({count, most_threads, cores})) others.emplace_back(take_pieces);
  take_pieces();
  others.clear();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace headroom
