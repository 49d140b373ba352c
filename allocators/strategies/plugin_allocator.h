// A strategy from a shared library, see headroom_strategy.h. Knows nothing of how it works.
#pragma once

#include <memory>
#include <string>

#include "allocators/allocator.h"
#include "allocators/headroom_strategy.h"

namespace headroom {

class PluginAllocator final : public Allocator {
 public:
  // Loads the library at `path`. `options` are the strategy's, as "key=value,...". Throws InvalidArgument
  // when there is no such library, when it has no strategy of a version that is known here, or when the
  // strategy refuses its options.
  PluginAllocator(Device& device, const std::string& path, std::optional<Limit> limit,
                  const std::string& options);
  ~PluginAllocator() override;

 private:
  struct Close {
    void operator()(void* library) const;
  };

  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override;
  int64_t largest_free_block() const override;

  std::unique_ptr<void, Close> library_;
  headroom_driver driver_;
  const headroom_strategy* functions_ = nullptr;
  void* strategy_ = nullptr;
};

}  // namespace headroom
