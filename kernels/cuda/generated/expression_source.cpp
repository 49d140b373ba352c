#include "kernels/cuda/generated/expression_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/loop_nest.h"

namespace headroom::cuda {
namespace {

constexpr size_t kMaxOperands = Expression::kMaxOperands;
// The index along the axis of the windows follows the operands.
constexpr size_t kIndex = kMaxOperands;
using Nest = LoopNest<kIndex + 1>;

bool any_half(std::span<const TensorSpec> inputs, const TensorSpec& output) {
  return is_half(output.dtype) || std::any_of(inputs.begin(), inputs.end(),
                                              [](const TensorSpec& spec) { return is_half(spec.dtype); });
}

const char* type_name(DType dtype) {
  return dtype == DType::kBf16 ? "Bf16" : dtype == DType::kF16 ? "F16" : "float";
}

// The exact number.
std::string number(float value) {
  return fmt::format("__uint_as_float(0x{:08x}u)", std::bit_cast<uint32_t>(value));
}

Shape whole_shape(const Windows& windows, std::span<const TensorSpec> inputs) {
  Shape shape;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Shape next;
    broadcast(shape, windows.shape_of(i, inputs[i].shape), &next);
    shape = next;
  }
  return shape;
}

// Returns the extent of an operand that has a window, along its axis.
int64_t extent_of_window(const Windows& windows, const Shape& operand) {
  return operand[operand.rank() - 1 - windows.axis_from_end];
}

// The loops over those axes of an expression's elements that are reduced, or over the others.
Nest nest_of(const Windows& windows, std::span<const TensorSpec> inputs, const Shape& whole,
             std::span<const int> axes, bool reduced) {
  Shape extents = whole;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const bool is_listed = std::find(axes.begin(), axes.end(), axis) != axes.end();
    if (is_listed != reduced) extents = extents.with(axis, 1);
  }
  std::array<Strides, kIndex + 1> strides{};
  for (size_t i = 0; i < inputs.size(); ++i) strides[i] = broadcast_strides(inputs[i].shape, whole);
  if (windows.axis_from_end >= 0)
    strides[kIndex][static_cast<size_t>(whole.rank() - 1 - windows.axis_from_end)] = 1;
  return {extents, strides};
}

// Returns true if each row of `rows` is a whole number of groups of `lanes` neighbors, which start at
// multiples of `lanes` in each operand that is dense along rows, and lie in a window all or none.
bool has_lanes(const Expression& op, const Nest& rows, const Nest& others, std::span<const TensorSpec> inputs,
               int lanes) {
  if (rows.extent(0) % lanes != 0) return false;
  const auto is_multiple = [&](const Nest& nest, int first) {
    for (int axis = first; axis < nest.axis_count(); ++axis) {
      for (size_t n = 0; n < inputs.size(); ++n) {
        if (rows.row_strides()[n] == 1 && nest.strides(axis)[n] % lanes != 0) return false;
      }
    }
    return true;
  };
  if (!is_multiple(rows, 1) || !is_multiple(others, 0)) return false;
  if (rows.row_strides()[kIndex] == 0) return true;
  for (size_t n = 0; n < inputs.size(); ++n) {
    const int64_t extent = op.windows.has(n) ? extent_of_window(op.windows, inputs[n].shape) : 0;
    if (op.windows.has(n) && (op.windows.begin[n] % lanes != 0 || extent % lanes != 0)) return false;
  }
  return std::none_of(op.steps().begin(), op.steps().end(), [&](const Instruction& step) {
    const auto is_between = [&](float bound) { return static_cast<int64_t>(bound) % lanes != 0; };
    return step.code == Instruction::Code::kInside && (is_between(step.alpha) || is_between(step.beta));
  });
}

int widest_lanes(const Expression& op, const Nest& rows, const Nest& others,
                 std::span<const TensorSpec> inputs, const TensorSpec& output) {
  for (int lanes = any_half(inputs, output) ? 8 : 4; lanes >= 4; lanes /= 2) {
    if (has_lanes(op, rows, others, inputs, lanes)) return lanes;
  }
  return 1;
}

// Returns one instruction as an expression of the names of its operands.
std::string formula_of(const Instruction& step, const std::string& a, const std::string& b, bool half) {
  using Code = Instruction::Code;
  const auto call = [&](const char* name, const std::string& arguments) {
    return fmt::format("{}<UnaryKind({}), {}>(Parameters{{{}, {}}}, {})", name, step.kind, half,
                       number(step.alpha), number(step.beta), arguments);
  };
  const bool is_power = step.kind == static_cast<uint8_t>(UnaryKind::kPower);
  const bool is_square = step.alpha == 2;
  switch (step.code) {
    case Code::kUnary:
      if (is_power) return is_square ? fmt::format("{0} * {0}", a) : fmt::format("{0} * {0} * {0}", a);
      return call("function", a);
    case Code::kUnaryGrad:
      if (is_power)
        return is_square ? fmt::format("{} * (2 * {})", a, b) : fmt::format("{0} * (3 * {1} * {1})", a, b);
      return call("gradient", a + ", " + b);
    case Code::kScale:
      return fmt::format("{} * {}", number(step.alpha), a);
    case Code::kInside:
      return fmt::format("{} <= index && index < {} ? {} : 0.0f", static_cast<int64_t>(step.alpha),
                         static_cast<int64_t>(step.beta), a);
    case Code::kBinary:
      break;
  }
  switch (static_cast<BinaryKind>(step.kind)) {
    case BinaryKind::kAdd:
      return fmt::format("{} + {}", a, b);
    case BinaryKind::kSub:
      return fmt::format("{} - {}", a, b);
    case BinaryKind::kMul:
      return fmt::format("{} * {}", a, b);
    case BinaryKind::kDiv:
      return fmt::format("{} / {}", a, b);
    case BinaryKind::kMax:
      return fmt::format("{0} > {1} || {0} != {0} ? {0} : {1}", a, b);
    case BinaryKind::kMin:
      return fmt::format("{0} < {1} || {0} != {0} ? {0} : {1}", a, b);
    default:  // none that is_short() lets into an expression
      return "__uint_as_float(0x7fffffffu)";
  }
}

// The lines of a kernel.
class Lines {
 public:
  template <typename... T>
  void add(fmt::format_string<T...> line, T&&... values) {
    fmt::format_to(std::back_inserter(text_), line, std::forward<T>(values)...);
    text_ += '\n';
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// See early_start.cuh.
constexpr const char* kWaitForEarlierWork =
    "#if __CUDA_ARCH__ >= 900\nasm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
    "asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n#endif";

class Writer {
 public:
  // `largest`: no index reaches it.
  Writer(const Expression& op, std::span<const TensorSpec> inputs, const TensorSpec& output, int lanes,
         int64_t largest)
      : op_(op),
        inputs_(inputs),
        output_(output),
        lanes_(lanes),
        half_(any_half(inputs, output)),
        index_(largest < std::numeric_limits<int32_t>::max() ? "unsigned" : "long long") {}

  const char* index() const { return index_; }
  // True where terms are stored in 16 bits: some of them are added in float before they become double.
  bool rounds_terms() const { return half_; }
  void open() {
    lines.add("#include \"kernels/cuda/stored_lanes.cuh\"");
    lines.add("#include \"kernels/cuda/unary_functions.cuh\"");
    lines.add("using namespace headroom;\nusing namespace headroom::cuda;");
    std::string parameters;
    for (size_t i = 0; i < inputs_.size(); ++i) parameters += fmt::format("const void* p{}, ", i);
    lines.add("extern \"C\" __global__ void __launch_bounds__({}) kernel({}void* result) {{\n{}",
              kGeneratedThreads, parameters, kWaitForEarlierWork);
  }
  // Declares NAME0, NAME1.. of the number NAME: one for each loop of the nest, innermost first, whose rows
  // are counted by groups of `lanes` neighbors.
  void split(const char* name, const Nest& nest, int lanes) {
    lines.add("{0} {1}r = {1};", index_, name);
    for (int axis = 0; axis + 1 < nest.axis_count(); ++axis) {
      lines.add("const {0} {1}{2} = {1}r % {3};\n{1}r /= {3};", index_, name, axis,
                std::max<int64_t>(1, nest.extent(axis) / (axis == 0 ? lanes : 1)));
    }
    lines.add("const {0} {1}{2} = {1}r;", index_, name, nest.axis_count() - 1);
  }
  static std::string offset(const char* name, const Nest& nest, int lanes, size_t operand) {
    std::string sum;
    for (int axis = 0; axis < nest.axis_count(); ++axis) {
      const int64_t stride = nest.strides(axis)[operand] * (axis == 0 ? lanes : 1);
      if (stride != 0) sum += fmt::format("{}{}{} * {}", sum.empty() ? "" : " + ", name, axis, stride);
    }
    return sum.empty() ? "0" : sum;
  }
  // Loads operand i; `index`: that of the first lane along the axis of the windows.
  void load(size_t i, bool is_dense, const std::string& offset, const std::string& index) {
    const char* const how = is_dense ? "load" : "repeat";
    if (!op_.windows.has(i)) {
      lines.add("const Numbers<{0}> x{1} = {2}<{0}>(static_cast<const {3}*>(p{1}) + ({4}));", lanes_, i, how,
                type_name(inputs_[i].dtype), offset);
      return;
    }
    const Shape& shape = inputs_[i].shape;
    const int64_t begin = op_.windows.begin[i], extent = extent_of_window(op_.windows, shape);
    const int64_t stride =
        strides_of(shape)[static_cast<size_t>(shape.rank() - 1 - op_.windows.axis_from_end)];
    lines.add("Numbers<{0}> x{1} = {{}};", lanes_, i);
    lines.add("if (static_cast<unsigned long long>(static_cast<long long>({}) - ({}ll)) < {}ull)", index,
              begin, extent);
    // An operand of extent 1 has no stride of its own there.
    lines.add("x{1} = {2}<{0}>(static_cast<const {3}*>(p{1}) + (static_cast<long long>({4}) - ({5}ll)));",
              lanes_, i, how, type_name(inputs_[i].dtype), offset, extent == 1 ? 0 : begin * stride);
  }
  // Sets `y`, Numbers of the lanes, whose index along the axis of the windows grows by `index_step`.
  void compute(const std::string& index, int64_t index_step) {
    lines.add("Numbers<{0}> y;\n#pragma unroll\nfor (int k = 0; k < {0}; ++k) {{", lanes_);
    if (op_.windows.axis_from_end >= 0)
      lines.add("const long long index = static_cast<long long>({}) + k * {};", index, index_step);
    for (size_t i = 0; i < inputs_.size(); ++i) lines.add("const float v{0} = x{0}.at[k];", i);
    size_t value = inputs_.size();
    for (const Instruction& step : op_.steps()) {
      lines.add("const float v{} = {};", value,
                formula_of(step, fmt::format("v{}", step.a), fmt::format("v{}", step.b), half_));
      ++value;
    }
    lines.add("y.at[k] = v{};\n}}", value - 1);
  }
  const char* output_type() const { return type_name(output_.dtype); }

  Lines lines;

 private:
  const Expression& op_;
  const std::span<const TensorSpec> inputs_;
  const TensorSpec& output_;
  const int lanes_;
  const bool half_;
  const char* const index_;
};

// The nests of a reduction: over its results and over the terms of each.
struct ReductionNests {
  ReductionNests(const ReducedExpression& op, std::span<const TensorSpec> inputs)
      : whole(whole_shape(op.of.windows, inputs)),
        results(nest_of(op.of.windows, inputs, whole, op.by.axes, false)),
        terms(nest_of(op.of.windows, inputs, whole, op.by.axes, true)) {}

  // Returns true if the last axis of more than one element is reduced.
  bool ends_with_terms(const PerAxis<int>& axes) const {
    for (int axis = whole.rank(); axis-- > 0;) {
      if (whole[axis] > 1) return std::find(axes.begin(), axes.end(), axis) != axes.end();
    }
    return true;
  }

  Shape whole;
  Nest results, terms;
};

const char* joining(const Reduce& by) {
  return by.kind == ReduceKind::kMax ? "Max" : "Sum";
}

// The last lines of a kernel: the value of a result, or a block's part of it.
std::string finished(const Reduce& by, const ReductionShape& shape, const std::string& value) {
  if (by.kind != ReduceKind::kMean) return value;
  return fmt::format("{} * __longlong_as_double(0x{:016x}ll)", value,
                     std::bit_cast<uint64_t>(1 / static_cast<double>(shape.terms)));
}

// Each team of threads takes a result, whose terms are neighbors.
void write_rows(Writer& to, const ReducedExpression& op, const ReductionNests& nests,
                const ReductionShape& shape, size_t operands) {
  const int team = shape.threads_of_result, teams = kGeneratedThreads / team;
  const int64_t groups = shape.terms / shape.lanes;
  Lines& lines = to.lines;
  lines.add("const {} g = blockIdx.x * {}ll + threadIdx.x / {};", to.index(), teams, team);
  lines.add("{0}::Value sum = {0}::nothing();\nif (g < {1}) {{", joining(op.by), shape.results);
  to.split("g", nests.results, 1);
  lines.add("#pragma unroll 4\nfor ({0} t = blockIdx.y * {1}ll + threadIdx.x % {1}; t < {2}; t += {3}) {{",
            to.index(), team, groups, team * shape.parts);
  to.split("t", nests.terms, shape.lanes);
  const auto offset = [&](size_t i) {
    return to.offset("g", nests.results, 1, i) + " + " + to.offset("t", nests.terms, shape.lanes, i);
  };
  for (size_t i = 0; i < operands; ++i)
    to.load(i, nests.terms.row_strides()[i] != 0, offset(i), offset(kIndex));
  to.compute(offset(kIndex), nests.terms.row_strides()[kIndex]);
  if (to.rounds_terms()) {
    lines.add("sum = {0}::joined(sum, joined_lanes<{0}, {1}>(y));", joining(op.by), shape.lanes);
  } else {
    lines.add("for (const float term : y.at) sum = {0}::joined(sum, {0}::Value(term));", joining(op.by));
  }
  lines.add("}}\n}}");
  if (team > 32) {
    lines.add("sum = joined_block<{}>(sum, 1);", joining(op.by));
  } else {
    lines.add("sum = joined_team<{}>(sum, {});", joining(op.by), team);
  }
  lines.add("if (threadIdx.x % {} == 0 && g < {}) {{", team, shape.results);
}

// Neighboring threads take neighboring results; a block's threads share their terms.
void write_columns(Writer& to, const ReducedExpression& op, const ReductionNests& nests,
                   const ReductionShape& shape, size_t operands) {
  constexpr int kAtOnce = 8;
  const int wide = kGeneratedThreads / shape.threads_of_result;
  const int64_t groups = shape.results / shape.lanes, step = shape.threads_of_result * shape.parts;
  const char* const join = joining(op.by);
  Lines& lines = to.lines;
  lines.add("const {0} g = blockIdx.x * {1}ll + threadIdx.x % {1};", to.index(), wide);
  lines.add("{}::Value sums[{}];\nfor (auto& sum : sums) sum = {}::nothing();", join, shape.lanes, join);
  lines.add("if (g < {}) {{", groups);
  to.split("g", nests.results, shape.lanes);
  lines.add("for ({0} first = blockIdx.y * {1}ll + threadIdx.x / {2}; first < {3}; first += {4}) {{",
            to.index(), shape.threads_of_result, wide, shape.terms, kAtOnce * step);
  if (to.rounds_terms())
    lines.add("float few[{}];\nfor (float& sum : few) sum = static_cast<float>({}::nothing());", shape.lanes,
              join);
  lines.add("#pragma unroll\nfor (int turn = 0; turn < {}; ++turn) {{", kAtOnce);
  lines.add("const {0} t = first + turn * {1};\nif (t >= {2}) break;", to.index(), step, shape.terms);
  to.split("t", nests.terms, 1);
  const auto offset = [&](size_t i) {
    return to.offset("g", nests.results, shape.lanes, i) + " + " + to.offset("t", nests.terms, 1, i);
  };
  for (size_t i = 0; i < operands; ++i)
    to.load(i, nests.results.row_strides()[i] != 0, offset(i), offset(kIndex));
  to.compute(offset(kIndex), nests.results.row_strides()[kIndex]);
  const auto add_to = [&](const char* sums, const std::string& terms) {
    lines.add("for (int k = 0; k < {0}; ++k) {1}[k] = {2}::joined({1}[k], {3});", shape.lanes, sums, join,
              terms);
  };
  if (to.rounds_terms()) {
    add_to("few", "y.at[k]");
  } else {
    add_to("sums", fmt::format("{}::Value(y.at[k])", join));
  }
  lines.add("}}");
  if (to.rounds_terms()) add_to("sums", fmt::format("{}::Value(few[k])", join));
  lines.add("}}\n}}");
  lines.add("#pragma unroll\nfor (int k = 0; k < {}; ++k) sums[k] = joined_block<{}>(sums[k], {});",
            shape.lanes, join, wide);
  lines.add("if (threadIdx.x < {} && g < {}) {{", wide, groups);
}

}  // namespace

int lanes_of_expression(const Expression& op, std::span<const TensorSpec> inputs, const TensorSpec& output) {
  const Nest rows = nest_of(op.windows, inputs, output.shape, {}, false),
             none = nest_of(op.windows, inputs, output.shape, {}, true);
  return widest_lanes(op, rows, none, inputs, output);
}

KernelSource elementwise_source(const Expression& op, std::span<const TensorSpec> inputs,
                                const TensorSpec& output, int lanes) {
  const Nest nest = nest_of(op.windows, inputs, output.shape, {}, false);
  const int64_t groups = output.shape.elements() / lanes;
  Writer to(op, inputs, output, lanes, 2 * output.shape.elements());
  to.open();
  to.lines.add("for ({0} g = blockIdx.x * {1}ll + threadIdx.x; g < {2}; g += gridDim.x * {1}ll) {{",
               to.index(), kGeneratedThreads, groups);
  to.split("g", nest, lanes);
  const std::string index = to.offset("g", nest, lanes, kIndex);
  for (size_t i = 0; i < inputs.size(); ++i)
    to.load(i, nest.row_strides()[i] != 0, to.offset("g", nest, lanes, i), index);
  to.compute(index, nest.row_strides()[kIndex]);
  to.lines.add("store(static_cast<{}*>(result) + g * {}, y);\n}}\n}}", to.output_type(), lanes);
  return {to.lines.take(), (groups + kGeneratedThreads - 1) / kGeneratedThreads, lanes, 1};
}

ReductionShape reduction_shape(const ReducedExpression& op, std::span<const TensorSpec> inputs,
                               const TensorSpec& output, int64_t blocks, bool in_lanes) {
  const ReductionNests nests(op, inputs);
  ReductionShape shape{nests.ends_with_terms(op.by.axes), 1, nests.results.elements(),
                       nests.terms.elements()};
  const Nest& rows = shape.terms_are_neighbors ? nests.terms : nests.results;
  const Nest& others = shape.terms_are_neighbors ? nests.results : nests.terms;
  if (in_lanes) shape.lanes = widest_lanes(op.of, rows, others, inputs, output);
  // A thread with fewer terms would spend its time on joining them.
  constexpr int64_t kTermsOfThread = 8;
  int64_t blocks_of_result = 0;
  if (shape.terms_are_neighbors) {
    const int64_t groups = shape.terms / shape.lanes;
    constexpr int64_t kGroupsOfWarp = 32 * 16;  // beyond this a block joins its threads' sums in less time
    shape.threads_of_result = groups > kGroupsOfWarp ? kGeneratedThreads : 1;
    while (shape.threads_of_result < 32 && shape.threads_of_result < groups) shape.threads_of_result *= 2;
    blocks_of_result = groups / (kTermsOfThread * kGeneratedThreads);
  } else {
    int64_t wide = 1;
    while (wide < 32 && wide < shape.results / shape.lanes) wide *= 2;
    shape.threads_of_result = static_cast<int>(kGeneratedThreads / wide);
    while (shape.threads_of_result > 1 && shape.threads_of_result / 2 >= shape.terms)
      shape.threads_of_result /= 2;
    blocks_of_result = shape.terms / (kTermsOfThread * shape.threads_of_result);
  }
  const int64_t at_a_time =
      kGeneratedThreads / shape.threads_of_result * (shape.terms_are_neighbors ? 1 : shape.lanes);
  const int64_t without_parts = std::max<int64_t>(1, shape.results / at_a_time);
  shape.parts = std::clamp<int64_t>(blocks / without_parts, 1, std::max<int64_t>(1, blocks_of_result));
  return shape;
}

KernelSource reduction_source(const ReducedExpression& op, std::span<const TensorSpec> inputs,
                              const TensorSpec& output, const ReductionShape& shape) {
  const ReductionNests nests(op, inputs);
  Writer to(op.of, inputs, output, shape.lanes, 2 * (nests.whole.elements() + shape.results * shape.parts));
  to.open();
  const int lanes_of_results = shape.terms_are_neighbors ? 1 : shape.lanes;
  if (shape.terms_are_neighbors) {
    write_rows(to, op, nests, shape, inputs.size());
  } else {
    write_columns(to, op, nests, shape, inputs.size());
  }
  to.lines.add("#pragma unroll\nfor (int k = 0; k < {0}; ++k) {{\nconst auto value = {1};", lanes_of_results,
               shape.terms_are_neighbors ? "sum" : "sums[k]");
  if (shape.parts > 1) {
    to.lines.add("static_cast<{}::Value*>(result)[blockIdx.y * {}ll + g * {} + k] = value;", joining(op.by),
                 shape.results, lanes_of_results);
  } else {
    to.lines.add("narrow(static_cast<float>({}), static_cast<{}*>(result)[g * {} + k]);",
                 finished(op.by, shape, "value"), to.output_type(), lanes_of_results);
  }
  to.lines.add("}}\n}}\n}}");
  const int64_t at_a_time = kGeneratedThreads / shape.threads_of_result * lanes_of_results;
  return {to.lines.take(), (shape.results + at_a_time - 1) / at_a_time, shape.lanes, shape.parts};
}

KernelSource join_source(const Reduce& by, const ReductionShape& shape, const TensorSpec& output) {
  // Four neighboring results fill a sector of memory; the block's threads share their parts.
  constexpr int kWide = 4, kThreadsOfResult = kGeneratedThreads / kWide;
  Lines lines;
  lines.add("#include \"kernels/cuda/stored_lanes.cuh\"\nusing namespace headroom::cuda;");
  lines.add("extern \"C\" __global__ void __launch_bounds__({}) kernel(const void* p0, void* result) {{",
            kGeneratedThreads);
  lines.add("const long long g = blockIdx.x * {0}ll + threadIdx.x % {0};", kWide);
  lines.add("{0}::Value sum = {0}::nothing();", joining(by));
  lines.add("if (g < {}) {{\n#pragma unroll 4\nfor (int part = threadIdx.x / {}; part < {}; part += {}) {{",
            shape.results, kWide, shape.parts, kThreadsOfResult);
  lines.add("sum = {0}::joined(sum, static_cast<const {0}::Value*>(p0)[part * {1}ll + g]);\n}}\n}}",
            joining(by), shape.results);
  lines.add("sum = joined_block<{}>(sum, {});", joining(by), kWide);
  lines.add("if (threadIdx.x < {} && g < {}) {{", kWide, shape.results);
  lines.add("narrow(static_cast<float>({}), static_cast<{}*>(result)[g]);\n}}\n}}",
            finished(by, shape, "sum"), type_name(output.dtype));
  return {lines.take(), (shape.results + kWide - 1) / kWide};
}

}  // namespace headroom::cuda
