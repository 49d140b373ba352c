// Matrix products over broadcast batches.
#include <Eigen/Core>
#include <algorithm>
#include <array>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/worker_scratch.h"
#include "kernels/loop_nest.h"

namespace headroom::cpu {
namespace {

// Sizes of the panels that Eigen packs, held in workspace: Eigen's own products take them from the heap. They
// follow Eigen's rule for one thread (evaluateProductBlockingSizesHeuristic in 3.4), but for the caches and
// registers of one CPU, which is not the host's: a product takes the same memory everywhere.
class Blocking : public Eigen::internal::level3_blocking<float, float> {
 public:
  Blocking(int64_t rows, int64_t columns, int64_t depth) {
    m_mc = rows;
    m_nc = columns;
    m_kc = depth;
    if (depth > 0 && std::max({rows, columns, depth}) >= kTileRows) block();
  }
  int64_t workspace_bytes() const { return (left_elements() + m_kc * m_nc) * int64_t{sizeof(float)}; }
  void use(float* workspace) {
    m_blockA = workspace;
    m_blockB = workspace + left_elements();
  }

 private:
  // A tile of the result stays in registers. Caches hold so many floats; the first one is four times what
  // CPUs with vectors of 16 have, for with less Eigen's panels are too thin there.
  static constexpr int64_t kTileRows = 48, kTileColumns = 4, kDepthStep = 8;
  static constexpr int64_t kFirstCache = 32 * 1024, kSecondCache = 256 * 1024, kLastCache = 384 * 1024;
  static constexpr int64_t kBesideTile = kFirstCache - kTileRows * kTileColumns;
  static constexpr int64_t kMostDepth = kBesideTile / (kTileRows + kTileColumns) / kDepthStep * kDepthStep;
  // Left panels of at most so many elements leave the first, and the second, cache to the rows.
  static constexpr int64_t kTinyPanel = 256, kSmallPanel = 8 * 1024, kMostRowsBesideSmall = 576;

  // The size of parts of `all`, in steps: as few as with parts of `most`, which is less, but more equal.
  static int64_t even_part(int64_t all, int64_t most, int64_t step, int64_t at_least) {
    const int64_t rest = all % most;
    return rest == 0 ? most : most - (most - at_least - rest) / (step * (all / most + 1)) * step;
  }
  void block() {
    const int64_t depth = m_kc;
    if (depth > kMostDepth) m_kc = even_part(depth, kMostDepth, kDepthStep, 1);
    const int64_t left = kBesideTile - m_mc * m_kc;  // beside all rows
    const int64_t most = left >= kTileColumns * m_kc ? left / m_kc : 3 * kLastCache / (4 * kMostDepth);
    const int64_t columns = std::min(kLastCache / (2 * m_kc), most) / kTileColumns * kTileColumns;
    if (m_nc > columns) {
      m_nc = even_part(m_nc, columns, kTileColumns, 0);
    } else if (m_kc == depth) {
      block_rows();
    }
  }
  void block_rows() {
    const int64_t panel = m_kc * m_nc;
    const int64_t cache = panel <= kTinyPanel    ? kFirstCache
                          : panel <= kSmallPanel ? kSecondCache
                                                 : kLastCache;
    int64_t rows = std::min<int64_t>(cache / (3 * m_kc), m_mc);
    if (panel > kTinyPanel && panel <= kSmallPanel) rows = std::min(rows, kMostRowsBesideSmall);
    if (rows > kTileRows) rows -= rows % kTileRows;
    if (rows > 0) m_mc = even_part(m_mc, rows, kTileRows, 0);
  }
  // Rounded to 64 floats, so that the second panel is aligned too.
  int64_t left_elements() const { return (m_mc * m_kc + 63) / 64 * 64; }
};

// Rows of a piece. Eigen processes columns of its transposed result in panels of 4 or 8, and the remaining
// ones singly, with sums in another order: pieces of whole panels give the bits of the whole. A piece has a
// million multiply-adds or more, compared to which waking a thread is cheap.
int64_t rows_of_piece(int64_t n, int64_t k) {
  constexpr int64_t kPanels = 24, kMultiplyAdds = 1 << 20;
  return (kMultiplyAdds / std::max<int64_t>(1, n * k) / kPanels + 1) * kPanels;
}

// One product of row-major matrices: (m,k) x (k,n) -> (m,n).
struct Product {
  int64_t m, n, k;
  int64_t rows_of_a;  // in memory: m, or more where this is a piece of a product
  MatMul op;

  // Eigen's results are column-major, so it computes the transposed product: b' a'.
  template <int kOrderB, int kOrderA>
  void add(const float* a, const float* b, float* y, Blocking& blocking) const {
    using Eigen::ColMajor;
    Eigen::internal::general_matrix_matrix_product<Eigen::Index, float, kOrderB, false, float, kOrderA, false,
                                                   ColMajor, 1>::run(n, m, k, b, op.transpose_b ? k : n, a,
                                                                     op.transpose_a ? rows_of_a : k, y, 1, n,
                                                                     1.0f, blocking, nullptr);
  }
  void operator()(const float* a, const float* b, float* y, Blocking blocking) const {
    using Eigen::ColMajor, Eigen::RowMajor;
    std::fill_n(y, m * n, 0.0f);
    if (op.transpose_a) {
      op.transpose_b ? add<RowMajor, RowMajor>(a, b, y, blocking)
                     : add<ColMajor, RowMajor>(a, b, y, blocking);
    } else {
      op.transpose_b ? add<RowMajor, ColMajor>(a, b, y, blocking)
                     : add<ColMajor, ColMajor>(a, b, y, blocking);
    }
  }
};

// A product of few rows reads each number of b once, so that to pack b first costs more than to multiply.
constexpr int64_t kMostFewRows = 8;

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
  const int64_t row_step = of.op.transpose_a ? 1 : of.k, depth_step = of.op.transpose_a ? of.rows_of_a : 1;
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

template <int kCount>
float sum_of(const float* x) {
  if constexpr (kCount == 1) {
    return x[0];
  } else {
    float sums[kCount / 2];
    for (int i = 0; i < kCount / 2; ++i) sums[i] = x[i] + x[i + kCount / 2];
    return sum_of<kCount / 2>(sums);
  }
}

float sum_of(Vec v) {
  float lanes[kLanes];
  store(lanes, v);
  return sum_of<kLanes>(lanes);
}

// kColumns numbers of each row of y, each from a row of b (n,k) and a row of a, whose numbers are adjacent.
template <int kRows, int kColumns>
void multiply_rows(const float* a, const float* b, float* y, int64_t n, int64_t k) {
  Vec sums[kRows][kColumns] = {};
  const auto add = [&](int64_t d, auto load_from) {
    Vec columns[kColumns];
    for (int j = 0; j < kColumns; ++j) columns[j] = load_from(b + j * k + d);
    for (int i = 0; i < kRows; ++i) {
      const Vec row = load_from(a + i * k + d);
      for (int j = 0; j < kColumns; ++j) sums[i][j] += row * columns[j];
    }
  };
  int64_t d = 0;
  for (; d + kLanes <= k; d += kLanes) add(d, load);
  if (d < k) add(d, [&](const float* p) { return load_some(p, k - d); });
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) y[i * n + j] = sum_of(sums[i][j]);
  }
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
  Product product{y[y.rank() - 2], y[y.rank() - 1], op.transpose_a ? a[a.rank() - 2] : a.last(), 0, op};
  // One b for all makes the batch more rows of a.
  const bool one_product = b.rank() == 2 && !op.transpose_a;
  const Shape batch = one_product ? Shape() : batch_of(y);
  if (one_product) product.m *= batch_of(y).elements();
  product.rows_of_a = product.m;
  bool is_exchanged = false;
  std::array<Strides, 3> strides{};
  if (!one_product) strides = {batch_strides(a, batch), batch_strides(b, batch), batch_strides(y, batch)};
  const LoopNest<3> nest(batch, strides);
  if (y.elements() == 0) return function_kernel([](const Call&) {});
  if (product.n == 1) {  // the same as a row times the transposed of a
    product = {1, product.m, product.k, 1, MatMul{false, !op.transpose_a}};
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
  const Blocking sizes(product.n, product.m, product.k);
  const int64_t grain = rows_of_piece(product.n, product.k);
  ThreadPool* const threads = request.settings.threads;
  const WorkerScratch scratch(product.m > grain ? threads : nullptr, sizes.workspace_bytes());
  return function_kernel(
      [=](const Call& call) {
        const auto steps = nest.row_strides();
        nest.for_each_row([&](const auto& at) {
          for (int64_t i = 0; i < nest.row_extent(); ++i) {
            const float* const left = call.in(0) + at[0] + i * steps[0];
            const float* const right = call.in(1) + at[1] + i * steps[1];
            float* const result = call.out() + at[2] + i * steps[2];
            for_each_piece(threads, product.m, grain, [&](int64_t begin, int64_t end, int worker) {
              Blocking blocking = sizes;
              blocking.use(scratch.of(worker, call.scratch<float>()));
              Product piece = product;
              piece.m = end - begin;
              piece(left + begin * (op.transpose_a ? 1 : product.k), right, result + begin * product.n,
                    blocking);
            });
          }
        });
      },
      sizes.workspace_bytes());
}

}  // namespace headroom::cpu
