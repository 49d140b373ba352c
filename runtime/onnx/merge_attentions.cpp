#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/graph/graph_view.h"
#include "runtime/onnx/item.h"
#include "runtime/onnx/merge_nodes.h"

namespace headroom::onnx {
namespace {

// (B,H,rows,D) and (B,rows,H,D) are each other's axes in this order.
const Axes kHeadsAndRows = {0, 2, 1, 3};

class Attentions : private GraphView {
 public:
  Attentions(Graph& graph, std::span<const Value> parameters, std::span<const Value> keep)
      : GraphView(graph, keep), target_(graph), needs_gradient_(graph.values().size()) {
    for (const Value& parameter : parameters) needs_gradient_[static_cast<size_t>(parameter.id)] = true;
    for (const Node& node : graph.nodes()) {
      const bool any = std::ranges::any_of(
          node.inputs, [&](int input) { return needs_gradient_[static_cast<size_t>(input)]; });
      for (int output : node.outputs) needs_gradient_[static_cast<size_t>(output)] = any;
    }
  }

  int run(bool only_cached) {
    std::map<int, Match> matches;  // by the product
    std::set<int> dropped;
    for (int i = 0; i < node_count(); ++i) {
      const std::optional<Match> found = match(i);
      if (!found || (only_cached && found->cache.empty())) continue;
      dropped.insert({found->scores, found->softmax, found->move});
      dropped.insert(found->capping.begin(), found->capping.end());
      matches.emplace(i, *found);
    }
    if (matches.empty()) return 0;
    for (int i = 0; i < node_count(); ++i) {
      const auto found = matches.find(i);
      if (found != matches.end()) {
        write(found->second);
      } else if (!dropped.contains(i)) {
        nodes_.push_back(graph().node(i));
      }
    }
    target_.replace_nodes(without_idle_moves());
    return static_cast<int>(matches.size());
  }

 private:
  // A value of rank 4, after a reshape if there is one, and where it has the axes (B,rows,H,D).
  struct Rows {
    int value;
    Axes axes;
    std::optional<Shape> as = {};
  };
  const Shape& shape_of(const Rows& rows) const { return rows.as ? *rows.as : shape(rows.value); }
  // The shape as (B,rows,H,D).
  Shape moved_shape(const Rows& rows) const { return permuted(shape_of(rows), rows.axes); }

  struct Match {
    int scores, softmax, product, move;  // nodes: move takes the result to (B,T,H,D); -1: there is none
    Rows q, k, v;
    std::optional<int> mask;
    float scale = 1, softcap = 0;  // as Attention has them
    std::vector<int> capping;      // nodes between the scores and the softmax
    std::vector<int> cache = {};   // operands of CachedAttention; empty for any other
  };

  // Finds the smaller value from which a value (B,H,X,Y) repeats its heads, and the axes (B,G,X,Y) there. A
  // broadcast of an axis after the heads repeats them, and a reshape joins both axes.
  std::optional<Rows> without_repeats(int value) const {
    if (!op<Reshape>(maker(value))) return {};
    const Shape& joined = shape(value);
    value = input(maker(value), 0);
    // Exporters also join the batch and the heads on the way.
    while (shape(value).rank() != 5 && op<Reshape>(maker(value))) value = input(maker(value), 0);
    Axes axes = {0, 1, 2, 3, 4};
    const Shape& apart = shape(value);
    if (joined.rank() != 4 || apart.rank() != 5 || apart[1] * apart[2] != joined[1] ||
        apart[0] != joined[0] || apart[3] != joined[2] || apart[4] != joined[3])
      return {};
    if (const auto* moved = op<Transpose>(maker(value))) {
      axes.assign(moved->axes.begin(), moved->axes.end());
      value = input(maker(value), 0);
    }
    if (!op<BroadcastTo>(maker(value))) return {};
    const Shape& repeated = shape(value);
    value = input(maker(value), 0);
    const Shape& once = shape(value);
    const int repeats = axes[2];
    if (once.rank() != 5 || once[repeats] != 1 || once.with(repeats, repeated[repeats]) != repeated)
      return {};
    std::vector<int64_t> extents(once.begin(), once.end());
    extents.erase(extents.begin() + repeats);
    const Shape rank_4{std::span<const int64_t>(extents)};
    Rows found{value, {}, rank_4};
    for (const size_t i : {0, 1, 3, 4}) found.axes.push_back(axes[i] - (axes[i] > repeats ? 1 : 0));
    // A reshape may have made the axis of extent 1 from what is looked for.
    while (op<Reshape>(maker(value)) != nullptr) {
      value = input(maker(value), 0);
      if (shape(value) == rank_4) found = {value, found.axes};
    }
    return found;
  }

  // The operands of CachedAttention from new keys to indices, if rows of both factors are replaced.
  std::vector<int> cache_of(const Rows& k, const Rows& v) const {
    const int of_k = maker(k.value), of_v = maker(v.value);
    for (const Rows* rows : {&k, &v}) {
      const auto* replaces = op<ReplaceRows>(maker(rows->value));
      if (!replaces || replaces->axis != 2 || rows->as || rows->axes != kHeadsAndRows) return {};
    }
    const int indices = input(of_k, 1);
    if (input(of_v, 1) != indices || shape(indices)[0] > kMaxNewRows) return {};
    return {input(of_k, 2), input(of_v, 2), input(of_k, 0), input(of_v, 0), indices};
  }

  // Scores that a soft cap has made from a product: c tanh(s product), whose nodes are appended.
  struct Capped {
    int scores;  // value
    float outer = 1, inner = 1;
  };
  std::optional<Capped> capped(int value, std::vector<int>& nodes) const {
    Capped found{value};
    const auto pass = [&] {
      nodes.push_back(maker(found.scores));
      const int from = input(maker(found.scores), 0);
      if (only_reader(found.scores) < 0) return false;
      found.scores = from;
      return true;
    };
    const auto pass_scales = [&](float& factor) {
      while (const auto* scale = op<Scale>(maker(found.scores))) {
        factor *= scale->factor;
        if (!pass()) return false;
      }
      return true;
    };
    if (!pass_scales(found.outer)) return {};
    const auto* tanh = op<Unary>(maker(found.scores));
    if (!tanh || tanh->kind != UnaryKind::kTanh || !pass() || !pass_scales(found.inner)) return {};
    return found;
  }

  // The value that reshapes there and back started with.
  int without_reshapes(int value) const {
    for (int at = value; op<Reshape>(maker(at)) != nullptr;) {
      at = input(maker(at), 0);
      if (shape(at) == shape(value)) value = at;
    }
    return value;
  }

  // Returns a factor of a product, (B,H,rows,D), or (B,H,D,rows) if it is transposed, as (B,rows,H,D): by the
  // axes of the transposition's operand, if a transposition made it.
  Rows rows_of(int value, bool is_transposed) const {
    Axes axes = is_transposed ? Axes{0, 3, 1, 2} : kHeadsAndRows;
    value = without_reshapes(value);
    if (const auto once = without_repeats(value)) {
      for (int& axis : axes) axis = once->axes[static_cast<size_t>(axis)];
      if (once->as) return {once->value, axes, once->as};
      value = once->value;
    }
    value = without_reshapes(value);
    if (const auto* moved = op<Transpose>(maker(value))) {
      for (int& axis : axes) axis = moved->axes[static_cast<size_t>(axis)];
      value = without_reshapes(input(maker(value), 0));
    }
    return {value, axes};
  }

  std::optional<Match> match(int product) const {
    const auto* weighs = op<MatMul>(product);
    if (!weighs || weighs->transpose_a) return {};
    const int shares = input(product, 0), softmax = maker(shares);
    if (!op<Softmax>(softmax) || only_reader(shares) != product) return {};
    std::vector<int> capping;
    const std::optional<Capped> cap = capped(input(softmax, 0), capping);
    const int scores_value = cap ? cap->scores : input(softmax, 0), scores = maker(scores_value);
    const auto* multiplies = op<MatMul>(scores);
    if (!multiplies || multiplies->transpose_a ||
        only_reader(scores_value) != (cap ? capping.back() : softmax))
      return {};
    if (!on_one_device({scores, softmax, product})) return {};
    for (int value : {input(scores, 0), input(scores, 1), input(product, 1)}) {
      if (shape(value).rank() != 4) return {};
    }
    Match found{scores,
                softmax,
                product,
                -1,
                rows_of(input(scores, 0), false),
                // The second factor of the scores is (B,H,D,S), unless it is transposed there.
                rows_of(input(scores, 1), !multiplies->transpose_b),
                rows_of(input(product, 1), weighs->transpose_b),
                {},
                op<Softmax>(softmax)->scale,
                0,
                {}};
    if (cap) {
      // The softmax's scale times c tanh(s product), as cap tanh(scale product / cap).
      found.softcap = found.scale * cap->outer;
      found.scale = cap->inner * found.softcap;
      if (!(found.softcap > 0)) return {};
      found.capping = std::move(capping);
    }
    const Shape q = moved_shape(found.q), k = moved_shape(found.k);
    if (moved_shape(found.v) != k || q != k.with(1, q[1]).with(2, q[2]) || k[2] == 0 || q[2] % k[2] != 0)
      return {};
    if (graph().node(softmax).inputs.size() > 1) found.cache = cache_of(found.k, found.v);
    if (q[3] > kMaxHeadExtent || k[1] == 0 || q[3] == 0) return {};
    if (graph().node(softmax).inputs.size() > 1) {
      found.mask = input(softmax, 1);
      if (needs_gradient_[static_cast<size_t>(*found.mask)]) return {};
    }
    const int reader = only_reader(output(product));
    const auto* moved = op<Transpose>(reader);
    if (moved && moved->axes == kHeadsAndRows && on_one_device({product, reader})) found.move = reader;
    return found;
  }

  // A new value of the nodes' device, and its name.
  int new_value(int like, const std::string& name, const Shape& shape) {
    ValueInfo info = graph().value(like);
    info.name = name;
    info.spec.shape = shape;
    return target_.new_result(std::move(info)).id;
  }

  int add_moved(const Rows& rows, const std::string& name, const std::string& device) {
    int value = rows.value;
    if (rows.as) {
      value = new_value(rows.value, name + "/once", *rows.as);
      nodes_.push_back(Node{Reshape{*rows.as}, target_.value(value).name, {rows.value}, {value}, device});
    }
    if (is_in_order(rows.axes)) return value;
    const int result = new_value(rows.value, name, moved_shape(rows));
    nodes_.push_back(Node{Transpose{rows.axes}, target_.value(result).name, {value}, {result}, device});
    return result;
  }

  // A third of a value that holds queries, keys and values in sequence in each of its rows.
  struct Third {
    int whole;
    int64_t which;
    int64_t rows, row;  // number of rows, and elements of each in the third
  };

  std::optional<Third> third_of(int value) const {
    while (op<Reshape>(maker(value)) != nullptr) value = input(maker(value), 0);
    const auto* slice = op<Slice>(maker(value));
    if (!slice || !slice->steps.empty()) return {};
    const int whole = input(maker(value), 0);
    const Shape &from = shape(whole), &to = shape(value);
    int cut = -1;
    for (int axis = 0; axis < from.rank(); ++axis) {
      if (from[axis] == to[axis]) continue;
      if (cut >= 0 || from[axis] != 3 * to[axis]) return {};
      cut = axis;
    }
    if (cut < 0 || slice->begin[static_cast<size_t>(cut)] % to[cut] != 0) return {};
    Third third{whole, slice->begin[static_cast<size_t>(cut)] / to[cut], 1, 1};
    for (int axis = 0; axis < from.rank(); ++axis) (axis < cut ? third.rows : third.row) *= to[axis];
    return third;
  }

  // The value whose rows hold q, k and v, if there is one.
  std::optional<int> packed_source(const Match& match) const {
    const Shape q = moved_shape(match.q);
    std::optional<int> whole;
    int64_t which = 0;
    for (const Rows& rows : {match.q, match.k, match.v}) {
      const bool is_third = !rows.as && keeps_order(shape(rows.value), rows.axes);
      const std::optional<Third> third = is_third ? third_of(rows.value) : std::nullopt;
      if (!third || third->which != which++ || third->whole != whole.value_or(third->whole)) return {};
      if (third->rows != q[0] * q[1] || third->row != q[2] * q[3]) return {};
      whole = third->whole;
    }
    return whole;
  }

  // The tiles of a mask, which all attentions of such scores on a device share.
  int tiles_of(int mask, const Shape& scores, const std::string& device) {
    const auto [found, is_new] = tiles_.try_emplace({mask, to_string(scores), device}, -1);
    if (!is_new) return found->second;
    ValueInfo info = graph().value(mask);
    const TensorSpec spec[] = {info.spec};
    info.name += "/tiles";
    info.initializer = {};
    info.spec = infer_outputs(MaskTiles{scores}, spec)[0];
    const int tiles = found->second = target_.new_result(std::move(info)).id;
    nodes_.push_back(Node{MaskTiles{scores}, target_.value(tiles).name, {mask}, {tiles}, device});
    return tiles;
  }

  void write(const Match& match) {
    const Node& softmax_node = graph().node(match.softmax);
    const auto& softmax = std::get<Softmax>(softmax_node.op);
    const std::string &name = softmax_node.name, &device = softmax_node.device;
    Node attention{Attention{match.scale, softmax.zero_nan_rows, false, match.softcap},
                   name + "/attention",
                   {},
                   {},
                   device};
    if (!match.cache.empty()) {
      attention.op = CachedAttention{match.scale, softmax.zero_nan_rows, match.softcap};
      attention.inputs = {add_moved(match.q, name + "/q", device)};
      attention.inputs.insert(attention.inputs.end(), match.cache.begin(), match.cache.end());
    } else if (const std::optional<int> whole = packed_source(match)) {
      const Shape q = moved_shape(match.q), packed = {q[0], q[1], 3, q[2], q[3]};
      const int heads = new_value(*whole, name + "/heads", packed);
      nodes_.push_back(Node{Reshape{packed}, target_.value(heads).name, {*whole}, {heads}, device});
      std::get<Attention>(attention.op).packed = true;
      attention.inputs = {heads};
    } else {
      attention.inputs = {add_moved(match.q, name + "/q", device), add_moved(match.k, name + "/k", device),
                          add_moved(match.v, name + "/v", device)};
    }
    if (match.mask) {
      const Shape q = moved_shape(match.q), k = moved_shape(match.k);
      const Shape scores = {q[0], q[2], q[1], k[1]};
      attention.inputs.insert(attention.inputs.end(), {*match.mask, tiles_of(*match.mask, scores, device)});
    }
    const int result = output(match.product);
    const Shape rows = permuted(shape(result), kHeadsAndRows);
    const int y = match.move >= 0 ? output(match.move) : new_value(result, name + "/y", rows);
    attention.outputs = {y};
    if (match.cache.empty())
      attention.outputs.push_back(new_value(result, name + "/statistics", {rows[0], rows[2], rows[1], 2}));
    nodes_.push_back(std::move(attention));
    if (match.move < 0) {
      nodes_.push_back(Node{Transpose{kHeadsAndRows}, name + "/heads", {y}, {result}, device});
    }
  }

  // Returns the nodes except transpositions, reshapes, broadcasts and slices that are no longer read.
  std::vector<Node> without_idle_moves() {
    std::set<int> read;
    std::vector<Node> rest;
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      const bool is_move =
          std::holds_alternative<Transpose>(node->op) || std::holds_alternative<Reshape>(node->op) ||
          std::holds_alternative<BroadcastTo>(node->op) || std::holds_alternative<Slice>(node->op);
      const auto is_needed = [&](int value) {
        const bool is_kept = static_cast<size_t>(value) < needs_gradient_.size() && kept(value);
        return is_kept || read.contains(value);
      };
      if (is_move && std::ranges::none_of(node->outputs, is_needed)) continue;
      read.insert(node->inputs.begin(), node->inputs.end());
      rest.push_back(std::move(*node));
    }
    std::ranges::reverse(rest);
    return rest;
  }

  Graph& target_;
  std::vector<bool> needs_gradient_;  // by value
  std::vector<Node> nodes_;
  std::map<std::tuple<int, std::string, std::string>, int> tiles_;  // by mask, scores and device: a value
};

}  // namespace

int merge_attentions(Graph& graph, std::span<const Value> parameters, std::span<const Value> keep,
                     bool only_cached) {
  return Attentions(graph, parameters, keep).run(only_cached);
}

}  // namespace headroom::onnx
