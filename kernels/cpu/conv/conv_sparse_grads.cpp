// Gradients through max pooling and relu: per window and channel at most one of the window's positions has a
// gradient, so a 2x2 pool leaves a quarter of the multiply-adds, and dead relus less. Live terms are listed
// first, branch-free, then worked off with whole patches in registers.
#include <algorithm>
#include <array>

#include "kernels/cpu/conv/conv_gradients.h"

namespace headroom::cpu {
namespace {

// Registers that hold a patch; the rest is for operands.
constexpr int kPatchVectors = kVectorRegisters == 32 ? 18 : 8;

struct Term {
  int32_t offset;  // into what the patch is multiplied with or added to
  float factor;
};

// Rows of a patch and their distance, in the source and in the sums.
struct Rows {
  int64_t count, source_stride, sums_stride;
};

// sums[r][0..V) += sum over the terms of factor * source[offset + r-th row ...] for R rows at once.
template <int R, int V>
void add_rows(const Term* terms, int64_t count, const float* source, float* sums, const Rows& rows) {
  Vec patch[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) patch[r][v] = load(sums + r * rows.sums_stride + v * kLanes);
  }
  for (const Term* term = terms; term < terms + count; ++term) {
    const float* row = source + term->offset;
    const float factor = term->factor;
#pragma GCC unroll 18
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 18
      for (int v = 0; v < V; ++v) patch[r][v] += factor * load(row + r * rows.source_stride + v * kLanes);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) store(sums + r * rows.sums_stride + v * kLanes, patch[r][v]);
  }
}

// Like the function above for any number of rows and vectors, in pieces that fit in registers; 3 x 6 is a 3x3
// filter over 32 channels.
void add_terms(const Term* terms, int64_t count, const float* source, float* sums, Rows rows,
               int64_t vectors) {
  const auto columns = [&]<int R>() {
    const float* from = source;
    float* to = sums;
    int64_t left = vectors;
    const auto pass = [&]<int V>() {
      for (; left >= V; left -= V) {
        add_rows<R, V>(terms, count, from, to, rows);
        from += V * kLanes;
        to += V * kLanes;
      }
    };
    if constexpr (R * 6 <= kPatchVectors) pass.template operator()<6>();
    pass.template operator()<2>();
    pass.template operator()<1>();
    source += R * rows.source_stride;
    sums += R * rows.sums_stride;
    rows.count -= R;
  };
  while (rows.count >= 3) columns.template operator()<3>();
  while (rows.count >= 1) columns.template operator()<1>();
}

// Size of a piece of work: a smaller one would be done before another thread begins.
constexpr int64_t kChannels = 8;

int64_t padded_bytes(const ConvShape& shape) {
  return shape.padded() ? shape.padded_elements() * int64_t{sizeof(float)} : 0;
}

}  // namespace

bool SparseFilterGrad::fits(const ConvShape& shape) {
  return shape.groups == 1 && shape.run() % kMostLanes == 0;
}

SparseFilterGrad::SparseFilterGrad(const ConvShape& shape, const Windows& windows, ThreadPool* threads)
    : shape_(shape), windows_(windows), threads_(threads), padded_(threads, padded_bytes(shape)) {}

int64_t SparseFilterGrad::workspace_bytes() const {
  const int64_t sums = round_up(shape_.k * shape_.taps(), kWorkspaceAlignment);
  const int64_t image = shape_.padded() ? round_up(shape_.padded_elements(), kWorkspaceAlignment) : 0;
  return (sums + image) * int64_t{sizeof(float)} + shape_.k * windows_.count * int64_t{sizeof(Term)} +
         shape_.k * int64_t{sizeof(int32_t)};
}

void SparseFilterGrad::operator()(const float* x, const float* dy, const uint8_t* index, float* dfilter,
                                  float* workspace) const {
  float* const buffer = workspace + round_up(shape_.k * shape_.taps(), kWorkspaceAlignment);
  for_each_piece(threads_, shape_.k, kChannels, [&](int64_t begin, int64_t end, int worker) {
    sum_channels(x, dy, index, begin, end, workspace, padded_.of(worker, buffer));
  });
  const int64_t k = shape_.k, taps = shape_.taps();
  for (int64_t tap = 0; tap < taps; ++tap) {
    for (int64_t channel = 0; channel < k; ++channel) {
      dfilter[tap * k + channel] = workspace[channel * taps + tap];
    }
  }
}

// Sums channels [begin, end), each of which has sums and terms of its own.
void SparseFilterGrad::sum_channels(const float* x, const float* dy, const uint8_t* index, int64_t begin,
                                    int64_t end, float* workspace, float* padded) const {
  const int64_t k = shape_.k, taps = shape_.taps(), run = shape_.run();
  float* sums = workspace;  // (k, taps), so that a patch is contiguous
  float* buffer = sums + round_up(k * taps, kWorkspaceAlignment);
  Term* terms = reinterpret_cast<Term*>(
      buffer + (shape_.padded() ? round_up(shape_.padded_elements(), kWorkspaceAlignment) : 0));
  int32_t* counts = reinterpret_cast<int32_t*>(terms + k * windows_.count);
  const int32_t* const offsets = windows_.offsets->data();
  std::array<int32_t, kNoGradient + 1> offset_of{};  // by position in the window
  // Rows of taps are evenly spaced unless the filter is dilated along a row.
  const Rows rows = run == shape_.kw * shape_.cg ? Rows{shape_.kh, shape_.run_offset(1), run} : Rows{1, 0, 0};
  std::fill_n(sums + begin * taps, (end - begin) * taps, 0.0f);
  for (int64_t image = 0; image < shape_.n; ++image) {
    std::fill_n(counts + begin, end - begin, 0);
    for (int64_t window = 0; window < windows_.count; ++window) {
      const int64_t row = (image * windows_.count + window) * k;
      // A table, not a condition: which channels are live cannot be predicted.
      std::copy_n(offsets + window * windows_.area, windows_.area, offset_of.data());
      for (int64_t channel = begin; channel < end; ++channel) {
        const uint8_t place = index[row + channel];
        terms[channel * windows_.count + counts[channel]] = {offset_of[place], dy[row + channel]};
        counts[channel] += place != kNoGradient;
      }
    }
    const float* pixels = shape_.padded_image(x, image, padded);
    for (int64_t channel = begin; channel < end; ++channel) {
      for (int64_t row = 0; row < taps / run; row += rows.count) {
        add_terms(terms + channel * windows_.count, counts[channel], pixels + shape_.run_offset(row),
                  sums + channel * taps + row * run, rows, run / kLanes);
      }
    }
  }
}

bool SparseInputGrad::fits(const ConvShape& shape) {
  return SparseFilterGrad::fits(shape);
}

SparseInputGrad::SparseInputGrad(const ConvShape& shape, const Windows& windows, ThreadPool* threads)
    : shape_(shape), windows_(windows), threads_(threads), blocks_(threads, block_bytes()) {}

// Images whose terms stay in the second-level cache while one row of taps after the other passes over them.
int64_t SparseInputGrad::images_per_block() const {
  constexpr int64_t kTerms = 256 * 1024 / sizeof(Term);
  return std::clamp<int64_t>(kTerms / std::max<int64_t>(1, windows_.count * windows_.area * shape_.k), 1,
                             std::max<int64_t>(1, shape_.n));
}

int64_t SparseInputGrad::weight_elements() const {
  return round_up(shape_.taps() * shape_.k, kWorkspaceAlignment);
}

int64_t SparseInputGrad::workspace_bytes() const {
  return weight_elements() * int64_t{sizeof(float)} + block_bytes();
}

int64_t SparseInputGrad::block_bytes() const {
  const int64_t images = images_per_block(), places = windows_.count * windows_.area;
  const int64_t padded =
      shape_.padded() ? images * round_up(shape_.padded_elements(), kWorkspaceAlignment) : 0;
  return padded * int64_t{sizeof(float)} + (images * places * shape_.k + shape_.k) * int64_t{sizeof(Term)} +
         images * places * int64_t{sizeof(int32_t)};
}

void SparseInputGrad::operator()(const float* dy, const uint8_t* index, const float* filter, float* dx,
                                 float* workspace) const {
  const int64_t k = shape_.k, run = shape_.run(), rows = shape_.taps() / run;
  float* transposed = workspace;  // (rows, k, run): the weights of one row of taps fit the first-level cache
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t tap = 0; tap < run; ++tap) {
      for (int64_t channel = 0; channel < k; ++channel) {
        transposed[(row * k + channel) * run + tap] = filter[(row * run + tap) * k + channel];
      }
    }
  }
  const int64_t block = images_per_block(), blocks = (shape_.n + block - 1) / block;
  for_each_piece(threads_, blocks, 1, [&](int64_t begin, int64_t end, int worker) {
    float* const scratch = blocks_.of(worker, workspace + weight_elements());
    for (int64_t i = begin; i < end; ++i) {
      run_block(dy, index, transposed, i * block, std::min(block, shape_.n - i * block), dx, scratch);
    }
  });
}

void SparseInputGrad::run_block(const float* dy, const uint8_t* index, const float* transposed, int64_t first,
                                int64_t images, float* dx, float* scratch) const {
  const int64_t k = shape_.k, run = shape_.run(), rows = shape_.taps() / run, area = windows_.area;
  const int64_t block = images_per_block(), places = windows_.count * area;
  const int64_t image_stride =
      shape_.padded() ? round_up(shape_.padded_elements(), kWorkspaceAlignment) : shape_.image_elements();
  float* padded = scratch;
  Term* terms = reinterpret_cast<Term*>(padded + (shape_.padded() ? block * image_stride : 0));
  Term* const dead = terms + block * places * k;  // k of them, for channels without a gradient
  // Number of terms of each position of each window.
  auto* counts = reinterpret_cast<int32_t*>(dead + k);
  for (int64_t window = 0; window < images * windows_.count; ++window) {
    const int64_t at = (first * windows_.count + window) * k;
    Term* const lists = terms + window * area * k;  // k terms of room for each position
    std::array<Term*, kNoGradient + 1> next;
    for (int64_t place = 0; place < area; ++place) next[static_cast<size_t>(place)] = lists + place * k;
    next[kNoGradient] = dead;
    for (int64_t channel = 0; channel < k; ++channel) {
      *next[index[at + channel]]++ = {static_cast<int32_t>(channel * run), dy[at + channel]};
    }
    for (int64_t place = 0; place < area; ++place) {
      counts[window * area + place] =
          static_cast<int32_t>(next[static_cast<size_t>(place)] - lists - place * k);
    }
  }
  float* target = shape_.padded() ? padded : dx + first * image_stride;
  const int32_t* const offsets = windows_.offsets->data();
  std::fill_n(target, images * image_stride, 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t image = 0; image < images; ++image) {
      float* pixels = target + image * image_stride + shape_.run_offset(row);
      for (int64_t place = 0; place < places; ++place) {
        const int64_t list = image * places + place;
        add_terms(terms + list * k, counts[list], transposed + row * k * run, pixels + offsets[place],
                  {1, 0, 0}, run / kLanes);
      }
    }
  }
  for (int64_t image = 0; image < images && shape_.padded(); ++image) {
    shape_.crop(padded + image * image_stride, shape_.c, first + image, dx);
  }
}

MaskedFilterGrad::MaskedFilterGrad(const ConvShape& shape, const Windows& windows, ThreadPool* threads)
    : shape_(shape),
      windows_(windows),
      taps_(shape.tap_offsets()),
      threads_(threads),
      padded_(threads, padded_bytes(shape)) {}

int64_t MaskedFilterGrad::workspace_bytes() const {
  return shape_.padded() ? shape_.padded_elements() * int64_t{sizeof(float)} : 0;
}

namespace {

// Taps x vectors of channels in registers; 9 taps are a 3x3 filter over one channel.
constexpr int kMaskedTaps = kVectorRegisters == 32 ? 9 : 4;
constexpr int kMaskedVectors = kVectorRegisters == 32 ? 2 : 1;

}  // namespace

void MaskedFilterGrad::operator()(const float* x, const float* dy, const uint8_t* index, float* dfilter,
                                  float* workspace) const {
  std::fill_n(dfilter, shape_.taps() * shape_.k, 0.0f);
  for_each_piece(threads_, shape_.groups * columns_per_group(), 1,
                 [&](int64_t begin, int64_t end, int worker) {
                   sum_columns(x, dy, index, begin, end, dfilter, padded_.of(worker, workspace));
                 });
}

// Vectors of channels of one group that are summed up together.
int64_t MaskedFilterGrad::columns_per_group() const {
  return (shape_.kg + kMaskedVectors * kLanes - 1) / (kMaskedVectors * kLanes);
}

void MaskedFilterGrad::sum_columns(const float* x, const float* dy, const uint8_t* index, int64_t begin,
                                   int64_t end, float* dfilter, float* padded) const {
  const int64_t taps = shape_.taps(), k = shape_.k, area = windows_.area;
  const int64_t per_group = columns_per_group();
  const int32_t *const tap_offsets = taps_->data(), *const offsets = windows_.offsets->data();
  for (int64_t image = 0; image < shape_.n; ++image) {
    const float* pixels = shape_.padded_image(x, image, padded);
    for (int64_t part = begin; part < end; ++part) {
      const int64_t group = part / per_group, start = part % per_group * kMaskedVectors * kLanes;
      const int64_t column = group * shape_.kg + start;
      const int64_t channels = std::min<int64_t>(shape_.kg - start, kMaskedVectors * kLanes);
      for (int64_t first = 0; first < taps; first += kMaskedTaps) {
        const int64_t rows = std::min<int64_t>(kMaskedTaps, taps - first);
        int64_t offset[kMaskedTaps];
        for (int t = 0; t < kMaskedTaps; ++t) {
          offset[t] = tap_offsets[first + std::min<int64_t>(t, rows - 1)] + group * shape_.cg;
        }
        Vec sums[kMaskedTaps][kMaskedVectors] = {};
        for (int64_t window = 0; window < windows_.count; ++window) {
          const int64_t at = (image * windows_.count + window) * k + column;
          Vec g[kMaskedVectors];
          IntVec place[kMaskedVectors];
          for (int v = 0; v < kMaskedVectors; ++v) {
            const int64_t lanes = std::clamp<int64_t>(channels - v * kLanes, 0, kLanes);
            g[v] = lanes == kLanes ? load(dy + at + v * kLanes) : load_some(dy + at + v * kLanes, lanes);
            place[v] = load_some_bytes(index + at + v * kLanes, lanes);
          }
          for (int64_t i = 0; i < area; ++i) {
            Vec live[kMaskedVectors];
            for (int v = 0; v < kMaskedVectors; ++v)
              live[v] = place[v] == IntVec{} + static_cast<int32_t>(i) ? g[v] : Vec{};
            const float* patch = pixels + offsets[window * area + i];
#pragma GCC unroll 9
            for (int t = 0; t < kMaskedTaps; ++t) {
              for (int v = 0; v < kMaskedVectors; ++v) sums[t][v] += patch[offset[t]] * live[v];
            }
          }
        }
#pragma GCC unroll 9
        for (int t = 0; t < kMaskedTaps; ++t) {
          if (t >= rows) break;
          for (int v = 0; v < kMaskedVectors; ++v) {
            float* target = dfilter + (first + t) * k + column + v * kLanes;
            const int64_t lanes = std::clamp<int64_t>(channels - v * kLanes, 0, kLanes);
            store_some(target, load_some(target, lanes) + sums[t][v], lanes);
          }
        }
      }
    }
  }
}

}  // namespace headroom::cpu
