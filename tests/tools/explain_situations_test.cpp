// Kinds of situations in logs, each as a property or a table of cases.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <utility>

#include "tools/explain/explanation.h"
#include "tools/explain/log_reader.h"

namespace headroom::explain {
namespace {

Explanation explained(std::string_view text) {
  return explain(read_log(text));
}

std::string all_of(const Explanation& explanation) {
  std::string text = explanation.judgment.reason + "\n";
  for (const Advice& advice : explanation.next) text += advice.command + "\n" + advice.why + "\n";
  return text;
}

std::string torch_message(std::string_view requested, std::string_view total, std::string_view free,
                          std::string_view processes, std::string_view allocated, std::string_view idle) {
  return fmt::format(
      "CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of {} of which {} is free. {}Of "
      "the "
      "allocated memory {} is allocated by PyTorch, and {} is reserved by PyTorch but unallocated.\n",
      requested, total, free, processes, allocated, idle);
}

TEST(ExplainSituations, ProcessesOfTheRunAreNoStrangers) {
  const std::string ranks = torch_message(
      "16.00 MiB", "23.69 GiB", "14.94 MiB",
      "Process 71043 has 17.51 GiB memory in use. Process 71044 has 2.05 GiB memory in use. Including "
      "non-PyTorch memory, this process has 2.05 GiB memory in use. ",
      "1.67 GiB", "10.00 MiB");
  for (const char* run : {"torchrun --nproc_per_node 4 train.py\n", "MEMBER: 4/4\n",
                          "accelerate launch train.py\n", "torch.distributed.init_process_group('nccl')\n"}) {
    const Explanation explanation = explained(run + ranks);
    EXPECT_EQ(explanation.judgment.cause, Cause::kExhausted) << run << explanation.judgment.reason;
    EXPECT_EQ(all_of(explanation).find("end it or wait"), std::string::npos) << run;
    EXPECT_EQ(all_of(explanation).find("CUDA_VISIBLE_DEVICES=1"), std::string::npos) << run;
    EXPECT_NE(all_of(explanation).find("set_device"), std::string::npos) << all_of(explanation);
  }
  // They are strangers if nothing shows several processes, or if the pid is far away.
  EXPECT_EQ(explained(ranks).judgment.cause, Cause::kOtherProcess);
  const std::string stranger = torch_message("16.00 MiB", "23.69 GiB", "14.94 MiB",
                                             "Process 1043 has 19.51 GiB memory in use. Including "
                                             "non-PyTorch memory, this process has 2.05 GiB memory in "
                                             "use. ",
                                             "1.67 GiB", "10.00 MiB");
  const Explanation other = explained("torchrun --nproc_per_node 4 train.py\n" + stranger);
  EXPECT_EQ(other.judgment.cause, Cause::kOtherProcess) << other.judgment.reason;
  // A launcher names the pid.
  const Explanation named =
      explained("failed (exitcode: 1) local_rank: 0 (pid: 1043) of binary: python\n" + stranger);
  EXPECT_EQ(named.judgment.cause, Cause::kExhausted) << named.judgment.reason;
}

TEST(ExplainSituations, NoFigureIsBelowZero) {
  std::mt19937 random(5);
  const auto size = [&] {
    constexpr const char* kUnits[] = {"MiB", "GiB", "GB", "KiB"};
    const double value = random() % 5 == 0 ? 17179869184.0 : static_cast<double>(random() % 8000) / 100;
    return fmt::format("{:.2f} {}", value, kUnits[random() % 4]);
  };
  const std::regex below_zero("(^|[ (])-[0-9]");
  const auto check = [&](const std::string& log) {
    const Explanation explanation = explained(log);
    const std::string words = all_of(explanation);
    EXPECT_FALSE(std::regex_search(explanation.judgment.reason, below_zero)) << log << words;
    for (const Evidence& evidence : explanation.evidence)
      EXPECT_GE(evidence.bytes.value_or(0), 0) << log << evidence.name;
  };
  for (int i = 0; i < 400; ++i) {
    check(torch_message(size(), size(), size(),
                        random() % 2 == 0 ? fmt::format("Process 17 has {} memory in use. ", size()) : "",
                        size(), size()));
    check(fmt::format(
        "CUDA out of memory. Tried to allocate {} (GPU 0; {} total capacity; {} already allocated; {} "
        "free; {} allowed; {} reserved in total by PyTorch)\n",
        size(), size(), size(), size(), size(), size()));
    check(fmt::format(
        "To serve at least one request with the models's max seq len (8192), ({} KV cache is needed, "
        "which is larger than the available KV cache memory ({}).\n",
        size(), size()));
    check(fmt::format(
        "Free memory on device ({}/{}) on startup is less than desired GPU memory utilization (0.9, "
        "{}).\n",
        size(), size(), size()));
  }
}

TEST(ExplainSituations, WhatTheDriverCannotMeanIsNoInput) {
  const Explanation explanation = explained(
      torch_message("288.00 MiB", "16.00 GiB", "17179869184.00 GiB", "", "243.69 MiB", "20.31 MiB"));
  EXPECT_NE(explanation.judgment.reason.find("cannot be used"), std::string::npos)
      << explanation.judgment.reason;
  for (const Evidence& evidence : explanation.evidence) EXPECT_NE(evidence.name, "device free");
}

TEST(ExplainSituations, ALimitIsAPair) {
  const std::pair<const char*, const char*> cases[] = {
      {"requested 7516192768 bytes, but max alloc size supported by device is 4294959104 bytes", "7.00 GiB"},
      {"requested allocation size 8589934592 exceeds the limit of 4294967296", "8.00 GiB"},
      {"ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (658).", "658 blocks"},
      {"failed assertion `Error: total bytes of NDArray > 2**32'", "4 GiB"},
  };
  for (const auto& [line, figure] : cases) {
    const Explanation explanation =
        explained(std::string(line) + "\nRuntimeError: Engine failed to start\n");
    EXPECT_NE(explanation.judgment.reason.find(figure), std::string::npos)
        << line << explanation.judgment.reason;
    EXPECT_NE(explanation.judgment.cause, Cause::kUnknown) << line;
  }
}

TEST(ExplainSituations, TheLineThatTellsMostIsShown) {
  const Explanation explanation = explained(
      "INFO starting\n"
      "the frobnicator has a maximum of 512 slots, and the request exceeds that limit\n"
      "ERROR: engine start failed\n"
      "Aborted\n");
  EXPECT_EQ(explanation.judgment.cause, Cause::kUnknown);
  const bool is_shown = std::any_of(
      explanation.evidence.begin(), explanation.evidence.end(),
      [](const Evidence& evidence) { return evidence.text.find("frobnicator") != std::string::npos; });
  EXPECT_TRUE(is_shown);
}

TEST(ExplainSituations, AnUnknownErrorIsNotSaidToBeAboutOtherThings) {
  const Explanation explanation = explained("KeyError: 'response'\n");
  EXPECT_EQ(all_of(explanation).find("not about memory"), std::string::npos) << all_of(explanation);
  EXPECT_EQ(all_of(explanation).find("not one of memory"), std::string::npos) << all_of(explanation);
}

TEST(ExplainSituations, ABatchIsNotHalvedWhileWeightsLoad) {
  const std::string loading =
      "$ python train.py --batch-size 16\n"
      "  File \"a.py\", line 3, in <module>\n    model = model.to(device)\n";
  for (const std::string& message :
       {torch_message("1.00 GiB", "8.00 GiB", "0.50 GiB", "", "2.00 GiB", "4.00 GiB"),
        torch_message("1.00 GiB", "8.00 GiB", "0.50 GiB", "", "7.00 GiB", "10.00 MiB"),
        torch_message("9.00 GiB", "8.00 GiB", "7.50 GiB", "", "10.00 MiB", "10.00 MiB")}) {
    const Explanation explanation = explained(loading + message);
    EXPECT_EQ(all_of(explanation).find("--batch-size 8"), std::string::npos) << all_of(explanation);
    EXPECT_GE(explanation.next.size(), 2u);
  }
}

TEST(ExplainSituations, PlentyOfFreeMemoryIsNeverAMemoryProblem) {
  for (const char* head : {"failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED\n",
                           "Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\n"}) {
    const Explanation explanation =
        explained(std::string(head) + "Memory usage: 15993929728 bytes free, 17179869184 bytes total.\n");
    EXPECT_EQ(explanation.judgment.cause, Cause::kNotMemory) << head;
    EXPECT_EQ(all_of(explanation).find("GROWTH"), std::string::npos);
  }
}

// In a container PyTorch does not know which of the listed processes it is, nor always their memory.
TEST(ExplainSituations, AProcessInAContainerIsNotTakenForAnother) {
  const auto message = [](std::string_view processes, std::string_view allocated) {
    return "CUDA out of memory. Tried to allocate 200.00 MiB. GPU 0 has a total capacity of 23.65 GiB of "
           "which 30.00 MiB is free. " +
           std::string(processes) + "Of the allocated memory " + std::string(allocated) +
           " is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n";
  };
  const Explanation own = explained(message("Process 2834 has 23.61 GiB memory in use. ", "23.00 GiB"));
  EXPECT_EQ(own.judgment.cause, Cause::kExhausted) << own.judgment.reason;
  const Explanation unset =
      explained(message("Process 2834 has 17179869184.00 GiB memory in use. ", "23.00 GiB"));
  EXPECT_EQ(unset.judgment.cause, Cause::kExhausted) << unset.judgment.reason;
  const Explanation both = explained(message(
      "Process 17 has 20.10 GiB memory in use. Process 2834 has 3.51 GiB memory in use. ", "3.00 GiB"));
  EXPECT_EQ(both.judgment.cause, Cause::kOtherProcess) << both.judgment.reason;
  EXPECT_NE(both.judgment.reason.find("(pid 17)"), std::string::npos) << both.judgment.reason;
}

// Each rank's figures stay its own, however their lines are mixed.
TEST(ExplainSituations, RanksLendEachOtherNoFigures) {
  const std::string text =
      "[rank1]: RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling "
      "`cublasCreate(handle)`\n[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 15.00 "
      "GiB. GPU 0 has a total capacity of 14.56 GiB of which 6.91 GiB is free.\n";
  const Explanation explanation = explained(text);
  EXPECT_EQ(explanation.judgment.cause, Cause::kAmbiguous);
  for (const Evidence& evidence : explanation.evidence) EXPECT_NE(evidence.name, "requested");
}

TEST(ExplainSituations, WhatIsShownIsFitForATerminal) {
  const Explanation explanation = explained(
      "\x1b]0;title\x07"  // split: C would be a digit of the escape
      "CUDA error: out of memory\x01\xff\x1b[2J \xe2\x82\xac\n");
  ASSERT_EQ(explanation.evidence.size(), 1u);
  EXPECT_EQ(explanation.evidence[0].text, "CUDA error: out of memory\\x01\\xff \xe2\x82\xac");
}

}  // namespace
}  // namespace headroom::explain
