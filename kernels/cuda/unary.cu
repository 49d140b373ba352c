// Functions of one number, and their gradients.
#include <type_traits>

#include "kernels/cuda/device_loops.cuh"
#include "kernels/cuda/unary_functions.cuh"

namespace headroom::cuda {
namespace {

// Calls f with the kind as a constant.
template <int kFirst = 0, typename F>
std::unique_ptr<Kernel> with_kind(UnaryKind kind, F f) {
  constexpr auto kKind = static_cast<UnaryKind>(kFirst);
  if (kind == kKind) return f(std::integral_constant<UnaryKind, kKind>());
  if constexpr (kKind < UnaryKind::kSign) return with_kind<kFirst + 1>(kind, f);
  return nullptr;
}

template <UnaryKind kKind, bool kHalf>
struct Function {
  Parameters p;
  __device__ float operator()(float x) const { return function<kKind, kHalf>(p, x); }
};
template <UnaryKind kKind, bool kHalf>
struct Gradient {
  Parameters p;
  __device__ float operator()(float dy, float saved) const { return gradient<kKind, kHalf>(p, dy, saved); }
};

constexpr bool has_short_form(UnaryKind kind) {
  return kind == UnaryKind::kGelu || kind == UnaryKind::kTanhGelu;
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Unary& op, const Request& request) {
  const Parameters p{op.alpha, op.beta};
  if (op.kind == UnaryKind::kPower && op.alpha == 2)
    return map_kernel(request, [] __device__(float x) { return x * x; });
  if (op.kind == UnaryKind::kPower && op.alpha == 3)
    return map_kernel(request, [] __device__(float x) { return x * x * x; });
  return with_kind(op.kind, [&](auto kind) {
    if constexpr (has_short_form(kind())) {
      if (is_half(request.outputs[0].dtype)) return map_kernel(request, Function<kind(), true>{p});
    }
    return map_kernel(request, Function<kind(), false>{p});
  });
}

std::unique_ptr<Kernel> make_kernel(const UnaryGrad& op, const Request& request) {
  const Parameters p{op.alpha, op.beta};
  if (op.kind == UnaryKind::kPower && op.alpha == 2)
    return map_pair_kernel(request, [] __device__(float dy, float x) { return dy * (2 * x); });
  if (op.kind == UnaryKind::kPower && op.alpha == 3)
    return map_pair_kernel(request, [] __device__(float dy, float x) { return dy * (3 * x * x); });
  return with_kind(op.kind, [&](auto kind) {
    if constexpr (has_short_form(kind())) {
      if (is_half(request.outputs[0].dtype)) return map_pair_kernel(request, Gradient<kind(), true>{p});
    }
    return map_pair_kernel(request, Gradient<kind(), false>{p});
  });
}

}  // namespace headroom::cuda
