// Logs as people paste them, each with the right cause: files in explain/.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/cause.h"
#include "runtime/base/errors.h"
#include "runtime/base/files.h"
#include "tools/explain/explanation.h"
#include "tools/explain/log_reader.h"

namespace headroom::explain {
namespace {

struct Fixture {
  std::string_view file;
  std::string_view cause;
  Framework framework = Framework::kNone;
};

using F = Framework;

constexpr Fixture kFixtures[] = {
    // Figures of threads, by their arithmetic.
    {"torch_aoda", "other-process", F::kTorch},                 // Mukosame/AODA#9
    {"torch_monodepth", "other-process", F::kTorch},            // monodepth2#236
    {"torch_cads", "exhausted", F::kTorch},                     // murong-xu/CADS#4
    {"torch_fragmentation_32101", "fragmentation", F::kTorch},  // pytorch#32101
    {"torch_cobra_near_full", "fragmentation", F::kTorch},      // OpenHelix/cobra#24
    {"torch_meshgen_spill", "host-spill", F::kTorch},           // huggingface/meshgen#7
    {"torch_ipassr_spill", "host-spill", F::kTorch},            // iPASSR#9
    {"torch_never_fits", "too-large-for-device", F::kTorch},
    {"torch_facelift_overflow", "size-overflow", F::kTorch},
    {"e9_jax_16078_little_free", "preallocation", F::kJax},
    {"e9_jax_21396_plenty_free", "not-memory", F::kJax},
    // Generations of PyTorch's text.
    {"torch_1_0", "too-large-for-device", F::kTorch},
    {"torch_1_0_as_good_as_full", "exhausted", F::kTorch},  // shllln/GenerativeGraph#5
    {"torch_1_0_plenty_free", "not-memory", F::kTorch},     // pytorch#16417
    {"torch_1_4_others", "other-process", F::kTorch},       // phamquiluan/ResidualMaskingNetwork#15
    {"torch_1_4_taming", "exhausted", F::kTorch},
    {"torch_1_11_fragmentation", "fragmentation", F::kTorch},
    {"torch_2_1_typo", "fragmentation", F::kTorch},
    {"torch_2_cut_in_the_middle", "exhausted", F::kTorch},
    {"torch_2_fraction", "limit", F::kTorch},
    {"torch_2_named_processes", "other-process", F::kTorch},
    {"torch_2_private_pools", "exhausted", F::kTorch},
    {"torch_h200", "fragmentation", F::kTorch},
    {"torch_6gb_laptop", "exhausted", F::kTorch},
    {"torch_async_backend", "exhausted", F::kTorch},
    {"torch_async_fraction", "limit", F::kTorch},
    {"torch_no_numbers", "exhausted", F::kTorch},
    {"torch_handle_leak", "handle-leak", F::kTorch},
    {"torch_expandable_is_on", "fragmentation", F::kTorch},
    {"torch_workspace", "workspace", F::kTorch},
    {"plenty_free", "not-memory", F::kTorch},
    // Libraries that do not start.
    {"e1_torch_cublas_not_initialized", "unknown", F::kTorch},
    {"e2_torch_cublas_alloc_failed", "unknown", F::kTorch},
    {"e3_torch_cublas_internal", "unknown", F::kTorch},
    {"e4_tf_cublas", "preallocation", F::kTensorflow},
    {"e4_tf_cublas_new_words", "preallocation", F::kTensorflow},
    {"e5_tf_blas_launch", "preallocation", F::kTensorflow},
    {"e5_tf_gemm_35029", "preallocation", F::kTensorflow},
    {"e6_tf_cudnn", "preallocation", F::kTensorflow},
    {"e7_tf_cudnn_driver", "preallocation", F::kTensorflow},
    {"e8_tf_convolution", "preallocation", F::kTensorflow},
    {"e10_tf_hint", "preallocation", F::kTensorflow},
    {"e11_torch_cudnn", "unknown", F::kTorch},
    {"e12_torch_thc", "unknown", F::kTorch},
    {"e12_torch_thc_not_initialized", "unknown", F::kTorch},
    {"e13_torch_index", "index-out-of-range", F::kTorch},
    {"e13_torch_embedding", "index-out-of-range", F::kTorch},
    {"onnx_cublas", "unknown", F::kOnnx},
    // No memory at all.
    {"torch_device_assert", "index-out-of-range"},
    {"torch_illegal_access", "not-memory"},
    {"torch_driver_too_old", "version-mismatch"},
    {"torch_cudnn_versions", "version-mismatch"},
    {"torch_host_memory", "not-memory"},
    {"torch_permission", "permission", F::kTorch},
    {"torch_busy", "other-process"},
    {"tf_cudnn_versions", "version-mismatch", F::kTensorflow},
    {"tf_host_memory", "not-memory", F::kTensorflow},
    {"tf_late_growth", "not-memory", F::kTensorflow},
    {"tf_not_a_failure", "not-memory", F::kTensorflow},
    // TensorFlow, JAX, ONNX Runtime and others.
    {"tf_27088_pool", "preallocation", F::kTensorflow},
    {"tf_growth_is_on", "unknown", F::kTensorflow},
    {"tf_exhausted", "exhausted", F::kTensorflow},
    {"tf_fragmentation", "fragmentation", F::kTensorflow},
    {"tf_shape_only", "exhausted", F::kTensorflow},
    {"tf_async", "exhausted", F::kTensorflow},
    {"tf_context", "other-process", F::kTensorflow},
    {"tf_xla_2026", "exhausted", F::kTensorflow},
    {"jax_resource_exhausted", "exhausted", F::kJax},
    {"jax_request", "exhausted", F::kJax},
    {"onnx_buffer", "exhausted", F::kOnnx},
    {"onnx_overflow", "size-overflow", F::kOnnx},
    {"onnx_limit", "limit", F::kOnnx},
    {"rmm_pool", "limit", F::kOther},
    {"rmm_limit", "limit", F::kOther},
    {"rmm_device", "exhausted", F::kOther},
    {"mlx", "exhausted", F::kOther},
    {"flashlight", "exhausted", F::kOther},
    // Headroom's own.
    {"headroom_grab_all", "preallocation", F::kHeadroom},
    {"headroom_cap", "limit", F::kHeadroom},
    {"headroom_limit_of_growth", "rounding", F::kHeadroom},
    {"headroom_limit_of_caching", "rounding", F::kHeadroom},
    {"headroom_limit_on_process", "rounding", F::kHeadroom},
    {"headroom_limit_in_pieces", "fragmentation", F::kHeadroom},
    {"headroom_room_left_to_libraries", "rounding", F::kHeadroom},
    {"headroom_process_limit", "limit", F::kHeadroom},
    {"headroom_others", "other-process", F::kHeadroom},
    {"headroom_fragmentation", "fragmentation", F::kHeadroom},
    {"headroom_workspace", "workspace", F::kHeadroom},
    {"headroom_index", "index-out-of-range", F::kHeadroom},
    {"headroom_context", "other-process", F::kHeadroom},
    // As loggers, terminals and Windows leave them.
    {"messy_pod_colours_crlf", "fragmentation", F::kTorch},
    {"messy_wrapped_by_a_terminal", "fragmentation", F::kTorch},
    {"messy_wrapped_after_a_blank", "exhausted", F::kTensorflow},  // jax#788
    {"messy_two_ranks", "exhausted", F::kTorch},
    {"messy_json_logger", "too-large-for-device", F::kTorch},
    {"messy_head_cut_off", "exhausted", F::kTorch},
    {"messy_broken_utf8", "too-large-for-device", F::kTorch},
    {"messy_utf16", "index-out-of-range"},
    {"nothing_known", "unknown"},
};

std::string read_fixture(std::string_view file) {
  return read_file(std::string(HEADROOM_SOURCE_DIR "/tests/tools/explain/") + std::string(file) + ".log",
                   1 << 20);
}

Explanation explain_text(std::string_view text) {
  return explain(read_log(text));
}

// -1 where the evidence has no such row.
int64_t bytes_of(const Explanation& explanation, std::string_view name) {
  for (const Evidence& evidence : explanation.evidence) {
    if (evidence.name == name && evidence.bytes) return *evidence.bytes;
  }
  return -1;
}

std::string advice_of(const Explanation& explanation) {
  return explanation.next[0].command + "\n" + explanation.next[1].command;
}

TEST(Explain, EveryLogGetsItsCause) {
  for (const Fixture& fixture : kFixtures) {
    const Explanation explanation = explain_text(read_fixture(fixture.file));
    EXPECT_EQ(name_of(explanation.judgement.cause), fixture.cause)
        << fixture.file << ": " << explanation.judgement.reason;
    EXPECT_EQ(explanation.framework, fixture.framework) << fixture.file;
  }
}

TEST(Explain, EveryFileIsInTheTable) {
  std::set<std::string> known, present;
  for (const Fixture& fixture : kFixtures) known.insert(std::string(fixture.file));
  for (const auto& entry : std::filesystem::directory_iterator(HEADROOM_SOURCE_DIR "/tests/tools/explain")) {
    present.insert(entry.path().stem().string());
  }
  EXPECT_EQ(known, present);
}

// Pieces of every size, down to a byte: a message may lie across any of their ends.
TEST(Explain, HowALogArrivesDoesNotMatter) {
  const std::string filler(33000, 'x');
  for (const Fixture& fixture : kFixtures) {
    const std::string text = filler + "\n" + read_fixture(fixture.file) + "\n" + filler;
    const Explanation whole = explain_text(text);
    for (const size_t piece : {size_t{1}, size_t{4099}}) {
      if (piece == 1 && fixture.file.starts_with("tf"))
        continue;  // the longest files; one of each kind is enough
      LogReader reader;
      for (size_t at = 0; at < text.size(); at += piece)
        reader.feed(std::string_view(text).substr(at, piece));
      const Explanation pieces = explain(reader.finish());
      EXPECT_EQ(pieces.judgement.reason, whole.judgement.reason) << fixture.file;
      EXPECT_EQ(pieces.evidence.size(), whole.evidence.size()) << fixture.file;
      EXPECT_EQ(pieces.line_count, whole.line_count) << fixture.file;
    }
  }
}

TEST(Explain, BytesAreExactWhereTheLogIs) {
  EXPECT_EQ(bytes_of(explain_text(read_fixture("onnx_overflow")), "requested"), 4585490524328388608);
  EXPECT_EQ(bytes_of(explain_text(read_fixture("jax_request")), "requested"), 6727663616);
  EXPECT_EQ(bytes_of(explain_text(read_fixture("tf_exhausted")), "requested"), 1073741824);
  EXPECT_EQ(bytes_of(explain_text(read_fixture("tf_exhausted")), "allocated"), 9984000000);
  EXPECT_EQ(bytes_of(explain_text(read_fixture("tf_shape_only")), "requested"),
            int64_t{64} * 1024 * 1024 * 4 * 4);
  EXPECT_EQ(bytes_of(explain_text(read_fixture("tf_27088_pool")), "pool at the start"), 9950 * kMiB);
  EXPECT_EQ(bytes_of(explain_text(read_fixture("torch_6gb_laptop")), "requested"), 916 * kMiB);
  EXPECT_EQ(bytes_of(explain_text(read_fixture("torch_2_named_processes")), "process 6324"), 41510858916);
}

TEST(Explain, TheArithmeticIsThatOfTheMessage) {
  const Explanation aoda = explain_text(read_fixture("torch_aoda"));
  EXPECT_EQ(format_bytes(bytes_of(aoda, "outside the pool")), "31.13 GiB");
  const Explanation cads = explain_text(read_fixture("torch_cads"));
  EXPECT_EQ(format_bytes(bytes_of(cads, "the most that can be had")), "22.08 GiB");
  EXPECT_EQ(format_bytes(bytes_of(cads, "short by")), "716.80 MiB");  // 0.70 GiB
  const Explanation meshgen = explain_text(read_fixture("torch_meshgen_spill"));
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
  const MemoryFacts usual = {.allocated = 900 * kMiB,
                             .asked = 900 * kMiB,
                             .reserved = 920 * kMiB,
                             .largest_free_block = 20 * kMiB,
                             .device_free = 100 * kMiB,
                             .device_total = 2000 * kMiB,
                             .others = 300 * kMiB,
                             .strategy = "caching"};
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
    EXPECT_EQ(name_of(explanation.judgement.cause), name_of(cause)) << explanation.judgement.reason;
    // From the numbers in the text alone; they do not say what was in use before rounding.
    if (facts.asked != facts.allocated) continue;
    const std::string text = describe_failure(facts);
    EXPECT_EQ(name_of(explain_text(text).judgement.cause), name_of(cause)) << text;
  }
}

// A library's failure with the report of train_mnist: the cause is on a line by itself.
TEST(Explain, ALibrarysErrorAndItsReportHaveTheSameCause) {
  for (const int64_t reserved : {900 * kMiB, 1500 * kMiB}) {
    LibraryError error("failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED", "cublasCreate",
                       "CUBLAS_STATUS_NOT_INITIALIZED", {});
    const MemoryFacts facts = {.allocated = 890 * kMiB,
                               .reserved = reserved,
                               .device_free = 20 * kMiB,
                               .device_total = 2000 * kMiB,
                               .strategy = "grab-all"};
    error.set_memory(facts);
    const Judgement judgement = judge(facts);
    EXPECT_EQ(judgement.cause, reserved > kGiB ? Cause::kPreallocation : Cause::kExhausted);
    EXPECT_EQ(explain_text(error.what()).judgement.cause, judgement.cause);
    const std::string report = "library_failure: " + std::string(name_of(judgement.cause)) + ": " +
                               judgement.reason + "\n" + error.what();
    EXPECT_EQ(explain_text(report).judgement.cause, judgement.cause);
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
  EXPECT_EQ(advice_of(explain_text(read_fixture("torch_expandable_is_on"))).find("expandable_segments"),
            std::string::npos);
  EXPECT_EQ(advice_of(explain_text(read_fixture("tf_growth_is_on"))).find("GROWTH"), std::string::npos);
  const std::string blocking = "CUDA_LAUNCH_BLOCKING=1 python train.py\n" + read_fixture("e13_torch_index");
  EXPECT_EQ(advice_of(explain_text(blocking)).find("BLOCKING"), std::string::npos);
  std::string growing = read_fixture("headroom_grab_all");
  for (size_t at; (at = growing.find("strategy grab-all")) != std::string::npos;)
    growing.replace(at, 17, "strategy allow-growth");
  EXPECT_EQ(advice_of(explain_text(growing)).find("--strategy allow-growth"), std::string::npos);
}

// The message itself advises settings; that does not mean that they are on.
TEST(Explain, AdviceInAMessageIsNoSetting) {
  EXPECT_TRUE(read_log(read_fixture("torch_2_fraction")).settings.empty());
  EXPECT_TRUE(read_log(read_fixture("tf_exhausted")).settings.empty());
  EXPECT_TRUE(read_log(read_fixture("torch_no_numbers")).settings.empty());
  EXPECT_TRUE(read_log(read_fixture("headroom_grab_all")).settings.empty());
}

TEST(Explain, AdviceSuitsTheVersion) {
  EXPECT_NE(advice_of(explain_text(read_fixture("torch_h200"))).find("expandable_segments"),
            std::string::npos);
  const std::string older = advice_of(explain_text(read_fixture("torch_1_11_fragmentation")));
  EXPECT_EQ(older.find("expandable_segments"), std::string::npos);
  EXPECT_NE(older.find("max_split_size_mb"), std::string::npos);
  EXPECT_EQ(advice_of(explain_text(read_fixture("torch_fragmentation_32101"))).find("CONF"),
            std::string::npos);
  const std::string windows =
      "  File \"C:\\Users\\ann\\train.py\", line 3, in <module>\n" + read_fixture("torch_h200");
  EXPECT_EQ(advice_of(explain_text(windows)).find("expandable_segments"), std::string::npos);
  const std::string old_tensorflow = "tensorflow==1.9.0\n" + read_fixture("e4_tf_cublas");
  EXPECT_EQ(advice_of(explain_text(old_tensorflow)).find("TF_FORCE"), std::string::npos);
  const std::string another = "torch==1.9.0\n" + read_fixture("e4_tf_cublas");
  EXPECT_NE(advice_of(explain_text(another)).find("TF_FORCE"), std::string::npos);
}

TEST(Explain, EveryCauseHasTwoStepsForEveryFrameworkAndSetting) {
  Log log;
  for (int framework = 0; framework <= static_cast<int>(Framework::kOther); ++framework) {
    log.versions[static_cast<Framework>(framework)] = 1;  // older than every setting
  }
  for (const Setting& setting : settings()) log.settings.emplace(setting.name);
  for (const CauseInfo& row : causes()) {
    for (int framework = 0; framework <= static_cast<int>(Framework::kOther); ++framework) {
      Case found = make_case(log);
      found.framework = static_cast<Framework>(framework);
      const auto next = advise(found, row.cause);
      EXPECT_NE(next[0].command, next[1].command);
      EXPECT_FALSE(next[0].why.empty() || next[1].why.empty());
    }
  }
}

TEST(Explain, TheFirstFailureCounts) {
  const std::string index = read_fixture("e13_torch_index"), memory = read_fixture("torch_never_fits");
  EXPECT_EQ(explain_text(index + memory).judgement.cause, Cause::kIndexOutOfRange);
  EXPECT_EQ(explain_text(memory + index).judgement.cause, Cause::kTooLargeForDevice);
  EXPECT_EQ(explain_text(memory + memory + index).failure_count, 4);
  const Explanation harmless = explain_text(read_fixture("tf_not_a_failure") + read_fixture("tf_exhausted"));
  EXPECT_EQ(harmless.judgement.cause, Cause::kExhausted);
}

// Each rank's figures stay its own, however their lines are mixed.
TEST(Explain, RanksLendEachOtherNoFigures) {
  const std::string text =
      "[rank1]: RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`\n"
      "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 15.00 GiB. GPU 0 has a total "
      "capacity of "
      "14.56 GiB of which 6.91 GiB is free.\n";
  const Explanation explanation = explain_text(text);
  EXPECT_EQ(explanation.judgement.cause, Cause::kUnknown);
  EXPECT_EQ(bytes_of(explanation, "requested"), -1);
}

TEST(Explain, PlentyOfFreeMemoryIsNeverAMemoryProblem) {
  for (const char* head : {"failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED\n",
                           "Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\n"}) {
    const Explanation explanation =
        explain_text(std::string(head) + "Memory usage: 15993929728 bytes free, 17179869184 bytes total.\n");
    EXPECT_EQ(explanation.judgement.cause, Cause::kNotMemory) << head;
    EXPECT_EQ(advice_of(explanation).find("GROWTH"), std::string::npos);
  }
}

// In a container PyTorch does not know which of the listed processes it is, nor always what they hold.
TEST(Explain, AProcessInAContainerIsNotTakenForAnother) {
  const auto message = [](std::string_view processes, std::string_view allocated) {
    return "CUDA out of memory. Tried to allocate 200.00 MiB. GPU 0 has a total capacity of 23.65 GiB of "
           "which 30.00 MiB is "
           "free. " +
           std::string(processes) + "Of the allocated memory " + std::string(allocated) +
           " is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n";
  };
  const Explanation own = explain_text(message("Process 2834 has 23.61 GiB memory in use. ", "23.00 GiB"));
  EXPECT_EQ(own.judgement.cause, Cause::kExhausted) << own.judgement.reason;
  const Explanation unset =
      explain_text(message("Process 2834 has 17179869184.00 GiB memory in use. ", "23.00 GiB"));
  EXPECT_EQ(unset.judgement.cause, Cause::kExhausted) << unset.judgement.reason;
  const Explanation both = explain_text(message(
      "Process 17 has 20.10 GiB memory in use. Process 2834 has 3.51 GiB memory in use. ", "3.00 GiB"));
  EXPECT_EQ(both.judgement.cause, Cause::kOtherProcess) << both.judgement.reason;
  EXPECT_NE(both.judgement.reason.find("(pid 17)"), std::string::npos) << both.judgement.reason;
}

TEST(Explain, WhatIsShownIsFitForATerminal) {
  const Explanation explanation = explain_text(
      "\x1b]0;title\x07"
      "CUDA error: out of memory\x01\xff\x1b[2J \xe2\x82\xac\n");
  ASSERT_EQ(explanation.evidence.size(), 1u);
  EXPECT_EQ(explanation.evidence[0].text, "CUDA error: out of memory\\x01\\xff \xe2\x82\xac");
}

// A file's name in a traceback becomes part of a command that someone may paste.
TEST(Explain, AScriptsNameIsNoCommand) {
  const Explanation explanation = explain_text("  File \"x;rm -rf $HOME;.py\", line 3, in <module>\n" +
                                               read_fixture("torch_device_assert"));
  EXPECT_EQ(advice_of(explanation).find("rm -rf"), std::string::npos);
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
