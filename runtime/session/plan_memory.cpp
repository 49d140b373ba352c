#include "runtime/session/plan_memory.h"

#include <fmt/format.h>

#include "runtime/base/errors.h"
#include "runtime/plan/memory_users.h"

namespace headroom {
namespace {

void observe(Allocator& allocator, std::byte* block, const Buffer& buffer, int first, int end,
             const MemoryUser& user) {
  if (buffer.bytes == 0) return;
  observe_part(allocator, block + buffer.offset_bytes, buffer.bytes, first, end, user);
}

}  // namespace

PlanMemory::PlanMemory(const Plan& plan, Variables& variables)
    : plan_(plan),
      variables_(variables),
      categories_(categorise(variables.graph())),
      buffers_(plan.buffers.size(), nullptr),
      followers_(plan.buffers.size()) {
  for (const PlanDevice& device : plan_.devices) devices_.push_back(&variables_.devices().find(device.name));
  try {
    if (has_arena(plan_.mode)) allocate_arenas();
    if (plan_.input_set_bytes > 0) allocate_input_sets();
  } catch (...) {
    release();
    throw;
  }
}

void PlanMemory::allocate_arenas() {
  for (size_t i = 0; i < devices_.size(); ++i) {
    Allocator& allocator = *devices_[i]->allocator;
    arenas_.push_back(allocator.allocate(plan_.devices[i].peak_bytes, {}, user_of_arena()));
    auto* const arena = static_cast<std::byte*>(arenas_[i]);
    for (size_t id = 0; id < plan_.buffers.size(); ++id) {
      const Buffer& buffer = plan_.buffers[id];
      if (buffer.doubled || buffer.device != static_cast<int>(i)) continue;
      observe(allocator, arena, buffer, buffer.first_step, buffer.end_step,
              user_of(buffer, graph(), categories_));
      set_buffer(static_cast<int>(id), arena + buffer.offset_bytes);
    }
  }
}

void PlanMemory::allocate_input_sets() {
  Allocator& allocator = variables_.allocator();
  input_sets_ =
      static_cast<std::byte*>(allocator.allocate(2 * plan_.input_set_bytes, {}, user_of_input_sets()));
  for (const Buffer& buffer : plan_.buffers) {
    for (const int set : {0, 1}) {
      if (!buffer.doubled) continue;
      observe(allocator, input_set(set), buffer, 0, static_cast<int>(plan_.steps.size()),
              user_of(buffer, graph(), categories_));
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
  const MemoryUser user = user_of(buffer, graph(), categories_);
  set_buffer(id, allocator_of(buffer).allocate(buffer.bytes, stream, user));
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
