#!/bin/sh
# The recipe "An op" of CONTRIBUTING.md, followed for an op `cube`. Each step that is missing is found by the
# compiler or by a test.
here=$(dirname "$0")
. "$here/../recipe.sh"

# 1. The struct with its traits, and the inference of its outputs.
change after ops/elementwise.h 'namespace headroom {' << 'END'

// f32 x -> x^3
struct Cube {
  static constexpr OpTraits kTraits{.name = "cube", .in_place_inputs = 1};
  Outputs infer(const OpCheck& c) const;
};
END
change after ops/elementwise.cpp 'namespace headroom {' << 'END'

Outputs Cube::infer(const OpCheck& c) const {
  c.floats(1);
  return {c.input(0)};
}
END

# 2. Its place in the variant.
change before ops/ops.h 'Unary, UnaryGrad,' << 'END'
    Cube,
END

# 3. A kernel for each device.
must_fail 'make_kernel(const headroom::Cube&' check kernels/cpu/make_kernel.cpp
change after kernels/cpu/cpu_kernels.h '// elementwise.cpp' << 'END'
std::unique_ptr<Kernel> make_kernel(const Cube& op, const Request& request);
END
create kernels/cpu/cube.cpp << 'END'
#include "kernels/cpu/cpu_kernels.h"

namespace headroom::cpu {

std::unique_ptr<Kernel> make_kernel(const Cube&, const Request& request) {
  return function_kernel([n = request.inputs[0].shape.elements()](const Call& call) {
    const float* x = call.in(0);
    float* y = call.out();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * x[i] * x[i];
  });
}

}  // namespace headroom::cpu
END
change after kernels/cuda/cuda_kernels.h '// elementwise.cu' << 'END'
std::unique_ptr<Kernel> make_kernel(const Cube& op, const Request& request);
END
change after kernels/cuda/elementwise.cu '}  // namespace' << 'END'

std::unique_ptr<Kernel> make_kernel(const Cube&, const Request& request) {
  return map_kernel(request, [] __device__(float x) { return x * x * x; });
}
END
if [ -n "${CUDA_FLAGS-}" ]; then check kernels/cuda/make_kernel.cpp "$CUDA_FLAGS"; fi

# 4. The function that adds it to a graph.
change after runtime/graph/functions.h 'Value relu(Value x' << 'END'
Value cube(Value x, CodePlace place = CodePlace::here());
END
change before runtime/graph/functions.cpp 'Value relu(Value x' << 'END'
Value cube(Value x, CodePlace place) {
  return one(Cube{}, {x}, place);
}
END

# 5. Its gradient.
must_fail 'rule(const headroom::Cube&' check runtime/graph/gradients.cpp
change before runtime/graph/gradients.cpp 'Grads rule(const Scale& op' << 'END'
Grads rule(const Cube&, const Context& c) {
  return {mul(c.dy(), scale(mul(c.in[0], c.in[0]), 3))};
}

END
check runtime/graph/gradients.cpp

# 6. Its computation in plain loops, and rows of the tables of tests.
change before tests/kernels/reference_elementwise.cpp '[&](const UnaryGrad& o)' << 'END'
          [&](const Cube&) {
            return each([&](const Index&, int64_t i) { return in[0][i] * in[0][i] * in[0][i]; });
          },
END
change before tests/kernels/kernel_cases.cpp 'add(cases, size, Scale' << 'END'
    add(cases, size, Cube{}, {random_floats({n}, 9)});
END
tests=tests/kernels
compile all_but_gradients.o ops/elementwise.cpp ops/ops.cpp kernels/sequence_kernel.cpp \
  kernels/cpu/make_kernel.cpp kernels/cpu/half_kernel.cpp kernels/cpu/cube.cpp kernels/cpu/dense.cpp \
  $tests/attention_cases.cpp $tests/expression_cases.cpp $tests/kernel_cases.cpp \
  $tests/kernel_cases_test.cpp $tests/reference.cpp $tests/reference_attention.cpp \
  $tests/reference_elementwise.cpp \
  $tests/reference_movement.cpp $tests/reference_statistics.cpp $tests/reference_update.cpp \
  $tests/reference_window.cpp $tests/heap_counter.cpp runtime/graph/graph.cpp runtime/graph/functions.cpp \
  tests/runtime/graph/gradient_cases_test.cpp
compile_gradient_cases() {
  compile gradient_cases.o tests/runtime/graph/gradient_cases.cpp
  # shellcheck disable=SC2086 # flags and libraries are words
  $CXX $CXXFLAGS ./*.o $LIBRARIES -o tests_of_op
}
compile_gradient_cases
must_fail cube ./tests_of_op --gtest_filter='*Table.*'
change before tests/runtime/graph/gradient_cases.cpp '{"relu",' << 'END'
      {"cube", {{3, 5}}, [](Graph&, V v) { return cube(v[0]); }},
END
compile_gradient_cases
./tests_of_op --gtest_filter='*Table.*:*cube*'
