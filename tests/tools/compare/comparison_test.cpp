#include "tools/compare/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/terminal.h"
#include "sheet/writers.h"
#include "tools/compare/formats.h"

namespace headroom::compare {
namespace {

ComparedRow row(const std::string& strategy, int64_t bytes, double low, double high,
                const std::string& workload = "net") {
  ComparedRow result{workload, strategy, "", {}};
  result.worst.peak_process_bytes = bytes;
  result.seconds_low = low;
  result.seconds_per_step = high;
  result.seconds_high = high;
  return result;
}

std::vector<std::string> pareto_optimal(std::vector<ComparedRow> rows) {
  mark_pareto_optimal(rows);
  std::vector<std::string> names;
  for (const ComparedRow& r : rows) {
    if (r.is_pareto_optimal) names.push_back(r.strategy);
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(Compare, TheSmallestAndTheFastestRowAreParetoOptimal) {
  EXPECT_EQ(pareto_optimal({row("small", 1, 5, 6), row("fast", 2, 1, 2), row("neither", 3, 3, 4)}),
            (Names{"small", "fast"}));
}

TEST(Compare, OverlappingTimesDoNotJustifyMoreMemory) {
  EXPECT_EQ(pareto_optimal({row("less", 1, 1, 3), row("more", 2, 2, 4)}), Names{"less"});
  EXPECT_EQ(pareto_optimal({row("more", 2, 1, 2), row("less", 1, 1.5, 3)}), Names{"less"});
}

TEST(Compare, AtEqualMemoryOnlyAClearlySlowerRowIsDominated) {
  EXPECT_EQ(pareto_optimal({row("a", 1, 1, 2), row("b", 1, 1.5, 3), row("c", 1, 2.5, 4)}), (Names{"a", "b"}));
}

TEST(Compare, OnASimulatedDeviceNoRowIsTheFastest) {
  std::vector<ComparedRow> rows = {row("less", 1, 5, 6), row("more", 2, 1, 2), row("calls", 1, 1, 2)};
  for (ComparedRow& r : rows) {
    r.is_simulated = true;
    r.worst.driver_seconds = r.strategy == "calls" ? 2 : 1;
  }
  EXPECT_EQ(pareto_optimal(rows), Names{"less"});  // the host's time decides nothing
  const std::string text = to_text(to_sheet(rows, ""), Terminal(0, false));
  EXPECT_EQ(text.find("fastest"), std::string::npos) << text;
  EXPECT_EQ(text.find("ms/step"), std::string::npos) << text;
  for (ComparedRow& r : rows) r.is_simulated = false;
  EXPECT_NE(to_text(to_sheet(rows, ""), Terminal(0, false)).find("fastest: "), std::string::npos);
}

TEST(Compare, WorkloadsAreComparedSeparatelyAndFailuresDominateNothing) {
  ComparedRow failed = row("failed", 0, 0, 0);
  failed.worst.outcome = RunOutcome::kOutOfMemory;
  EXPECT_EQ(pareto_optimal({failed, row("a", 5, 5, 5), row("b", 1, 1, 1, "other")}), (Names{"a", "b"}));
}

TEST(Compare, RunsEveryRowOnceBeforeRepeatingAndSkipsFailedRows) {
  std::vector<ComparedRow> rows = {row("a", 0, 0, 0), row("bad", 0, 0, 0), row("c", 0, 0, 0)};
  std::string order;
  compare(rows, 3, [&](const ComparedRow& r, int64_t run) {
    order += r.strategy + std::to_string(run) + " ";
    Measurement measured;
    if (r.strategy == "bad" && run == 1) measured.outcome = RunOutcome::kKilled;
    measured.peak_process_bytes = 10 * (run % 2 + 1);
    measured.seconds_per_step = static_cast<double>(3 - run);
    return measured;
  });
  EXPECT_EQ(order, "a0 bad0 c0 a1 bad1 c1 a2 c2 ");
  EXPECT_EQ(rows[0].worst.peak_process_bytes, 20);
  EXPECT_EQ(rows[0].seconds_per_step, 2);
  EXPECT_EQ(rows[0].seconds_low, 1);
  EXPECT_EQ(rows[0].seconds_high, 3);
  EXPECT_EQ(rows[1].worst.outcome, RunOutcome::kKilled);
  EXPECT_EQ(rows[1].runs, 2);
  EXPECT_FALSE(rows[1].is_pareto_optimal);
}

class CompareFormats : public testing::Test {
 protected:
  CompareFormats() {
    rows_[0].settings = "plan=packed,batch=2";
    rows_[1].worst.outcome = RunOutcome::kFailed;
    rows_[1].worst.error = "it said \"no\" & <died>";
  }
  std::vector<ComparedRow> rows_ = {row("a", 3 << 20, 1, 2), row("b", 1, 1, 2)};
};

TEST_F(CompareFormats, JsonHasTheDocumentedFields) {
  const nlohmann::json json = nlohmann::json::parse(to_json(to_sheet(rows_, "")));
  ASSERT_EQ(json["rows"].size(), 2u);
  for (const char* key : {"workload", "strategy", "settings", "outcome", "peak_device_bytes",
                          "peak_process_bytes", "peak_reserved_bytes", "peak_allocated_bytes",
                          "fragmentation", "overhead_bytes", "seconds_per_step", "is_pareto_optimal"}) {
    EXPECT_TRUE(json["rows"][0].contains(key)) << key;
  }
  EXPECT_EQ(json["rows"][0]["peak_process_bytes"], 3 << 20);
}

TEST_F(CompareFormats, CsvHasALineForEachRow) {
  const std::string csv = to_csv(to_table(rows_));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  EXPECT_EQ(csv.find("workload,strategy,settings,outcome,"), 0u);
  EXPECT_NE(csv.find("\r\nnet,a,\"plan=packed,batch=2\",ok,"), std::string::npos) << csv;
}

TEST_F(CompareFormats, HtmlSaysWhatFailed) {
  const std::string html = to_html(to_sheet(rows_, "a <title>"));
  EXPECT_NE(html.find("<h1>a &lt;title&gt;</h1>"), std::string::npos);
  EXPECT_NE(html.find("it said &quot;no&quot; &amp; &lt;died&gt;"), std::string::npos) << html;
}

TEST_F(CompareFormats, TextStartsWithTheSummaryAndExplainsFailures) {
  const std::string text = to_text(to_sheet(rows_, ""), Terminal(0, false));
  EXPECT_EQ(text.find("net: 1 of 2 succeeded; least memory: a plan=packed,batch=2, 3.00 MiB"), 0u) << text;
  EXPECT_NE(text.find("b: it said"), std::string::npos) << text;
}

}  // namespace
}  // namespace headroom::compare
