#include "runtime/session/plan_memory.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "runtime/graph/placement.h"
#include "runtime/plan/memory_users.h"

namespace headroom {
namespace {

void observe(Allocator& allocator, std::byte* block, const Buffer& buffer, int first, int end,
             const MemoryUser& user) {
  if (buffer.bytes == 0) return;
  observe_part(allocator, block + buffer.offset_bytes, buffer.bytes, first, end, user);
}

// Observes the parts of the plan that decides the size: parts of several plans in one arena would be live at
// once.
void observe_parts(Allocator& allocator, std::byte* arena, const Plan& plan, int device, const Graph& graph) {
  if (!allocator.has_observer()) return;
  const std::vector<MemoryCategory> categories = categorize(graph);
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.doubled || buffer.device != device) continue;
    observe(allocator, arena, buffer, buffer.first_step, buffer.end_step, user_of(buffer, graph, categories));
  }
}

}  // namespace

SharedArenas::SharedArenas(std::span<const Plan* const> plans, Variables& variables) {
  try {
    std::vector<const PlacedDevice*> devices;
    for (const PlacedDevice& device : variables.devices().all()) devices.push_back(&device);
    devices.push_back(&variables.devices().find(kHostPlace));
    for (const PlacedDevice* const placed : devices) {
      const PlacedDevice& device = *placed;
      const Plan* largest = nullptr;
      int position = 0;
      int64_t bytes = 0;
      for (const Plan* plan : plans) {
        for (size_t i = 0; i < plan->devices.size() && has_arena(plan->mode); ++i) {
          const PlanDevice& used = plan->devices[i];
          if (&variables.devices().find(used.name) != &device || (largest && used.peak_bytes <= bytes))
            continue;
          largest = plan;
          position = static_cast<int>(i);
          bytes = used.peak_bytes;
        }
      }
      if (largest == nullptr) continue;
      void* const block = device.allocator->allocate(bytes, {}, user_of_arena());
      arenas_.push_back({&device, bytes, block});
      observe_parts(*device.allocator, static_cast<std::byte*>(block), *largest, position, variables.graph());
    }
  } catch (...) {
    release();
    throw;
  }
}

void SharedArenas::release() noexcept {
  for (; !arenas_.empty(); arenas_.pop_back()) {
    const Arena& arena = arenas_.back();
    arena.device->allocator->deallocate(arena.block, arena.bytes);
  }
}

void* SharedArenas::on(const PlacedDevice& device) const {
  for (const Arena& arena : arenas_) {
    if (arena.device == &device) return arena.block;
  }
  return nullptr;
}

PlanMemory::PlanMemory(const Plan& plan, Variables& variables, const SharedArenas* shared)
    : plan_(plan),
      variables_(variables),
      shared_(shared),
      buffers_(plan.buffers.size(), nullptr),
      followers_(plan.buffers.size()) {
  for (const PlanDevice& device : plan_.devices) devices_.push_back(&variables_.devices().find(device.name));
  try {
    if (has_arena(plan_.mode)) place_in_arenas();
    if (plan_.input_set_bytes > 0) allocate_input_sets();
  } catch (...) {
    release();
    throw;
  }
}

void PlanMemory::place_in_arenas() {
  for (size_t i = 0; i < devices_.size(); ++i) {
    void* block = nullptr;
    if (shared_ != nullptr) {
      block = shared_->on(*devices_[i]);
    } else {
      Allocator& allocator = *devices_[i]->allocator;
      block = allocator.allocate(plan_.devices[i].peak_bytes, {}, user_of_arena());
      arenas_.push_back(block);
      observe_parts(allocator, static_cast<std::byte*>(block), plan_, static_cast<int>(i), graph());
    }
    for (size_t id = 0; id < plan_.buffers.size(); ++id) {
      const Buffer& buffer = plan_.buffers[id];
      if (buffer.doubled || buffer.device != static_cast<int>(i)) continue;
      set_buffer(static_cast<int>(id), static_cast<std::byte*>(block) + buffer.offset_bytes);
    }
  }
}

void PlanMemory::allocate_input_sets() {
  Allocator& allocator = variables_.allocator();
  input_sets_ =
      static_cast<std::byte*>(allocator.allocate(2 * plan_.input_set_bytes, {}, user_of_input_sets()));
  for (const Buffer& buffer : plan_.buffers) {
    for (const int set : {0, 1}) {
      if (!buffer.doubled || !allocator.has_observer()) continue;
      observe(allocator, input_set(set), buffer, 0, static_cast<int>(plan_.steps.size()), user_of(buffer));
    }
  }
  use_set(0);
}

// Last in, first out, as with variables.
void PlanMemory::release() noexcept {
  deallocate_all({});
  variables_.allocator().deallocate(input_sets_, 2 * plan_.input_set_bytes);
  for (size_t i = arenas_.size(); i-- > 0;) {
    devices_[i]->allocator->deallocate(arenas_[i], plan_.devices[i].peak_bytes);
  }
}

void PlanMemory::set_buffer(int id, void* pointer) {
  buffers_[static_cast<size_t>(id)] = pointer;
  for (void** follower : followers_[static_cast<size_t>(id)]) *follower = pointer;
}

void PlanMemory::follow(int buffer, void** pointer) {
  followers_[static_cast<size_t>(buffer)].push_back(pointer);
  *pointer = buffers_[static_cast<size_t>(buffer)];
}

void PlanMemory::allocate(int id, Stream stream) {
  const Buffer& buffer = plan_.buffers[static_cast<size_t>(id)];
  set_buffer(id, allocate_for(allocator_of(buffer), buffer.bytes, stream, [&] { return user_of(buffer); }));
}

MemoryUser PlanMemory::user_of(const Buffer& buffer) {
  if (categories_.empty()) categories_ = categorize(graph());
  return headroom::user_of(buffer, graph(), categories_);
}

void PlanMemory::deallocate(int id, Stream stream) noexcept {
  const Buffer& buffer = plan_.buffers[static_cast<size_t>(id)];
  allocator_of(buffer).deallocate(buffers_[static_cast<size_t>(id)], buffer.bytes, stream);
  set_buffer(id, nullptr);
}

void PlanMemory::deallocate_all(Stream stream) noexcept {
  if (has_arena(plan_.mode)) return;
  for (size_t id = 0; id < buffers_.size(); ++id) {
    if (buffers_[id] != nullptr && !plan_.buffers[id].doubled) deallocate(static_cast<int>(id), stream);
  }
}

void PlanMemory::use_set(int set) {
  set_ = set;
  for (size_t id = 0; id < plan_.buffers.size(); ++id) {
    const Buffer& buffer = plan_.buffers[id];
    if (buffer.doubled) set_buffer(static_cast<int>(id), input_set(set) + buffer.offset_bytes);
  }
}

int64_t PlanMemory::offset_in_input_set(const Value& value) const {
  if (value.graph != &graph()) throw InvalidArgument("the value belongs to another graph");
  const int id = plan_.buffer_of_value[static_cast<size_t>(value.id)];
  if (id < 0 || !plan_.buffers[static_cast<size_t>(id)].doubled) {
    throw InvalidArgument(fmt::format("{} is not a doubled input of this plan", value.name()));
  }
  return plan_.buffers[static_cast<size_t>(id)].offset_bytes;
}

void* PlanMemory::address_of(int value) const {
  const int variable = plan_.variable_of_value[static_cast<size_t>(value)];
  if (variable >= 0) return variables_.data(variable);
  const int buffer = plan_.buffer_of_value[static_cast<size_t>(value)];
  return buffer >= 0 ? buffers_[static_cast<size_t>(buffer)] : nullptr;
}

}  // namespace headroom
