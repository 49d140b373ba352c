#include "allocators/strategies/plugin_allocator.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace headroom {
namespace {

constexpr const char* kSymbol = "headroom_strategy_v1";

// A name without a slash is searched for in the system's library folders only.
std::string hint_for(const std::string& path) {
  std::error_code none;
  const bool is_here = path.find('/') == std::string::npos && std::filesystem::exists(path, none);
  return is_here ? fmt::format("; the file in this folder is ./{}", path) : "";
}

}  // namespace

void PluginAllocator::Close::operator()(void* library) const {
  dlclose(library);
}

PluginAllocator::PluginAllocator(Device& device, const std::string& path, std::optional<Limit> limit,
                                 const std::string& options)
    : Allocator(device, "plugin=" + path, limit) {
  // Captures nothing, so that these are plain functions.
  driver_ = {
      .context = this,
      .reserve = [](void* self, int64_t bytes) -> void* {
        return bytes > 0 ? static_cast<PluginAllocator*>(self)->reserve(bytes) : nullptr;
      },
      .unreserve = [](void* self, void* pointer,
                      int64_t bytes) { static_cast<PluginAllocator*>(self)->unreserve(pointer, bytes); },
      .reservable_bytes = [](void* self) { return static_cast<PluginAllocator*>(self)->reservable_bytes(); },
      .follow = [](void* self, void* stream,
                   void* freed_on) { static_cast<PluginAllocator*>(self)->follow({stream}, {freed_on}); },
  };
  library_.reset(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!library_)
    throw InvalidArgument(fmt::format("strategy plugin {}: {}{}", path, dlerror(), hint_for(path)));
  using Entry = const headroom_strategy* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library_.get(), kSymbol));
  if (entry == nullptr)
    throw InvalidArgument(fmt::format("strategy plugin {}: it does not define {}", path, kSymbol));
  functions_ = entry();
  if (functions_ == nullptr || functions_->size != sizeof(headroom_strategy)) {
    throw InvalidArgument(
        fmt::format("strategy plugin {}: the layout of its headroom_strategy is not version 1", path));
  }
  char error[256] = "";
  strategy_ = functions_->create(&driver_, options.c_str(), error, sizeof error);
  if (strategy_ == nullptr) {
    throw InvalidArgument(
        fmt::format("strategy plugin {}: {}", path,
                    *error == '\0' ? "its create() made no strategy and gave no reason" : error));
  }
}

PluginAllocator::~PluginAllocator() {
  functions_->destroy(strategy_);
}

Allocator::Block PluginAllocator::do_allocate(int64_t bytes, Stream stream) {
  Block block;
  block.pointer = functions_->allocate(strategy_, bytes, stream.handle, &block.bytes);
  if (block.pointer != nullptr && block.bytes < bytes) {
    functions_->deallocate(strategy_, block.pointer, bytes, stream.handle);
    throw InvalidArgument(
        fmt::format("strategy {}: it returned a block of {} bytes for a request of {} bytes", name(),
                    block.bytes, bytes));
  }
  return block;
}

int64_t PluginAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  return functions_->deallocate(strategy_, pointer, bytes, stream.handle);
}

int64_t PluginAllocator::do_trim() noexcept {
  return functions_->trim(strategy_);
}

int64_t PluginAllocator::largest_free_block() const {
  return functions_->largest_free_block(strategy_);
}

}  // namespace headroom
