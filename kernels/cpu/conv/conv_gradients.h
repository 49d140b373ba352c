// Gradients of direct convolutions, from a dense output gradient or from a pooled one with at most one
// live position per window and channel. Knows no graph.
#pragma once

#include "kernels/cpu/conv/conv_shape.h"
#include "kernels/cpu/worker_scratch.h"

namespace headroom::cpu {

// dx of one group-wise convolution from a dense gradient: for each tap, adds the product of the positions'
// gradients with the tap's transposed weights to the image at the tap's position.
class UnpooledInputGrad {
 public:
  explicit UnpooledInputGrad(const ConvShape& shape);
  int64_t workspace_bytes() const;
  // dy (N,OH,OW,K), filter -> dx
  void operator()(const float* dy, const float* filter, float* dx, float* workspace) const;

 private:
  template <int V>
  void run_tap(const float* dy, const float* weights, float* image, int64_t image_stride, int64_t column,
               int64_t tap_offset) const;

  void copy_group(const float* image, int64_t group, int64_t index, float* dx) const;

  ConvShape shape_;
  int64_t padded_channels_;  // channels of one group, in whole vectors of kMostLanes
  Offsets pixels_;           // by position: its first pixel in a padded image
};

// dfilter from a dense gradient: tiles of taps x output channels stay in registers over the positions of a
// few images.
class UnpooledFilterGrad {
 public:
  explicit UnpooledFilterGrad(const ConvShape& shape);
  int64_t workspace_bytes() const;
  // x, dy (N,OH,OW,K) -> dfilter
  void operator()(const float* x, const float* dy, float* dfilter, float* workspace) const;

 private:
  template <int V>
  void run_block(const float* images, int64_t image_stride, int64_t count, const float* dy, int64_t dy_stride,
                 int64_t column, float* sums) const;
  // Returns true if dy can be read directly: one group of whole vectors.
  bool whole_rows() const { return shape_.groups == 1 && padded_channels_ == shape_.k; }

  ConvShape shape_;
  Offsets taps_, positions_;
  int64_t padded_channels_;  // channels of one group, in whole vectors of kMostLanes
  int64_t images_per_block_;
};

// Gradients of a pooled block in which each row of taps is whole vectors. Visits only live positions: each
// live (window, channel) is one term, a patch of the image times one number.
class SparseFilterGrad {
 public:
  static bool fits(const ConvShape& shape);
  SparseFilterGrad(const ConvShape& shape, const Windows& windows, ThreadPool* threads);
  int64_t workspace_bytes() const;
  void operator()(const float* x, const float* dy, const uint8_t* index, float* dfilter,
                  float* workspace) const;

 private:
  void sum_channels(const float* x, const float* dy, const uint8_t* index, int64_t begin, int64_t end,
                    float* workspace, float* padded) const;

  ConvShape shape_;
  Windows windows_;
  ThreadPool* threads_;
  WorkerScratch padded_;  // an image with its padding
};

class SparseInputGrad {
 public:
  static bool fits(const ConvShape& shape);
  SparseInputGrad(const ConvShape& shape, const Windows& windows, ThreadPool* threads);
  int64_t workspace_bytes() const;
  void operator()(const float* dy, const uint8_t* index, const float* filter, float* dx,
                  float* workspace) const;

 private:
  int64_t images_per_block() const;
  int64_t weight_elements() const;
  int64_t block_bytes() const;
  void run_block(const float* dy, const uint8_t* index, const float* transposed, int64_t first,
                 int64_t images, float* dx, float* scratch) const;

  ConvShape shape_;
  Windows windows_;
  ThreadPool* threads_;
  WorkerScratch blocks_;
};

// dfilter of a pooled block with few taps: vectors of channels, each position of a window masked by the
// index.
class MaskedFilterGrad {
 public:
  MaskedFilterGrad(const ConvShape& shape, const Windows& windows, ThreadPool* threads);
  int64_t workspace_bytes() const;
  void operator()(const float* x, const float* dy, const uint8_t* index, float* dfilter,
                  float* workspace) const;

 private:
  ConvShape shape_;
  Windows windows_;
  int64_t columns_per_group() const;
  void sum_columns(const float* x, const float* dy, const uint8_t* index, int64_t begin, int64_t end,
                   float* dfilter, float* padded) const;

  Offsets taps_;
  ThreadPool* threads_;
  WorkerScratch padded_;  // an image with its padding
};

}  // namespace headroom::cpu
