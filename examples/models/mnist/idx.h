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

// Reads an IDX file of unsigned bytes with `rank` axes; detects gzip by content. The header may ask for at
// most 1 GiB. Throws InvalidArgument with the file name unless the file is well-formed and has exactly the
// size that its header states.
IdxArray read_idx(const std::string& path, int rank);

enum class MnistSplit : uint8_t { kTrain, kTest };

// Reads one half of MNIST from the files with the usual names in `folder`, with '-' or '.' before "idx", with
// or without ".gz". Throws InvalidArgument if a file is missing or broken, images are not 28x28, the numbers
// of images and labels differ, or a label is above 9.
Dataset load_mnist(const std::string& folder, MnistSplit split);

}  // namespace headroom
