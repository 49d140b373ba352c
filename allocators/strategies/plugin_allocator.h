// A strategy from a shared library, see headroom_strategy.h.
#pragma once

#include <memory>
#include <string>

#include "allocators/allocator.h"
#include "allocators/headroom_strategy.h"

namespace headroom {

class PluginAllocator final : public Allocator {
 public:
  // Loads the library at `path`. `options` are the strategy's, as "key=value,...". Throws InvalidArgument
  // without such a library, for an unknown version, and for options that the strategy refuses.
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
