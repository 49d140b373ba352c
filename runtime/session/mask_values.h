// The masks of attention that follow from constants alone, computed on the device: they say which scores are
// left out, and so how long attention takes. Knows no plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/device.h"
#include "runtime/graph/graph.h"
#include "runtime/session/kernels.h"

namespace headroom {

class MaskValues {
 public:
  // Finds the masks, and the tiles made of them, and what they are computed from. All must outlive this.
  MaskValues(const Graph& graph, const Kernels& kernels, Device& device);
  ~MaskValues();
  MaskValues(const MaskValues&) = delete;
  MaskValues& operator=(const MaskValues&) = delete;

  // Whether the value is such a mask, or computed on the way to one.
  bool contains(int value) const { return offsets_[static_cast<size_t>(value)] >= 0; }
  // Of the driver's memory, that compute() takes.
  int64_t bytes() const { return bytes_; }
  // False, with nothing computed, where the device has no room. Throws DeviceError as the kernels do.
  bool compute();
  // Of a value that this contains; null before compute().
  std::byte* data(int value) const;

 private:
  const Graph& graph_;
  const Kernels& kernels_;
  Device& device_;
  std::vector<int> nodes_;        // that compute them, in order
  std::vector<int64_t> offsets_;  // by value; -1: not contained
  int64_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace headroom
