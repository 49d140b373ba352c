// The table of ops and shapes that every implementation of the kernels is held to: all ops but the
// convolutions, which have a table of their own.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tests/kernels/host_tensor.h"

namespace headroom::test {

struct KernelCase {
  std::string name;
  Op op;
  std::vector<HostTensor> inputs;
  double tolerance = 1e-5;  // share of the larger of 1 and the value
};

// The row's name where GoogleTest names a row that failed.
inline void PrintTo(const KernelCase& row, std::ostream* stream) {
  *stream << row.name;
}

std::vector<KernelCase> kernel_cases();

// Rows for a GPU in addition to those, which are small: results shared between blocks, loops of several
// iterations, rows longer than a warp, full and partial tiles.
std::vector<KernelCase> large_kernel_cases();

// Parts of the common table.
void add_matmul_and_pool_cases(std::vector<KernelCase>& cases);
void add_attention_cases(std::vector<KernelCase>& cases);
void add_elementwise_cases(std::vector<KernelCase>& cases);
void add_expression_cases(std::vector<KernelCase>& cases);
void add_movement_cases(std::vector<KernelCase>& cases);
void add_statistics_cases(std::vector<KernelCase>& cases);
void add_update_cases(std::vector<KernelCase>& cases);

}  // namespace headroom::test
