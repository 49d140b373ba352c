// Matrix products over broadcast batches.
#include <algorithm>
#include <array>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tiled_product.h"
#include "kernels/loop_nest.h"

namespace headroom::cpu {
namespace {

// One product of row-major matrices: (m,k) x (k,n) -> (m,n).
struct Product {
  int64_t m, n, k;
  MatMul op;

  TiledProduct tiled() const {
    return {m,
            n,
            k,
            op.transpose_a ? 1 : k,
            op.transpose_a ? m : 1,
            op.transpose_b ? 1 : n,
            op.transpose_b ? k : 1,
            n};
  }
};

// y (kRows,n) += some rows of b (k,n), in blocks of columns whose part of y stays in a near cache. `a` has
// steps between its rows and between the numbers of a row.
template <int kRows, int kDepth>
void add_rows_of_b(const float* a, int64_t row_step, int64_t depth_step, const float* b, float* y, int64_t n,
                   int64_t columns) {
  Vec factors[kRows][kDepth];
  for (int i = 0; i < kRows; ++i) {
    for (int d = 0; d < kDepth; ++d) factors[i][d] = Vec{} + a[i * row_step + d * depth_step];
  }
  const auto add = [&](int64_t j, auto load_from, auto store_to) {
    Vec sums[kRows];
    for (int i = 0; i < kRows; ++i) sums[i] = load_from(y + i * n + j);
    for (int d = 0; d < kDepth; ++d) {
      const Vec row = load_from(b + d * n + j);
      for (int i = 0; i < kRows; ++i) sums[i] += factors[i][d] * row;
    }
    for (int i = 0; i < kRows; ++i) store_to(y + i * n + j, sums[i]);
  };
  int64_t j = 0;
  for (; j + kLanes <= columns; j += kLanes) add(j, load, store);
  if (j == columns) return;
  add(
      j, [&](const float* p) { return load_some(p, columns - j); },
      [&](float* p, Vec v) { store_some(p, v, columns - j); });
}

// Calls f.operator()<kRows>(row) for the rows from `row` on, four at once: their sums stay in registers.
template <typename F>
void for_rows(int64_t rows, F f) {
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) f.template operator()<4>(row);
  if (rows - row == 3) f.template operator()<3>(row);
  if (rows - row == 2) f.template operator()<2>(row);
  if (rows - row == 1) f.template operator()<1>(row);
}

// y (m,n) of b (k,n).
void few_rows(const Product& of, const float* a, const float* b, float* y) {
  constexpr int64_t kNearFloats = 8192;  // of y, and of the rows of b: 32 KiB
  const int64_t row_step = of.op.transpose_a ? 1 : of.k, depth_step = of.op.transpose_a ? of.m : 1;
  const int64_t block = kNearFloats / of.m;
  for (int64_t begin = 0; begin < of.n; begin += block) {
    const int64_t columns = std::min(block, of.n - begin);
    for (int64_t i = 0; i < of.m; ++i) std::fill_n(y + i * of.n + begin, columns, 0.0f);
    const auto add = [&]<int kDepth>(int64_t d) {
      for_rows(of.m, [&]<int kRows>(int64_t row) {
        add_rows_of_b<kRows, kDepth>(a + row * row_step + d * depth_step, row_step, depth_step,
                                     b + d * of.n + begin, y + row * of.n + begin, of.n, columns);
      });
    };
    int64_t d = 0;
    if (of.m == 1) {
      for (; d + 8 <= of.k; d += 8) add.template operator()<8>(d);
    }
    for (; d + 4 <= of.k; d += 4) add.template operator()<4>(d);
    for (; d < of.k; ++d) add.template operator()<1>(d);
  }
}

// kColumns numbers of each row of y, each from a row of b (n,k) and a row of a, whose numbers are adjacent.
template <int kRows, int kColumns>
void multiply_rows(const float* a, const float* b, float* y, int64_t n, int64_t k) {
  constexpr int kSums = kRows * kColumns, kPadded = (kSums + kLanes - 1) / kLanes * kLanes;
  Vec sums[kPadded] = {};
  const auto add = [&](int64_t d, auto load_from) {
    Vec columns[kColumns];
    for (int j = 0; j < kColumns; ++j) columns[j] = load_from(b + j * k + d);
    for (int i = 0; i < kRows; ++i) {
      const Vec row = load_from(a + i * k + d);
      for (int j = 0; j < kColumns; ++j) sums[i * kColumns + j] += row * columns[j];
    }
  };
  int64_t d = 0;
  for (; d + kLanes <= k; d += kLanes) add(d, load);
  if (d < k) add(d, [&](const float* p) { return load_some(p, k - d); });
  float results[kPadded];
#pragma GCC unroll 4
  for (int i = 0; i < kPadded; i += kLanes) store(results + i, sums_of_lanes(sums + i));
  for (int i = 0; i < kRows; ++i) std::copy_n(results + i * kColumns, kColumns, y + i * n);
}

// y (m,n) of b (n,k). As many sums at once as hide how long one multiply-add takes.
void few_rows_of_transposed(const Product& of, const float* a, const float* b, float* y) {
  const auto columns = [&]<int kColumns>(int64_t j) {
    for_rows(of.m, [&]<int kRows>(int64_t row) {
      multiply_rows<kRows, kColumns>(a + row * of.k, b + j * of.k, y + row * of.n + j, of.n, of.k);
    });
  };
  int64_t j = 0;
  if (of.m == 1) {
    for (; j + 8 <= of.n; j += 8) columns.template operator()<8>(j);
  }
  for (; j + 4 <= of.n; j += 4) columns.template operator()<4>(j);
  for (; j < of.n; ++j) columns.template operator()<1>(j);
}

using FewRows = void (*)(const Product& of, const float* a, const float* b, float* y);

// Returns null for a product of more rows, or whose operands both have their numbers far apart.
FewRows few_rows_of(const Product& product) {
  if (product.m > kMostFewRows) return nullptr;
  if (!product.op.transpose_b) return few_rows;
  return product.op.transpose_a && product.m > 1 ? nullptr : few_rows_of_transposed;
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const MatMul& op, const Request& request) {
  const Shape &a = request.inputs[0].shape, &b = request.inputs[1].shape, &y = request.outputs[0].shape;
  Product product{y[y.rank() - 2], y[y.rank() - 1], op.transpose_a ? a[a.rank() - 2] : a.last(), op};
  // One b for all makes the batch more rows of a.
  const bool one_product = b.rank() == 2 && !op.transpose_a;
  const Shape batch = one_product ? Shape() : batch_of(y);
  if (one_product) product.m *= batch_of(y).elements();
  bool is_exchanged = false;
  std::array<Strides, 3> strides{};
  if (!one_product) strides = {batch_strides(a, batch), batch_strides(b, batch), batch_strides(y, batch)};
  const LoopNest<3> nest(batch, strides);
  if (y.elements() == 0) return function_kernel([](const Call&) {});
  if (product.n == 1) {  // the same as a row times the transposed of a
    product = {1, product.m, product.k, MatMul{false, !op.transpose_a}};
    is_exchanged = true;
  }
  if (const FewRows multiply = few_rows_of(product)) {
    const size_t left = is_exchanged ? 1 : 0, right = 1 - left;
    return function_kernel([=](const Call& call) {
      const auto steps = nest.row_strides();
      nest.for_each_row([&](const auto& at) {
        for (int64_t i = 0; i < nest.row_extent(); ++i) {
          multiply(product, call.in(left) + at[left] + i * steps[left],
                   call.in(right) + at[right] + i * steps[right], call.out() + at[2] + i * steps[2]);
        }
      });
    });
  }
  const TiledProduct tiled = product.tiled();
  const TiledKernel multiply(tiled, request.settings.threads);
  return function_kernel(
      [=](const Call& call) {
        const auto steps = nest.row_strides();
        nest.for_each_row([&](const auto& at) {
          for (int64_t i = 0; i < nest.row_extent(); ++i) {
            multiply(call.in(0) + at[0] + i * steps[0], call.in(1) + at[1] + i * steps[1], nullptr,
                     call.out() + at[2] + i * steps[2], call.scratch<float>());
          }
        });
      },
      tiled.workspace_bytes());
}

}  // namespace headroom::cpu
