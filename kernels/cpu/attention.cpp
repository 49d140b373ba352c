// Attention of heads and its gradient, a query after the other: the scores of a tile of keys are on the
// stack, times log2(e), as on a GPU. With p the softmax of the scores and a dot for a product of rows:
//   dv_j = sum over i of p_ij dy_i,  ds_ij = p_ij (dy_i . v_j - dy_i . y_i),
//   dq_i = scale sum over j of ds_ij k_j,  dk_j = scale sum over i of ds_ij q_i
// With a soft cap, ds_ij is also times the slope of the cap at the score.
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/thread_pool.h"
#include "kernels/attention_tiles.h"
#include "kernels/cpu/cpu_kernels.h"
#include "ops/movement.h"

namespace headroom::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

using Row = Eigen::Map<Eigen::ArrayXf>;
using ConstRow = Eigen::Map<const Eigen::ArrayXf>;

// Classifies the tiles of one row of tiles: `mask` is at its first query.
void classify(const float* mask, const AttentionSizes& sizes, int64_t queries, int64_t row_stride,
              MaskTile* tiles) {
  std::array<float, kAttentionTile> largest{};
  for (int64_t i = 0; i < queries; ++i) {
    const float* row = mask + i * row_stride;
    largest[static_cast<size_t>(i)] = *std::max_element(row, row + sizes.keys);
  }
  for (int64_t tile = 0; tile < sizes.key_tiles(); ++tile) {
    const int64_t begin = tile * kAttentionTile, end = std::min(begin + kAttentionTile, sizes.keys);
    bool is_hidden = true, is_plain = true;
    for (int64_t i = 0; i < queries; ++i) {
      const float below = largest[static_cast<size_t>(i)] - kHiddenBelow;
      for (int64_t j = begin; j < end; ++j) {
        const float value = mask[i * row_stride + j];
        is_hidden = is_hidden && (value == -kInfinity || value < below);
        is_plain = is_plain && value == 0;
      }
    }
    tiles[tile] = is_hidden ? MaskTile::kHidden : is_plain ? MaskTile::kPlain : MaskTile::kMixed;
  }
}

// A number of a mask as a score is. A finite one stays finite: a row that the lowest float hides throughout
// has equal shares and not NaN.
float in_powers_of_2(float x) {
  return x == -kInfinity ? x : std::max(x * kLog2E, std::numeric_limits<float>::lowest());
}

// A score under a soft cap, and the cap's slope there.
struct Capped {
  float value, slope;
  Capped(float score, float cap)
      : value(cap * std::tanh(score / cap)), slope(1 - value * value / (cap * cap)) {}
};

// The keys or the values of one head.
struct HeadRows {
  const float* first;
  int64_t step;
  const float* at(int64_t i) const { return first + i * step; }
};

// The keys or values of a cache, of which `count` new rows replace some.
struct CachedRows {
  HeadRows cached, fresh;
  int64_t rows;
  const int32_t* indices;
  int64_t count;
  const float* at(int64_t i) const {
    for (int64_t n = count; n-- > 0;) {
      if (turn_of_step(indices[n], rows) == i) return fresh.at(n);
    }
    return cached.at(i);
  }
};

// The scores of one call, a query and a tile of keys at a time.
class Scores {
 public:
  using Tile = std::array<float, kAttentionTile>;

  // `mask` and its `tiles` are null without one.
  Scores(const AttentionSizes& sizes, const MaskLayout& layout, float scale, float softcap, const float* mask,
         const MaskTile* tiles)
      : sizes_(sizes), layout_(layout), scale_(scale), softcap_(softcap), mask_(mask), tiles_(tiles) {}

  // Calls use(first key, scores, slopes of the soft cap) for the tiles of query i that the mask does not
  // hide; q and k are those of head (b,h).
  template <typename Keys, typename Use>
  void for_each_tile(int64_t b, int64_t h, int64_t i, const float* q, const Keys& k, Use use) const {
    const float* const mask_row = mask_ == nullptr ? nullptr
                                                   : mask_ + b * layout_.batch_stride +
                                                         h * layout_.head_stride + i * layout_.row_stride;
    const MaskTile* const row_tiles = tiles_ + (b * layout_.batch_strips + h * layout_.head_strips +
                                                i / kAttentionTile * layout_.row_strips) *
                                                   sizes_.key_tiles();
    // Eigen takes the first numbers one by one up to an aligned address: their bits must not depend on the
    // stack.
    alignas(64) Tile tile, slopes;
    slopes.fill(1);
    for (int64_t begin = 0; begin < sizes_.keys; begin += kAttentionTile) {
      const MaskTile kind = mask_ == nullptr ? MaskTile::kPlain : row_tiles[begin / kAttentionTile];
      if (kind == MaskTile::kHidden) continue;
      Row scores(tile.data(), std::min(kAttentionTile, sizes_.keys - begin));
      for (int64_t j = 0; j < scores.size(); ++j) scores[j] = scale_ * kLog2E * dot(q, k.at(begin + j));
      for (int64_t j = 0; softcap_ > 0 && j < scores.size(); ++j) {
        const Capped capped(scores[j], softcap_ * kLog2E);
        scores[j] = capped.value;
        slopes[static_cast<size_t>(j)] = capped.slope;
      }
      if (kind == MaskTile::kMixed) {
        for (int64_t j = 0; j < scores.size(); ++j) scores[j] += in_powers_of_2(mask_row[begin + j]);
      }
      use(begin, scores, slopes);
    }
  }

  // The softmax of query i's scores, and its statistics.
  struct Statistics {
    float largest = -kInfinity, sum = 0;
  };
  // Sets y to the mean of the values by that softmax; it is 0 if `zero_nan_rows` says so.
  template <typename Keys>
  Statistics attend(int64_t b, int64_t h, int64_t i, const float* q, const Keys& k, const Keys& v,
                    bool zero_nan_rows, float* to) const {
    Row y(to, sizes_.extent);
    y = 0;
    Statistics found;
    for_each_tile(b, h, i, q, k, [&](int64_t begin, Row& p, const auto&) {
      const float of_tile = p.maxCoeff<Eigen::PropagateNaN>();
      const float larger = of_tile <= found.largest ? found.largest : of_tile;  // NaN stays
      if (larger == -kInfinity) return;
      const float factor = std::exp2(found.largest - larger);
      found.largest = larger;
      p = ((p - larger) * kLn2).exp();
      found.sum = found.sum * factor + p.sum();
      y *= factor;
      for (int64_t j = 0; j < p.size(); ++j) y += p[j] * ConstRow(v.at(begin + j), sizes_.extent);
    });
    const bool is_zero = zero_nan_rows && !(found.sum > 0);
    if (is_zero) {
      y = 0;
      return {kInfinity, 0};
    }
    y /= found.sum;
    return found;
  }

  float dot(const float* a, const float* b) const {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < sizes_.extent; ++i) sum += a[i] * b[i];
    return sum;
  }

 private:
  const AttentionSizes sizes_;
  const MaskLayout layout_;
  const float scale_, softcap_;
  const float* const mask_;
  const MaskTile* const tiles_;
};

MaskLayout layout_of(std::span<const TensorSpec> inputs, size_t mask, const AttentionSizes& sizes) {
  return inputs.size() > mask ? MaskLayout(inputs[mask].shape, sizes) : MaskLayout();
}

template <typename Op>
Scores scores_of(const Call& call, const HeadOperands& heads, const AttentionSizes& sizes,
                 const MaskLayout& layout, const Op& op) {
  const bool has_mask = call.inputs.size() > heads.mask();
  return Scores(sizes, layout, op.scale, op.softcap, has_mask ? call.in(heads.mask()) : nullptr,
                has_mask ? call.in<MaskTile>(heads.mask() + 1) : nullptr);
}

// q, k and v, or their gradients.
template <typename T>
struct HeadData {
  T *q, *k, *v;

  // From tensor `first` on.
  HeadData(std::span<const TensorView> tensors, size_t first, const HeadOperands& heads) {
    const int64_t row = heads.q[2] * heads.q[3];
    const auto at = [&](size_t i) {
      return heads.is_packed() ? tensors[first].as<T>() + static_cast<int64_t>(i) * row
                               : tensors[first + i].as<T>();
    };
    q = at(0), k = at(1), v = at(2);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_kernel(const MaskTiles& op, const Request& request) {
  const AttentionSizes sizes(op.scores);
  const MaskLayout layout(request.inputs[0].shape, sizes);
  return function_kernel([=](const Call& call) {
    const int64_t of_head = layout.row_strips == 0 ? 1 : sizes.query_tiles();
    for (int64_t strip = 0; strip < layout.strips; ++strip) {
      const int64_t first = strip % of_head * kAttentionTile;
      // Rows of the mask are dense: a head has layout.queries of them.
      const float* at = call.in(0) + (strip / of_head * layout.queries + first) * sizes.keys;
      classify(at, sizes, std::min(kAttentionTile, layout.queries - first), sizes.keys,
               call.out<MaskTile>() + strip * sizes.key_tiles());
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const Attention& op, const Request& request) {
  const HeadOperands heads(op, request.inputs);
  const AttentionSizes sizes(heads.q, heads.k);
  const MaskLayout layout = layout_of(request.inputs, heads.mask(), sizes);
  ThreadPool* const threads = request.settings.threads;
  return function_kernel([=](const Call& call) {
    const int64_t step = heads.row_step(), y_step = sizes.row_stride();
    const Scores scores = scores_of(call, heads, sizes, layout, op);
    const HeadData<const float> all(call.inputs, heads.first, heads);
    for_each_piece(threads, sizes.head_count(), 1, [&](int64_t first, int64_t last, int) {
      for (int64_t head = first; head < last; ++head) {
        const int64_t b = head / sizes.heads, h = head % sizes.heads;
        const int64_t at = h * sizes.extent, key_step = heads.key_step();
        const int64_t keys_at = b * sizes.keys * key_step + h / sizes.group() * sizes.extent;
        const HeadRows k{all.k + keys_at, key_step}, v{all.v + keys_at, key_step};
        for (int64_t i = 0; i < sizes.queries; ++i) {
          const int64_t row = b * sizes.queries + i;
          const auto found = scores.attend(b, h, i, all.q + row * step + at, k, v, op.zero_nan_rows,
                                           call.out(0) + row * y_step + at);
          float* const statistics = call.out(1) + 2 * (head * sizes.queries + i);
          statistics[0] = found.largest;
          statistics[1] = found.largest == kInfinity ? 0 : std::log2(found.sum);
        }
      }
    });
  });
}

std::unique_ptr<Kernel> make_kernel(const CachedAttention& op, const Request& request) {
  using Op = CachedAttention;
  const Shape &q = request.inputs[Op::kQ].shape, &k = request.inputs[Op::kK].shape;
  const AttentionSizes sizes(q, {k[0], k[2], k[1], k[3]});
  const MaskLayout layout(request.inputs[Op::kMask].shape, sizes);
  const int64_t count = request.inputs[Op::kIndices].shape[0];
  ThreadPool* const threads = request.settings.threads;
  return function_kernel([=](const Call& call) {
    const Scores scores(sizes, layout, op.scale, op.softcap, call.in(Op::kMask),
                        call.in<MaskTile>(Op::kTiles));
    for_each_piece(threads, sizes.head_count(), 1, [&](int64_t first, int64_t last, int) {
      for (int64_t head = first; head < last; ++head) {
        const int64_t b = head / sizes.heads, h = head % sizes.heads;
        const int64_t key_head = b * sizes.key_heads + h / sizes.group();
        const auto rows_of = [&](size_t cached, size_t fresh) {
          const auto of = [&](size_t operand, int64_t rows) {
            return HeadRows{call.in(operand) + key_head * rows * sizes.extent, sizes.extent};
          };
          return CachedRows{of(cached, sizes.keys), of(fresh, count), sizes.keys,
                            call.in<int32_t>(Op::kIndices), count};
        };
        const CachedRows keys = rows_of(Op::kK, Op::kNewK), values = rows_of(Op::kV, Op::kNewV);
        for (int64_t i = 0; i < sizes.queries; ++i) {
          const int64_t at = (b * sizes.queries + i) * sizes.row_stride() + h * sizes.extent;
          scores.attend(b, h, i, call.in(Op::kQ) + at, keys, values, op.zero_nan_rows, call.out() + at);
        }
      }
    });
  });
}

std::unique_ptr<Kernel> make_kernel(const AttentionGrad& op, const Request& request) {
  const HeadOperands heads(op, request.inputs);
  const AttentionSizes sizes(heads.q, heads.k);
  const MaskLayout layout = layout_of(request.inputs, heads.mask(), sizes);
  ThreadPool* const threads = request.settings.threads;
  return function_kernel([=](const Call& call) {
    const int64_t step = heads.row_step(), y_step = sizes.row_stride();
    const Scores scores = scores_of(call, heads, sizes, layout, op);
    const HeadData<const float> all(call.inputs, heads.first, heads);
    const HeadData<float> gradients(call.outputs, 0, heads);
    const float* const y_all = call.in(1 + heads.count);
    for (const TensorView& output : call.outputs) std::fill_n(output.as<float>(), output.elements(), 0.0f);
    // Heads that share keys add to one gradient, one after the other.
    for_each_piece(threads, sizes.batch * sizes.key_heads, 1, [&](int64_t first, int64_t last, int) {
      for (int64_t head = first * sizes.group(); head < last * sizes.group(); ++head) {
        const int64_t b = head / sizes.heads, h = head % sizes.heads, key_step = heads.key_step();
        const int64_t at = h * sizes.extent,
                      keys_at = b * sizes.keys * key_step + h / sizes.group() * sizes.extent;
        const HeadRows k{all.k + keys_at, key_step}, v{all.v + keys_at, key_step};
        for (int64_t i = 0; i < sizes.queries; ++i) {
          const int64_t row = b * sizes.queries + i;
          const float *dy = call.in(0) + row * y_step + at, *q = all.q + row * step + at;
          Row dq(gradients.q + row * step + at, sizes.extent);
          const float* const statistics = call.in(2 + heads.count) + 2 * (head * sizes.queries + i);
          if (statistics[0] == kInfinity) continue;
          const float product = scores.dot(dy, y_all + row * y_step + at);
          scores.for_each_tile(b, h, i, q, k, [&](int64_t begin, Row& p, const auto& slopes) {
            p = ((p - statistics[0] - statistics[1]) * kLn2).exp();
            for (int64_t j = 0; j < p.size(); ++j) {
              const int64_t key = (begin + j) * key_step;
              const float ds = op.scale * p[j] * slopes[static_cast<size_t>(j)] *
                               (scores.dot(dy, v.at(begin + j)) - product);
              dq += ds * ConstRow(k.at(begin + j), sizes.extent);
              Row(gradients.k + keys_at + key, sizes.extent) += ds * ConstRow(q, sizes.extent);
              Row(gradients.v + keys_at + key, sizes.extent) += p[j] * ConstRow(dy, sizes.extent);
            }
          });
        }
      }
    });
  });
}

}  // namespace headroom::cpu
