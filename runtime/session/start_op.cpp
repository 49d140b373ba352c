#include "runtime/session/start_op.h"

#include <fmt/format.h>

#include <algorithm>

namespace headroom {
namespace {

// TensorFlow's words for a matrix product without a Blas handle, as users know them; of a fused node's
// products the first.
std::string failed_matmul_text(const Node& node, const Graph& graph) {
  const auto* matmul = std::get_if<MatMul>(&node.op);
  const MatMul op = matmul ? *matmul : MatMul{};
  const Shape &a = graph.value(node.inputs[0]).spec.shape, &b = graph.value(node.inputs[1]).spec.shape;
  const auto rows = [](const Shape& s) { return s[s.rank() - 2]; };
  const auto batch = [&](const Shape& s) { return s.elements() / std::max<int64_t>(1, rows(s) * s.last()); };
  return fmt::format("Blas xGEMM launch failed : a.shape=[{},{},{}], b.shape=[{},{},{}], m={}, n={}, k={}",
                     batch(a), rows(a), a.last(), batch(b), rows(b), b.last(),
                     op.transpose_a ? a.last() : rows(a), op.transpose_b ? rows(b) : b.last(),
                     op.transpose_a ? rows(a) : a.last());
}

}  // namespace

std::vector<Library> libraries_of(const Graph& graph, std::string_view device) {
  std::vector<Library> libraries;
  for (const Node& node : graph.nodes()) {
    if (node.device != device || std::holds_alternative<CopyToDevice>(node.op)) continue;
    const Library library = library_of(node.op);
    if (std::ranges::find(libraries, library) == libraries.end()) libraries.push_back(library);
  }
  return libraries;
}

void start_op(const Op& op, Device& device, Allocator& allocator) {
  if (device.libraries().start_with_kernels()) return;
  if (std::holds_alternative<CopyToDevice>(op)) return;  // the driver's own
  const Library library = library_of(op);
  with_idle_memory(allocator, [&] {
    device.libraries().start(library);
    device.libraries().load_module(op_name(op), library);
  });
}

void start_node(const Graph& graph, int id, Device& device, Allocator& allocator) {
  const Node& node = graph.node(id);
  try {
    start_op(node.op, device, allocator);
  } catch (const LibraryError& error) {
    const bool is_matmul = library_of(node.op) == Library::kBlas;
    const std::string text = is_matmul ? failed_matmul_text(node, graph) : error.message();
    LibraryError named(fmt::format("{} [[node {}]]", text, node.name), error.call(), error.status(),
                       error.log());
    if (error.memory()) named.set_memory(*error.memory());
    throw named;
  }
  allocator.observe_device();
}

int64_t start_library_handles(Device& device) {
  device.initialize();
  for (const Library library : {Library::kBlas, Library::kDnn}) device.libraries().start(library);
  return device.libraries().pending_bytes();
}

int64_t start_libraries_with_kernels(Device& device) {
  start_library_handles(device);
  for (const Library library : {Library::kNone, Library::kBlas, Library::kDnn}) {
    device.libraries().load_module("a traced program", library);
  }
  // The driver gives whole pages: a pool of all the rest would not find the part of one.
  const DeviceMemory& memory = device.memory();
  return device.libraries().pending_bytes() + memory.info().free % memory.granularity_bytes();
}

}  // namespace headroom
