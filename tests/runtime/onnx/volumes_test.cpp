// Layers of volumes, and images that are sampled between their pixels. That their answers are right is for
// the node cases of the onnx package; here is how they train, and what is refused.
#include <gtest/gtest.h>

#include <limits>

#include "runtime/onnx/import_model.h"
#include "tests/runtime/onnx/model_bytes.h"
#include "tests/runtime/onnx/small_nets.h"

namespace headroom::test {
namespace {

std::vector<float> losses_of_net(const ModelBytes& net) {
  const auto step = make_model_step(model_of(net.bytes(20)), {.import = {.batch = 2}, .optimizer = "sgd"});
  return losses_of(*step, {.device = "cpu"}, 5);
}

void expect_near(const std::vector<float>& losses, const std::vector<float>& expected) {
  ASSERT_EQ(losses.size(), expected.size());
  EXPECT_NE(losses.front(), losses.back());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5f * expected[i]);
}

// The same numbers as images of 6 channels and as volumes of 3 channels and 2 planes.
ModelBytes images_or_volumes(bool as_volumes) {
  ModelBytes net;
  net.input("x", 1, {"batch", "4", "5", "5"}).output("y").floats("first", {6, 4, 1, 1}, wave(24));
  net.node("Conv", {"x", "first"}, {"c"});
  if (as_volumes) {
    net.integers("volumes", {0, 3, 2, 5, 5}).integers("images", {0, -1, 3, 3});
    net.floats("w", {4, 3, 2, 3, 3}, wave(216))
        .floats("b", {4}, wave(4))
        .floats("w2", {4, 2, 2, 3, 3}, wave(144));
    net.node("Reshape", {"c", "volumes"}, {"v"}).node("Conv", {"v", "w", "b"}, {"d"});
    net.node("ConvTranspose", {"d", "w2"}, {"t"}, {ints_attribute("pads", {0, 1, 1, 0, 1, 1})});
    net.node("Reshape", {"t", "images"}, {"i"});
  } else {
    net.floats("w", {4, 6, 3, 3}, wave(216)).floats("b", {4}, wave(4)).floats("w2", {4, 4, 3, 3}, wave(144));
    net.node("Conv", {"c", "w", "b"}, {"d"});
    net.node("ConvTranspose", {"d", "w2"}, {"i"}, {ints_attribute("pads", {1, 1, 1, 1})});
  }
  net.node("GlobalAveragePool", {"i"}, {"p"}).node("Flatten", {"p"}, {"y"});
  return net;
}

TEST(Volumes, TrainAsImagesThatHaveTheirPlanesAsChannels) {
  expect_near(losses_of_net(images_or_volumes(true)), losses_of_net(images_or_volumes(false)));
}

// An image between two convolutions, sampled at its own pixels or not at all.
ModelBytes sampled_or_not(bool is_sampled) {
  ModelBytes net;
  net.input("x", 1, {"batch", "3", "3", "3"}).output("y").floats("first", {4, 3, 1, 1}, wave(12));
  net.floats("second", {5, 4, 3, 3}, wave(180)).node("Conv", {"x", "first"}, {"c"});
  if (is_sampled) {
    std::vector<int64_t> places;
    for (int image = 0; image < 2; ++image) {
      for (const int64_t down : {-1, 0, 1}) {
        for (const int64_t across : {-1, 0, 1}) places.insert(places.end(), {across, down});
      }
    }
    // Constants, which are not trained.
    net.integers("places", places).integers("shape", {2, 3, 3, 2});
    net.node("Cast", {"places"}, {"floats"}, {int_attribute("to", 1)})
        .node("Reshape", {"floats", "shape"}, {"grid"});
    net.node("GridSample", {"c", "grid"}, {"s"}, {int_attribute("align_corners", 1)});
  }
  net.node("Conv", {is_sampled ? "s" : "c", "second"}, {"d"}).node("Flatten", {"d"}, {"y"});
  return net;
}

TEST(Volumes, AnImageSampledAtItsPixelsIsTheImage) {
  const std::vector<std::vector<float>> x = {wave(54)};
  const auto sampled = answers_of(sampled_or_not(true).bytes(20), {.batch = 2}, x)[0];
  const auto plain = answers_of(sampled_or_not(false).bytes(20), {.batch = 2}, x)[0];
  ASSERT_EQ(sampled.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(sampled[i], plain[i], 1e-5f);
  expect_near(losses_of_net(sampled_or_not(true)), losses_of_net(sampled_or_not(false)));
}

TEST(Volumes, PlacesThatAreNoNumberAreOutsideOfTheImage) {
  ModelBytes net;
  net.input("x", 1, {"1", "1", "2", "2"}).input("grid", 1, {"1", "1", "3", "2"}).output("y");
  net.node("GridSample", {"x", "grid"}, {"y"}, {int_attribute("align_corners", 1)});
  const float nan = std::numeric_limits<float>::quiet_NaN(), far = 1e30f;
  const auto y = answers_of(net.bytes(20), {}, {{1, 2, 3, 4}, {nan, 0, far, -far, 1, 1}})[0];
  EXPECT_EQ(y, (std::vector<float>{0, 0, 4}));
}

TEST(Volumes, ADeepFilterIsRefused) {
  ModelBytes net;
  net.input("x", 1, {"batch", "1", "70", "2", "2"}).output("y").floats("w", {1, 1, 65, 1, 1}, wave(65));
  net.node("Conv", {"x", "w"}, {"y"});
  EXPECT_NE(refusal_of(net.bytes()).find("its filter has 65 planes, more than 64"), std::string::npos);
}

TEST(Volumes, AWindowThatIsNotItsFiltersIsRefused) {
  ModelBytes net;
  net.input("x", 1, {"batch", "1", "7", "7"}).output("y").floats("w", {1, 1, 3, 3}, wave(9));
  net.node("Conv", {"x", "w"}, {"y"}, {ints_attribute("kernel_shape", {2, 3})});
  EXPECT_NE(refusal_of(net.bytes()).find("not of its kernel_shape"), std::string::npos);
}

TEST(Volumes, AnOperandOfNoElementsIsNoNumber) {
  ModelBytes net;
  net.input("x", 1, {"batch", "3"}).output("y").integers("axis", {}).node("CumSum", {"x", "axis"}, {"y"});
  EXPECT_NE(refusal_of(net.bytes()).find("operand 1 has 0 elements, not 1"), std::string::npos);
}

TEST(Volumes, LimitsOfAClipMayComeFromData) {
  ModelBytes net;
  net.input("x", 1, {"4"}).input("low", 1, {}).input("high", 1, {}).output("y");
  net.node("Clip", {"x", "low", "high"}, {"y"});
  EXPECT_EQ(answers_of(net.bytes(), {}, {{-3, 0, 1, 9}, {-1}, {2}})[0], (std::vector<float>{-1, 0, 1, 2}));
}

// What pads a large image is known by its edges, not pixel by pixel.
TEST(Volumes, PaddedPoolsOfALargeImageTakeNoMemory) {
  for (const char* pool : {"MaxPool", "AveragePool"}) {
    ModelBytes net;
    net.input("x", 1, {"batch", "1", "65536", "65536"}).output("y");
    net.node(pool, {"x"}, {"y"},
             {ints_attribute("kernel_shape", {3, 3}), ints_attribute("pads", {0, 0, 1, 1})});
    Graph graph;
    const auto model = import_model(model_of(net.bytes()), {.batch = 1}, graph);
    int64_t constants = 0;
    for (const int id : graph.variables()) constants += graph.value(id).spec.shape.elements();
    EXPECT_LE(constants, 4 * 65537) << pool;
  }
}

}  // namespace
}  // namespace headroom::test
