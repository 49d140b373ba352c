// Reads MNIST from IDX files (Yann LeCun's format), gzipped or not. Knows no tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/models/mnist/dataset.h"

namespace headroom {

struct IdxArray {
  std::vector<int64_t> extents;
  std::vector<uint8_t> data;  // row-major
};

// The unsigned bytes of one IDX file with `rank` axes. Whether it is gzipped is told by its content. Memory
// is bounded by the extents in the header, and those by 1 GiB. Throws InvalidArgument naming the file for
// anything but a whole, well-formed file of exactly the size that its header states.
IdxArray read_idx(const std::string& path, int rank);

enum class MnistSplit : uint8_t { kTrain, kTest };

// One half of MNIST from `folder`, whose files have their usual names, with '-' or '.' before "idx", with or
// without
// ".gz". Throws InvalidArgument when a file is missing or broken, when images are not 28x28, when images and
// labels differ in number, or when a label is above 9.
Dataset load_mnist(const std::string& folder, MnistSplit split);

}  // namespace headroom
