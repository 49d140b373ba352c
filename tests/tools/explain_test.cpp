// Each example gets its cause and a fitting step; figures, versions and settings count as the log has them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/judge.h"
#include "tests/tools/explain_examples.h"
#include "tools/explain/explanation.h"
#include "tools/explain/line_parts.h"
#include "tools/explain/log_reader.h"

namespace headroom::explain {
namespace {

// Returns -1 if the evidence has no such row.
int64_t bytes_of(const Explanation& explanation, std::string_view name) {
  for (const Evidence& evidence : explanation.evidence) {
    if (evidence.name == name && evidence.bytes) return *evidence.bytes;
  }
  return -1;
}

TEST(Explain, EveryLogGetsItsCauseAndAFittingFirstStep) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.name);
    const Explanation explanation = explain_text(example.log);
    EXPECT_EQ(name_of(explanation.judgment.cause), example.cause) << explanation.judgment.reason;
    if (!example.framework.empty()) {
      EXPECT_EQ(explanation.framework, example.framework);
    }
    EXPECT_NE(explanation.next[0].command.find(example.next), std::string::npos)
        << explanation.next[0].command;
    const std::string words = words_of(explanation);
    for (const std::string& part : example.says)
      EXPECT_NE(words.find(part), std::string::npos) << part << "\n" << words;
    for (const std::string& part : example.never)
      EXPECT_EQ(words.find(part), std::string::npos) << part << "\n" << words;
  }
}

TEST(Explain, HalfOfTheLogsAreOfThreads) {
  std::set<std::string_view> names;
  size_t of_threads = 0;
  for (const Example& example : examples()) {
    EXPECT_TRUE(names.insert(example.name).second) << example.name;
    for (const std::string& thread : {example.from, example.figures})
      EXPECT_TRUE(thread.empty() || thread.starts_with("https://")) << example.name << ": " << thread;
    EXPECT_TRUE(example.adapted.empty() || !example.from.empty()) << example.name;
    of_threads += !example.from.empty() || !example.figures.empty();
  }
  EXPECT_GE(names.size(), 200u);
  EXPECT_GE(2 * of_threads, names.size());
}

// Pieces of every size, down to a byte: a message may lie across any of their ends.
TEST(Explain, HowALogArrivesDoesNotMatter) {
  int in_bytes = 0;
  for (const Example& example : examples()) {
    for (const size_t piece : {size_t{1}, size_t{4099}}) {
      if (piece == 1 && example.log.size() > 2000) continue;  // one of each kind is enough
      // More than the reader keeps; a few logs show that for single bytes.
      const std::string filler(piece == 1 && ++in_bytes > 10 ? 100 : 33000, 'x');
      const std::string text = filler + "\n" + example.log + "\n" + filler;
      const Explanation whole = explain_text(text);
      LogReader reader;
      for (size_t at = 0; at < text.size(); at += piece)
        reader.feed(std::string_view(text).substr(at, piece));
      const Explanation pieces = explain(reader.finish());
      EXPECT_EQ(pieces.judgment.reason, whole.judgment.reason) << example.name;
      EXPECT_EQ(pieces.evidence.size(), whole.evidence.size()) << example.name;
      EXPECT_EQ(pieces.line_count, whole.line_count) << example.name;
    }
  }
}

TEST(Explain, BytesAreExactWhereTheLogIs) {
  EXPECT_EQ(bytes_of(explain_text(log_of("onnx_overflow")), "requested"), 4585490524328388608);
  EXPECT_EQ(bytes_of(explain_text(log_of("jax_request")), "requested"), 6727663616);
  EXPECT_EQ(bytes_of(explain_text(log_of("tf_exhausted")), "requested"), 1073741824);
  EXPECT_EQ(bytes_of(explain_text(log_of("tf_exhausted")), "allocated"), 9984000000);
  EXPECT_EQ(bytes_of(explain_text(log_of("tf_shape_only")), "requested"), int64_t{64} * 1024 * 1024 * 4 * 4);
  EXPECT_EQ(bytes_of(explain_text(log_of("tf_27088_pool")), "pool at the start"), 9950 * kMiB);
  EXPECT_EQ(bytes_of(explain_text(log_of("torch_6gb_laptop")), "requested"), 916 * kMiB);
  EXPECT_EQ(bytes_of(explain_text(log_of("torch_2_named_processes")), "process 6324"), 41510858916);
}

TEST(Explain, TheArithmeticIsThatOfTheMessage) {
  const Explanation aoda = explain_text(log_of("torch_aoda"));
  EXPECT_EQ(format_bytes(bytes_of(aoda, "outside the pool")), "31.13 GiB");
  const Explanation cads = explain_text(log_of("torch_cads"));
  EXPECT_EQ(format_bytes(bytes_of(cads, "maximum available")), "22.08 GiB");
  EXPECT_EQ(format_bytes(bytes_of(cads, "short by")), "716.80 MiB");  // 0.70 GiB
  const Explanation meshgen = explain_text(log_of("torch_meshgen_spill"));
  for (const Evidence& evidence : meshgen.evidence) {
    if (evidence.name != "outside the pool") continue;
    EXPECT_EQ(format_bytes(evidence.bytes.value_or(0)), "-6.11 GiB");
  }
}

TEST(Explain, ACountThatIsCutOffIsNoSize) {
  for (const char* text :
       {"CUDA out of memory. Tried to allocate 2", "CUDA out of memory. Tried to allocate 2.5",
        "CUDA out of memory. Tried to allocate 20 items", "CUDA out of memory. Tried to allocate GiB"}) {
    EXPECT_EQ(bytes_of(explain_text(text), "requested"), -1) << text;
  }
  EXPECT_EQ(bytes_of(explain_text("CUDA out of memory. Tried to allocate 2.00 Gi"), "requested"), 2 * kGiB);
}

// Numbers of an error, each with the cause that they decide.
struct JudgedFacts {
  Cause cause;
  MemoryFacts facts;
};

std::vector<JudgedFacts> judged_facts() {
  MemoryFacts usual;
  usual.allocated = usual.asked = 900 * kMiB;
  usual.reserved = 920 * kMiB;
  usual.largest_free_block = 20 * kMiB;
  usual.device_free = 100 * kMiB;
  usual.device_total = 2000 * kMiB;
  usual.others = 300 * kMiB;
  usual.strategy = "caching";
  std::vector<JudgedFacts> all;
  const auto add = [&](Cause cause, const auto& change) {
    all.push_back({cause, usual});
    change(all.back().facts);
  };
  add(Cause::kExhausted, [](MemoryFacts& f) { f.requested = 600 * kMiB; });
  add(Cause::kTooLargeForDevice, [](MemoryFacts& f) { f.requested = 3000 * kMiB; });
  add(Cause::kSizeOverflow, [](MemoryFacts& f) { f.requested = 3000 * kGiB; });
  add(Cause::kWorkspace, [](MemoryFacts& f) {
    f.requested = 600 * kMiB;
    f.tensor = "workspace";
    f.op = "conv2d";
  });
  add(Cause::kFragmentation, [](MemoryFacts& f) {
    f.requested = 300 * kMiB;
    f.reserved = 1300 * kMiB;
  });
  add(Cause::kLimit, [](MemoryFacts& f) {
    f.requested = 80 * kMiB;
    f.limit = 950 * kMiB;
    f.limit_room = 30 * kMiB;
  });
  add(Cause::kLibraryReserve, [](MemoryFacts& f) {
    f.requested = 80 * kMiB;
    f.limit = 920 * kMiB;
    f.limit_room = 0;
    f.limit_is_reserve = true;
  });
  add(Cause::kOtherProcess, [](MemoryFacts& f) {
    f.requested = 600 * kMiB;
    f.others = 900 * kMiB;
  });
  add(Cause::kRounding, [](MemoryFacts& f) { f.requested = 90 * kMiB; });
  add(Cause::kRounding, [](MemoryFacts& f) {
    f.requested = 150 * kMiB;
    f.asked = 800 * kMiB;
  });
  return all;
}

TEST(Explain, AnErrorAndItsTextHaveTheSameCause) {
  for (const auto& [cause, facts] : judged_facts()) {
    SCOPED_TRACE(name_of(cause));
    const OutOfMemory error(facts);
    EXPECT_EQ(name_of(judge(facts).cause), name_of(cause)) << error.what();
    const Explanation explanation = explain_text(error.what());
    EXPECT_EQ(name_of(explanation.judgment.cause), name_of(cause)) << explanation.judgment.reason;
    // Uses only the numbers in the text, which do not include the bytes in use before rounding.
    if (facts.asked != facts.allocated) continue;
    const std::string text = out_of_memory_message(facts);
    EXPECT_EQ(name_of(explain_text(text).judgment.cause), name_of(cause)) << text;
  }
}

// A limit of 6.99 GiB on a device of 140 GiB.
TEST(Explain, MemoryBeyondTheLimitIsNotAvailable) {
  MemoryNumbers numbers;
  numbers.request = MemoryNumbers::Request::kTensor;
  numbers.requested = 512 * kMiB;
  numbers.total = 140 * kGiB;
  numbers.free = 132 * kGiB;
  numbers.limit = 7158 * kMiB;
  numbers.idle = 464 * kMiB;
  numbers.allocated = 6600 * kMiB;
  numbers.reserved = *numbers.allocated + *numbers.idle;
  EXPECT_EQ(room_of(numbers), 94 * kMiB);
  const std::optional<Judgment> judgment = judge(numbers);
  ASSERT_TRUE(judgment.has_value());
  EXPECT_EQ(judgment->reason,
            "94.00 MiB left of the limit and 464.00 MiB idle in the pool are enough for the 512.00 MiB "
            "requested only together");
  const Explanation explanation = explain_text(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.54 GiB. GPU 0 has a total capacity of "
      "139.80 GiB of which 129.34 GiB is free. 9.79 GiB allowed; Of the allocated memory 9.40 GiB is "
      "allocated by PyTorch, and 333.95 MiB is reserved by PyTorch but unallocated.");
  EXPECT_LE(bytes_of(explanation, "maximum available") + bytes_of(explanation, "allocated"),
            bytes_of(explanation, "limit"));
}

TEST(Explain, ALimitThatOnlyARefusalShowsLiesBetweenItsBounds) {
  MemoryNumbers numbers;
  numbers.request = MemoryNumbers::Request::kTensor;
  numbers.is_exact = true;
  numbers.requested = kGiB;
  numbers.free = 20 * kGiB;
  numbers.in_use = numbers.allocated = numbers.reserved = 4 * kGiB;
  numbers.idle = 0;
  numbers.limit = 4 * kGiB;
  numbers.limit_below = 5 * kGiB;
  EXPECT_EQ(
      judge(numbers)->reason,
      "5.00 GiB are needed, the limit is at least 4.00 GiB and below 5.00 GiB, and the device has 20.00 "
      "GiB free");
  numbers.limit_below = 4 * kGiB + 1;
  EXPECT_NE(judge(numbers)->reason.find("the limit is 4.00 GiB, and"), std::string::npos);
}

// A library's failure with the report of train_mnist: the cause is on a line by itself.
TEST(Explain, ALibrarysErrorAndItsReportHaveTheSameCause) {
  for (const int64_t reserved : {900 * kMiB, 1500 * kMiB}) {
    LibraryError error("failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED", "cublasCreate",
                       "CUBLAS_STATUS_NOT_INITIALIZED", {});
    MemoryFacts facts;
    facts.allocated = 890 * kMiB;
    facts.reserved = reserved;
    facts.device_free = 20 * kMiB;
    facts.device_total = 2000 * kMiB;
    facts.strategy = "grab-all";
    error.set_memory(facts);
    const Judgment judgment = judge(facts);
    EXPECT_EQ(judgment.cause, reserved > kGiB ? Cause::kPreallocation : Cause::kExhausted);
    EXPECT_EQ(explain_text(error.what()).judgment.cause, judgment.cause);
    const std::string report = "library_failure: " + std::string(name_of(judgment.cause)) + ": " +
                               judgment.reason + "\n" + error.what();
    EXPECT_EQ(explain_text(report).judgment.cause, judgment.cause);
  }
}

TEST(Explain, EveryCauseIsNamedOnceAndDocumented) {
  const std::string page = read_file(HEADROOM_SOURCE_DIR "/docs/explain.md", 1 << 20);
  std::set<std::string_view> names;
  for (const CauseInfo& row : causes()) {
    EXPECT_EQ(name_of(row.cause), row.name);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.meaning.empty()) << row.name;
    EXPECT_NE(page.find("\n| `" + std::string(row.name) + "` | "), std::string::npos) << row.name;
  }
  EXPECT_EQ(causes().size(), static_cast<size_t>(Cause::kUnknown) + 1);
}

TEST(Explain, NeverAdvisesWhatIsOn) {
  // The user's own command may have it; no step adds it.
  const std::string expandable = log_of("torch_expandable_is_on");
  EXPECT_EQ(steps_of(explain_text(expandable)).find("grow in place"), std::string::npos);
  EXPECT_EQ(steps_of(explain_text(log_of("tf_growth_is_on"))).find("GROWTH"), std::string::npos);
  const std::string blocking = "CUDA_LAUNCH_BLOCKING=1 python train.py\n" + log_of("e13_torch_index");
  EXPECT_EQ(steps_of(explain_text(blocking)).find("names the call"), std::string::npos);
  std::string growing = log_of("headroom_grab_all");
  for (size_t at; (at = growing.find("strategy grab-all")) != std::string::npos;)
    growing.replace(at, 17, "strategy allow-growth");
  EXPECT_EQ(steps_of(explain_text(growing)).find("grow with demand"), std::string::npos);
}

TEST(Explain, StepsAreTheUsersOwnCommand) {
  const std::string log = log_of("torch_6gb_laptop");
  const auto first = [&](const std::string& command) {
    return explain_text(command + "\n" + log).next[0].command;
  };
  EXPECT_EQ(first("$ python train.py --batch-size 16 --lr 0.1"), "python train.py --batch-size 8 --lr 0.1");
  EXPECT_EQ(first("$ torchrun train.py --per_device_train_batch_size=4 --gradient_accumulation_steps 2"),
            "torchrun train.py --per_device_train_batch_size=2 --gradient_accumulation_steps 4");
  EXPECT_EQ(
      first(
          "(base) ann@node:~/net$ WANDB_MODE=off python3 main.py model=unet batch_size=64 2>&1 | tee a.log"),
      "WANDB_MODE=off python3 main.py model=unet batch_size=32");
  // A batch of one cannot be halved, and nothing that a shell acts on is repeated.
  EXPECT_EQ(first("$ python train.py --batch-size 1").find("half"), std::string::npos);
  EXPECT_EQ(first("$ python train.py --out $(rm -rf x) --batch-size 4").find("rm -rf"), std::string::npos);
  EXPECT_EQ(first("$ python `rm -rf x` --batch-size 4").find("rm -rf"), std::string::npos);
}

// The message itself advises settings; that does not mean that they are on.
TEST(Explain, AdviceInAMessageIsNoSetting) {
  EXPECT_TRUE(read_log(log_of("torch_2_fraction")).settings.empty());
  EXPECT_TRUE(read_log(log_of("tf_exhausted")).settings.empty());
  EXPECT_TRUE(read_log(log_of("torch_no_numbers")).settings.empty());
  EXPECT_TRUE(read_log(log_of("headroom_grab_all")).settings.empty());
}

TEST(Explain, AdviceSuitsTheVersion) {
  EXPECT_NE(steps_of(explain_text(log_of("torch_h200"))).find("expandable_segments"), std::string::npos);
  const std::string older = steps_of(explain_text(log_of("torch_1_11_fragmentation")));
  EXPECT_EQ(older.find("expandable_segments"), std::string::npos);
  EXPECT_NE(older.find("max_split_size_mb"), std::string::npos);
  EXPECT_EQ(steps_of(explain_text(log_of("torch_fragmentation_32101"))).find("CONF"), std::string::npos);
  const std::string windows =
      "  File \"C:\\Users\\ann\\train.py\", line 3, in <module>\n" + log_of("torch_h200");
  EXPECT_EQ(steps_of(explain_text(windows)).find("expandable_segments"), std::string::npos);
  const std::string old_tensorflow = "tensorflow==1.9.0\n" + log_of("e4_tf_cublas");
  EXPECT_EQ(steps_of(explain_text(old_tensorflow)).find("TF_FORCE"), std::string::npos);
  const std::string another = "torch==1.9.0\n" + log_of("e4_tf_cublas");
  EXPECT_NE(steps_of(explain_text(another)).find("TF_FORCE"), std::string::npos);
}

TEST(Explain, LinesForTheProgramSuitTheVersion) {
  const auto code_of = [](const std::string& text) {
    std::string code;
    for (const std::string& line : explain_text(text).code.lines) code += line + "\n";
    return code;
  };
  const std::string failure = log_of("e4_tf_cublas");
  const std::string newest = code_of(failure), experimental = code_of("tensorflow==2.3.1\n" + failure);
  EXPECT_NE(newest.find("\"GPU\"):\n    tf.config.experimental.set_memory_growth(gpu, True)\n"),
            std::string::npos);
  EXPECT_NE(newest.find("tf.config.list_physical_devices"), std::string::npos) << newest;
  EXPECT_EQ(code_of("tensorflow==2.16.1\n" + failure), newest);
  EXPECT_NE(experimental.find("tf.config.experimental.list_physical_devices"), std::string::npos);
  for (const char* old : {"tensorflow-gpu==1.15.0\n",
                          "  File \"/usr/lib/python3/tensorflow/python/client/session.py\", line 1365\n"})
    EXPECT_NE(code_of(old + failure).find("gpu_options.allow_growth = True"), std::string::npos) << old;
  EXPECT_EQ(code_of(log_of("tf_growth_is_on")), "") << "growth is on";
  EXPECT_NE(code_of(log_of("wide_jax_cublas_create")).find("XLA_PYTHON_CLIENT_PREALLOCATE"),
            std::string::npos);
}

TEST(Explain, LinesForTheProgramSuitTheMessage) {
  constexpr std::pair<const char*, const char*> kLines[] = {
      {"tf_late_growth", "set_memory_growth(gpu, True)"},
      {"tf_late_limit", "set_logical_device_configuration(gpu, "},
      {"tf_late_visible", "set_visible_devices(gpus[1:], "},
      {"tf_growth_differs", "set_memory_growth(gpu, True)"},
      {"tf_growth_beside_limit", "set_logical_device_configuration(gpu, "},
      {"tf2_missing_device", "tf.config.set_soft_device_placement(True)"},
      {"tf1_missing_device", "config.allow_soft_placement = True"},
  };
  for (const auto& [name, line] : kLines) {
    std::string code;
    for (const std::string& each : explain_text(log_of(name)).code.lines) code += each + "\n";
    EXPECT_NE(code.find(line), std::string::npos) << name << ":\n" << code;
  }
}

TEST(Explain, AVariableThatNothingReadsIsNamed) {
  const std::string failure = log_of("torch_h200");
  for (const char* line :
       {"$ CUDA_VISIBLE_DIVICES=1 python train.py\n", "os.environ['CUDA_VISIBLE_DIVICES'] = '1'\n",
        "export CUDA_VISIBLE_DIVICES=1 CUDA_VISIBLE_DIVICES=2\n"}) {
    const Explanation explanation = explain_text(line + failure);
    ASSERT_EQ(explanation.misspelled.size(), 1u) << line;
    EXPECT_EQ(explanation.misspelled[0].name, "CUDA_VISIBLE_DIVICES");
    EXPECT_EQ(explanation.misspelled[0].intended, "CUDA_VISIBLE_DEVICES");
  }
  for (const char* line : {"CUDA_VISIBLE_DEVICES=1 python train.py\n", "is CUDA_VISIBLE_DIVICES right?\n",
                           "MY_CUDA_VISIBLE_DIVICES=1\n", "CUDA_VISIBLE_DIVICES"})
    EXPECT_TRUE(explain_text(line + failure).misspelled.empty()) << line;
}

TEST(Explain, EveryLineForAProgramIsInItsPage) {
  for (const AdviceRow& row : Rules::built_in().code()) {
    const std::string name(Rules::built_in()[row.framework].id);
    const std::string page = read_file(HEADROOM_SOURCE_DIR "/docs/" + name + ".md", 1 << 20);
    for (const std::string_view line : row.lines)
      EXPECT_NE(page.find(line), std::string::npos) << name << ": " << line;
  }
}

TEST(Explain, EveryCauseHasTwoStepsForEveryFrameworkAndSetting) {
  const Rules& rules = Rules::built_in();
  Failure loading;
  loading.phases = {{"loading", 1}};
  Log log;
  for (const Framework framework : rules.frameworks())
    log.versions[framework] = 1;  // older than every setting
  for (const Setting& setting : rules.settings()) log.settings.emplace(setting.name);
  for (const CauseInfo& row : causes()) {
    for (const Framework framework : rules.frameworks()) {
      Case found = make_case(log);
      found.framework = framework;
      if (rules[framework].is_tool) found.tools = {framework};
      LogJudgment judgment;
      judgment.cause = row.cause;
      const std::vector<Advice> next = advise(found, judgment);
      EXPECT_NE(next[0].command, next[1].command);
      EXPECT_FALSE(next[0].why.empty() || next[1].why.empty());
      found.failure = &loading;
      EXPECT_GE(advise(found, judgment).size(), 2u);
    }
  }
}

// A batch of one is not halved, and an option that is on is no step: two rows remain that no log can take
// away.
TEST(Explain, EveryCauseHasTwoStepsWhereNothingIsLeftToLower) {
  std::map<Cause, int> always;
  for (const AdviceRow& row : Rules::built_in().advice()) {
    const bool is_free = row.framework == Framework::kNone && !row.kind && row.on.empty() &&
                         row.unless.empty() && row.parts.empty() && row.when == When::kAlways &&
                         row.from == 0 && row.before == 0;
    const auto has = [&](std::string_view hole) { return row.command.find(hole) != row.command.npos; };
    const bool has_condition = row.batch || row.no_batch || row.workers || row.python;
    if (is_free && !has_condition && !has("{half}") && !has("{set ") && !has("{without ") && !has("$"))
      ++always[row.cause];
  }
  for (const CauseInfo& cause : causes()) EXPECT_GE(always[cause.cause], 2) << cause.name;

  const std::string too_large =
      "CUDA out of memory. Tried to allocate 182.28 GiB. GPU 0 has a total capacity of 79.18 GiB of which "
      "60.21 GiB is free.\n";
  const Explanation one = explain_text("$ python train.py --batch_size 1\n" + too_large);
  EXPECT_EQ(one.judgment.cause, Cause::kTooLargeForDevice);
  for (const Advice& advice : one.next) EXPECT_EQ(advice.command.find("batch half"), std::string::npos);
}

// What is left of a device that is nearly full does not show that memory was not the cause.
TEST(Explain, LittleOfALargeDeviceIsNotPlenty) {
  const auto cause_with = [](std::string_view free) {
    return explain_text(
               "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.14 GiB. GPU 3 has a total "
               "capacity of 139.81 GiB of which " +
               std::string(free) + " GiB is free.\n")
        .judgment.cause;
  };
  EXPECT_EQ(cause_with("1.50"), Cause::kExhausted);
  EXPECT_EQ(cause_with("31.50"), Cause::kNotMemory);
}

TEST(Explain, TheFirstFailureCounts) {
  const std::string index = log_of("e13_torch_index"), memory = log_of("torch_never_fits");
  EXPECT_EQ(explain_text(index + memory).judgment.cause, Cause::kIndexOutOfRange);
  EXPECT_EQ(explain_text(memory + index).judgment.cause, Cause::kTooLargeForDevice);
  EXPECT_EQ(explain_text(memory + memory + index).failure_count, 4);
  const Explanation harmless = explain_text(log_of("tf_not_a_failure") + log_of("tf_exhausted"));
  EXPECT_EQ(harmless.judgment.cause, Cause::kExhausted);
}

// A launcher says which process failed first; the log's order may be another.
TEST(Explain, TheRankThatFailedFirstCounts) {
  const std::string log = log_of("rank_that_failed_first");
  EXPECT_EQ(explain_text(log).judgment.cause, Cause::kOtherProcess);
  EXPECT_EQ(explain_text(log.substr(0, log.find("Root Cause"))).judgment.cause, Cause::kTooLargeForDevice);
}

// A difference of sizes that were rounded when printed may be nothing but rounding.
TEST(Explain, WhatRoundingAloneExplainsIsNotShown) {
  const Explanation explanation = explain_text(
      "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.02 "
      "GiB is free. Including non-PyTorch memory, this process has 22.62 GiB memory in use. Of the allocated "
      "memory 21.60 GiB is allocated by PyTorch, and 0.50 GiB is reserved by PyTorch but unallocated.\n");
  EXPECT_EQ(bytes_of(explanation, "other processes, at least"), -1);
  EXPECT_NE(bytes_of(explanation, "this process, outside its pool"), -1);
}

// A file's name in a traceback becomes part of a command that someone may paste.
TEST(Explain, AScriptsNameIsNoCommand) {
  const Explanation explanation =
      explain_text("  File \"x;rm -rf $HOME;.py\", line 3, in <module>\n" + log_of("torch_device_assert"));
  EXPECT_EQ(steps_of(explanation).find("rm -rf"), std::string::npos);
}

TEST(Explain, ABatchAloneIsHalvedOnlyWhereTheLogShowsATraining) {
  const std::string failure =
      "RuntimeError: CUDA out of memory. Tried to allocate 12.22 GiB (GPU 0; 47.46 GiB total capacity; 37.08 "
      "GiB already allocated; 9.40 GiB free; 37.32 GiB reserved in total by PyTorch)\n";
  const auto first_step = [&](const std::string& line) {
    return explain_text("Traceback (most recent call last):\n  File \"" + line + "\n" + failure)
        .next.at(0)
        .command;
  };
  EXPECT_EQ(first_step("fold.py\", line 12, in main\n    loss.backward()"), "a batch half as large");
  EXPECT_EQ(first_step("fold.py\", line 12, in infer\n    x = self.mha(x, biases)"),
            "less at once: fewer sequences, a shorter prompt or context, a smaller image or chunk");
  EXPECT_EQ(first_step("fold.py\", line 12, in main\n    x = self.mha(x, biases)"),
            "less at once: a batch half as large, a smaller image or chunk, or a shorter sequence");
}

TEST(Explain, ATensorsBytesAreItsShapeTimesItsType) {
  EXPECT_EQ(tensor_bytes("64,576", "float"), 64 * 576 * 4);
  EXPECT_EQ(tensor_bytes("2, 3", "half"), 12);
  EXPECT_EQ(tensor_bytes("4294967296,4294967296", "double"), INT64_MAX);
  EXPECT_EQ(tensor_bytes("64,?", "float"), std::nullopt);
  EXPECT_EQ(tensor_bytes("64", "string"), std::nullopt);
}

}  // namespace
}  // namespace headroom::explain
