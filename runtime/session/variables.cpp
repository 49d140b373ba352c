#include "runtime/session/variables.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "runtime/graph/categories.h"
#include "runtime/plan/memory_users.h"

namespace headroom {

Variables::Variables(const Graph& graph, DeviceSet devices, Contents contents)
    : graph_(graph), devices_(std::move(devices)), blocks_(graph.values().size()) {
  std::vector<MemoryCategory> categories;  // once they are needed
  const auto user_of = [&](int id) {
    if (categories.empty()) categories = categorize(graph);
    return user_of_variable(id, graph, categories);
  };
  try {
    for (int id : graph.variables()) {
      const ValueInfo& info = graph.value(id);
      const int64_t bytes = info.spec.bytes();
      const PlacedDevice& here = device_of(id);
      blocks_[static_cast<size_t>(id)] =
          allocate_for(*here.allocator, block_bytes(info), {}, [&] { return user_of(id); });
      if (contents == Contents::kNone || bytes == 0 || info.initializer.kind == Initializer::Kind::kNone)
        continue;
      const std::vector<std::byte> initial = initial_value(info.initializer, info.name, info.spec);
      here.device->memory().copy_to_device(data(id), initial.data(), bytes);
    }
  } catch (...) {
    release();
    throw;
  }
}

Variables::~Variables() {
  release();
}

void Variables::release() noexcept {
  // Last in, first out: the strategy's own state is then as it was.
  for (size_t id = blocks_.size(); id-- > 0;) {
    if (blocks_[id] == nullptr) continue;
    device_of(static_cast<int>(id)).allocator->deallocate(blocks_[id], block_bytes(graph_.values()[id]));
    blocks_[id] = nullptr;
  }
}

void* Variables::data(int id) const {
  if (static_cast<size_t>(id) >= blocks_.size()) {
    throw InvalidArgument(
        fmt::format("{} was added to the graph after its variables got memory", graph_.value(id).name));
  }
  return blocks_[static_cast<size_t>(id)];
}

std::vector<std::byte> Variables::read(const Value& variable) const {
  if (variable.graph != &graph_ || graph_.value(variable.id).kind != ValueKind::kVariable) {
    throw InvalidArgument("read: not a variable of this graph");
  }
  std::vector<std::byte> bytes(static_cast<size_t>(variable.spec().bytes()));
  if (!bytes.empty())
    device_of(variable.id)
        .device->memory()
        .copy_to_host(bytes.data(), data(variable.id), variable.spec().bytes());
  return bytes;
}

void Variables::write(const Value& variable, std::span<const std::byte> bytes) {
  if (variable.graph != &graph_ || graph_.value(variable.id).kind != ValueKind::kVariable) {
    throw InvalidArgument("write: not a variable of this graph");
  }
  if (static_cast<int64_t>(bytes.size()) != variable.spec().bytes()) {
    throw InvalidArgument(fmt::format("write: {} is {} ({} bytes), got {} bytes", variable.name(),
                                      to_string(variable.spec()), variable.spec().bytes(), bytes.size()));
  }
  if (!bytes.empty())
    device_of(variable.id)
        .device->memory()
        .copy_to_device(data(variable.id), bytes.data(), variable.spec().bytes());
}

uint64_t Variables::checksum(std::span<const Value> variables) const {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, 64 bits: Fowler, Noll, Vo
  const auto mix = [&](std::byte byte) { hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3u; };
  for (const Value& variable : variables) {
    for (char c : variable.name()) mix(static_cast<std::byte>(c));
    for (std::byte byte : read(variable)) mix(byte);
  }
  return hash;
}

}  // namespace headroom
