// What libraries and ops take of a device before their first run. The session and the prediction of its peak
// start them by the same calls.
#pragma once

#include <string_view>
#include <vector>

#include "allocators/allocator.h"
#include "base/errors.h"
#include "device/device.h"
#include "ops/ops.h"
#include "runtime/graph/graph.h"

namespace headroom {

// What the nodes of a graph use on the device of that name, empty for the default one: the libraries, and
// kNone where kernels belong to none.
std::vector<Library> libraries_of(const Graph& graph, std::string_view device);

// Starts the library that the op needs and loads the op's code. When the device has no room for them, the
// strategy gives its idle memory back to the driver and both are tried once more. Throws LibraryError or
// DeviceError.
void start_op(const Op& op, Device& device, Allocator& allocator);

// The same for a node of a graph, which a LibraryError names, in TensorFlow's words where it is a matrix
// product. Observers of the allocator see what the device holds afterwards.
void start_node(const Graph& graph, int node, Device& device, Allocator& allocator);

// Initialises the device and makes the handles of both libraries. Returns the bytes that they may still take,
// as far as the device knows: 0 on a GPU. Throws LibraryError or DeviceError when there is no room for them.
int64_t start_library_handles(Device& device);

// The same, and loads the kernels of both and our own where the device loads them apart from a first run: all
// that a prediction counts beside the strategy. For a trace, which calls no library itself. Returns the bytes
// that a strategy which takes all the rest has to leave free.
int64_t start_libraries_with_kernels(Device& device);

// start_library_handles, and on a GPU a small computation with each library, launched and captured: for a
// strategy that takes all the rest. Returns the bytes to leave free for what libraries may still load: on a
// GPU what these first calls took beside the handles, and a page of the driver for each library.
int64_t start_libraries(Device& device);

// Returns attempt(). When that throws an Error, the strategy gives its idle memory back to the driver and
// attempt() is called once more: for whatever takes memory of the device past the strategy. A LibraryError
// that lack of memory may explain then says who holds what.
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
