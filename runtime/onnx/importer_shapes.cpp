// Ops of the importer that move elements: reshape, transpose, slices, joins and gathers. They keep the order
// in memory if possible.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/onnx/importer.h"

namespace headroom::onnx {

Item Importer::reshape(const Item& x, const Shape& shape) {
  if (x.shape == shape) return x;
  if (x.shape.elements() != shape.elements()) {
    throw Unsupported{fmt::format("reshapes {} to {}", to_string(x.shape), to_string(shape))};
  }
  if (x.constant) {
    Item result = x;
    result.shape = shape;
    if (x.constant->elements() != 1) result.constant = dense(x).with_shape(shape);
    if (result.constant->elements() == 1) result.constant = result.constant->with_shape({});
    return result;
  }
  const Axes order = order_of(x);
  if (!is_in_order(order) && x.shape.elements() > 0) {
    // Axes that lie side by side in memory may be joined, and any may be split: group by group of axes with
    // equal products.
    const Axes place_of = inverse(order);
    std::vector<std::vector<int>> from_groups, to_groups;
    int i = 0, j = 0;
    bool is_possible = true;
    while (i < x.rank() || j < shape.rank()) {
      std::vector<int> from, to;
      int64_t left = 1, right = 1;
      do {
        if ((left <= right && i < x.rank()) || j >= shape.rank()) {
          left *= x.shape[i];
          from.push_back(i++);
        } else {
          right *= shape[j];
          to.push_back(j++);
        }
      } while (left != right && (i < x.rank() || j < shape.rank()));
      // Axes of extent 1 lie anywhere.
      int last = -1;
      for (int axis : from) {
        if (x.shape[axis] == 1) continue;
        const int place = place_of[static_cast<size_t>(axis)];
        if (last >= 0) {
          for (int between = last + 1; between < place; ++between) {
            is_possible = is_possible && x.shape[order[static_cast<size_t>(between)]] == 1;
          }
          is_possible = is_possible && place > last;
        }
        last = place;
      }
      from_groups.push_back(from);
      to_groups.push_back(to);
    }
    if (is_possible) {
      // Groups in the order in which their first long axis lies in memory.
      std::vector<size_t> groups(from_groups.size());
      std::iota(groups.begin(), groups.end(), size_t{0});
      const auto first_place = [&](size_t group) {
        for (int axis : from_groups[group]) {
          if (x.shape[axis] != 1) return place_of[static_cast<size_t>(axis)];
        }
        return -1;
      };
      std::ranges::stable_sort(groups, [&](size_t a, size_t b) { return first_place(a) < first_place(b); });
      Axes new_order;
      for (size_t group : groups)
        new_order.insert(new_order.end(), to_groups[group].begin(), to_groups[group].end());
      const Value value = add_one(Reshape{permuted(shape, new_order)}, {value_in(x, order)});
      return item_of(value, x.type, new_order);
    }
  }
  const Value value = add_one(Reshape{shape}, {plain(x)});
  return item_of(value, x.type, in_order(shape.rank()));
}

Item Importer::transpose(const Item& x, const Axes& order) const {
  if (order.size() != static_cast<size_t>(x.rank()))
    throw Unsupported{
        fmt::format("takes a tensor of rank {} instead of {}", order.size(), to_string(x.shape))};
  Item result = x;
  result.shape = permuted(x.shape, order);
  if (x.constant) {
    const HostTensor whole = x.constant->with_shape(with_rank(x.constant->shape(), x.rank()));
    result.constant = compute(Transpose{order}, std::vector{whole});
    return result;
  }
  for (size_t i = 0; i < order.size(); ++i) result.axes[i] = x.axes[static_cast<size_t>(order[i])];
  return result;
}

Item Importer::expand(const Item& x, const Shape& shape) {
  Shape both;
  if (!broadcast(x.shape, shape, &both)) {
    throw Unsupported{fmt::format("expands {} to {}", to_string(x.shape), to_string(shape))};
  }
  if (both == x.shape) return x;
  if (x.constant) {
    Item result = x;
    result.shape = both;
    return result;
  }
  const Item whole = reshape(x, with_rank(x.shape, both.rank()));
  const Axes order = order_of(whole);
  return item_of(add_one(BroadcastTo{permuted(both, order)}, {value_in(whole, order)}), x.type, order);
}

Item Importer::slice(const Item& x, const Slice& options) {
  const bool is_whole =
      options.extents == x.shape && std::ranges::all_of(options.steps, [](int64_t s) { return s == 1; });
  if (is_whole) return x;
  if (x.constant) return apply(options, {x}, x.type);
  const Axes order = order_of(x);
  std::vector<int64_t> begin, steps;
  for (int axis : order) {
    begin.push_back(options.begin[static_cast<size_t>(axis)]);
    if (!options.steps.empty()) steps.push_back(options.steps[static_cast<size_t>(axis)]);
  }
  const Slice moved{begin, permuted(options.extents, order), steps};
  return item_of(add_one(moved, {value_in(x, order)}), x.type, order);
}

Item Importer::pad(const Item& x, const std::vector<int64_t>& before, const std::vector<int64_t>& after) {
  std::vector<int64_t> extents;
  for (int axis = 0; axis < x.rank(); ++axis) {
    extents.push_back(x.shape[axis] + before[static_cast<size_t>(axis)] + after[static_cast<size_t>(axis)]);
  }
  const Shape whole{std::span<const int64_t>(extents)};
  if (whole == x.shape) return x;
  if (x.constant) return apply(SliceGrad{before, whole}, {x}, x.type);
  const Axes order = order_of(x);
  std::vector<int64_t> begin;
  for (int axis : order) begin.push_back(before[static_cast<size_t>(axis)]);
  return item_of(add_one(SliceGrad{begin, permuted(whole, order)}, {value_in(x, order)}), x.type, order);
}

Item Importer::concat(const std::vector<Item>& items, int axis) {
  if (items.size() == 1) return items[0];
  if (all_constant(items)) return apply(Concat{axis}, items, items[0].type);
  const Item* largest = nullptr;
  for (const Item& item : items) {
    if (!item.is_runtime()) continue;
    if (largest == nullptr || item.shape.elements() > largest->shape.elements()) largest = &item;
  }
  const Axes order = order_of(*largest);
  std::vector<Value> values;
  for (const Item& item : items) {
    if (item.rank() != largest->rank()) throw Unsupported{"joins tensors of different ranks"};
    values.push_back(value_in(item, order));
  }
  const int moved = inverse(order)[static_cast<size_t>(axis)];
  return item_of(add_one(Concat{moved}, values), items[0].type, order);
}

Item Importer::gather(const Item& x, const Item& indices, int axis, int64_t padding_row) {
  // Moves the axis to the front: rows are gathered.
  Axes first = {axis};
  for (int other = 0; other < x.rank(); ++other) {
    if (other != axis) first.push_back(other);
  }
  const int index_rank = indices.rank();
  Item rows;
  if (x.constant && indices.constant) {
    rows = apply(Gather{}, {transpose(x, first), indices}, x.type);
  } else {
    const Value result = add_one(Gather{padding_row}, {value_in(x, first), plain(indices)});
    rows = item_of(result, x.type, in_order(result.shape().rank()));
  }
  // (indices, others) -> others before the axis, indices, others after it
  Axes order;
  for (int other = 0; other < axis; ++other) order.push_back(index_rank + other);
  for (int i = 0; i < index_rank; ++i) order.push_back(i);
  for (int other = axis; other < x.rank() - 1; ++other) order.push_back(index_rank + other);
  return transpose(rows, order);
}

}  // namespace headroom::onnx
