// The masks of attention that follow only from constants, computed on the device: they decide which scores
// are skipped, and so the time of attention. Knows no plan.
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
  // Finds the masks, their tiles, and the values that they are computed from. All must outlive this.
  MaskValues(const Graph& graph, const Kernels& kernels, Device& device);
  ~MaskValues();
  MaskValues(const MaskValues&) = delete;
  MaskValues& operator=(const MaskValues&) = delete;

  // Returns true if the value is such a mask, or computed on the way to one.
  bool contains(int value) const { return offsets_[static_cast<size_t>(value)] >= 0; }
  // Returns the bytes of driver memory that compute() allocates.
  int64_t bytes() const { return bytes_; }
  // Returns false, with nothing computed, if the device has no room. Throws DeviceError as the kernels do.
  bool compute();
  // Returns the data of a value that this contains; null before compute().
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
