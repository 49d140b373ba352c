#include "runtime/plan/split_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "runtime/graph/graph_view.h"
#include "runtime/plan/split_rows.h"

namespace headroom {
namespace {

// Node ids.
struct Loss {
  int product = -1, loss = -1, gradient = -1;
  std::vector<int> of_rows;   // products that give a row for each row of the gradient
  std::vector<int> of_sums;   // nodes whose results are sums over the rows
  std::vector<int> reshapes;  // between these
};

class Losses : private GraphView {
 public:
  using GraphView::GraphView;

  std::optional<Loss> find() const {
    for (int node = 0; node < node_count(); ++node) {
      if (!op<CrossEntropy>(node)) continue;
      if (std::optional<Loss> found = match(node)) return found;
    }
    return {};
  }

 private:
  std::optional<Loss> match(int loss) const {
    Loss found;
    found.loss = loss;
    int logits = input(loss, 0);
    while (op<Reshape>(maker(logits))) logits = input(maker(logits), 0);
    found.product = maker(logits);
    if (!is_product_of_rows(found.product)) return {};
    for (const int reader : last_readers(logits, found)) {
      if (reader == loss) continue;
      if (found.gradient >= 0 || !op<CrossEntropyGrad>(reader)) return {};
      found.gradient = reader;
    }
    if (found.gradient < 0 || input(found.gradient, 0) != input(loss, 0)) return {};
    for (const int reader : last_readers(output(found.gradient), found)) {
      if (gives_rows(reader)) {
        found.of_rows.push_back(reader);
      } else if (gives_sums(reader)) {
        found.of_sums.push_back(reader);
      } else {
        return {};
      }
    }
    const bool is_whole =
        !kept(logits) && !kept(output(found.gradient)) &&
        std::ranges::none_of(found.reshapes, [&](int reshape) { return kept(output(reshape)); });
    if (!is_whole || depends_on(input(found.gradient, 2), loss)) return {};
    return found;
  }

  // x (..,K) by a matrix.
  bool is_product_of_rows(int node) const {
    if (node < 0 || graph().node(node).inputs.size() > 3) return false;
    const auto* matmul = op<MatMul>(node);
    return ((matmul && !matmul->transpose_a) || op<Dense>(node)) && shape(input(node, 1)).rank() == 2;
  }

  // Returns the readers of a value, or of a reshape of it.
  std::vector<int> last_readers(int value, Loss& found) const {
    std::vector<int> result, open = {value};
    while (!open.empty()) {
      const int next = open.back();
      open.pop_back();
      for (const int reader : readers(next)) {
        if (op<Reshape>(reader)) {
          found.reshapes.push_back(reader);
          open.push_back(output(reader));
        } else {
          result.push_back(reader);
        }
      }
    }
    std::ranges::sort(result);
    return result;
  }

  bool is_gradient(int value) const {
    while (op<Reshape>(maker(value))) value = input(maker(value), 0);
    return op<CrossEntropyGrad>(maker(value));
  }
  bool gives_rows(int node) const { return is_product_of_rows(node) && !is_gradient(input(node, 1)); }
  bool gives_sums(int node) const {
    if (const auto* reduce = op<Reduce>(node)) {
      const int rank = shape(input(node, 0)).rank();
      return reduce->kind == ReduceKind::kSum && !reduce->keep_axes && std::ssize(reduce->axes) == rank - 1 &&
             std::ranges::all_of(reduce->axes, [&](int axis) { return axis < rank - 1; });
    }
    if (op<DenseFilterGrad>(node)) return is_gradient(input(node, 1)) && !is_gradient(input(node, 0));
    const auto* matmul = op<MatMul>(node);
    return matmul && matmul->transpose_a && !matmul->transpose_b && shape(input(node, 0)).rank() == 2 &&
           shape(input(node, 1)).rank() == 2 && is_gradient(input(node, 0)) != is_gradient(input(node, 1));
  }

  bool depends_on(int value, int node) const {
    std::vector<int> open = {value};
    std::vector<bool> seen(graph().values().size());
    while (!open.empty()) {
      const int made_by = maker(open.back());
      open.pop_back();
      if (made_by == node) return true;
      if (made_by < 0) continue;
      for (const int operand : graph().node(made_by).inputs) {
        if (!seen[operand]) open.push_back(operand);
        seen[operand] = true;
      }
    }
    return false;
  }
};

// Rewrites the graph so that all values that the loss's nodes read and make have the rows as their first
// axis, where they can be cut.
class LossInRows {
 public:
  LossInRows(Graph& graph, const Loss& loss)
      : graph_(graph), rows_(spec(input(loss.loss, 1)).shape.elements()), kinds_(graph.nodes().size()) {
    for (const int id : loss.reshapes) kind_of(id) = Kind::kGone;
    for (const int id : {loss.loss, loss.gradient, loss.product}) kind_of(id) = Kind::kRows;
    for (const int id : loss.of_rows) kind_of(id) = Kind::kRows;
    for (const int id : loss.of_sums) kind_of(id) = Kind::kSums;
    makers_.assign(graph.values().size(), -1);
    for (size_t id = 0; id < kinds_.size(); ++id) {
      for (const int output : graph.nodes()[id].outputs) makers_[output] = static_cast<int>(id);
    }
    for (size_t id = 0; id < kinds_.size(); ++id) add(static_cast<int>(id), loss);
    graph_.replace_nodes(std::move(nodes_));
  }

  // Runs the loss's nodes in parts, which need not have equal numbers of rows.
  void split(int parts) {
    SplitRegion region{.parts = parts, .results = results_};
    region.values.assign(graph_.values().size(), Role::kShared);
    region.nodes.assign(graph_.nodes().size(), Role::kShared);
    for (const int value : cuts_) region.values[value] = Role::kCut;
    const int last = *std::ranges::max_element(region_);
    for (const int id : region_) {
      region.nodes[id] = Role::kPerPart;
      for (const int output : graph_.node(id).outputs) region.values[output] = Role::kPerPart;
    }
    for (size_t id = 0; id < region.nodes.size(); ++id) {
      region.order.push_back(static_cast<int>(id));
      const Node& node = graph_.nodes()[id];
      const bool reads_parts = std::ranges::any_of(node.inputs, [&](int operand) {
        const Role role = region.values[operand];
        return role == Role::kPerPart || role == Role::kAfter;
      });
      if (region.nodes[id] == Role::kPerPart || (static_cast<int>(id) < last && !reads_parts)) continue;
      region.nodes[id] = Role::kAfter;
      for (const int output : node.outputs) region.values[output] = Role::kAfter;
    }
    region.node = [&](int id, int) { return graph_.node(id); };
    region.spec = [&, parts](int value, int part) {
      TensorSpec of_part = spec(value);
      if (!sums_.contains(value))
        of_part.shape = of_part.shape.with(0, rows_ * (part + 1) / parts - rows_ * part / parts);
      return of_part;
    };
    graph_.replace_nodes(split_rows(graph_, region));
  }

 private:
  enum class Kind : uint8_t { kOther, kGone, kRows, kSums };

  Kind& kind_of(int node) { return kinds_[node]; }
  const TensorSpec& spec(int value) const { return graph_.value(value).spec; }
  int input(int node, size_t i) const { return graph_.node(node).inputs[i]; }
  int maker(int value) const { return makers_[value]; }

  int root_of(int value) const {
    while (maker(value) >= 0 && std::holds_alternative<Reshape>(graph_.node(maker(value)).op)) {
      value = input(maker(value), 0);
    }
    return value;
  }
  int new_rows(int like, const std::string& name) {
    ValueInfo info = graph_.value(like);
    info.name = name;
    info.kind = ValueKind::kResult;
    info.spec.shape = {rows_, info.spec.shape.elements() / rows_};
    info.initializer = {};
    return graph_.new_result(std::move(info)).id;
  }
  // Returns a value, or the value that it reshapes, in rows. For the loss's own nodes, returns their present
  // result.
  int as_rows(int value, const Node& reader) {
    const int root = root_of(value);
    const auto [known, is_new] = rows_of_.try_emplace(root, root);
    if (!is_new) return known->second;
    if (spec(root).shape[0] != rows_) {
      const std::string name = reader.name + "/rows";
      known->second = new_rows(root, name);
      nodes_.push_back(
          Node{Reshape{spec(known->second).shape}, name, {root}, {known->second}, reader.device});
    }
    cuts_.push_back(known->second);
    return known->second;
  }

  void add(int id, const Loss& loss) {
    Node node = graph_.node(id);
    const Kind kind = kind_of(id);
    if (kind == Kind::kGone) return;
    if (kind == Kind::kOther) {
      nodes_.push_back(std::move(node));
      return;
    }
    const bool is_of_product =
        id == loss.product || (kind == Kind::kRows && id != loss.loss && id != loss.gradient);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      // Weights and biases stay whole.
      if (!is_of_product || i == 0) node.inputs[i] = as_rows(node.inputs[i], node);
    }
    if (auto* reduce = std::get_if<Reduce>(&node.op)) reduce->axes = {0};
    std::vector<Node> after;
    for (int& output : node.outputs) {
      const int before = output;
      if (kind == Kind::kSums) {
        sums_.insert(output);
      } else if (const Shape& shape = spec(output).shape; shape[0] != rows_) {
        output = new_rows(before, node.name + "/rows");
        if (id != loss.product)
          after.push_back(Node{Reshape{shape}, node.name + "/whole", {output}, {before}, node.device});
      }
      if (id == loss.product || id == loss.gradient) {
        rows_of_[before] = output;
      } else {
        results_.push_back({output, kind == Kind::kSums ? Join::kSum : Join::kRows});
      }
    }
    region_.push_back(static_cast<int>(nodes_.size()));
    nodes_.push_back(std::move(node));
    nodes_.insert(nodes_.end(), after.begin(), after.end());
  }

  Graph& graph_;
  const int64_t rows_;
  std::vector<Kind> kinds_;     // by node
  std::vector<int> makers_;     // by value
  std::map<int, int> rows_of_;  // by value that is no reshape
  std::set<int> sums_;          // over the rows
  std::vector<int> cuts_;       // values that the parts read
  std::vector<int> region_;     // positions in nodes_
  std::vector<std::pair<int, Join>> results_;
  std::vector<Node> nodes_;
};

}  // namespace

int64_t splittable_logits_bytes(const Graph& graph, std::span<const Value> fetches) {
  const std::optional<Loss> loss = Losses(graph, fetches).find();
  return loss ? graph.value(graph.node(loss->product).outputs[0]).spec.bytes() : 0;
}

void split_loss(Graph& graph, int parts, std::span<const Value> fetches) {
  std::optional<Loss> loss = Losses(graph, fetches).find();
  if (!loss) throw InvalidArgument("no loss of this graph can be split");
  const int64_t rows = graph.value(graph.node(loss->loss).inputs[1]).spec.shape.elements();
  if (parts < 1 || parts > rows)
    throw InvalidArgument(fmt::format("a loss of {} rows in {} parts", rows, parts));
  LossInRows(graph, *loss).split(parts);
}

}  // namespace headroom
