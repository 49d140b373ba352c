// A strategy from a shared library, see headroom_strategy.h. What it does is checked: the first fault is
// thrown by each later allocation, or once where somebody asks for the statistics before.
#pragma once

#include <memory>
#include <string>

#include "allocators/address_ranges.h"
#include "allocators/allocator.h"
#include "allocators/headroom_strategy.h"

namespace headroom {

class PluginAllocator final : public Allocator {
 public:
  // Loads the library at `path`. `options` are the strategy's, as "key=value,...". Throws InvalidArgument
  // without such a library, for an unknown version or a function that is missing, and for options that the
  // strategy refuses.
  PluginAllocator(Device& device, const std::string& path, std::optional<Limit> limit,
                  const std::string& options);
  ~PluginAllocator() override;

 private:
  struct Close {
    void operator()(void* library) const;
  };

  // Calls the plugin; an exception becomes a fault, and the result is then `otherwise`.
  template <typename Call, typename Result>
  Result call(const char* function, Result otherwise, const Call& function_of_plugin) const noexcept;
  void note_fault(std::string fault) const noexcept;
  void throw_fault() const;
  void* reserve_for_plugin(int64_t bytes);
  void unreserve_for_plugin(void* pointer, int64_t bytes) noexcept;
  int64_t release_all() noexcept;
  int64_t reserved_bytes() const;

  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override;
  int64_t largest_free_block() const override;

  std::unique_ptr<void, Close> library_;
  headroom_driver driver_;
  const headroom_strategy* functions_ = nullptr;
  void* strategy_ = nullptr;
  AddressRanges reserved_, live_;
  mutable std::string fault_;  // the first one
  mutable bool is_thrown_ = false;
};

}  // namespace headroom
