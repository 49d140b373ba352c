// Several elementwise ops in one pass over memory: each thread interprets the expression for some neighbors.
// An instruction is the same for all threads, so choosing it costs little beside the memory that a kernel of
// its own would move. Values between instructions lie in shared memory, where a register cannot be indexed.
#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/cuda/device_loops.cuh"
#include "kernels/cuda/unary_functions.cuh"

namespace headroom::cuda {
namespace {

constexpr int kMaxOperands = Expression::kMaxOperands;
constexpr int kExpressionThreads = 128;   // threads of a block
constexpr int kSharedBytes = 48 * 1024;   // of a block, without asking the driver for more
using Nest = LoopNest<kMaxOperands + 1>;  // the result last

// An instruction that a switch can choose by one number, and the places of its values in shared memory.
struct Operation {
  uint8_t code;          // see code_of()
  uint8_t a, b, result;  // places
  Parameters parameters;
};

// Which function an operation is: unary kinds, then their gradients, then binary kinds, then the others.
constexpr int kUnaryKinds = static_cast<int>(UnaryKind::kSign) + 1;
constexpr int kGradient = kUnaryKinds, kBinary = 2 * kUnaryKinds;
constexpr int kBinaryKinds = static_cast<int>(BinaryKind::kMod) + 1;
enum : int { kScale = kBinary + kBinaryKinds, kSquare, kCube, kSquareGrad, kCubeGrad };

int code_of(const Instruction& step) {
  const bool is_power = step.kind == static_cast<uint8_t>(UnaryKind::kPower);
  switch (step.code) {
    case Instruction::Code::kUnary:
      if (is_power) return step.alpha == 2 ? kSquare : kCube;
      return step.kind;
    case Instruction::Code::kUnaryGrad:
      if (is_power) return step.alpha == 2 ? kSquareGrad : kCubeGrad;
      return kGradient + step.kind;
    case Instruction::Code::kBinary:
      return kBinary + step.kind;
    case Instruction::Code::kScale:
      break;
  }
  return kScale;
}

struct Program {
  int operands = 0, length = 0, places = 0;
  Operation operations[Expression::kMaxInstructions] = {};
};

// Gives each value a place until its last reader: the operands come first.
Program program_of(const Expression& op) {
  Program program{op.operands, op.length, op.operands};
  std::vector<int> last(op.operands + op.length, -1), place(op.operands + op.length), idle;
  for (int i = 0; i < op.length; ++i) {
    last[op.instructions[i].a] = i;
    if (op.instructions[i].has_two_operands()) last[op.instructions[i].b] = i;
  }
  for (int i = 0; i < op.operands; ++i) place[i] = i;
  for (int i = 0; i < op.length; ++i) {
    const Instruction& step = op.instructions[i];
    const int a = step.a, b = step.has_two_operands() ? step.b : step.a;
    if (last[a] == i) idle.push_back(place[a]);
    if (b != a && last[b] == i) idle.push_back(place[b]);
    if (idle.empty()) idle.push_back(program.places++);
    place[op.operands + i] = idle.back();
    idle.pop_back();
    program.operations[i] = {static_cast<uint8_t>(code_of(step)),
                             static_cast<uint8_t>(place[a]),
                             static_cast<uint8_t>(place[b]),
                             static_cast<uint8_t>(place[op.operands + i]),
                             {step.alpha, step.beta}};
  }
  return program;
}

// The values of a thread's N neighbors: pieces of 16 bytes, those of neighboring threads side by side.
template <int N>
class ThreadValues {
 public:
  __device__ ThreadValues() {}
  __device__ Lanes<float, N> operator[](int place) const {
    Lanes<float, N> lanes;
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      const Piece piece = base()[(place * kPieces + k) * kExpressionThreads + threadIdx.x];
#pragma unroll
      for (int i = 0; i < kWide; ++i) lanes.values[k * kWide + i] = piece.values[i];
    }
    return lanes;
  }
  __device__ void set(int place, const Lanes<float, N>& lanes) const {
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      Piece piece;
#pragma unroll
      for (int i = 0; i < kWide; ++i) piece.values[i] = lanes.values[k * kWide + i];
      base()[(place * kPieces + k) * kExpressionThreads + threadIdx.x] = piece;
    }
  }

 private:
  static constexpr int kWide = N < 4 ? N : 4, kPieces = N / kWide;
  using Piece = Lanes<float, kWide>;
  __device__ static Piece* base() {
    extern __shared__ __align__(16) unsigned char memory[];
    return reinterpret_cast<Piece*>(memory);
  }
};

template <int N, typename F>
__device__ Lanes<float, N> each(const Lanes<float, N>& a, const Lanes<float, N>& b, const F& f) {
  Lanes<float, N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) y.values[i] = f(a.values[i], b.values[i]);
  return y;
}

// The functions that runtime/graph/fuse_expressions.cpp joins; another one gives NaN.
template <int N, bool kHalf>
__device__ Lanes<float, N> result_of(const Operation& operation, const Lanes<float, N>& a,
                                     const Lanes<float, N>& b) {
  const Parameters p = operation.parameters;
  switch (operation.code) {
#define HR_UNARY(kind)                                                                            \
  case static_cast<int>(UnaryKind::kind):                                                         \
    return each<N>(a, b, [=](float x, float) { return function<UnaryKind::kind, kHalf>(p, x); }); \
  case kGradient + static_cast<int>(UnaryKind::kind):                                             \
    return each<N>(a, b, [=](float dy, float x) { return gradient<UnaryKind::kind, kHalf>(p, dy, x); });
    HR_UNARY(kRelu)
    HR_UNARY(kSigmoid)
    HR_UNARY(kTanh)
    HR_UNARY(kExp)
    HR_UNARY(kSqrt)
    HR_UNARY(kReciprocal)
    HR_UNARY(kGelu)
    HR_UNARY(kTanhGelu)
    HR_UNARY(kLog)
    HR_UNARY(kErf)
    HR_UNARY(kAbs)
    HR_UNARY(kClip)
    HR_UNARY(kLeakyRelu)
    HR_UNARY(kElu)
    HR_UNARY(kHardSigmoid)
    HR_UNARY(kFloor)
    HR_UNARY(kCeil)
    HR_UNARY(kRound)
    HR_UNARY(kSign)
#undef HR_UNARY
#define HR_BINARY(kind, expression)                  \
  case kBinary + static_cast<int>(BinaryKind::kind): \
    return each<N>(a, b, [](float x, float y) { return expression; });
    HR_BINARY(kAdd, x + y)
    HR_BINARY(kSub, x - y)
    HR_BINARY(kMul, x * y)
    HR_BINARY(kDiv, x / y)
    HR_BINARY(kMax, x > y || x != x ? x : y)
    HR_BINARY(kMin, x < y || x != x ? x : y)
#undef HR_BINARY
    case kScale:
      return each<N>(a, b, [=](float x, float) { return p.alpha * x; });
    case kSquare:
      return each<N>(a, b, [](float x, float) { return x * x; });
    case kCube:
      return each<N>(a, b, [](float x, float) { return x * x * x; });
    case kSquareGrad:
      return each<N>(a, b, [](float dy, float x) { return dy * (2 * x); });
    case kCubeGrad:
      return each<N>(a, b, [](float dy, float x) { return dy * (3 * x * x); });
  }
  return each<N>(a, b, [](float, float) { return NAN; });
}

struct Operands {
  Reals at[kMaxOperands];
  bool is_fixed[kMaxOperands];  // one number along a row
};

template <int N, typename I>
__global__ void __launch_bounds__(kExpressionThreads)
    evaluate(const __grid_constant__ Program program, const __grid_constant__ Operands operands,
             const __grid_constant__ StridedIndex<kMaxOperands + 1, I> index, int64_t groups, RealsOut y) {
  const ThreadValues<N> values;
  for (int64_t group = grid_thread(); group < groups; group += grid_threads()) {
    const auto offsets = index(static_cast<I>(group));
    Stored<N> stored[kMaxOperands];
#pragma unroll
    for (int i = 0; i < kMaxOperands; ++i) {
      if (i >= program.operands) break;
      const Reals from = operands.at[i] + offsets.at[i];
      if (operands.is_fixed[i]) {
        const Stored<1> one = from.template fetch<1>(0);
        stored[i].dtype = DType::kF32;
        const uint32_t bits = __float_as_uint(widened(one).values[0]);
#pragma unroll
        for (int lane = 0; lane < N; ++lane) stored[i].words[lane] = bits;
      } else {
        stored[i] = from.template fetch<N>(0);
      }
    }
#pragma unroll
    for (int i = 0; i < kMaxOperands; ++i) {
      if (i >= program.operands) break;
      values.set(i, widened(stored[i]));
    }
    Lanes<float, N> result;
    for (int i = 0; i < program.length; ++i) {
      const Operation& operation = program.operations[i];
      result = result_of<N, N == 8>(operation, values[operation.a], values[operation.b]);
      if (i + 1 < program.length) values.set(operation.result, result);
    }
    store(y + offsets.at[kMaxOperands], result);
  }
}

template <int N, typename I>
void launch_evaluate(const CudaGpu& device, const Call& call, const Program& program,
                     const Operands& operands, const Nest& nest, int64_t count) {
  const int64_t groups = count / N;
  const int64_t bytes =
      int64_t{program.places} * N * kExpressionThreads * static_cast<int64_t>(sizeof(float));
  evaluate<N, I>
      <<<blocks_for(device, groups, kExpressionThreads), kExpressionThreads, static_cast<size_t>(bytes),
         call.stream>>>(program, operands, StridedIndex<kMaxOperands + 1, I>(nest, N), groups, result(call));
  HR_CHECK(cudaGetLastError());
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Expression& op, const Request& request) {
  const Shape& shape = request.outputs[0].shape;
  std::array<Strides, kMaxOperands + 1> strides{};
  for (size_t i = 0; i < request.inputs.size(); ++i)
    strides[i] = broadcast_strides(request.inputs[i].shape, shape);
  strides.back() = strides_of(shape);
  const Nest nest(shape, strides);
  return function_kernel(
      [=, &device = request.device, program = program_of(op), n = shape.elements()](const Call& call) {
        if (n == 0) return;
        Operands operands{};
        bool aligned_by_8 = aligned<8>(result(call)), aligned_by_4 = aligned<4>(result(call));
        for (size_t i = 0; i < call.inputs.size(); ++i) {
          operands.at[i] = operand(call, i);
          operands.is_fixed[i] = nest.row_strides()[i] == 0;
          if (operands.is_fixed[i]) continue;
          aligned_by_8 = aligned_by_8 && aligned<8>(operands.at[i]);
          aligned_by_4 = aligned_by_4 && aligned<4>(operands.at[i]);
        }
        const auto fits = [&](int lanes) {
          return rows_have_lanes(nest, lanes) && n < (int64_t{1} << 31) &&
                 int64_t{program.places} * lanes * kExpressionThreads * 4 <= kSharedBytes;
        };
        if (lanes_of(call) == 8 && aligned_by_8 && fits(8))
          return launch_evaluate<8, uint32_t>(device, call, program, operands, nest, n);
        if (aligned_by_4 && fits(4))
          return launch_evaluate<4, uint32_t>(device, call, program, operands, nest, n);
        launch_evaluate<1, int64_t>(device, call, program, operands, nest, n);
      });
}

}  // namespace headroom::cuda
