#include "runtime/graph/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/errors.h"
#include "runtime/graph/functions.h"

namespace headroom {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(no error)";
}

TensorSpec f32(Shape shape) {
  return {DType::kF32, shape};
}

TEST(Graph, AValueKnowsItsLineFromTheRootOfTheSourcesOn) {
  Graph graph;
  const Value a = graph.input("a", f32({1})),
              b = graph.input("b", f32({1}), CodePlace::here("../net.cpp", 3));
  EXPECT_TRUE(graph.value(a.id).source.starts_with("tests/runtime/graph/graph_test.cpp:"))
      << graph.value(a.id).source;
  EXPECT_EQ(graph.value(b.id).source, "net.cpp:3");
}

TEST(Graph, AWrongShapeIsRefusedWhenTheNodeIsAddedAndNamesOpAndOperands) {
  Graph graph;
  const Value a = graph.input("a", f32({64, 576})), b = graph.input("b", f32({575, 64}));
  EXPECT_EQ(message_of([&] { matmul(a, b); }),
            "matmul(f32[64,576], f32[575,64]): inner extents differ: 576 and 575");
  const Value image = graph.input("image", f32({1, 28, 28, 1})),
              filter = graph.input("filter", f32({3, 3, 2, 8}));
  EXPECT_EQ(message_of([&] { conv2d(image, filter); }),
            "conv2d(f32[1,28,28,1], f32[3,3,2,8]): the image has 1 channels, the filter takes 2 in each of 1 "
            "group");
  EXPECT_TRUE(graph.nodes().empty()) << "a refused node must not stay behind";
}

TEST(Graph, WrongDtypesAxesAndWindowsAreRefused) {
  Graph graph;
  const Value x = graph.input("x", f32({2, 3, 4, 5})), bytes = graph.input("bytes", {DType::kU8, {2, 3}});
  const Value labels = graph.input("labels", {DType::kI32, {2}}),
              filter = graph.input("filter", f32({1, 1, 5, 1}));
  constexpr int kHuge = std::numeric_limits<int>::max();
  for (const auto& action : std::vector<std::function<void()>>{
           [&] { relu(bytes); },
           [&] { sum(x, {4}); },
           [&] {
             sum(x, {1, 1});
           },
           [&] { sum(x, {-5}); },
           [&] { relu(Value{}); },
           [&] { slice(labels, {std::numeric_limits<int64_t>::max()}, {1}); },
           [&] {
             avg_pool(x, {.window = {kHuge, kHuge}, .padding = {kHuge - 1, kHuge - 1}});
           },
           [&] {
             conv2d(x, filter, {.padding = {kHuge, kHuge}});
           },
           [&] {
             transpose(x, {0, 1, 2, 2});
           },
           [&] { reshape(x, {7}); },
           [&] {
             concat({x, bytes}, 0);
           },
           [&] { concat({}, 0); },
           [&] {
             slice(x, {0, 0, 0, 3}, {2, 3, 4, 3});
           },
           [&] {
             max_pool(x, {{4, 4}, {1, 1}, {0, 0}});
           },
           [&] {
             max_pool(x, {{2, 2}, {0, 1}, {0, 0}});
           },
           [&] {
             max_pool(x, {{2, 2}, {1, 1}, {2, 0}});
           },
           [&] { bias(x, labels); },
           [&] {
             add(x, graph.input("other", f32({2, 3, 3, 5})));
           },
           [&] { cross_entropy(x, labels); },
           [&] { argmax(x, 7); },
           [&] { dropout(x, 1.0f, 0, labels); },
       }) {
    EXPECT_THROW(action(), InvalidArgument);
  }
}

TEST(Graph, NamesAreUniqueAndScoped) {
  Graph graph;
  const Value x = graph.input("x", f32({2, 2}));
  EXPECT_THROW(graph.variable("x", f32({2}), zeros()), InvalidArgument);
  EXPECT_NO_THROW(graph.variable("x_1", f32({2}), zeros()));  // a refused variable does not reserve its name
  {
    const NameScope outer(graph, "sequential");
    const NameScope inner(graph, "dense");
    matmul(x, x);
    matmul(x, x);
  }
  relu(x);
  EXPECT_EQ(graph.node(0).name, "sequential/dense/matmul");
  EXPECT_EQ(graph.node(1).name, "sequential/dense/matmul_1");
  EXPECT_EQ(graph.node(2).name, "relu");
}

TEST(Graph, ReferencesStayValidWhileItGrows) {
  Graph graph;
  Value x = graph.input("x", f32({2, 2}));
  const Shape& shape = x.shape();
  const std::string* name = &x.name();
  for (int i = 0; i < 1000; ++i) x = relu(x);
  EXPECT_EQ(shape, (Shape{2, 2}));
  EXPECT_EQ(*name, "x");
}

TEST(Graph, OnlyVariablesCanBeChangedByUpdates) {
  Graph graph;
  const Value x = graph.input("x", {DType::kI32, {}});
  EXPECT_THROW(graph.add(CounterUpdate{}, std::vector<Value>{x}), InvalidArgument);
}

TEST(Graph, ValuesOfAnotherGraphAreRefused) {
  Graph graph, other;
  const Value a = graph.input("a", f32({2})), b = other.input("b", f32({2}));
  EXPECT_THROW(add(a, b), InvalidArgument);
}

TEST(Initializers, DependOnSeedAndNameAlone) {
  const TensorSpec spec = f32({3, 3, 8, 16});
  const Initializer one = glorot_uniform(spec.shape, 1), two = glorot_uniform(spec.shape, 2);
  EXPECT_EQ(initial_value(one, "a", spec), initial_value(one, "a", spec));
  EXPECT_NE(initial_value(one, "a", spec), initial_value(one, "b", spec));
  EXPECT_NE(initial_value(one, "a", spec), initial_value(two, "a", spec));
}

TEST(Initializers, ConstantsThatAnIntegerCannotHoldAreRefused) {
  const TensorSpec bytes = {DType::kU8, {2}}, integers = {DType::kI32, {2}};
  EXPECT_EQ(initial_value(constant_of(255), "a", bytes), std::vector<std::byte>(2, std::byte{255}));
  EXPECT_THROW(initial_value(constant_of(256), "a", bytes), InvalidArgument);
  EXPECT_THROW(initial_value(constant_of(-1), "a", bytes), InvalidArgument);
  EXPECT_THROW(initial_value(constant_of(3e9f), "a", integers), InvalidArgument);
  EXPECT_THROW(initial_value(constant_of(std::nanf("")), "a", integers), InvalidArgument);
}

TEST(Initializers, HaveTheMomentsThatTheirPapersState) {
  const TensorSpec spec = f32({3, 3, 32, 64});
  const auto moments = [&](const Initializer& initializer) {
    const std::vector<std::byte> bytes = initial_value(initializer, "w", spec);
    const auto* values = reinterpret_cast<const float*>(bytes.data());
    const auto n = static_cast<double>(spec.shape.elements());
    double mean = 0, square = 0;
    for (int64_t i = 0; i < spec.shape.elements(); ++i) {
      mean += static_cast<double>(values[i]) / n;
      square += static_cast<double>(values[i]) * static_cast<double>(values[i]) / n;
    }
    return std::pair(mean, square - mean * mean);
  };
  const auto [glorot_mean, glorot_variance] = moments(glorot_uniform(spec.shape, 5));
  EXPECT_NEAR(glorot_mean, 0, 2e-3);
  EXPECT_NEAR(glorot_variance, 2.0 / (9 * 32 + 9 * 64), 5e-5);
  const auto [he_mean, he_variance] = moments(he_normal(spec.shape, 5));
  EXPECT_NEAR(he_mean, 0, 2e-3);
  EXPECT_NEAR(he_variance, 2.0 / (9 * 32), 2e-4);
}

}  // namespace
}  // namespace headroom
