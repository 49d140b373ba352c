// `headroom trace` as a user runs it. PyTorch is not there in tests: a shell script stands for Python.

#include <gtest/gtest.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/run_with_python.h"

namespace headroom {
namespace {

Outcome trace_with(const ScratchFolder& folder, const std::string& script, const std::string& arguments) {
  return run_with_python(folder, script, "trace " + arguments);
}

constexpr const char* kWriteTrace = R"(printf '%s\n' "$*" > words
while [ "$1" != --output ]; do shift; done
cat > "$2" <<'END'
headroom-trace 4
n,aten::mm
n,train.py:7
n,fc
m,1,1,0
a,1000,4096,0,0,1,1,0,2,4,3,0
m,1,2,1
a,3000,8192,0,0,1,1,0,2,2,3,0
f,1000,0,1
f,3000,0,1
END
)";

TEST(TraceCommand, SaysThePeakAndItsPlace) {
  const ScratchFolder folder;
  const Outcome outcome = trace_with(folder, kWriteTrace, "train.py:make_step --batch 4 -o out.trace");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(outcome.out,
            "train.py:make_step, batch 4: 2 allocations in 3 steps, at most 12.00 KiB live at once\n"
            "peak: step 1, backward, aten::mm of fc at train.py:7\n\n"
            "next: headroom predict out.trace --device h200\n");
  EXPECT_EQ(asked_of_package(folder),
            "trace train.py:make_step --steps 3 --device h200 --output out.trace --quiet --batch "
            "4 --progress\n");
}

TEST(TraceCommand, JsonHasThePeak) {
  const ScratchFolder folder;
  const Outcome outcome = trace_with(folder, kWriteTrace, "train.py:make_step --json");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["peak_requested_bytes"], 12288);
  EXPECT_EQ(json["peak"]["module"], "fc");
  EXPECT_EQ(json["batch"], nullptr);
}

TEST(TraceCommand, ProgramThatCannotBeTracedIsBadInputInItsOwnWords) {
  const ScratchFolder folder;
  const Outcome outcome = trace_with(
      folder, "echo noise >&2; echo 'headroom trace: train.py:9: nonzero needs a value' >&2; exit 2",
      "train.py:make_step");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.errors, "headroom: train.py:9: nonzero needs a value\n");
}

TEST(TraceCommand, MissingPackageIsNamedWithItsRemedy) {
  const ScratchFolder folder;
  const Outcome outcome =
      trace_with(folder, "echo \"$0: No module named headroom\" >&2; exit 1", "train.py:make_step");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.errors.find("has no package headroom: run `"), std::string::npos) << outcome.errors;
}

TEST(TraceCommand, MissingPythonIsNamed) {
  const ScratchFolder folder;
  const Outcome none = run_shell(folder, "cd " + folder.path() + " && env -u HEADROOM_PYTHON PATH=/nowhere " +
                                             HEADROOM_COMMAND " trace train.py:make_step");
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.errors.find("no python3 in PATH"), std::string::npos) << none.errors;
  const Outcome wrong = run_shell(folder, "cd " + folder.path() + " && HEADROOM_PYTHON=/nowhere/python " +
                                              HEADROOM_COMMAND " trace train.py:make_step");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.errors.find("/nowhere/python: No such file"), std::string::npos) << wrong.errors;
}

TEST(TraceCommand, WhatIsNoProgramIsRefused) {
  const ScratchFolder folder;
  for (const char* text :
       {"train.py", "run.trace", "train.py:", "train.py:1st", "'train.py:make step'", ""}) {
    const Outcome outcome = trace_with(folder, "exit 0", text);
    EXPECT_EQ(outcome.code, 2) << text;
  }
}

TEST(TraceCommand, AllThatReadACutOffTraceSaySoOnce) {
  const ScratchFolder folder;
  const std::string path = folder.write("cut.trace",
                                        "headroom-trace 4\nn,aten::mm\na,1000,4096,0,0,1,1,0,0,4,0,0\n"
                                        "a,2000,4096,0,0,1,1,0,0,4,0,0\nf,1000,0,1\na,30");
  for (const char* command :
       {"predict ", "fit --least-memory ", "compare --runs 1 ", "compare --runs 1 --trace ", "replay ",
        "run --trace ", "solve --memory 4GiB ", "report ", "diff cut.trace ", "assert --max-peak 1GiB "}) {
    const std::string line = std::string("cd ") + folder / "" + " && " HEADROOM_COMMAND " " + command;
    const Outcome outcome = run_shell(folder, line + path);
    const std::string note = path + ": the last line is incomplete";
    const size_t at = outcome.errors.find("note: " + note);
    EXPECT_NE(at, std::string::npos) << command << outcome.errors;
    EXPECT_EQ(outcome.errors.find(note, at + note.size()), std::string::npos) << command << outcome.errors;
  }
}

}  // namespace
}  // namespace headroom
