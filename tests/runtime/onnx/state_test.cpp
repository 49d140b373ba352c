// States: outputs of a run that are inputs of the next one, as a cache of keys and values is.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"
#include "runtime/session/session.h"
#include "tests/runtime/onnx/model_bytes.h"
#include "tests/runtime/onnx/small_nets.h"

namespace headroom::test {
namespace {

constexpr int64_t kTexts = 2, kHeadsOfNet = 4, kKeyHeads = 2, kHeadExtent = 4, kCached = 20,
                  kWordsOfTable = 7;
const std::vector<onnx::StatePair> kStatePairs = {
    {"text", "next_text"}, {"position", "next_position"}, {"past", "present"}};

// A layer of attention with a cache, as PyTorch exports index_copy: reads the words of `text` from `position`
// on, and puts the best next one after them.
std::string decoding_net(int64_t queries) {
  const auto extents = [](const std::vector<int64_t>& all) {
    std::vector<std::string> texts;
    for (const int64_t extent : all) texts.push_back(std::to_string(extent));
    return texts;
  };
  const int64_t width = kHeadsOfNet * kHeadExtent;
  constexpr int kInt64 = 7, kFloat = 1;
  std::vector<int64_t> places;
  for (int64_t i = 0; i < queries; ++i) places.push_back(i);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < kCached; ++i) all.push_back(i);
  ModelBytes net;
  net.input("text", kInt64, extents({kTexts, kCached})).input("position", kInt64, extents({1}));
  for (const char* part : {"key", "value"})
    net.input(std::string("past.") + part, kFloat, extents({kTexts, kKeyHeads, kCached, kHeadExtent}));
  for (const char* name : {"logits", "next_text", "next_position", "present.key", "present.value"})
    net.output(name);
  net.floats("table", {kWordsOfTable, width}, wave(kWordsOfTable * width, 1))
      .floats("head", {width, kWordsOfTable}, wave(width * kWordsOfTable));
  net.integers("offsets", places).integers("all", all).integers("queries", {queries}).integers("one", {1});
  net.integers("column", {queries, 1}).integers("last", {queries - 1});
  net.floats("zero", {}, {0}).floats("hidden", {}, {-std::numeric_limits<float>::infinity()});
  net.floats("root", {}, {std::pow(static_cast<float>(kHeadExtent), -0.25f)});
  net.integers("of_queries", {kTexts, queries, kHeadsOfNet, kHeadExtent})
      .integers("of_keys", {kTexts, queries, kKeyHeads, kHeadExtent});
  net.integers("flat", {kTexts, queries, width});
  net.node("Add", {"position", "offsets"}, {"places"});
  net.node("Gather", {"text", "places"}, {"words"}, {int_attribute("axis", 1)});
  net.node("Gather", {"table", "words"}, {"x"});
  net.node("Reshape", {"places", "column"}, {"rows"});
  const auto heads = [&](const std::string& name, int64_t count, const std::string& shape) {
    net.floats("w" + name, {width, count * kHeadExtent},
               wave(width * count * kHeadExtent, name == "v" ? 0.9f : 0.7f));
    net.node("MatMul", {"x", "w" + name}, {name + "1"}).node("Reshape", {name + "1", shape}, {name + "2"});
    net.node("Transpose", {name + "2"}, {name}, {ints_attribute("perm", {0, 2, 1, 3})});
  };
  heads("q", kHeadsOfNet, "of_queries");
  net.integers("apart", {kTexts, kKeyHeads, 1, kCached, kHeadExtent});
  net.integers("repeated", {kTexts, kKeyHeads, kHeadsOfNet / kKeyHeads, kCached, kHeadExtent});
  net.integers("joined", {kTexts, kHeadsOfNet, kCached, kHeadExtent});
  for (const std::string part : {"key", "value"}) {
    const std::string name = part.substr(0, 1), present = "present." + part;
    heads(name, kKeyHeads, "of_keys");
    net.node("Transpose", {"past." + part}, {name + "_past"}, {ints_attribute("perm", {2, 0, 1, 3})});
    net.node("Transpose", {name}, {name + "_new"}, {ints_attribute("perm", {2, 0, 1, 3})});
    net.node("ScatterND", {name + "_past", "rows", name + "_new"}, {name + "_all"});
    net.node("Transpose", {name + "_all"}, {present}, {ints_attribute("perm", {1, 2, 0, 3})});
    net.node("Reshape", {present, "apart"}, {name + "_apart"});
    net.node("Expand", {name + "_apart", "repeated"}, {name + "_repeated"});
  }
  net.node("Reshape", {"v_repeated", "joined"}, {"v_heads"});
  net.integers("matrices", {kTexts * kHeadsOfNet, kCached, kHeadExtent});
  net.integers("turned", {kTexts, kHeadsOfNet, kHeadExtent, kCached});
  net.node("Reshape", {"k_repeated", "matrices"}, {"k_matrices"});
  net.node("Transpose", {"k_matrices"}, {"k_turned"}, {ints_attribute("perm", {0, 2, 1})});
  net.node("Reshape", {"k_turned", "turned"}, {"kt"});
  net.node("Mul", {"q", "root"}, {"qs"})
      .node("Mul", {"kt", "root"}, {"ks"})
      .node("MatMul", {"qs", "ks"}, {"s"});
  net.node("LessOrEqual", {"all", "rows"}, {"shown"}).node("Where", {"shown", "zero", "hidden"}, {"mask"});
  net.node("Add", {"s", "mask"}, {"masked"})
      .node("Softmax", {"masked"}, {"p"})
      .node("MatMul", {"p", "v_heads"}, {"y"});
  net.node("Transpose", {"y"}, {"y1"}, {ints_attribute("perm", {0, 2, 1, 3})})
      .node("Reshape", {"y1", "flat"}, {"y2"});
  net.node("Add", {"x", "y2"}, {"z"}).node("MatMul", {"z", "head"}, {"logits"});
  net.node("ArgMax", {"logits"}, {"best"}, {int_attribute("axis", -1), int_attribute("keepdims", 0)});
  net.node("Gather", {"best", "last"}, {"word"}, {int_attribute("axis", 1)});
  net.node("Add", {"position", "queries"}, {"next_position"})
      .node("Unsqueeze", {"next_position", "one"}, {"next_row"});
  net.node("Transpose", {"text"}, {"text_rows"}, {ints_attribute("perm", {1, 0})});
  net.node("Transpose", {"word"}, {"word_rows"}, {ints_attribute("perm", {1, 0})});
  net.node("ScatterND", {"text_rows", "next_row", "word_rows"}, {"changed"});
  net.node("Transpose", {"changed"}, {"next_text"}, {ints_attribute("perm", {1, 0})});
  return net.bytes();
}

Initializer given_integers(const std::vector<int32_t>& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return given([all = std::vector<std::byte>(bytes.begin(), bytes.end())] { return all; });
}

// A text with a few words, from which a net decodes.
class Decoder {
 public:
  Decoder(int64_t queries, Precision precision, const std::vector<int32_t>& text,
          const std::string& device = "cpu", PlanMode mode = PlanMode::kPacked)
      : inference_(make_model_inference(model_of(decoding_net(queries)), settings(precision, text))),
        runtime_({.device = device}),
        variables_(inference_->graph, runtime_.device(), runtime_.allocator()),
        session_(inference_->graph, inference_->targets(), mode, variables_) {}

  void run(int64_t steps = 1) { session_.run(steps); }
  std::vector<float> logits() {
    const auto all = session_.output<float>(inference_->outputs[0]);
    return {all.begin(), all.end()};
  }
  std::vector<int32_t> text() const {
    const std::vector<std::byte> bytes = variables_.read(state("text").variable);
    std::vector<int32_t> words(bytes.size() / sizeof(int32_t));
    std::memcpy(words.data(), bytes.data(), bytes.size());
    return words;
  }
  const onnx::ImportedState& state(const std::string& name) const {
    return *std::ranges::find(inference_->model.states, name, &onnx::ImportedState::input);
  }
  const Graph& graph() const { return inference_->graph; }

 private:
  static onnx::ModelStepSettings settings(Precision precision, const std::vector<int32_t>& text) {
    onnx::ModelStepSettings settings{.precision = precision};
    settings.import.states = kStatePairs;
    settings.import.first_state = [text](const std::string& name, const TensorSpec&) {
      return name == "text" ? given_integers(text) : zeros();
    };
    return settings;
  }

  std::unique_ptr<onnx::ModelInference> inference_;
  Runtime runtime_;
  Variables variables_;
  Session session_;
};

// The words that a decoder has chosen, and logits of the same text in one pass.
void expect_same_logits(Precision precision, const std::string& device, float tolerance) {
  std::vector<int32_t> text(static_cast<size_t>(kTexts * kCached));
  text[0] = 3, text[static_cast<size_t>(kCached)] = 5;
  Decoder decoder(1, precision, text, device);
  std::vector<std::vector<float>> steps;
  for (int64_t i = 0; i + 1 < kCached; ++i) {
    decoder.run();
    steps.push_back(decoder.logits());
  }
  EXPECT_EQ(count_of(decoder.graph(), "cached_attention"), 1);
  EXPECT_EQ(count_of(decoder.graph(), "replace_rows"), 0) << "rows are replaced in place";
  EXPECT_EQ(decoder.state("past.key").variable.spec().dtype,
            precision == Precision::kBf16 ? DType::kBf16 : DType::kF32);
  std::vector<int32_t> whole = decoder.text();
  Decoder pass(kCached - 1, precision, whole, device);
  pass.run();
  EXPECT_EQ(count_of(pass.graph(), "cached_attention"), 0) << "so many rows are replaced in a copy";
  const std::vector<float> logits = pass.logits();
  for (size_t b = 0; b < kTexts; ++b) {
    for (size_t i = 0; i < steps.size(); ++i) {
      for (size_t word = 0; word < kWordsOfTable; ++word) {
        EXPECT_NEAR(steps[i][b * kWordsOfTable + word], logits[(b * steps.size() + i) * kWordsOfTable + word],
                    tolerance)
            << "text " << b << ", word " << i;
      }
    }
  }
}

TEST(States, DecodingWithACacheGivesTheLogitsOfTheWholeText) {
  expect_same_logits(Precision::kF32, "cpu", 1e-5f);
  expect_same_logits(Precision::kBf16, "cpu", 0.05f);
  expect_same_logits(Precision::kF32, "sim", 1e-5f);
}

TEST(States, ManyStepsOfOneRunAreThoseOfManyRuns) {
  std::vector<int32_t> text(static_cast<size_t>(kTexts * kCached), 4);
  for (const PlanMode mode : {PlanMode::kDynamic, PlanMode::kPacked, PlanMode::kParallel}) {
    Decoder at_once(1, Precision::kF32, text, "cpu", mode), in_turn(1, Precision::kF32, text);
    at_once.run(kCached - 1);
    for (int64_t i = 0; i + 1 < kCached; ++i) in_turn.run();
    EXPECT_EQ(at_once.logits(), in_turn.logits());
    EXPECT_EQ(at_once.text(), in_turn.text());
  }
}

TEST(States, AStepBeyondTheCacheChangesNothing) {
  Decoder decoder(1, Precision::kF32, std::vector<int32_t>(static_cast<size_t>(kTexts * kCached), 1));
  decoder.run(kCached - 1);
  const std::vector<int32_t> text = decoder.text();
  EXPECT_THROW(decoder.run(), DeviceError);
  EXPECT_EQ(decoder.text(), text);
}

// Two numbers that change places, and one that counts.
TEST(States, EachTakesWhatTheOthersWere) {
  ModelBytes net;
  net.input("a", 1, {"3"}).input("b", 1, {"3"}).input("n", 6, {});
  net.floats("two", {}, {2}).tensor("one", 6, {}, std::string("\1\0\0\0", 4));
  net.node("Identity", {"b"}, {"a1"}).node("Identity", {"a"}, {"b1"}).node("Add", {"n", "one"}, {"n1"});
  net.node("Mul", {"a", "two"}, {"y"}).output("a1").output("b1").output("n1").output("y");
  onnx::ModelStepSettings settings;
  settings.import.states = {{"a", "a1"}, {"b", "b1"}, {"n", "n1"}};
  settings.import.first_state = [](const std::string& name, const TensorSpec& spec) {
    return spec.dtype == DType::kI32 ? zeros() : constant_of(name == "a" ? 1.0f : 5.0f);
  };
  const auto inference = make_model_inference(model_of(net.bytes()), settings);
  Runtime runtime({.device = "cpu"});
  Variables variables(inference->graph, runtime.device(), runtime.allocator());
  Session session(inference->graph, inference->targets(), PlanMode::kPacked, variables);
  for (const float twice : {2.0f, 10.0f, 2.0f}) {
    session.run();
    EXPECT_EQ(session.output<float>(inference->outputs[0])[0], twice);
  }
  int32_t count = 0;
  std::memcpy(&count, variables.read(inference->model.states[2].variable).data(), sizeof count);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(inference->model.states[2].shape, Shape());
}

TEST(States, PairsThatDoNotFitAreRefused) {
  ModelBytes net;
  net.input("past", 1, {"2", "4"}).input("x", 1, {"2", "4"});
  net.node("Concat", {"past", "x"}, {"longer"}, {int_attribute("axis", 1)}).node("Shape", {"x"}, {"shape"});
  net.node("Add", {"past", "x"}, {"sum"}).output("longer").output("sum").output("shape");
  const auto refusal = [&](const std::string& input, const std::string& output) {
    return refusal_of(net.bytes(), {.states = {{input, output}}});
  };
  EXPECT_EQ(refusal("past", "sum"), "");
  EXPECT_EQ(refusal("past", "longer"),
            "net.onnx: output 'longer' is float [2,8], and cannot be the next 'past', which is float [2,4]");
  EXPECT_NE(refusal("past", "shape").find("is int64 [2], and cannot be"), std::string::npos);
  EXPECT_EQ(refusal("past", "present"),
            "net.onnx: has no output 'present' for its state 'past'; there are: longer, sum, shape");
  EXPECT_EQ(refusal("cache", "sum"),
            "net.onnx: has no input 'cache', or one whose name begins so; there are: past, x");
}

}  // namespace
}  // namespace headroom::test
