// headroom explain as a user meets it.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/run_shell.h"

namespace headroom {
namespace {

const std::string kLog = HEADROOM_SOURCE_DIR "/tests/tools/explain/torch_aoda.log";

Outcome explain(const std::string& arguments) {
  const ScratchFolder folder;
  return run_shell(folder, HEADROOM_COMMAND " explain " + arguments);
}

TEST(HeadroomExplain, TheCauseComesFirstAndWhatToDoLast) {
  const Outcome outcome = explain(kLog);
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.out.starts_with("other-process: ")) << outcome.out;
  EXPECT_NE(outcome.out.find("\nnext: nvidia-smi"), std::string::npos);
}

TEST(HeadroomExplain, JsonHasCauseConfidenceEvidenceAndNext) {
  const Outcome outcome = explain("--json " + kLog);
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["cause"], "other-process");
  EXPECT_EQ(json["confidence"], "high");
  EXPECT_EQ(json["next"].size(), 2u);
  bool has_request = false;
  for (const nlohmann::json& row : json["evidence"])
    has_request |= row["name"] == "requested" && row["bytes"] == 20 << 20;
  EXPECT_TRUE(has_request) << outcome.out;
}

TEST(HeadroomExplain, ReadsWhatIsPipedIn) {
  const Outcome outcome = explain("- --json <" + kLog);
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["cause"], "other-process");
  const Outcome nothing = explain("- --json </dev/null");
  ASSERT_EQ(nothing.code, 0) << nothing.errors;
  EXPECT_EQ(nlohmann::json::parse(nothing.out)["cause"], "unknown");
}

TEST(HeadroomExplain, BadInputIsOneLine) {
  for (const char* arguments : {"", "/nowhere/at/all.log", "/", "a.log b.log", "--jsn x.log"}) {
    const Outcome outcome = explain(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
}

}  // namespace
}  // namespace headroom
