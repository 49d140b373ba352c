#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "tests/kernels/reference.h"

namespace headroom::test {
namespace {

// The row (b,i,h) of a tensor (B,rows,H,D). Looked up element by element, it would take most of the time
// under a sanitizer.
auto* row_of(auto& tensor, int64_t b, int64_t i, int64_t h) {
  const Shape& shape = tensor.shape();
  return tensor.data.data() + ((b * shape[1] + i) * shape[2] + h) * shape[3];
}

Shape rows_of(const Values& q) {
  return {q.shape()[0], q.shape()[2], q.shape()[1]};
}

constexpr double kLowest = std::numeric_limits<float>::lowest();

// The softmax of the scores of query i of head (b,h), and the statistics that Attention returns of it.
struct Shares {
  std::vector<double> p, slopes;  // of the soft cap
  double largest, log_sum;
};

// The head of the keys that head h of the queries reads.
int64_t key_head(const Values& q, const Values& k, int64_t h) {
  return h / (q.shape()[2] / k.shape()[2]);
}

template <typename Op>
Shares shares_of(const Values& q, const Values& k, const Values* mask, const Op& op, const Index& query) {
  const auto scale = static_cast<double>(op.scale), cap = static_cast<double>(op.softcap);
  const int64_t b = query[0], h = query[1], i = query[2], keys = k.shape()[1];
  Shares shares{std::vector<double>(static_cast<size_t>(keys)),
                std::vector<double>(static_cast<size_t>(keys), 1), 0, 0};
  const int64_t extent = q.shape()[3];
  const double* const of_query = row_of(q, b, i, h);
  double largest = -HUGE_VAL, sum = 0;
  for (int64_t j = 0; j < keys; ++j) {
    double& score = shares.p[static_cast<size_t>(j)];
    const double* const key = row_of(k, b, j, key_head(q, k, h));
    for (int64_t d = 0; d < extent; ++d) score += scale * of_query[d] * key[d];
    if (cap > 0) {
      const double tanh = std::tanh(score / cap);
      score = cap * tanh;
      shares.slopes[static_cast<size_t>(j)] = 1 - tanh * tanh;
    }
    // In f32, as frameworks add it: a large number leaves nothing of the score.
    if (mask != nullptr)
      score = static_cast<float>(score + (*mask)[position_of(mask->shape(), {b, h, i, j})]);
    largest = std::max(largest, score);
  }
  for (double& score : shares.p) sum += score = std::exp(score - largest);
  for (double& share : shares.p) share /= sum;
  shares.largest = largest == -HUGE_VAL ? largest : std::max(largest / std::numbers::ln2, kLowest);
  shares.log_sum = std::log2(sum);
  return shares;
}

std::vector<Values> attention(const Attention& op, const std::vector<Values>& in, std::vector<Values> out) {
  const Values &q = in[0], &k = in[1], &v = in[2];
  for_each_index(rows_of(q), [&](const Index& query, int64_t row) {
    const int64_t b = query[0], h = query[1], i = query[2];
    const Shares shares = shares_of(q, k, in.size() > 3 ? &in[3] : nullptr, op, query);
    const bool is_zero = op.zero_nan_rows && std::isnan(shares.p[0]);
    out[1][2 * row] = is_zero ? HUGE_VAL : shares.largest;
    out[1][2 * row + 1] = is_zero ? 0 : shares.log_sum;
    double* const sum = row_of(out[0], b, i, h);
    for (int64_t j = 0; j < k.shape()[1] && !is_zero; ++j) {
      const double share = shares.p[static_cast<size_t>(j)], *const value =
                                                                 row_of(v, b, j, key_head(q, v, h));
      for (int64_t d = 0; d < v.shape()[3]; ++d) sum[d] += share * value[d];
    }
  });
  return out;
}

std::vector<Values> attention_grad(const AttentionGrad& op, const std::vector<Values>& in,
                                   std::vector<Values> out) {
  const Values &dy = in[0], &q = in[1], &k = in[2], &v = in[3], &y = in[4], &statistics = in[5];
  const auto scale = static_cast<double>(op.scale);
  for_each_index(rows_of(q), [&](const Index& query, int64_t row) {
    if (statistics[2 * row] == HUGE_VAL) return;
    const int64_t b = query[0], h = query[1], i = query[2], extent = q.shape()[3];
    const Shares shares = shares_of(q, k, in.size() > 6 ? &in[6] : nullptr, op, query);
    const double *const of_query = row_of(q, b, i, h), *const of_result = row_of(y, b, i, h),
                        *const given = row_of(dy, b, i, h);
    double* const dq = row_of(out[0], b, i, h);
    double whole = 0;
    for (int64_t d = 0; d < extent; ++d) whole += given[d] * of_result[d];
    for (int64_t j = 0; j < k.shape()[1]; ++j) {
      const double p = shares.p[static_cast<size_t>(j)];
      const int64_t shared = key_head(q, k, h);
      const double *const key = row_of(k, b, j, shared), *const value = row_of(v, b, j, shared);
      double *const dk = row_of(out[1], b, j, shared), *const dv = row_of(out[2], b, j, shared), product = 0;
      for (int64_t d = 0; d < extent; ++d) product += given[d] * value[d];
      const double gradient = scale * p * shares.slopes[static_cast<size_t>(j)] * (product - whole);
      for (int64_t d = 0; d < extent; ++d) {
        dq[d] += gradient * key[d];
        dk[d] += gradient * of_query[d];
        dv[d] += p * given[d];
      }
    }
  });
  return out;
}

// Calls use(element of the packed tensor, element of the part) for part `which` of q, k and v packed
// (B,T,3,H,D).
template <typename Use>
void for_each_of_part(const Shape& packed, int64_t which, const Use& use) {
  const int64_t row = packed[3] * packed[4];
  for (int64_t i = 0; i < packed[0] * packed[1]; ++i) {
    for (int64_t j = 0; j < row; ++j) use((3 * i + which) * row + j, i * row + j);
  }
}

// Returns the operands with the packed one at `first` as three.
std::vector<Values> unpacked(const std::vector<Values>& in, size_t first) {
  std::vector<Values> result(in.begin(), in.begin() + static_cast<long>(first));
  const Shape& s = in[first].shape();
  for (int64_t which = 0; which < 3; ++which) {
    Values part{{in[first].spec.dtype, {s[0], s[1], s[3], s[4]}}, {}};
    part.data.resize(in[first].data.size() / 3);
    for_each_of_part(s, which, [&](int64_t from, int64_t to) { part[to] = in[first][from]; });
    result.push_back(std::move(part));
  }
  result.insert(result.end(), in.begin() + static_cast<long>(first) + 1, in.end());
  return result;
}

// The keys or values (B,S,G,D) of a cache (B,G,S,D) of which some rows are new.
Values replaced(const Values& cache, const Values& rows, const Values& indices) {
  const Shape& s = cache.shape();
  Values all{{cache.spec.dtype, {s[0], s[2], s[1], s[3]}}, cache.data};
  for (int64_t head = 0; head < s[0] * s[1]; ++head) {
    const int64_t b = head / s[1], g = head % s[1], count = rows.shape()[2];
    const auto put = [&](int64_t place, const Values& from, int64_t row) {
      double* const to = row_of(all, b, place, g);
      for (int64_t d = 0; d < s[3]; ++d) to[d] = from[row * s[3] + d];
    };
    for (int64_t i = 0; i < s[2]; ++i) put(i, cache, head * s[2] + i);
    for (int64_t i = 0; i < count; ++i)
      put((static_cast<int64_t>(indices[i]) % s[2] + s[2]) % s[2], rows, head * count + i);
  }
  return all;
}

std::vector<Values> cached_attention(const CachedAttention& op, const std::vector<Values>& in,
                                     std::vector<Values> out) {
  const Shape& q = in[0].shape();
  out.push_back({{DType::kF32, {q[0], q[2], q[1], 2}},
                 std::vector<double>(static_cast<size_t>(2 * q[0] * q[1] * q[2]))});
  out =
      attention({op.scale, op.zero_nan_rows, false, op.softcap},
                {in[0], replaced(in[3], in[1], in[5]), replaced(in[4], in[2], in[5]), in[6]}, std::move(out));
  out.pop_back();
  return out;
}

// A tile is plain (1) where its mask is 0, hidden (2) where each number is -inf or far below the largest of
// its row, and mixed (0) otherwise.
std::vector<Values> mask_tiles(const MaskTiles& op, const Values& mask, std::vector<Values> out) {
  const Shape& scores = op.scores;
  const auto extent = [&](int axis) {
    return mask.shape().rank() < axis ? int64_t{1} : mask.shape()[mask.shape().rank() - axis];
  };
  const int64_t keys = scores[3], rows = extent(2), tile = 64;
  int64_t at = 0;
  for (int64_t head = 0; head < extent(4) * extent(3); ++head) {
    for (int64_t first = 0; first < rows; first += tile) {
      for (int64_t begin = 0; begin < keys; begin += tile, ++at) {
        bool is_plain = true, is_hidden = true;
        for (int64_t i = first; i < std::min(rows, first + tile); ++i) {
          const auto row = mask.data.begin() + (head * rows + i) * keys;
          const double largest = *std::max_element(row, row + keys);
          for (int64_t j = begin; j < std::min(keys, begin + tile); ++j) {
            is_plain = is_plain && row[j] == 0;
            is_hidden = is_hidden && (row[j] == -HUGE_VAL || row[j] < largest - 1e9);
          }
        }
        out[0][at] = is_hidden ? 2 : is_plain ? 1 : 0;
      }
    }
  }
  return out;
}

}  // namespace

std::vector<Values> reference_attention(const Op& op, const std::vector<Values>& in,
                                        std::vector<Values> out) {
  if (const auto* tiles = std::get_if<MaskTiles>(&op)) return mask_tiles(*tiles, in[0], std::move(out));
  if (const auto* forward = std::get_if<Attention>(&op))
    return attention(*forward, forward->packed ? unpacked(in, 0) : in, std::move(out));
  if (const auto* cached = std::get_if<CachedAttention>(&op))
    return cached_attention(*cached, in, std::move(out));
  const auto* grad = std::get_if<AttentionGrad>(&op);
  if (grad == nullptr) return {};
  if (!grad->packed) return attention_grad(*grad, in, std::move(out));
  const std::vector<Values> parts = attention_grad(*grad, unpacked(in, 1), unpacked(out, 0));
  for (int64_t which = 0; which < 3; ++which) {
    const Values& part = parts[static_cast<size_t>(which)];
    for_each_of_part(out[0].shape(), which, [&](int64_t to, int64_t from) { out[0][to] = part[from]; });
  }
  return out;
}

}  // namespace headroom::test
