// `headroom report`, `diff` and `assert` as a user runs them, and the page in a browser.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "tests/run_shell.h"

namespace headroom {
namespace {

constexpr const char* kRecording =
    "headroom-trace 2\n"
    "s,strategy,<b>caching</b>\n"
    "r,7f0000000000,4194304,0\n"
    "d,100000000,80000000,5000000,0,1\n"
    "n,conv2d\nn,</script><script>document.title='ran'</script>\nn,net.cpp:31\n"
    "a,7f0000000000,1048576,1048576,0,1000,1,2,3,4\n"
    "a,7f0000100000,2097152,2097152,0,1000,1,1,3,1\n"
    "f,7f0000000000,0,1000\n"
    "o,99999999,0,5,1,2,3,2\n";

class ReportCommand : public testing::Test {
 protected:
  Outcome run(const std::string& arguments) {
    return run_shell(folder_, std::string(HEADROOM_COMMAND) + " " + arguments);
  }
  nlohmann::json json(const std::string& arguments, int code = 0) {
    const Outcome outcome = run(arguments + " --json");
    EXPECT_EQ(outcome.code, code) << outcome.errors;
    return nlohmann::json::parse(outcome.out);
  }

  const ScratchFolder folder_;
  const std::string trace_ = folder_.write("run.trace", kRecording);
};

TEST_F(ReportCommand, AFullDiskIsOneLineAndTheCodeOfLostOutput) {
  for (const char* output :
       {"--html /dev/full", "--chrome /dev/full", "--format perfetto --output /dev/full"}) {
    const Outcome outcome = run("report " + trace_ + " " + output);
    EXPECT_EQ(outcome.code, 1) << output;
    EXPECT_EQ(outcome.errors, "headroom: /dev/full: cannot write it: No space left on device\n") << output;
  }
}

TEST_F(ReportCommand, StartsWithTheVerdictAndEndsWithTheNextCommand) {
  const Outcome outcome = run("report " + trace_);
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.out.starts_with("Out of memory at net.cpp:31: 95.37 MiB for ")) << outcome.out;
  EXPECT_NE(outcome.out.find("\npeak 3.00 MiB live, 4.00 MiB reserved"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("net.cpp:31"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.rfind("\nnext: headroom report "), std::string::npos) << outcome.out;
}

TEST_F(ReportCommand, TakesANetAsItTakesATrace) {
  const nlohmann::json report = json("report --net lenet --batch 64");
  const nlohmann::json predicted = json("predict --net lenet --batch 64 --strategy direct --plan dynamic");
  EXPECT_EQ(report["peak_bytes"], predicted["peak_requested_bytes"]);
  EXPECT_GT(report["at_peak"].size(), 3u);
  const Outcome shown = run("report --net lenet --batch 64");
  EXPECT_NE(shown.out.find("next: headroom report --net lenet --batch 64 --html report.html"),
            std::string::npos)
      << shown.out;
  const nlohmann::json replayed = json("replay --net lenet --batch 64 --strategy direct");
  EXPECT_EQ(replayed["results"][0]["peak_requested_bytes"], report["peak_bytes"]);
  EXPECT_EQ(run("assert --net lenet --batch 64 --max-peak 1KiB").code, 5);
  EXPECT_EQ(run("report " + trace_ + " --net lenet").errors,
            "headroom: an input and --net exclude each other: pass one\n");
  for (const char* const name : {"plan=packed", "batch=2", "optimizer=sgd"}) {
    const Outcome compared = run("compare " + trace_ + " --device sim:rtx-3090 --settings " + name);
    EXPECT_EQ(compared.code, 2) << name;
    EXPECT_EQ(compared.errors, "headroom: an input and --" +
                                   std::string(name).substr(0, std::string(name).find('=')) +
                                   " exclude each other: pass one\n");
  }
  EXPECT_EQ(
      run("report --net lenet --steps 3").errors,
      "headroom: --steps is for programs, as train.py:make_step; a net repeats its step: leave it out\n");
}

TEST_F(ReportCommand, ARowOfSeveralTensorsNamesTheLargest) {
  const std::string path = folder_.write("weights.trace",
                                         "headroom-trace 4\nn,aten::_to_copy\nn,e.bias\nn,train.py:7\n"
                                         "n,e.weight\nn,h.bias\nn,fc\n"
                                         "a,1000,512,0,0,1,1,2,3,1,0,0\na,2000,4096,0,0,1,1,4,3,1,0,0\n"
                                         "a,3000,512,0,0,1,1,5,3,1,0,0\na,4000,512,0,0,1,1,0,3,4,6,0\n");
  const Outcome outcome = run("report " + path);
  EXPECT_NE(outcome.out.find(" e.weight and others (3 blocks) "), std::string::npos) << outcome.out;
}

TEST_F(ReportCommand, JsonHasExactBytes) {
  const nlohmann::json report = json("report " + trace_);
  EXPECT_EQ(report["peak_bytes"], 3 * kMiB);
  EXPECT_EQ(report["peak_reserved_bytes"], 4 * kMiB);
  EXPECT_EQ(report["by_category"]["activations"], kMiB);
  EXPECT_EQ(report["by_category"]["weights"], 2 * kMiB);
  EXPECT_EQ(report["out_of_memory"], 1);
  EXPECT_EQ(report["live_at_end_bytes"], 2 * kMiB);
  EXPECT_EQ(report["at_peak"][0]["source"], "net.cpp:31");
  EXPECT_EQ(report["verdict"]["failure"]["requested_bytes"], 99999999);
  EXPECT_EQ(report["verdict"]["failure"]["cause"], "exhausted");
}

TEST_F(ReportCommand, ShowsTheMomentOfASnapshotWithoutAHistory) {
  const std::string moment = HEADROOM_SOURCE_DIR "/tests/fuzz/seeds/moment.pickle";
  const Outcome outcome = run("report " + moment + " --html " + (folder_ / "moment.html"));
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_TRUE(
      outcome.out.starts_with("No history: 5.91 MiB in 2 blocks were live when the snapshot was dumped"))
      << outcome.out;
  EXPECT_NE(outcome.out.find("20.00 MiB reserved, of which 14.00 MiB idle"), std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("live at this moment"), std::string::npos) << outcome.out;
  EXPECT_FALSE(json("report " + moment)["has_history"].get<bool>());
  EXPECT_TRUE(json("report " + trace_)["has_history"].get<bool>());
  for (const char* command : {"replay ", "predict ", "assert --max-peak 1GiB "}) {
    const Outcome refused = run(command + moment);
    EXPECT_EQ(refused.code, 2) << command << refused.out;
    EXPECT_NE(refused.errors.find("history"), std::string::npos) << refused.errors;
    EXPECT_EQ(std::count(refused.errors.begin(), refused.errors.end(), '\n'), 1) << refused.errors;
  }
}

TEST_F(ReportCommand, ShowsAFailedRequestThatIsAllASnapshotHas) {
  using namespace std::string_literals;
  // {"segments": [], "device_traces": [[{"action": "oom", "size": 100 MiB, "device_free": 5 MiB}]]}
  const std::string content =
      "\x80\x02}(U\x08segments]U\x0d"
      "device_traces]]}(U\x06"
      "actionU\x03oomU\x04sizeJ\0\0\x40\x06U\x0b"
      "device_freeJ\0\0\x50\0uaau."s;
  const std::string snapshot = folder_.write("oom.pickle", content);
  const Outcome outcome = run("report " + snapshot);
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.out.starts_with("Out of memory: 100 MiB; ")) << outcome.out;
  EXPECT_NE(outcome.out.find("5.00 MiB"), std::string::npos) << outcome.out;
  for (const std::string format : {"memory_viz", "speedscope", "perfetto"}) {
    EXPECT_EQ(run("report " + snapshot + " --format " + format + " --output " + (folder_ / "out")).code, 0)
        << format;
  }
  EXPECT_EQ(run("report " + snapshot + " --html " + (folder_ / "out.html")).code, 0);
}

TEST_F(ReportCommand, NamesTheTensorsInTheArenaOfAPackedPlan) {
  const auto record = [&](const std::string& plan) {
    const std::string path = folder_ / (plan + ".trace");
    EXPECT_EQ(run("run --net lenet --batch 8 --steps 1 --device sim --strategy direct --plan " + plan +
                  " --record " + path)
                  .code,
              0);
    return json("report " + path);
  };
  const nlohmann::json packed = record("packed"), dynamic = record("dynamic");
  EXPECT_GE(packed["at_peak"].size(), dynamic["at_peak"].size());
  EXPECT_EQ(packed["at_peak"][0], dynamic["at_peak"][0]);
  for (const nlohmann::json& row : packed["at_peak"]) {
    EXPECT_NE(row["op"], "") << row << ": the arena is not a tensor";
  }
  EXPECT_LE(packed["peak_bytes"], packed["peak_reserved_bytes"]);
  EXPECT_LT(packed["driver_calls"], dynamic["driver_calls"]);
}

TEST_F(ReportCommand, ChromeTraceHasCountersSpansAndTheFailure) {
  const std::string path = folder_ / "chrome.json";
  ASSERT_EQ(run("report " + trace_ + " --chrome " + path).code, 0);
  const nlohmann::json events = nlohmann::json::parse(read_file(path, kMiB))["traceEvents"];
  const auto count = [&](const std::string& phase) {
    return std::count_if(events.begin(), events.end(),
                         [&](const auto& event) { return event["ph"] == phase; });
  };
  EXPECT_EQ(count("C"), 6);
  EXPECT_EQ(count("b"), 2);
  EXPECT_EQ(count("e"), 2);
  EXPECT_EQ(count("i"), 1);
}

TEST_F(ReportCommand, WritesTheFormatsOfOtherViewers) {
  const Outcome speedscope = run("report " + trace_ + " --format speedscope");
  ASSERT_EQ(speedscope.code, 0) << speedscope.errors;
  const nlohmann::json profile = nlohmann::json::parse(speedscope.out);
  EXPECT_EQ(profile["profiles"][0]["endValue"], 3 * kMiB);
  EXPECT_EQ(profile["profiles"][0]["weights"].size(), 2u);
  const std::string pickle = folder_ / "run.pickle", chrome = folder_ / "run.json";
  ASSERT_EQ(run("report " + trace_ + " --format memory_viz --output " + pickle).code, 0);
  EXPECT_EQ(json("report " + pickle)["peak_bytes"], 3 * kMiB);
  ASSERT_EQ(run("report " + trace_ + " --format perfetto --output " + chrome).code, 0);
  EXPECT_TRUE(nlohmann::json::parse(read_file(chrome, kMiB)).contains("traceEvents"));
}

TEST_F(ReportCommand, AFailedCheckExitsWithFive) {
  EXPECT_EQ(run("assert " + trace_ + " --max-peak 3MiB --no-retries").code, 0);
  EXPECT_EQ(run("report " + trace_ + " --assert --max-peak 3MiB --no-retries").code, 0);
  EXPECT_EQ(run("report " + trace_ + " --assert --max-peak 2MiB").code, 5);
  const nlohmann::json failed =
      json("assert " + trace_ + " --max-peak 2MiB --no-oom --max-driver-calls 1", 5);
  EXPECT_EQ(failed["passed"], false);
  EXPECT_EQ(failed["checks"][0]["measured"], 3 * kMiB);
  EXPECT_EQ(failed["checks"][0]["passed"], false);
  EXPECT_EQ(failed["checks"][1]["name"], "max-driver-calls");
  EXPECT_EQ(failed["checks"][1]["passed"], true);
  EXPECT_EQ(failed["checks"][2]["name"], "no-oom");
  EXPECT_EQ(failed["checks"][2]["passed"], false);
}

TEST_F(ReportCommand, DiffReportsTheChangeOfThePeak) {
  const std::string other = folder_.write("other.csv", "op,id,bytes\na,1,4194304\n");
  EXPECT_EQ(run("report " + other + " --against " + trace_).out, run("diff " + trace_ + " " + other).out);
  EXPECT_NE(run("diff " + trace_ + " " + other).out.find("the peak grew by 1.00 MiB: 3.00 MiB -> 4.00 MiB"),
            std::string::npos);
  const nlohmann::json difference = json("diff " + trace_ + " " + other);
  EXPECT_EQ(difference["peak_change_bytes"], kMiB);
  EXPECT_EQ(difference["ops"].size(), 2u);
  EXPECT_EQ(
      run("diff " + trace_ + " " + trace_).out.find("all ops take the same memory") == std::string::npos,
      false);
}

TEST_F(ReportCommand, ARecordedReplayKeepsTheNamesOfItsTrace) {
  const std::string path = folder_ / "replayed.trace";
  ASSERT_EQ(run("replay " + trace_ + " --strategy grab-all --capacity 8MiB --record " + path).code, 0);
  const nlohmann::json replayed = json("report " + path), original = json("report " + trace_);
  EXPECT_EQ(replayed["settings"]["strategy"], "grab-all");
  EXPECT_EQ(replayed["peak_reserved_bytes"], 8 * kMiB);
  EXPECT_EQ(replayed["at_peak"], original["at_peak"]);
  EXPECT_EQ(run("replay " + trace_ + " --record " + path).code, 2);  // every strategy
}

TEST_F(ReportCommand, BadInputIsOneLineAndWritesNothing) {
  const std::string page = folder_ / "page.html";
  const std::string broken = folder_.write("broken.trace", "headroom-trace 2\nf,1,0,1\n");
  const std::pair<std::string, std::string> cases[] = {
      {"report " + broken + " --html " + page, "broken.trace:2: block 1 is freed, but was never allocated"},
      {"report " + trace_ + " --html " + trace_, "would overwrite the trace"},
      {"report " + trace_ + " --html " + page + " --chrome " + page, "two outputs would go to it"},
      {"report " + trace_ + " --html /no/such/folder/page.html", "/no/such/folder"},
      {"report " + trace_ + " " + trace_, "report shows one trace; 2 given"},
      {"report " + trace_ + " --format svg", "svg"},
      {"report " + trace_ + " --output out.json", "--output needs --format"},
      {"diff " + trace_, "diff compares two traces; 1 given"},
      {"assert " + trace_, "no check given"},
      {"report " + trace_ + " --assert", "no check given"},
      {"report " + trace_ + " --max-peak 2GiB", "--max-peak needs --assert"},
      {"report " + trace_ + " --assert --no-oom --html x.html", "--html does not go with --assert"},
      {"assert " + trace_ + " --max-peak much", "much"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_NE(outcome.errors.find(expected), std::string::npos) << outcome.errors;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
  EXPECT_FALSE(std::filesystem::exists(page));
}

// Returns the first of these browsers; empty if there is none. With several names, `command -v` tries only
// the first in some shells.
std::string find_browser(const ScratchFolder& folder) {
  std::string browser = run_shell(folder,
                                  "for name in chromium-headless-shell chromium chromium-browser "
                                  "google-chrome; do command -v $name && break; done")
                            .out;
  if (!browser.empty()) browser.pop_back();
  return browser;
}

// The DOM of a page after `probe` ran in it, in a window as narrow as a phone's.
std::string dom_of(const ScratchFolder& folder, const std::string& page, const std::string& probe,
                   const std::string& flags = {}) {
  std::string text = read_file(page, 64 * kMiB);
  const std::string put = "const put = (key, value) => document.body.dataset[key] = value;";
  text.insert(text.rfind("</body>"), "<script>" + put + probe + "</script>");
  return run_shell(folder, find_browser(folder) +
                               " --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
                               "--window-size=400,900 --virtual-time-budget=1000 --user-data-dir=" +
                               (folder / "profile") + " " + flags + " --dump-dom file://" +
                               folder.write("probe.html", text))
      .out;
}

// A share of the idle memory says nothing about its size: 95 % of little was read as waste.
TEST_F(ReportCommand, ThePageSaysHowMuchIsIdleAndNoSettingWithoutAValue) {
  const std::string page = folder_ / "page.html";
  ASSERT_EQ(
      run("report " HEADROOM_SOURCE_DIR "/tests/tools/report/snapshots/leak-all.pickle.gz --html " + page)
          .code,
      0);
  const std::string text = read_file(page, 64 * kMiB);
  EXPECT_NE(text.find("\"idleAtPeak\":{\"bytes\":"), std::string::npos);
  EXPECT_EQ(text.find("fragmentation at the peak"), std::string::npos);
  EXPECT_EQ(text.find("\"PYTORCH_CUDA_ALLOC_CONF\",\"\""), std::string::npos);
}

// One start of the browser: the page as it opens, and after its slider was moved to the end.
TEST_F(ReportCommand, ABrowserDrawsThePageAndRunsNoScriptInNames) {
  if (find_browser(folder_).empty()) GTEST_SKIP() << "no Chromium";
  const std::string page = folder_ / "page.html";
  ASSERT_EQ(run("report " + trace_ + " --html " + page).code, 0);
  const std::string text = read_file(page, kMiB);
  EXPECT_EQ(text.find("http://"), std::string::npos);
  EXPECT_EQ(text.find("https://"), std::string::npos);
  const std::string dom =
      dom_of(folder_, page,
             "const seen = (id) => document.getElementById(id).textContent;"
             "put('peak', seen('moment-text')); put('rows', seen('rows')); put('title', document.title);"
             "put('verdict', seen('verdict')); put('flame', seen('flame-text'));"
             "const find = document.getElementById('search'); find.value = 'no such line';"
             "find.dispatchEvent(new Event('input')); dispatchEvent(new Event('beforeprint'));"
             "put('found', seen('rest')); find.value = ''; find.dispatchEvent(new Event('input'));"
             "put('fits', document.documentElement.scrollWidth <= innerWidth);"
             "const pen = document.getElementById('chart').getContext('2d'), c = pen.canvas;"
             "put('drawn', pen.getImageData(0, 0, c.width, c.height).data.some((v) => v > 0));"
             "const slider = document.getElementById('moment'); slider.value = slider.max;"
             "slider.dispatchEvent(new Event('input'));"
             "dispatchEvent(new Event('beforeprint')); put('last', seen('moment-text'));");
  EXPECT_NE(dom.find("data-peak=\"event 2 of 3"), std::string::npos) << dom.substr(0, 2000);
  EXPECT_NE(dom.find("3.00 MiB live, 4.00 MiB reserved – the peak\""), std::string::npos);
  EXPECT_NE(dom.find("data-drawn=\"true\""), std::string::npos);
  EXPECT_NE(dom.find("the largest piece 1.00 MiB"), std::string::npos);
  EXPECT_NE(dom.find("data-verdict=\"Out of memory at net.cpp:31"), std::string::npos);
  EXPECT_NE(dom.find("data-flame=\"Click a frame"), std::string::npos);
  EXPECT_NE(dom.find("data-found=\"0 of 2 rows match.\""), std::string::npos);
  EXPECT_NE(dom.find("data-fits=\"true\""), std::string::npos) << "the page is wider than its window";
  EXPECT_NE(dom.find("data-last=\"event 3 of 3"), std::string::npos);
  EXPECT_NE(dom.find("run.trace – Headroom report"), std::string::npos);
  EXPECT_EQ(dom.find("data-title=\"ran\""), std::string::npos);
  EXPECT_NE(dom.find("&lt;/script&gt;&lt;script&gt;document.title='ran'"), std::string::npos);
}

// PyTorch on an H200 with a memory fraction of about 4 GiB, which does not include the context and libraries.
TEST_F(ReportCommand, AdvisesToSolveForTheLimitThatRefusedAndNotForTheWholeDevice) {
  const std::string snapshot =
      HEADROOM_SOURCE_DIR "/tests/tools/report/snapshots/growing-batch-gpt2-python.pickle.gz";
  const Outcome outcome = run("report " + snapshot);
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_NE(outcome.out.find("headroom solve train.py:make_step --memory 4649MiB "), std::string::npos)
      << outcome.out;
  EXPECT_NE(run("predict " + snapshot).out.find(" --memory 4649MiB"), std::string::npos);
}

TEST_F(ReportCommand, AdvisesToSolveForTheProgramThatARecordingNamesAndItSolves) {
  const std::string trace = folder_ / "failed.trace";
  const Outcome failed = run("run --net residual --batch 2048 --strategy allow-growth --record " + trace);
  ASSERT_EQ(failed.code, 3) << failed.errors;
  const std::string arguments = "solve --net residual --batch 2048 --device sim --memory 1672MiB";
  const Outcome outcome = run("report " + trace);
  EXPECT_NE(outcome.out.find("next: headroom " + arguments + "\n"), std::string::npos) << outcome.out;
  const Outcome solved = run(arguments + " --points 0");
  EXPECT_EQ(solved.code, 0) << solved.out;
  EXPECT_EQ(solved.errors, "") << "no note that the budget is more than is free";
}

TEST_F(ReportCommand, ABrowserSortsASnapshotUnfoldsALineAndEnlargesAFrame) {
  if (find_browser(folder_).empty()) GTEST_SKIP() << "no Chromium";
  const std::string page = folder_ / "page.html";
  ASSERT_EQ(
      run("report " HEADROOM_SOURCE_DIR "/tests/tools/report/snapshots/leak-all.pickle.gz --html " + page)
          .code,
      0);
  const std::string dom = dom_of(
      folder_, page,
      "const seen = (id) => document.getElementById(id).textContent, draw = () => dispatchEvent(new "
      "Event('beforeprint'));"
      "put('fits', document.documentElement.scrollWidth <= innerWidth);"
      "put('first', seen('rows').slice(0, 60));"
      "const flame = document.getElementById('flame'), box = flame.getBoundingClientRect();"
      "put('rows', flame.clientHeight > 100);"
      "flame.dispatchEvent(new MouseEvent('click', {clientX: box.left + 10, clientY: box.top + 30})); draw();"
      "put('enlarged', seen('flame-text'));"
      "const native = document.getElementById('native'); put('native', !native.closest('label').hidden);"
      "const before = flame.clientHeight; native.click(); draw(); put('taller', flame.clientHeight > before);"
      "document.querySelectorAll('#columns button')[3].click(); draw();"
      "document.querySelectorAll('#columns button')[3].click(); draw();"
      "put('sorted', seen('rows').slice(0, 60));"
      "put('leak', seen('legend').includes('leak: kept step after step3.19 GiB'));"
      "document.querySelectorAll('#columns button')[0].click(); draw();"
      "document.querySelector('#rows button').click();"
      "put('folded', [...document.querySelectorAll('#rows tr')].slice(0, 3)"
      "  .map((row) => row.cells[0].textContent).join(''));"
      "put('strong', document.querySelector('#verdict strong').textContent);");
  for (const char* part :
       {"data-fits=\"true\"", "data-rows=\"true\"", "data-enlarged=\"Click the top row to go back.",
        "data-native=\"true\"", "data-taller=\"true\"", "data-strong=\"Leak\"", "data-first=\"3.38 GiB",
        "data-leak=\"true\"", "data-folded=\"3.38 GiB3.19 GiB192.00 MiB\""}) {
    EXPECT_NE(dom.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(dom.find("data-sorted=\"3.38 GiB"), std::string::npos);  // by category: workspace comes first
}

// Returns the smallest contrast between text and its background, as WCAG 2 counts it, and tells if the labels
// of the chart stand out from the page.
constexpr const char* kContrasts = R"(
const channels = (color) => color.match(/[\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
const behind = (element) => {
  const color = channels(getComputedStyle(element).backgroundColor);
  return color[3] === 0 && element.parentElement ? behind(element.parentElement) : color;
};
const page = channels(getComputedStyle(document.body).backgroundColor);
let least = 99, where = '', texts = 0;
for (const element of document.body.querySelectorAll('*')) {
  const has_text = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!has_text || !element.checkVisibility() || element.tagName === 'SCRIPT') continue;
  const found = contrast(channels(getComputedStyle(element).color), behind(element));
  ++texts;
  if (found < least) { least = found; where = element.outerHTML.slice(0, 80); }
}
dispatchEvent(new Event('beforeprint'));
const pen = document.getElementById('chart').getContext('2d');
const pixels = pen.getImageData(0, 0, pen.canvas.width, pen.canvas.height).data;
let label = 1;
for (let i = 0; i < pixels.length; i += 4)
  if (pixels[i + 3] === 255) label = Math.max(label, contrast(pixels.subarray(i, i + 3), page));
put('dark', matchMedia('(prefers-color-scheme: dark)').matches);
put('darkPage', light(page) < 0.1);
put('readable', texts > 20 && least >= 4.5 ? 'all' : `${texts} texts, ${least} of ${where}`);
put('labels', label >= 4.5 ? 'readable' : label);
)";

TEST_F(ReportCommand, ABrowserShowsThePageInTheColorsOfTheReader) {
  if (find_browser(folder_).empty()) GTEST_SKIP() << "no Chromium";
  const std::string page = folder_ / "page.html";
  ASSERT_EQ(
      run("report " HEADROOM_SOURCE_DIR "/tests/tools/report/snapshots/leak-all.pickle.gz --html " + page)
          .code,
      0);
  for (const bool is_dark : {true, false}) {
    const std::string dom = dom_of(
        folder_, page, kContrasts,
        is_dark ? "--blink-settings=preferredColorScheme=0" : "--blink-settings=preferredColorScheme=1");
    const std::string expected = is_dark ? "\"true\"" : "\"false\"";
    const std::string body = dom.substr(std::min(dom.size(), dom.find("<body")), 500);
    EXPECT_NE(dom.find("data-dark=" + expected), std::string::npos) << body;
    EXPECT_NE(dom.find("data-dark-page=" + expected), std::string::npos) << body;
    EXPECT_NE(dom.find("data-readable=\"all\""), std::string::npos) << body;
    EXPECT_NE(dom.find("data-labels=\"readable\""), std::string::npos) << body;
  }
}

}  // namespace
}  // namespace headroom
