// Tests which scenarios count as reproduced.
#include "tools/repro/result.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/bytes.h"
#include "base/errors.h"
#include "sheet/writers.h"
#include "tools/repro/card.h"

namespace headroom::repro {
namespace {

const std::vector<Expected> kFigures = {
    {"outcome", "ok"},
    {"process_bytes", 448 * kMiB},
    {"steps", 3},
    {"device_bytes", 600 * kMiB, CheckedOn::kSimulated},
    {"pool_bytes", 266 * kMiB, CheckedOn::kEveryDevice, "demand differs"},
};
const Scenario kScenario{"X1", "a title", "a story", kFigures, nullptr};

Measured as_expected() {
  Measured measured;
  measured.add("outcome", "ok");
  measured.add("process_bytes", 448 * kMiB);
  measured.add("steps", 3);
  measured.add("device_bytes", 600 * kMiB);
  measured.add("pool_bytes", 34 * kMiB);
  return measured;
}

Measured with(const std::string& name, const Measured::Figure& value) {
  Measured measured = as_expected();
  for (auto& figure : measured.figures) {
    if (figure.first == name) figure.second = value;
  }
  return measured;
}

TEST(ScenarioResult, EveryComparedFigureHasToBeExactOnTheSimulatedGpu) {
  EXPECT_TRUE(compare(kScenario, {}, as_expected()).ok) << "a figure of our own demand may differ";
  EXPECT_FALSE(compare(kScenario, {}, with("outcome", "out_of_memory")).ok);
  EXPECT_FALSE(compare(kScenario, {}, with("process_bytes", 448 * kMiB + 1)).ok);
  EXPECT_FALSE(compare(kScenario, {}, with("steps", 4)).ok);
  EXPECT_FALSE(compare(kScenario, {}, with("steps", "3")).ok);
  EXPECT_FALSE(compare(kScenario, {}, with("device_bytes", 602 * kMiB)).ok);
}

TEST(ScenarioResult, ARunThatDidNotSayAFigureDidNotComeOut) {
  for (size_t missing = 0; missing < as_expected().figures.size(); ++missing) {
    Measured measured = as_expected();
    measured.figures.erase(measured.figures.begin() + static_cast<long>(missing));
    EXPECT_FALSE(compare(kScenario, {}, measured).ok) << missing;
  }
}

TEST(ScenarioResult, OnARealCardSizesAreGoodToAFewPagesAndItsOwnAreNotCompared) {
  const Stage stage{.device = "cuda"};
  EXPECT_TRUE(compare(kScenario, stage, with("process_bytes", 450 * kMiB)).ok);
  EXPECT_FALSE(compare(kScenario, stage, with("process_bytes", 454 * kMiB)).ok);
  EXPECT_TRUE(compare(kScenario, stage, with("device_bytes", 700 * kMiB)).ok);
  EXPECT_FALSE(compare(kScenario, stage, with("steps", 4)).ok);
}

TEST(ScenarioResult, JsonHasTheSixKeysAndGoesBack) {
  const ScenarioResult result = compare(kScenario, {}, as_expected());
  const std::string text = to_json(to_sheet(result, ""));
  const nlohmann::ordered_json row = nlohmann::ordered_json::parse(text)["scenarios"][0];
  std::vector<std::string> keys;
  for (const auto& [key, value] : row.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"id", "title", "device", "expected", "measured", "ok"}));
  EXPECT_EQ(row["expected"]["process_bytes"], 448 * kMiB);
  EXPECT_EQ(row["measured"]["pool_bytes"], 34 * kMiB);
  EXPECT_EQ(parse_measured(text).figures, as_expected().figures);
  for (const char* bad : {"", "{}", "{\"scenarios\":[]}", "{\"scenarios\":[{\"measured\":{\"a\":[]}}]}"}) {
    EXPECT_THROW(parse_measured(bad), InvalidArgument) << bad;
  }
}

TEST(Scenarios, HaveIdsOfTheirOwnInOrderAndAFixHasFigures) {
  std::vector<std::string_view> ids;
  for (const Scenario& scenario : scenarios()) {
    ids.push_back(scenario.id);
    EXPECT_NE(scenario.run, nullptr) << scenario.id;
    EXPECT_FALSE(scenario.expected.empty()) << scenario.id;
    EXPECT_EQ(scenario.fix.empty(), scenario.fixed.empty()) << scenario.id;
    EXPECT_EQ(&find_scenario(scenario.id), &scenario);
  }
  const auto place = [](std::string_view id) {  // A10 comes after A9
    return std::pair(id[0], std::stoi(std::string(id.substr(1))));
  };
  EXPECT_TRUE(std::ranges::is_sorted(ids, {}, place));
  EXPECT_EQ(std::set<std::string_view>(ids.begin(), ids.end()).size(), ids.size());
  EXPECT_EQ(find_scenario("c5").id, "C5");
  EXPECT_THROW(find_scenario("Z9"), InvalidArgument);
}

TEST(ScenarioResult, TheNextCommandRepeatsTheOptions) {
  const Terminal wide(0, false);
  const std::string options = " --device cuda --force";
  const ScenarioResult one = compare(find_scenario("C5"), {}, {});
  EXPECT_NE(
      to_text(to_sheet(one, options), wide).find("\nnext: headroom repro C5 --fix --device cuda --force\n"),
      std::string::npos);
  const std::vector<ScenarioResult> several = {one, one};
  EXPECT_NE(to_text(to_sheet(several, false, options), wide)
                .find("\nnext: headroom repro C5 --device cuda --force\n"),
            std::string::npos);
}

TEST(Card, ATensorGoesBackWhenItsNameIsGivenAnother) {
  Card card({}, "card-6gb");
  const auto allocated = [&] { return card.allocator().statistics().allocated; };
  {
    Card::Tensor x = card.randn({256, 1024, 1024});
    x = card.randn({1});
    EXPECT_EQ(allocated().current, 512);
    EXPECT_EQ(allocated().peak, kGiB + 512) << "the new one is there before the old one goes";
    x = {};
    EXPECT_EQ(allocated().current, 0);
  }
  EXPECT_THROW(card.randn({4, 1024, 1024, 1024}), OutOfMemory);
}

}  // namespace
}  // namespace headroom::repro
