// Adds the computations of ONNX ops to our graph. Folds constants: an op of only constants is computed at
// once. Knows no ONNX op; the functions of op_table.h do.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/onnx/item.h"
#include "runtime/onnx/lora.h"
#include "runtime/onnx/model.h"

namespace headroom::onnx {

// The reason that one node cannot be imported; the caller adds the node.
struct Unsupported {
  std::string why;
};

// The role of a source in the graph.
enum class SourceKind : uint8_t {
  kInput,      // fed at each run
  kParameter,  // trained
  kStatistic,  // a running mean or variance of a normalization
  kConstant,   // never changed
  kState,      // an input that a run takes from the previous one
};

// A tensor that becomes an input or a variable when the first op needs it, in the order of axes that suits
// this op.
struct Source {
  SourceKind kind = SourceKind::kConstant;
  std::string name;
  ElementType type = ElementType::kFloat;
  Shape shape;                            // as the file has it
  const Tensor* tensor = nullptr;         // tensor of the model; null for an input
  std::optional<float> number = {};       // all elements, instead of the tensor's
  std::optional<float> limit = {};        // uniform within this of 0, likewise
  std::optional<Initializer> first = {};  // of a state
  bool is_adapter = false;                // of a weight, which is not trained
  bool is_looked_up = false;              // a table of embeddings
  bool is_merged = false;                 // one of several weights that the file has as one
  bool is_stored = false;                 // the variable is the file's bytes, see Importer::stored_numbers
  std::optional<Value> value = {};        // once an op has needed it
  Axes order = {};                        // axis i of the value is axis order[i] of the file's tensor
};

class Importer {
 public:
  // `model` must outlive the graph: variables take their first values from it.
  // `step` counts the runs of dropouts: i32 [].
  Importer(Graph& graph, const Model& model, bool is_training, bool stores_half, uint64_t seed,
           std::optional<Value> step)
      : graph_(graph),
        model_(model),
        is_training_(is_training),
        stores_half_(stores_half),
        seed_(seed),
        step_(step) {}

  const Graph& graph() const { return graph_; }
  // The constants that are one f32 number, by the id of their value.
  std::map<int, float> scalar_values() const;
  bool is_training() const { return is_training_; }
  bool stores_half() const { return stores_half_; }
  uint64_t seed() const { return seed_; }
  const std::optional<Value>& step() const { return step_; }
  const std::vector<Source>& sources() const { return sources_; }
  // With adapters no other weight is trained. They live as long as this.
  void set_adapters(Adapters* adapters) { adapters_ = adapters; }

  // Sets the ONNX node that names and places later additions; null for none.
  void set_node(const OnnxNode* node) { node_ = node; }

  // Constants up to this many elements are computed at once; larger ones when the graph runs.
  static constexpr int64_t kMaxFolded = int64_t{1} << 27;

  // ---- items

  Item constant(HostTensor tensor, ElementType type) const;
  Item integers(const std::vector<int64_t>& values) const;  // int64, rank 1
  Item whole(int64_t value) const;                          // int64, rank 0
  Item number(float value) const;                           // rank 0
  // 0, 1, ..., extent - 1 along an axis of a tensor of that rank, times `factor`; int64.
  Item positions(int axis, int rank, int64_t extent, int64_t factor = 1) const;
  // A value whose axis i is the item's axis order[i].
  Item item_of(Value value, ElementType type, const Axes& order) const;
  Item add_source(Source source);
  // Returns the value of an item with its axes in that order; adds a transposition if needed.
  Value value_in(const Item& item, const Axes& order);
  Value plain(const Item& item) { return value_in(item, in_order(item.rank())); }
  // The floats that quantized numbers stand for. Those of a source that is stored are computed where they are
  // used, each time.
  Item dequantized(const Quantized& quantized);
  bool is_stored(const Item& item) const {
    return item.source >= 0 && sources_[static_cast<size_t>(item.source)].is_stored;
  }
  // All elements of a constant.
  HostTensor dense(const Item& item) const;
  // The order in which the item's axes lie in memory.
  Axes order_of(const Item& item) const;

  // ---- ops

  // Adds a node on the item's values in plain order, or computes it if all are constants.
  Item apply(const Op& op, const std::vector<Item>& operands, ElementType type);
  // Adds a node to the graph.
  std::vector<Value> add(const Op& op, const std::vector<Value>& operands);
  Value add_one(const Op& op, const std::vector<Value>& operands) { return add(op, operands)[0]; }
  // An op of one element from one of each operand, with broadcasting.
  Item elementwise(const Op& op, const std::vector<Item>& operands, ElementType type);
  // Throws Unsupported for a constant that is not what the file has.
  void require_unclipped(const Item& item) const;
  Item unary(UnaryKind kind, const Item& x, float alpha = 0, float beta = 0);
  Item binary(BinaryKind kind, const Item& a, const Item& b);
  Item compare(CompareKind kind, const Item& a, const Item& b);
  Item where(const Item& condition, const Item& a, const Item& b);
  Item cast(const Item& x, ElementType type);
  // The values of a 16-bit type nearest to those of x, in 32 bits.
  Item rounded(const Item& x, ElementType half);
  Item reduce(ReduceKind kind, const Item& x, std::vector<int> axes, bool keep_axes);
  Item matmul(const Item& a, const Item& b);  // (..,M,K) x (..,K,N), with the adapter of b if it has one

  Item reshape(const Item& x, const Shape& shape);
  Item transpose(const Item& x, const Axes& order) const;
  Item expand(const Item& x, const Shape& shape);
  Item slice(const Item& x, const Slice& options);
  Item pad(const Item& x, const std::vector<int64_t>& before, const std::vector<int64_t>& after);  // zeros
  Item concat(const std::vector<Item>& items, int axis);
  // x[indices] along an axis; indices i32 in [0, extent). `padding_row` is Gather's, of axis 0.
  Item gather(const Item& x, const Item& indices, int axis, int64_t padding_row = -1);
  // Indices of which those below 0 count from the end.
  Item wrapped(const Item& indices, int64_t extent);
  // Those of rows, as i32 (N); a lookup in the numbers of all rows refuses others when it runs.
  Value checked_rows(const Item& indices, int64_t rows);

 private:
  Value constant_value(const HostTensor& tensor);
  Value repeated_constant(float number, const Shape& shape);
  Value source_value(const Item& item, const Axes& order);
  Item stored_numbers(const Item& item);
  Value transposed(Value value, const Axes& axes);
  CodePlace place();
  bool may_fold(const Op& op, const std::vector<TensorSpec>& operands);

  Graph& graph_;
  const Model& model_;
  const bool is_training_, stores_half_;
  const uint64_t seed_;
  const std::optional<Value> step_;
  const OnnxNode* node_ = nullptr;
  Adapters* adapters_ = nullptr;
  std::vector<Source> sources_;
  std::map<std::pair<int, Axes>, Value> transposed_;
  std::map<std::pair<int, int64_t>, Value> checked_rows_;  // by indices and rows
  std::map<std::pair<uint32_t, DType>, Value> scalars_;
  std::map<size_t, std::vector<std::pair<HostTensor, Value>>> constants_by_hash_;
  int constants_ = 0;
  double folded_ = 0;  // elements that constants took so far
};

}  // namespace headroom::onnx
