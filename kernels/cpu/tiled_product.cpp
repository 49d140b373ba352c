// A tile of R rows and V vectors of columns walks over the depth: V loads of b and R numbers of a, each
// repeated in a vector, feed R x V multiply-adds, which are the bound.
#include "kernels/cpu/tiled_product.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "kernels/cpu/simd.h"

namespace headroom::cpu {
namespace {

constexpr int kMostVectors = kVectorRegisters == 32 ? 4 : 2;
constexpr int kMostPanelColumns = 4 * kMostLanes;
// So many rows of b are added at a time: a panel of them stays in the second-level cache, and a tile's rows
// of a in the first.
constexpr int64_t kDepth = 256;
// With fewer rows the copy of b costs more than its tiles save.
constexpr int64_t kRowsToPack = 48;

// Registers hold the sums of so many rows, beside vectors of `a` and b.
constexpr int most_rows(int vectors) {
  return vectors > 2 ? 6 : kVectorRegisters == 32 || vectors == 1 ? 8 : 6;
}

struct Tile {
  const float* a;
  int64_t a_row, a_depth;
  const float* b;
  int64_t b_depth;
  int64_t depth;
  const float* start;  // first sums of all rows; null to start from y
  float* y;
  int64_t y_row;
  int64_t last_lanes;  // columns in the last vector
  bool relu;
};

template <int kRows, int kVectors>
void run_tile(const Tile& t) {
  Vec sums[kRows][kVectors];
  const auto lanes = [&](int v) { return v + 1 == kVectors ? t.last_lanes : kLanes; };
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      const float* const from = t.start == nullptr ? t.y + i * t.y_row : t.start;
      sums[i][v] = load_some(from + v * kLanes, lanes(v));
    }
  }
  const float* a[kRows];
  for (int i = 0; i < kRows; ++i) a[i] = t.a + i * t.a_row;
  const float* b = t.b;
  int64_t at = 0;
  for (int64_t d = 0; d < t.depth; ++d) {
    Vec row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const float factor = a[i][at];
      for (int v = 0; v < kVectors; ++v) sums[i][v] += factor * row[v];
    }
    b += t.b_depth;
    at += t.a_depth;
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      const Vec sum = t.relu ? vec_max(Vec{}, sums[i][v]) : sums[i][v];  // NaN stays
      store_some(t.y + i * t.y_row + v * kLanes, sum, lanes(v));
    }
  }
}

using RunTile = void (*)(const Tile& tile);

template <int kVectors, int... kRows>
constexpr std::array<RunTile, sizeof...(kRows)> tiles_of(std::integer_sequence<int, kRows...>) {
  return {run_tile<kRows + 1, kVectors>...};
}

// All rows by tiles of about the same height.
template <int kVectors>
void run_rows(Tile tile, int64_t rows) {
  constexpr int kMost = most_rows(kVectors);
  static constexpr auto kTiles = tiles_of<kVectors>(std::make_integer_sequence<int, kMost>());
  for (int64_t tiles = (rows + kMost - 1) / kMost; tiles > 0; --tiles) {
    const int64_t count = (rows + tiles - 1) / tiles;
    kTiles[static_cast<size_t>(count - 1)](tile);
    tile.a += count * tile.a_row;
    tile.y += count * tile.y_row;
    rows -= count;
  }
}

void run_rows(const Tile& tile, int64_t rows, int64_t vectors) {
  if (vectors == 1) return run_rows<1>(tile, rows);
  if (vectors == 2) return run_rows<2>(tile, rows);
  if constexpr (kMostVectors == 4) vectors == 3 ? run_rows<3>(tile, rows) : run_rows<4>(tile, rows);
}

// Rows of a piece. A piece has a million multiply-adds or more, compared to which waking a thread is cheap.
int64_t rows_of_piece(int64_t n, int64_t k) {
  constexpr int64_t kTiles = 24, kMultiplyAdds = 1 << 20;  // whole tiles of rows
  return (kMultiplyAdds / std::max<int64_t>(1, n * k) / kTiles + 1) * kTiles;
}

// b (columns, depth), with `step` between its rows, becomes panel (depth, width) with zeros beyond.
void pack_transposed(const float* b, int64_t step, int64_t depth, int64_t columns, int64_t width,
                     float* panel) {
  for (int64_t column = 0; column < width; column += kLanes) {
    const int64_t count = std::min<int64_t>(kLanes, columns - column);
    for (int64_t d = 0; d < depth; d += kLanes) {
      const int64_t lanes = std::min<int64_t>(kLanes, depth - d);
      const float* const from = b + column * step + d;
      Vec rows[kLanes];
      if (lanes == kLanes && count == kLanes) {
        for (int i = 0; i < kLanes; ++i) rows[i] = load(from + i * step);
      } else {
        for (int i = 0; i < kLanes; ++i) rows[i] = i < count ? load_some(from + i * step, lanes) : Vec{};
      }
      transpose(rows);
      float* const to = panel + d * width + column;
      if (lanes == kLanes) {
        for (int i = 0; i < kLanes; ++i) store(to + i * width, rows[i]);
      } else {
        for (int i = 0; i < lanes; ++i) store(to + i * width, rows[i]);
      }
    }
  }
}

// b (depth, columns) likewise.
void pack(const float* b, int64_t step, int64_t depth, int64_t columns, int64_t width, float* panel) {
  for (int64_t d = 0; d < depth; ++d, b += step, panel += width) {
    int64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) store(panel + j, load(b + j));
    if (j < columns) store(panel + j, load_some(b + j, columns - j));
  }
}

}  // namespace

int64_t TiledProduct::workspace_bytes() const {
  const int64_t columns = (n + kMostLanes - 1) / kMostLanes * kMostLanes;
  return std::min(k, kDepth) * std::min<int64_t>(columns, kMostPanelColumns) * int64_t{sizeof(float)};
}

void TiledProduct::operator()(const float* a, const float* b, const float* bias, float* y,
                              float* workspace) const {
  static constexpr float kZeros[kMostPanelColumns] = {};
  for (int64_t first = 0; first == 0 || first < k; first += kDepth) {
    const int64_t depth = std::min(kDepth, k - first);
    const int64_t all_vectors = (n + kLanes - 1) / kLanes;
    int64_t panels = (all_vectors + kMostVectors - 1) / kMostVectors;
    for (int64_t done = 0; panels > 0; --panels) {
      const int64_t vectors = (all_vectors - done + panels - 1) / panels, column = done * kLanes;
      const int64_t width = vectors * kLanes, columns = std::min(width, n - column);
      const float* from = b + first * b_depth + column * b_column;
      Tile tile{a + first * a_depth,
                a_row,
                a_depth,
                from,
                b_depth,
                depth,
                nullptr,
                y + column,
                y_row,
                columns - (vectors - 1) * kLanes,
                relu && first + depth == k};
      if (b_column != 1) {
        pack_transposed(from, b_column, depth, columns, width, workspace);
      } else if (m >= kRowsToPack || columns < width) {
        pack(from, b_depth, depth, columns, width, workspace);
      }
      if (b_column != 1 || m >= kRowsToPack || columns < width) {
        tile.b = workspace;
        tile.b_depth = width;
      }
      if (first == 0) tile.start = bias == nullptr ? kZeros : bias + column;
      run_rows(tile, m, vectors);
      done += vectors;
    }
  }
}

TiledKernel::TiledKernel(const TiledProduct& product, ThreadPool* threads)
    : product_(product),
      threads_(threads),
      grain_(rows_of_piece(product.n, product.k)),
      scratch_(product.m > grain_ ? threads : nullptr, product.workspace_bytes()) {}

void TiledKernel::operator()(const float* a, const float* b, const float* bias, float* y,
                             float* workspace) const {
  for_each_piece(threads_, product_.m, grain_, [&](int64_t begin, int64_t end, int worker) {
    TiledProduct piece = product_;
    piece.m = end - begin;
    piece(a + begin * piece.a_row, b, bias, y + begin * piece.y_row, scratch_.of(worker, workspace));
  });
}

}  // namespace headroom::cpu
