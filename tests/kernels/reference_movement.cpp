#include "tests/kernels/reference.h"

namespace headroom::test {
namespace {

// Returns the position of a slice's element `index` in the whole.
template <typename S>
Index in_whole(Index index, const S& slice) {
  for (size_t axis = 0; axis < index.size(); ++axis) {
    index[axis] = slice.begin[axis] + index[axis] * (slice.steps.empty() ? 1 : slice.steps[axis]);
  }
  return index;
}

}  // namespace

std::vector<Values> reference_movement(const Op& op, const std::vector<Values>& in, std::vector<Values> out) {
  return std::visit(Overloaded{
                        [&](const Reshape&) {
                          out[0].data = in[0].data;
                          return out;
                        },
                        [&](const CopyToDevice&) {
                          out[0].data = in[0].data;
                          return out;
                        },
                        [&](const Transpose& o) {
                          for_each_index(out[0].shape(), [&](const Index& index, int64_t i) {
                            Index source(index.size());
                            for (size_t axis = 0; axis < index.size(); ++axis)
                              source[static_cast<size_t>(o.axes[axis])] = index[axis];
                            out[0][i] = in[0][position_of(in[0].shape(), source)];
                          });
                          return out;
                        },
                        [&](const Concat& o) {
                          for_each_index(out[0].shape(), [&](Index index, int64_t i) {
                            int64_t& along = index[static_cast<size_t>(o.axis)];
                            size_t part = 0;
                            while (along >= in[part].shape()[o.axis]) along -= in[part++].shape()[o.axis];
                            int64_t position = 0;
                            for (int axis = 0; axis < in[part].shape().rank(); ++axis)
                              position = position * in[part].shape()[axis] + index[static_cast<size_t>(axis)];
                            out[0][i] = in[part][position];
                          });
                          return out;
                        },
                        [&](const Slice& o) {
                          for_each_index(out[0].shape(), [&](const Index& index, int64_t i) {
                            out[0][i] = in[0][position_of(in[0].shape(), in_whole(index, o))];
                          });
                          return out;
                        },
                        [&](const SliceGrad& o) {
                          for_each_index(in[0].shape(), [&](const Index& index, int64_t i) {
                            out[0][position_of(out[0].shape(), in_whole(index, o))] = in[0][i];
                          });
                          return out;
                        },
                        [&](const Gather&) {
                          const int64_t row = in[0].shape().elements() / in[0].shape()[0];
                          for (int64_t i = 0; i < out[0].shape().elements(); ++i)
                            out[0][i] = in[0][static_cast<int64_t>(in[1][i / row]) * row + i % row];
                          return out;
                        },
                        [&](const ReplaceRows& o) {
                          out[0].data = in[0].data;
                          replace_rows(out[0], o.axis, in[1], in[2]);
                          return out;
                        },
                        [&](const GatherGrad&) {
                          const int64_t row = out[0].shape().elements() / out[0].shape()[0];
                          for (int64_t i = 0; i < in[0].shape().elements(); ++i)
                            out[0][static_cast<int64_t>(in[1][i / row]) * row + i % row] += in[0][i];
                          return out;
                        },
                        [&](const TakeBatch& o) {
                          const int64_t row = out[0].shape().elements() / o.batch;
                          const int64_t batches = in[in.size() == 3 ? 2 : 0].shape()[0] / o.batch;
                          for (int64_t i = 0; i < o.batch; ++i) {
                            auto b = static_cast<int64_t>(in[1][0]) % batches;
                            if (b < 0) b += batches;
                            auto from = b * o.batch + i;
                            if (in.size() == 3) from = static_cast<int64_t>(in[2][from]);
                            for (int64_t j = 0; j < row; ++j)
                              out[0][i * row + j] =
                                  in[0][from * row + j] * static_cast<double>(o.scale.value_or(1));
                          }
                          return out;
                        },
                        [&](const BroadcastTo&) {
                          for_each_index(out[0].shape(), [&](const Index& index, int64_t i) {
                            out[0][i] = in[0][position_of(in[0].shape(), index)];
                          });
                          return out;
                        },
                        [&](const Fill& o) {
                          for (double& value : out[0].data) value = static_cast<double>(o.value);
                          return out;
                        },
                        [](const auto&) { return std::vector<Values>(); },
                    },
                    op);
}

}  // namespace headroom::test
