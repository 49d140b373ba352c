#include "allocators/strategies/plugin_allocator.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/text.h"

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
      .reserve = [](void* self,
                    int64_t bytes) { return static_cast<PluginAllocator*>(self)->reserve_for_plugin(bytes); },
      .unreserve =
          [](void* self, void* pointer, int64_t bytes) {
            static_cast<PluginAllocator*>(self)->unreserve_for_plugin(pointer, bytes);
          },
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
  const headroom_strategy& f = *functions_;
  const std::pair<const char*, bool> present[] = {
      {"create", f.create != nullptr},     {"destroy", f.destroy != nullptr},
      {"allocate", f.allocate != nullptr}, {"deallocate", f.deallocate != nullptr},
      {"trim", f.trim != nullptr},         {"largest_free_block", f.largest_free_block != nullptr}};
  for (const auto& [function, is_present] : present) {
    if (!is_present) throw InvalidArgument(fmt::format("strategy plugin {}: it has no {}()", path, function));
  }
  char error[256] = "";
  strategy_ = call("create", static_cast<void*>(nullptr),
                   [&] { return f.create(&driver_, options.c_str(), error, sizeof error); });
  error[sizeof error - 1] = '\0';
  if (strategy_ == nullptr) {
    release_all();
    throw InvalidArgument(fmt::format("strategy plugin {}: {}", path,
                                      *error != '\0' ? error
                                      : !fault_.empty()
                                          ? fault_
                                          : "its create() made no strategy and gave no reason"));
  }
}

PluginAllocator::~PluginAllocator() {
  call("destroy", 0, [&] { return functions_->destroy(strategy_), 0; });
  if (const int64_t left = release_all(); left > 0)
    note_fault(fmt::format("destroy() left {} bytes reserved", left));
  if (!fault_.empty() && !is_thrown_)
    std::fputs(fmt::format("note: strategy {}: {}\n", name(), printable(fault_)).c_str(), stderr);
}

template <typename Call, typename Result>
Result PluginAllocator::call(const char* function, Result otherwise,
                             const Call& function_of_plugin) const noexcept {
  try {
    return function_of_plugin();
  } catch (const std::exception& error) {
    note_fault(fmt::format("{}() threw an exception: {}", function, error.what()));
  } catch (...) {
    note_fault(fmt::format("{}() threw an exception", function));
  }
  return otherwise;
}

void PluginAllocator::note_fault(std::string fault) const noexcept {
  if (fault_.empty()) fault_ = std::move(fault);
}

void PluginAllocator::throw_fault() const {
  if (fault_.empty()) return;
  is_thrown_ = true;
  throw InvalidArgument(fmt::format("strategy {}: {}", name(), fault_));
}

void* PluginAllocator::reserve_for_plugin(int64_t bytes) {
  void* const pointer = bytes > 0 && bytes <= reservable_bytes() ? reserve(bytes) : nullptr;
  if (pointer != nullptr) reserved_.add(pointer, bytes);
  return pointer;
}

void PluginAllocator::unreserve_for_plugin(void* pointer, int64_t bytes) noexcept {
  if (const int64_t held = reserved_.bytes_at(pointer); held == 0 || held != bytes) {
    return note_fault(fmt::format("it released {} bytes at {}, where it holds {}", bytes, pointer, held));
  }
  reserved_.remove(pointer);
  unreserve(pointer, bytes);
}

// Returns the bytes that were still reserved.
int64_t PluginAllocator::release_all() noexcept {
  int64_t left = 0;
  reserved_.for_each([&](void* pointer, int64_t bytes) {
    unreserve(pointer, bytes);
    left += bytes;
  });
  reserved_ = {};
  return left;
}

Allocator::Block PluginAllocator::do_allocate(int64_t bytes, Stream stream) {
  throw_fault();
  Block block;
  block.pointer = call("allocate", static_cast<void*>(nullptr),
                       [&] { return functions_->allocate(strategy_, bytes, stream.handle, &block.bytes); });
  throw_fault();
  if (block.pointer == nullptr) return {};
  const auto address = reinterpret_cast<uintptr_t>(block.pointer);
  if (block.bytes < bytes) {
    note_fault(fmt::format("it returned a block of {} bytes for a request of {} bytes", block.bytes, bytes));
    call("deallocate", int64_t{0},
         [&] { return functions_->deallocate(strategy_, block.pointer, bytes, stream.handle); });
  } else if (address % static_cast<uintptr_t>(kAlignment) != 0) {
    note_fault(fmt::format("its block at {} is not aligned to {} bytes", block.pointer, kAlignment));
  } else if (!reserved_.holds(block.pointer, block.bytes)) {
    note_fault(fmt::format("its block of {} bytes at {} lies outside the memory that it reserved",
                           block.bytes, block.pointer));
  } else if (!live_.add(block.pointer, block.bytes)) {
    note_fault(fmt::format("its block of {} bytes at {} overlaps a live one", block.bytes, block.pointer));
  }
  throw_fault();
  return block;
}

int64_t PluginAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  const int64_t held = live_.bytes_at(pointer);
  if (held == 0) return 0;
  live_.remove(pointer);
  const int64_t returned = call(
      "deallocate", held, [&] { return functions_->deallocate(strategy_, pointer, bytes, stream.handle); });
  if (returned != held)
    note_fault(fmt::format("deallocate() returned {} for its block of {} bytes", returned, held));
  return held;
}

int64_t PluginAllocator::do_trim() noexcept {
  const int64_t before = reserved_bytes();
  const int64_t returned = call("trim", int64_t{0}, [&] { return functions_->trim(strategy_); });
  const int64_t released = before - reserved_bytes();
  if (returned != released)
    note_fault(fmt::format("trim() returned {}, and released {} bytes", returned, released));
  return released;
}

int64_t PluginAllocator::largest_free_block() const {
  if (!is_thrown_) throw_fault();
  const int64_t largest =
      call("largest_free_block", int64_t{0}, [&] { return functions_->largest_free_block(strategy_); });
  if (largest < 0 || largest > reserved_bytes())
    note_fault(
        fmt::format("largest_free_block() returned {}, with {} bytes reserved", largest, reserved_bytes()));
  if (!is_thrown_) throw_fault();
  return largest;
}

int64_t PluginAllocator::reserved_bytes() const {
  int64_t sum = 0;
  reserved_.for_each([&](void*, int64_t bytes) { sum += bytes; });
  return sum;
}

}  // namespace headroom
