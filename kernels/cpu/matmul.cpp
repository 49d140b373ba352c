// Matrix products over broadcast batches.
#include <Eigen/Core>
#include <algorithm>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/worker_scratch.h"
#include "kernels/loop_nest.h"

namespace headroom::cpu {
namespace {

// Sizes of the panels that Eigen packs, held in workspace: Eigen's own products take them from the heap.
class Blocking : public Eigen::internal::level3_blocking<float, float> {
 public:
  Blocking(Eigen::Index rows, Eigen::Index columns, Eigen::Index depth) {
    m_mc = rows;
    m_nc = columns;
    m_kc = depth;
    Eigen::internal::computeProductBlockingSizes<float, float>(m_kc, m_mc, m_nc);
  }
  int64_t workspace_bytes() const { return (left_elements() + m_kc * m_nc) * int64_t{sizeof(float)}; }
  void use(float* workspace) {
    m_blockA = workspace;
    m_blockB = workspace + left_elements();
  }

 private:
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

}  // namespace

std::unique_ptr<Kernel> make_kernel(const MatMul& op, const Request& request) {
  const Shape &a = request.inputs[0].shape, &b = request.inputs[1].shape, &y = request.outputs[0].shape;
  Product product{y[y.rank() - 2], y[y.rank() - 1], op.transpose_a ? a[a.rank() - 2] : a.last(), 0, op};
  // One b for all makes the batch more rows of a.
  const bool one_product = b.rank() == 2 && !op.transpose_a;
  const Shape batch = one_product ? Shape() : batch_of(y);
  if (one_product) product.m *= batch_of(y).elements();
  product.rows_of_a = product.m;
  std::array<Strides, 3> strides{};
  if (!one_product) strides = {batch_strides(a, batch), batch_strides(b, batch), batch_strides(y, batch)};
  const LoopNest<3> nest(batch, strides);
  if (y.elements() == 0) return function_kernel([](const Call&) {});
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
