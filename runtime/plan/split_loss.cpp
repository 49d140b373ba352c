#include "runtime/plan/split_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "runtime/graph/graph_view.h"

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
    const bool is_whole = !kept(logits) && !kept(output(found.gradient)) &&
                          std::none_of(found.reshapes.begin(), found.reshapes.end(),
                                       [&](int reshape) { return kept(output(reshape)); });
    if (!is_whole || depends_on(input(found.gradient, 2), loss)) return {};
    return found;
  }

  // x (..,K) by a matrix.
  bool is_product_of_rows(int node) const {
    if (node < 0 || graph().node(node).inputs.size() > 3) return false;
    const auto* matmul = op<MatMul>(node);
    return ((matmul && !matmul->transpose_a) || op<Dense>(node)) && shape(input(node, 1)).rank() == 2;
  }

  // Who reads a value, or a reshape of it.
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
    std::sort(result.begin(), result.end());
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
             std::all_of(reduce->axes.begin(), reduce->axes.end(), [&](int axis) { return axis < rank - 1; });
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
        if (!seen[static_cast<size_t>(operand)]) open.push_back(operand);
        seen[static_cast<size_t>(operand)] = true;
      }
    }
    return false;
  }
};

class LossSplitter {
 public:
  LossSplitter(Graph& graph, Loss loss, int parts)
      : graph_(graph),
        before_(graph.copy()),
        loss_(std::move(loss)),
        parts_(parts),
        rows_(before_->value(node(loss_.loss).inputs[1]).spec.shape.elements()),
        is_done_(before_->nodes().size()) {}

  void rewrite() {
    for (const std::vector<int>* gone : {&loss_.of_rows, &loss_.of_sums, &loss_.reshapes}) {
      for (const int id : *gone) is_done_[static_cast<size_t>(id)] = true;
    }
    for (const int id : {loss_.product, loss_.loss, loss_.gradient}) is_done_[static_cast<size_t>(id)] = true;
    for (size_t id = 0; id < before_->nodes().size(); ++id) {
      if (static_cast<int>(id) == loss_.loss) add_parts();
      add_with_operands(static_cast<int>(id));
    }
    graph_.replace_nodes(std::move(nodes_));
  }

 private:
  const Node& node(int id) const { return before_->node(id); }
  const TensorSpec& spec(int value) const { return before_->value(value).spec; }

  // A node, behind those later ones that it reads from.
  void add_with_operands(int id) {
    std::vector<int> open = {id};
    while (!open.empty()) {
      const int next = open.back();
      const auto at = static_cast<size_t>(next);
      if (is_done_[at]) {
        open.pop_back();
        continue;
      }
      const size_t before = open.size();
      for (const int operand : node(next).inputs) {
        const int made_by = maker(operand);
        if (made_by >= 0 && !is_done_[static_cast<size_t>(made_by)]) open.push_back(made_by);
      }
      if (open.size() > before) continue;
      open.pop_back();
      is_done_[at] = true;
      nodes_.push_back(node(next));
    }
  }
  int maker(int value) {
    if (makers_.empty()) {
      makers_.assign(before_->values().size(), -1);
      for (size_t id = 0; id < before_->nodes().size(); ++id) {
        for (const int output : before_->nodes()[id].outputs)
          makers_[static_cast<size_t>(output)] = static_cast<int>(id);
      }
    }
    return makers_[static_cast<size_t>(value)];
  }

  int new_value(int like, const Shape& shape, const std::string& name) {
    ValueInfo info = graph_.value(like);
    info.name = name;
    info.kind = ValueKind::kResult;
    info.spec.shape = shape;
    info.initializer = {};
    return graph_.new_result(std::move(info)).id;
  }
  int add(const Op& op, const Node& like, int part, std::vector<int> inputs, int value, const Shape& shape) {
    const std::string name = fmt::format("{}/part{}", like.name, part + 1);
    const int made = new_value(value, shape, name);
    nodes_.push_back(Node{op, name, std::move(inputs), {made}, like.device});
    return made;
  }
  int root_of(int value) {
    while (maker(value) >= 0 && std::holds_alternative<Reshape>(node(maker(value)).op)) {
      value = node(maker(value)).inputs[0];
    }
    return value;
  }
  // A value, or what it is a reshape of, with the rows as its first axis.
  int as_rows(int value, const Node& like) {
    const int root = root_of(value);
    const Shape& shape = spec(root).shape;
    const auto [known, is_new] = rows_of_.try_emplace(root, root);
    if (is_new && shape[0] != rows_) {
      const std::string name = like.name + "/rows";
      known->second = new_value(root, {rows_, shape.elements() / rows_}, name);
      nodes_.push_back(Node{Reshape{shape_of(known->second)}, name, {root}, {known->second}, like.device});
    }
    return known->second;
  }
  const Shape& shape_of(int made) const { return graph_.value(made).spec.shape; }

  // The rows of a part.
  int cut(int value, const Node& like, int part) {
    const int rows = as_rows(value, like);
    const auto [known, is_new] = cuts_.try_emplace(rows, -1);
    if (!is_new) return known->second;
    std::vector<int64_t> begin(static_cast<size_t>(shape_of(rows).rank()));
    begin[0] = first_row(part);
    const Shape shape = shape_of(rows).with(0, first_row(part + 1) - first_row(part));
    const std::string name = fmt::format("{}/part{}", graph_.value(rows).name, part + 1);
    known->second = new_value(rows, shape, name);
    nodes_.push_back(Node{Slice{begin, shape}, name, {rows}, {known->second}, like.device});
    return known->second;
  }
  int64_t first_row(int part) const { return rows_ * part / parts_; }

  void add_parts() {
    const Node &product = node(loss_.product), &loss = node(loss_.loss), &gradient = node(loss_.gradient);
    for (const std::vector<int>* operands : {&product.inputs, &loss.inputs, &gradient.inputs}) {
      for (const int operand : *operands) {
        if (const int made_by = maker(operand); made_by >= 0) add_with_operands(made_by);
      }
    }
    for (const std::vector<int>* others : {&loss_.of_rows, &loss_.of_sums}) {
      for (const int id : *others) {
        for (const int operand : node(id).inputs) {
          if (const int made_by = maker(operand); made_by >= 0) add_with_operands(made_by);
        }
      }
    }
    const int64_t classes = spec(product.outputs[0]).shape.last();
    std::vector<int> losses, sums;
    std::vector<std::vector<int>> rows(loss_.of_rows.size());
    for (int part = 0; part < parts_; ++part) {
      cuts_.clear();
      const int64_t count = first_row(part + 1) - first_row(part);
      const Shape of_logits = {count, classes};
      std::vector<int> operands = product.inputs;
      operands[0] = cut(product.inputs[0], product, part);
      const int logits = add(product.op, product, part, std::move(operands), product.outputs[0], of_logits);
      const int own_labels = cut(loss.inputs[1], loss, part);
      losses.push_back(add(loss.op, loss, part, {logits, own_labels}, loss.outputs[0], {count}));
      const int own_weight = cut(gradient.inputs[2], gradient, part);
      const int dlogits =
          add(gradient.op, gradient, part, {logits, own_labels, own_weight}, gradient.outputs[0], of_logits);
      for (size_t i = 0; i < loss_.of_rows.size(); ++i) {
        const Node& reader = node(loss_.of_rows[i]);
        std::vector<int> inputs = reader.inputs;
        inputs[0] = dlogits;
        const Shape shape = {count, spec(reader.outputs[0]).shape.last()};
        rows[i].push_back(add(reader.op, reader, part, std::move(inputs), reader.outputs[0], shape));
      }
      add_sums(part, dlogits, sums);
    }
    nodes_.push_back(Node{Concat{0}, loss.name, losses, loss.outputs, loss.device});
    for (size_t i = 0; i < loss_.of_rows.size(); ++i) put_rows(node(loss_.of_rows[i]), rows[i]);
  }

  // What the parts have together, in the shape that its readers expect.
  void put_rows(const Node& reader, const std::vector<int>& parts) {
    const Shape& shape = spec(reader.outputs[0]).shape;
    const Shape flat = {rows_, shape.last()};
    if (shape == flat) {
      nodes_.push_back(Node{Concat{0}, reader.name, parts, reader.outputs, reader.device});
      return;
    }
    const int whole = new_value(reader.outputs[0], flat, reader.name + "/rows");
    nodes_.push_back(Node{Concat{0}, reader.name + "/rows", parts, {whole}, reader.device});
    nodes_.push_back(Node{Reshape{shape}, reader.name, {whole}, reader.outputs, reader.device});
  }

  // Adds what a part gives to the sums so far; the last addition gives the sums themselves.
  void add_sums(int part, int dlogits, std::vector<int>& sums) {
    size_t at = 0;
    for (const int id : loss_.of_sums) {
      const Node& reader = node(id);
      std::vector<int> inputs = reader.inputs;
      Op op = reader.op;
      if (auto* reduce = std::get_if<Reduce>(&op)) {
        inputs[0] = dlogits;
        reduce->axes = {0};
      } else {
        for (int& operand : inputs) operand = is_of_gradient(operand) ? dlogits : cut(operand, reader, part);
      }
      const std::string name = fmt::format("{}/part{}", reader.name, part + 1);
      Node made{op, name, std::move(inputs), {}, reader.device};
      for (const int output : reader.outputs)
        made.outputs.push_back(new_value(output, spec(output).shape, name));
      const std::vector<int> results = made.outputs;
      nodes_.push_back(std::move(made));
      for (size_t i = 0; i < results.size(); ++i, ++at) {
        if (part == 0) {
          sums.push_back(results[i]);
          continue;
        }
        const std::string sum_name = fmt::format("{}/sum{}", reader.name, part + 1);
        const bool is_last = part + 1 == parts_;
        const int output = reader.outputs[i];
        const int next = is_last ? output : new_value(output, spec(output).shape, sum_name);
        nodes_.push_back(
            Node{Binary{BinaryKind::kAdd}, sum_name, {sums[at], results[i]}, {next}, reader.device});
        sums[at] = next;
      }
    }
  }
  bool is_of_gradient(int value) { return maker(root_of(value)) == loss_.gradient; }

  Graph& graph_;
  const std::unique_ptr<Graph> before_;
  const Loss loss_;
  const int parts_;
  const int64_t rows_;
  std::vector<bool> is_done_;
  std::vector<int> makers_;
  std::map<int, int> rows_of_;  // by value: with the rows as its first axis
  std::map<int, int> cuts_;     // by such a value: the rows of the present part
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
  LossSplitter(graph, std::move(*loss), parts).rewrite();
}

}  // namespace headroom
