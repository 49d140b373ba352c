// ONNX ops with graphs inside: a branch that is known, and loops whose number of turns is known, written out.
// And sequences, which exist only while a model is imported.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/onnx/op_table.h"

namespace headroom::onnx {
namespace {

// Copies of longer lists would be much work for a loop.
constexpr int64_t kLongestSequence = 4096;

// Returns nothing if the operand is left out or depends on the data.
std::optional<bool> known_flag(const NodeImport& n, const Item& item) {
  if (!item.constant) return std::nullopt;
  const std::vector<int64_t> numbers = onnx::integers_of(n.im.dense(item));
  if (numbers.size() != 1) n.fail(fmt::format("its condition has {} elements", numbers.size()));
  return numbers[0] != 0;
}

bool is_any_missing(const std::vector<Item>& items) {
  return std::ranges::any_of(items, [](const Item& item) { return item.is_missing; });
}

// The results of all turns, along an axis of their own.
Item stacked(const NodeImport& n, const std::vector<Item>& turns, int axis) {
  std::vector<Item> apart;
  for (const Item& item : turns) {
    if (item.list) n.fail("collects sequences");
    if (item.rank() == Shape::kMaxRank) n.fail("makes a tensor of too high a rank");
    if (item.shape != turns[0].shape) n.fail("collects tensors of different shapes");
    std::vector<int64_t> extents(item.shape.begin(), item.shape.end());
    extents.insert(extents.begin() + n.axis(axis, item.rank() + 1), 1);
    apart.push_back(n.im.reshape(item, Shape(std::span<const int64_t>(extents))));
  }
  return n.im.concat(apart, n.axis(axis, apart[0].rank()));
}

const std::vector<Item>& list_of(const NodeImport& n, size_t i) {
  if (!n.in(i).list) n.fail("takes a tensor as if it were a sequence");
  return *n.in(i).list;
}

Item sequence(const NodeImport& n, std::vector<Item> items, ElementType type) {
  if (static_cast<int64_t>(items.size()) > kLongestSequence)
    n.fail(fmt::format("makes a sequence of more than {}", kLongestSequence));
  Item list;
  list.type = items.empty() ? type : items[0].type;
  list.list = std::move(items);
  return list;
}

// The place of an operand in a list of that size; `otherwise` if it is left out.
size_t place_in(const NodeImport& n, size_t i, size_t size, int64_t otherwise) {
  int64_t at = n.has(i) ? n.integer_in(i) : otherwise;
  if (at < 0) at += static_cast<int64_t>(size);
  if (at < 0 || at > static_cast<int64_t>(size))
    n.fail(fmt::format("place {} of a sequence of {}", at, size));
  return static_cast<size_t>(at);
}

}  // namespace

void import_if(NodeImport& n) {
  const std::optional<bool> condition = known_flag(n, n.in(0));
  if (!condition) n.fail("its condition depends on the data");
  n.outputs = n.run_body(n.body(*condition ? "then_branch" : "else_branch"), {});
}

void import_loop(NodeImport& n) {
  const Body& body = n.body("body");
  const int64_t most = n.has(0) ? n.integer_in(0) : INT64_MAX;
  std::optional<bool> goes_on = n.has(1) ? known_flag(n, n.in(1)) : true;
  std::vector<Item> carried;
  for (size_t i = 2; i < n.operands(); ++i) carried.push_back(n.in(i));
  if (body.outputs.size() < carried.size() + 1) n.fail("its graph has too few outputs");
  std::vector<std::vector<Item>> collected(body.outputs.size() - 1 - carried.size());
  int64_t turn = 0;
  for (; turn < most; ++turn) {
    if (!goes_on) n.fail("its condition depends on the data");
    if (!*goes_on) break;
    std::vector<Item> inputs = {n.im.whole(turn), n.im.cast(n.im.whole(1), ElementType::kBool)};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    std::vector<Item> outputs = n.run_body(body, std::move(inputs));
    if (is_any_missing(outputs)) return;
    goes_on = known_flag(n, outputs[0]);
    for (size_t i = 0; i < carried.size(); ++i) carried[i] = outputs[i + 1];
    for (size_t i = 0; i < collected.size(); ++i)
      collected[i].push_back(std::move(outputs[1 + carried.size() + i]));
  }
  n.outputs = std::move(carried);
  for (const std::vector<Item>& turns : collected) {
    if (turns.empty()) n.fail("collects the results of no turn");
    n.out(stacked(n, turns, 0));
  }
}

void import_scan(NodeImport& n) {
  if (n.opset < 9) n.fail("its first form, with batches, is not supported");
  const Body& body = n.body("body");
  const int64_t count = n.integer("num_scan_inputs", 0);
  const auto operands = static_cast<int64_t>(n.operands());
  if (count < 1 || count > operands) n.fail(fmt::format("scans {} of {} operands", count, operands));
  const size_t states = static_cast<size_t>(operands - count);
  if (body.outputs.size() < states) n.fail("its graph has too few outputs");
  // The numbers of an attribute, or 0 for each.
  const auto numbers = [&](std::string_view name, size_t size) {
    std::vector<int64_t> given = n.integers(name);
    if (!given.empty() && given.size() != size) n.fail(fmt::format("its {} are {}", name, given.size()));
    given.resize(size, 0);
    return given;
  };
  const size_t results = body.outputs.size() - states;
  const std::vector<int64_t> axes = numbers("scan_input_axes", static_cast<size_t>(count)),
                             backwards = numbers("scan_input_directions", static_cast<size_t>(count)),
                             out_axes = numbers("scan_output_axes", results),
                             out_backwards = numbers("scan_output_directions", results);
  std::vector<Item> carried;
  for (size_t i = 0; i < states; ++i) carried.push_back(n.in(i));
  const auto axis_of = [&](size_t i) { return n.axis(axes[i], n.in(states + i).rank()); };
  const int64_t turns = n.in(states).shape[axis_of(0)];
  std::vector<std::vector<Item>> collected(results);
  for (int64_t turn = 0; turn < turns; ++turn) {
    std::vector<Item> inputs = carried;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      const Item& whole = n.in(states + i);
      const int axis = axis_of(i);
      if (whole.shape[axis] != turns) n.fail("its operands have different lengths");
      Slice one{std::vector<int64_t>(static_cast<size_t>(whole.rank()), 0), whole.shape.with(axis, 1)};
      one.begin[static_cast<size_t>(axis)] = backwards[i] != 0 ? turns - 1 - turn : turn;
      std::vector<int64_t> extents(whole.shape.begin(), whole.shape.end());
      extents.erase(extents.begin() + axis);
      inputs.push_back(n.im.reshape(n.im.slice(whole, one), Shape(std::span<const int64_t>(extents))));
    }
    std::vector<Item> outputs = n.run_body(body, std::move(inputs));
    if (is_any_missing(outputs)) return;
    for (size_t i = 0; i < states; ++i) carried[i] = outputs[i];
    for (size_t i = 0; i < results; ++i) collected[i].push_back(std::move(outputs[states + i]));
  }
  n.outputs = std::move(carried);
  for (size_t i = 0; i < results; ++i) {
    if (collected[i].empty()) n.fail("collects the results of no turn");
    if (out_backwards[i] != 0) std::ranges::reverse(collected[i]);
    n.out(stacked(n, collected[i], static_cast<int>(out_axes[i])));
  }
}

void import_sequence_construct(NodeImport& n) {
  std::vector<Item> items;
  for (size_t i = 0; i < n.operands(); ++i) items.push_back(n.in(i));
  n.out(sequence(n, std::move(items), ElementType::kFloat));
}

void import_sequence_empty(NodeImport& n) {
  n.out(sequence(n, {}, static_cast<ElementType>(n.integer("dtype", 1))));
}

void import_sequence_insert(NodeImport& n) {
  std::vector<Item> items = list_of(n, 0);
  const size_t at = place_in(n, 2, items.size(), static_cast<int64_t>(items.size()));
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(at), n.in(1));
  n.out(sequence(n, std::move(items), ElementType::kFloat));
}

void import_sequence_erase(NodeImport& n) {
  std::vector<Item> items = list_of(n, 0);
  const size_t at = place_in(n, 1, items.size(), static_cast<int64_t>(items.size()) - 1);
  if (at >= items.size()) n.fail("takes from an empty sequence");
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
  n.out(sequence(n, std::move(items), n.in(0).type));
}

void import_sequence_length(NodeImport& n) {
  n.out(n.im.whole(static_cast<int64_t>(list_of(n, 0).size())));
}

void import_concat_from_sequence(NodeImport& n) {
  const std::vector<Item>& items = list_of(n, 0);
  if (items.empty()) n.fail("joins an empty sequence");
  const auto axis = static_cast<int>(n.integer("axis", 0));
  if (n.integer("new_axis", 0) != 0) return n.out(stacked(n, items, axis));
  n.out(n.im.concat(items, n.axis(axis, items[0].rank())));
}

}  // namespace headroom::onnx
