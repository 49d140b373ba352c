#include "runtime/session/variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/errors.h"
#include "runtime/graph/categories.h"
#include "runtime/graph/placement.h"
#include "runtime/plan/memory_users.h"

namespace headroom {
namespace {

constexpr int64_t kCopiedAtOnce = 64 * kMiB;

// The variables, by value id, that a node of the graph changes.
std::vector<bool> changed_values(const Graph& graph) {
  std::vector<bool> changed(graph.values().size());
  for (const Node& node : graph.nodes()) {
    for (const int input : mutated_inputs(node.op, node.inputs.size()))
      changed[static_cast<size_t>(node.inputs[static_cast<size_t>(input)])] = true;
  }
  return changed;
}

void copy_first_value(const ValueInfo& variable, DeviceMemory& memory, void* to) {
  std::vector<std::byte> made;
  const std::span<const std::byte> bytes =
      initial_bytes(variable.initializer, variable.name, variable.spec, made);
  const MappedFile* const file = variable.initializer.file.get();
  // Pages of a file that are copied need not stay in memory beside the copy.
  const int64_t part = file == nullptr ? std::ssize(bytes) : kCopiedAtOnce;
  for (int64_t at = 0; at < std::ssize(bytes); at += part) {
    const auto copied =
        bytes.subspan(static_cast<size_t>(at), static_cast<size_t>(std::min(part, std::ssize(bytes) - at)));
    memory.copy_to_device(static_cast<std::byte*>(to) + at, copied.data(), std::ssize(copied));
    if (file != nullptr) file->set_aside(copied);
  }
}

}  // namespace

Variables::Variables(const Graph& graph, DeviceSet devices, Contents contents)
    : graph_(graph),
      devices_(std::move(devices)),
      blocks_(graph.values().size()),
      is_mapped_(graph.values().size()) {
  const std::vector<bool> changed = changed_values(graph);
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
      if (contents == Contents::kInitial && !changed[static_cast<size_t>(id)] && is_usable_in_place(info)) {
        blocks_[static_cast<size_t>(id)] = const_cast<std::byte*>(info.initializer.mapped.data());
        is_mapped_[static_cast<size_t>(id)] = true;
        continue;
      }
      blocks_[static_cast<size_t>(id)] =
          allocate_for(*here.allocator, block_bytes(info), {}, [&] { return user_of(id); });
      if (contents == Contents::kNone || bytes == 0 || info.initializer.kind == Initializer::Kind::kNone)
        continue;
      copy_first_value(info, here.device->memory(), data(id));
    }
  } catch (...) {
    release();
    throw;
  }
}

Variables::~Variables() {
  release();
}

bool Variables::is_usable_in_place(const ValueInfo& variable) const {
  const std::span<const std::byte> bytes = variable.initializer.mapped;
  return variable.initializer.kind == Initializer::Kind::kMapped && !bytes.empty() &&
         std::ssize(bytes) == variable.spec.bytes() && variable.device != kHostPlace &&
         devices_.find(variable.device).device->memory().is_host_memory() &&
         reinterpret_cast<uintptr_t>(bytes.data()) %
                 static_cast<uintptr_t>(element_bytes(variable.spec.dtype)) ==
             0;
}

void Variables::release() noexcept {
  // Last in, first out: the strategy's own state is then as it was.
  for (size_t id = blocks_.size(); id-- > 0;) {
    if (blocks_[id] == nullptr || is_mapped_[id]) continue;
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
  if (is_mapped_[static_cast<size_t>(variable.id)])
    throw InvalidArgument(fmt::format("write: {} is used where its file is mapped", variable.name()));
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
