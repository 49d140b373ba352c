// Gradients through max pooling and relu: per window and channel at most one of the window's positions has a
// gradient, so a 2x2 pool leaves a quarter of the multiply-adds, and dead relus less. Live terms are listed
// first, branch-free, then worked off with whole patches in registers.
#include <algorithm>

#include "kernels/cpu/conv_gradients.h"

namespace headroom::cpu {
namespace {

// Registers that hold a patch; the rest is for operands.
constexpr int kPatchVectors = kVectorRegisters == 32 ? 18 : 8;

struct Term {
  int32_t offset;  // into what the patch is multiplied with or added to
  float factor;
};

// sums[0..V) += sum over the terms of factor * source[offset + ...]
template <int V>
void add_terms(const Term* terms, int64_t count, const float* source, float* sums) {
  Vec patch[V];
  for (int v = 0; v < V; ++v) patch[v] = load(sums + v * kLanes);
  for (const Term* term = terms; term < terms + count; ++term) {
    const float* row = source + term->offset;
    const float factor = term->factor;
#pragma GCC unroll 18
    for (int v = 0; v < V; ++v) patch[v] += factor * load(row + v * kLanes);
  }
  for (int v = 0; v < V; ++v) store(sums + v * kLanes, patch[v]);
}

// The same for any number of vectors, in the largest pieces that registers hold.
void add_terms(const Term* terms, int64_t count, const float* source, float* sums, int64_t vectors) {
  const auto pass = [&]<int V>() {
    for (; vectors >= V; vectors -= V) {
      add_terms<V>(terms, count, source, sums);
      source += V * kLanes;
      sums += V * kLanes;
    }
  };
  pass.template operator()<kPatchVectors>();
  pass.template operator()<6>();
  pass.template operator()<2>();
  pass.template operator()<1>();
}

}  // namespace

bool SparseFilterGrad::fits(const ConvShape& shape) {
  return shape.groups == 1 && shape.run() % kLanes == 0;
}

SparseFilterGrad::SparseFilterGrad(const ConvShape& shape, const Windows& windows)
    : shape_(shape), windows_(windows) {}

int64_t SparseFilterGrad::workspace_bytes() const {
  const int64_t sums = round_up_to(shape_.k * shape_.taps(), kWorkspaceAlignment);
  const int64_t image = shape_.padded() ? round_up_to(shape_.padded_elements(), kWorkspaceAlignment) : 0;
  return (sums + image) * int64_t{sizeof(float)} + shape_.k * windows_.count * int64_t{sizeof(Term)} +
         shape_.k * int64_t{sizeof(int32_t)};
}

void SparseFilterGrad::operator()(const float* x, const float* dy, const uint8_t* index, float* dfilter,
                                  float* workspace) const {
  const int64_t k = shape_.k, taps = shape_.taps(), run = shape_.run();
  float* sums = workspace;  // (k, taps), so that a patch is contiguous
  float* buffer = sums + round_up_to(k * taps, kWorkspaceAlignment);
  Term* terms = reinterpret_cast<Term*>(
      buffer + (shape_.padded() ? round_up_to(shape_.padded_elements(), kWorkspaceAlignment) : 0));
  int32_t* counts = reinterpret_cast<int32_t*>(terms + k * windows_.count);
  const std::vector<int32_t>& offsets = windows_.offsets;
  std::fill_n(sums, k * taps, 0.0f);
  for (int64_t image = 0; image < shape_.n; ++image) {
    std::fill_n(counts, k, 0);
    for (int64_t window = 0; window < windows_.count; ++window) {
      const int64_t row = (image * windows_.count + window) * k;
      const int32_t* places = offsets.data() + window * windows_.area;
      for (int64_t channel = 0; channel < k; ++channel) {
        const uint8_t place = index[row + channel];
        const bool live = place != kNoGradient;
        terms[channel * windows_.count + counts[channel]] = {places[live ? place : 0], dy[row + channel]};
        counts[channel] += live;
      }
    }
    const float* pixels = shape_.padded_image(x, image, buffer);
    for (int64_t channel = 0; channel < k; ++channel) {
      for (int64_t tap = 0; tap < taps; tap += run) {
        add_terms(terms + channel * windows_.count, counts[channel], pixels + shape_.run_offset(tap / run),
                  sums + channel * taps + tap, run / kLanes);
      }
    }
  }
  for (int64_t tap = 0; tap < taps; ++tap) {
    for (int64_t channel = 0; channel < k; ++channel) dfilter[tap * k + channel] = sums[channel * taps + tap];
  }
}

bool SparseInputGrad::fits(const ConvShape& shape) {
  return SparseFilterGrad::fits(shape);
}

SparseInputGrad::SparseInputGrad(const ConvShape& shape, const Windows& windows)
    : shape_(shape), windows_(windows) {}

// Images whose terms stay in the second-level cache while one row of taps after the other passes over them.
int64_t SparseInputGrad::images_per_block() const {
  constexpr int64_t kTerms = 256 * 1024 / sizeof(Term);
  return std::clamp<int64_t>(kTerms / std::max<int64_t>(1, windows_.count * shape_.k), 1,
                             std::max<int64_t>(1, shape_.n));
}

int64_t SparseInputGrad::workspace_bytes() const {
  const int64_t images = images_per_block(), places = windows_.count * windows_.area;
  const int64_t padded =
      shape_.padded() ? images * round_up_to(shape_.padded_elements(), kWorkspaceAlignment) : 0;
  return (round_up_to(shape_.taps() * shape_.k, kWorkspaceAlignment) + padded) * int64_t{sizeof(float)} +
         (images * windows_.count * shape_.k + shape_.k) * int64_t{sizeof(Term)} +
         images * places * int64_t{sizeof(int32_t)};
}

void SparseInputGrad::operator()(const float* dy, const uint8_t* index, const float* filter, float* dx,
                                 float* workspace) const {
  const int64_t k = shape_.k, run = shape_.run(), rows = shape_.taps() / run, area = windows_.area;
  const int64_t block = images_per_block(), places = windows_.count * area;
  const int64_t image_stride =
      shape_.padded() ? round_up_to(shape_.padded_elements(), kWorkspaceAlignment) : shape_.image_elements();
  float* transposed = workspace;  // (rows, k, run): the weights of one row of taps fit the first-level cache
  float* padded = transposed + round_up_to(shape_.taps() * k, kWorkspaceAlignment);
  Term* terms = reinterpret_cast<Term*>(padded + (shape_.padded() ? block * image_stride : 0));
  // How many terms each position of each window has; they lie one after the other. The last k terms are for
  // dead ones.
  int32_t* counts = reinterpret_cast<int32_t*>(terms + block * windows_.count * k + k);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t tap = 0; tap < run; ++tap) {
      for (int64_t channel = 0; channel < k; ++channel) {
        transposed[(row * k + channel) * run + tap] = filter[(row * run + tap) * k + channel];
      }
    }
  }
  for (int64_t first = 0; first < shape_.n; first += block) {
    const int64_t images = std::min(block, shape_.n - first);
    Term* next = terms;
    int32_t* count = counts;
    for (int64_t window = 0; window < images * windows_.count; ++window) {
      const int64_t at = (first * windows_.count + window) * k;
      for (int64_t place = 0; place < area; ++place) {
        Term* const start = next;
        for (int64_t channel = 0; channel < k; ++channel) {
          *next = {static_cast<int32_t>(channel * run), dy[at + channel]};
          next += index[at + channel] == place;
        }
        *count++ = static_cast<int32_t>(next - start);
      }
    }
    float* target = shape_.padded() ? padded : dx + first * image_stride;
    std::fill_n(target, images * image_stride, 0.0f);
    for (int64_t row = 0; row < rows; ++row) {
      const Term* term = terms;
      count = counts;
      for (int64_t image = 0; image < images; ++image) {
        float* pixels = target + image * image_stride + shape_.run_offset(row);
        for (int64_t place = 0; place < places; ++place) {
          add_terms(term, *count, transposed + row * k * run,
                    pixels + windows_.offsets[static_cast<size_t>(place)], run / kLanes);
          term += *count++;
        }
      }
    }
    for (int64_t image = 0; image < images && shape_.padded(); ++image) {
      shape_.crop(padded + image * image_stride, shape_.c, first + image, dx);
    }
  }
}

MaskedFilterGrad::MaskedFilterGrad(const ConvShape& shape, const Windows& windows)
    : shape_(shape), windows_(windows), taps_(shape.tap_offsets()) {}

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
  const int64_t taps = shape_.taps(), k = shape_.k, area = windows_.area;
  std::fill_n(dfilter, taps * k, 0.0f);
  for (int64_t image = 0; image < shape_.n; ++image) {
    const float* pixels = shape_.padded_image(x, image, workspace);
    for (int64_t column = 0, channels = 0; column < k; column += channels) {
      const int64_t group = column / shape_.kg;
      channels = std::min({k - column, (group + 1) * shape_.kg - column, int64_t{kMaskedVectors} * kLanes});
      for (int64_t first = 0; first < taps; first += kMaskedTaps) {
        const int64_t rows = std::min<int64_t>(kMaskedTaps, taps - first);
        int64_t offset[kMaskedTaps];
        for (int t = 0; t < kMaskedTaps; ++t) {
          offset[t] = taps_[static_cast<size_t>(first + std::min<int64_t>(t, rows - 1))] + group * shape_.cg;
        }
        Vec sums[kMaskedTaps][kMaskedVectors] = {};
        for (int64_t window = 0; window < windows_.count; ++window) {
          const int64_t at = (image * windows_.count + window) * k + column;
          Vec g[kMaskedVectors];
          IntVec place[kMaskedVectors];
          for (int v = 0; v < kMaskedVectors; ++v) {
            const int64_t lanes = std::clamp<int64_t>(channels - v * kLanes, 0, kLanes);
            g[v] = lanes == kLanes ? load(dy + at + v * kLanes) : load_some(dy + at + v * kLanes, lanes);
            place[v] = load_bytes(index + at + v * kLanes, lanes);
          }
          for (int64_t i = 0; i < area; ++i) {
            Vec live[kMaskedVectors];
            for (int v = 0; v < kMaskedVectors; ++v)
              live[v] = place[v] == IntVec{} + static_cast<int32_t>(i) ? g[v] : Vec{};
            const float* patch = pixels + windows_.offsets[static_cast<size_t>(window * area + i)];
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
