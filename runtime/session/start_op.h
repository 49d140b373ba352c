// Starts libraries and ops on a device before their first run, so that they allocate their memory. The
// session and the prediction of its peak start them with the same calls.
#pragma once

#include <string_view>
#include <vector>

#include "allocators/allocator.h"
#include "base/errors.h"
#include "device/device.h"
#include "ops/ops.h"
#include "runtime/graph/graph.h"

namespace headroom {

// Returns the libraries that the nodes of a graph use on the device of that name, empty for the default one,
// and kNone if kernels belong to no library.
std::vector<Library> libraries_of(const Graph& graph, std::string_view device);

// Starts the library that the op needs and loads the op's code. When the device has no room for them, the
// strategy gives its idle memory back to the driver and both are tried once more. Throws LibraryError or
// DeviceError.
void start_op(const Op& op, Device& device, Allocator& allocator);

// Starts a node of a graph, which a LibraryError names, in TensorFlow's words for a matrix product. Observers
// of the allocator see the device's memory afterwards.
void start_node(const Graph& graph, int node, Device& device, Allocator& allocator);

// Initializes the device and makes the handles of both libraries. Returns the bytes that they may still take,
// as far as the device knows: 0 on a GPU. Throws LibraryError or DeviceError when there is no room for them.
int64_t start_library_handles(Device& device);

// Starts both libraries, and loads their kernels and ours if the device loads them before a first run: all
// memory that a prediction counts beside the strategy. For a trace, which calls no library itself. Returns
// the bytes that a strategy which reserves all the rest has to leave free.
int64_t start_libraries_with_kernels(Device& device);

// Like start_library_handles, and on a GPU a small computation with each library, launched and captured: for
// a strategy that reserves all the rest. Returns the bytes to leave free for code that libraries may still
// load: on a GPU the memory of these first calls beside the handles, and a page of the driver for each
// library.
int64_t start_libraries(Device& device);

// Returns attempt(). If it throws an Error, the strategy releases its idle memory to the driver and attempt()
// is called once more: for code that allocates device memory outside the strategy. A LibraryError that lack
// of memory may explain then lists the users of the memory.
template <typename F>
auto with_idle_memory(Allocator& allocator, F attempt) {
  try {
    try {
      return attempt();
    } catch (const Error&) {
      if (allocator.trim() == 0) throw;
    }
    return attempt();
  } catch (LibraryError& error) {
    if (error.may_lack_memory()) error.set_memory(allocator.facts(0));
    throw;
  }
}

}  // namespace headroom
