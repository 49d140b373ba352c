// Kinds of situations in logs, each as a property or a table of cases.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/tools/explain_examples.h"
#include "tools/explain/explanation.h"
#include "tools/explain/log_reader.h"

namespace headroom::explain {
namespace {

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
  for (const char* run :
       {"torchrun --nproc_per_node 4 train.py\n", "MEMBER: 4/4\n", "accelerate launch train.py\n",
        "torch.distributed.init_process_group('nccl')\n", "deepspeed --num_gpus 4 train.py\n",
        "srun -n 4 python train.py\n", "FORCE_TORCHRUN=1 llamafactory-cli train x.yaml\n",
        "horovodrun -np 4 train.py\n", "[rank3]: "}) {
    const Explanation explanation = explain_text(run + ranks);
    EXPECT_EQ(explanation.judgment.cause, Cause::kExhausted) << run << explanation.judgment.reason;
    EXPECT_EQ(words_of(explanation).find("end it or wait"), std::string::npos) << run;
    EXPECT_EQ(words_of(explanation).find("CUDA_VISIBLE_DEVICES=1"), std::string::npos) << run;
    EXPECT_NE(words_of(explanation).find("set_device"), std::string::npos) << words_of(explanation);
  }
  // In a container the failed process is in the list: pids near its own are of the same start.
  const std::string listed =
      torch_message("16.00 MiB", "23.69 GiB", "1.94 GiB",
                    "Process 71043 has 17.51 GiB memory in use. Process 71047 has 4.10 GiB memory in use. ",
                    "3.67 GiB", "10.00 MiB");
  EXPECT_EQ(explain_text(listed).judgment.cause, Cause::kExhausted) << explain_text(listed).judgment.reason;
  // They are strangers if nothing shows several processes, or if the pid is far away.
  EXPECT_EQ(explain_text(ranks).judgment.cause, Cause::kOtherProcess);
  const std::string stranger = torch_message("16.00 MiB", "23.69 GiB", "14.94 MiB",
                                             "Process 1043 has 19.51 GiB memory in use. Including "
                                             "non-PyTorch memory, this process has 2.05 GiB memory in "
                                             "use. ",
                                             "1.67 GiB", "10.00 MiB");
  const Explanation other = explain_text("torchrun --nproc_per_node 4 train.py\n" + stranger);
  EXPECT_EQ(other.judgment.cause, Cause::kOtherProcess) << other.judgment.reason;
  // A launcher names the pid.
  const Explanation named =
      explain_text("failed (exitcode: 1) local_rank: 0 (pid: 1043) of binary: python\n" + stranger);
  EXPECT_EQ(named.judgment.cause, Cause::kExhausted) << named.judgment.reason;
  // The other process is the engine that generates for a trainer.
  for (const char* run :
       {"(WorkerDict pid=9) After vllm offload in sharding manager: 13.5 GB\n  File "
        "\"/x/verl/workers/fsdp.py\"\n",
        "python train_grpo.py --use_vllm True\n  File \"/x/trl/trainer/grpo_trainer.py\", line 1, in loss\n",
        "openrlhf.cli.train_ppo_ray --colocate_all_models --vllm_num_engines 8\n"}) {
    const Explanation explanation = explain_text(run + stranger);
    EXPECT_EQ(explanation.judgment.cause, Cause::kExhausted) << run << explanation.judgment.reason;
    EXPECT_NE(explanation.next[0].command.find("gpu_memory_utilization"), std::string::npos) << run;
    EXPECT_EQ(words_of(explanation).find("set_device"), std::string::npos) << run;
  }
}

TEST(ExplainSituations, NoFigureIsBelowZero) {
  std::mt19937 random(5);
  const auto size = [&] {
    constexpr const char* kUnits[] = {"MiB", "GiB", "GB", "KiB"};
    const double value = random() % 5 == 0 ? 17179869184.0 : static_cast<double>(random() % 8000) / 100;
    return fmt::format("{:.2f} {}", value, kUnits[random() % 4]);
  };
  const auto below_zero = [](std::string_view text) {
    for (size_t i = 0; i + 1 < text.size(); ++i) {
      const bool begins = i == 0 || text[i - 1] == ' ' || text[i - 1] == '(' || text[i - 1] == '\n';
      if (begins && text[i] == '-' && text[i + 1] >= '0' && text[i + 1] <= '9') return true;
    }
    return false;
  };
  const auto check = [&](const std::string& log) {
    const Explanation explanation = explain_text(log);
    const std::string words = words_of(explanation);
    EXPECT_FALSE(below_zero(words)) << log << words;
    for (const auto& [name, value] : explanation.figures) EXPECT_GE(value, 0) << log << name;
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
    check(
        fmt::format("component could not be created: KV cache\nTotal GPU memory (GiB): {}\nFree GPU memory "
                    "before component "
                    "creation attempt (GiB): {}\nModel: {} / {}\n",
                    random() % 90, random() % 90, random() % 90, random() % 90));
    check(
        fmt::format("Load weight begin. avail mem={}\nLoad weight end. type=Q, avail mem={}\nRuntimeError: "
                    "Not enough memory. "
                    "Please try to increase --mem-fraction-static.\n",
                    size(), size()));
    check(
        fmt::format("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on "
                    "memory.\nMemory on the "
                    "node (IP: 1) where the task (memory used={}) was running was {} / {} (0.98)\n",
                    size(), size(), size()));
    check(
        fmt::format("MPS backend out of memory (MPS allocated: {}, other allocations: {}, max allowed: {}). "
                    "Tried to allocate {} on private pool.\n",
                    size(), size(), size(), size()));
    check(fmt::format(
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate {} bytes.\nTotal bytes in pool: "
        "{} memory_limit_: {}\nSum Total of in-use chunks: {}\n",
        random(), random(), random(), size()));
  }
}

TEST(ExplainSituations, WhatTheDriverCannotMeanIsNoInput) {
  const Explanation explanation = explain_text(
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
      {"ValueError: The decoder prompt (length 5012) is longer than the maximum model length of 4096.",
       "5012 tokens"},
      {"ValueError: The input (9000 tokens) is longer than the model's context length (8192 tokens).",
       "8192"},
      {"llama-server: request (9010 tokens) exceeds the available context size (8192 tokens), try increasing "
       "it",
       "9010 tokens"},
      {"ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (8192).", "8192 tokens"},
      {"ggml_vulkan: Device memory allocation of size 4831838208 failed.\nggml_vulkan: Requested buffer size "
       "exceeds "
       "device buffer size limit: ErrorOutOfDeviceMemory",
       "4.50 GiB"},
  };
  for (const auto& [line, figure] : cases) {
    const Explanation explanation =
        explain_text(std::string(line) + "\nRuntimeError: Engine failed to start\n");
    EXPECT_NE(explanation.judgment.reason.find(figure), std::string::npos)
        << line << explanation.judgment.reason;
    EXPECT_NE(explanation.judgment.cause, Cause::kUnknown) << line;
  }
}

TEST(ExplainSituations, ATracebackBelowItsMessageTellsTheActivity) {
  const std::string message = "worker: CUDA error: out of memory\n";
  const std::string trace =
      "Traceback (most recent call last):\n  File \"site-packages/torch/x.py\", line 3, in validate\n    "
      "self.validate()\n";
  EXPECT_EQ(explain_text(message).judgment.cause, Cause::kAmbiguous);
  EXPECT_EQ(explain_text(message + trace).judgment.cause, Cause::kExhausted);
  // Another process's, far below.
  EXPECT_EQ(explain_text(message + std::string(5, '\n') + trace).judgment.cause, Cause::kAmbiguous);
}

TEST(ExplainSituations, TheLineThatTellsMostIsShown) {
  const Explanation explanation = explain_text(
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
  const Explanation explanation = explain_text("KeyError: 'response'\n");
  EXPECT_EQ(words_of(explanation).find("not about memory"), std::string::npos) << words_of(explanation);
  EXPECT_EQ(words_of(explanation).find("not one of memory"), std::string::npos) << words_of(explanation);
}

TEST(ExplainSituations, ABatchIsNotHalvedWhileWeightsLoad) {
  const std::string loading =
      "$ python train.py --batch-size 16\n"
      "  File \"a.py\", line 3, in <module>\n    model = model.to(device)\n";
  for (const std::string& message :
       {torch_message("1.00 GiB", "8.00 GiB", "0.50 GiB", "", "2.00 GiB", "4.00 GiB"),
        torch_message("1.00 GiB", "8.00 GiB", "0.50 GiB", "", "7.00 GiB", "10.00 MiB"),
        torch_message("9.00 GiB", "8.00 GiB", "7.50 GiB", "", "10.00 MiB", "10.00 MiB")}) {
    const Explanation explanation = explain_text(loading + message);
    EXPECT_EQ(words_of(explanation).find("--batch-size 8"), std::string::npos) << words_of(explanation);
    EXPECT_GE(explanation.next.size(), 2u);
  }
}

TEST(ExplainSituations, PlentyOfFreeMemoryIsNeverAMemoryProblem) {
  for (const char* head : {"failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED\n",
                           "Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\n"}) {
    const Explanation explanation =
        explain_text(std::string(head) + "Memory usage: 15993929728 bytes free, 17179869184 bytes total.\n");
    EXPECT_EQ(explanation.judgment.cause, Cause::kNotMemory) << head;
    EXPECT_EQ(words_of(explanation).find("GROWTH"), std::string::npos);
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
  const Explanation own = explain_text(message("Process 2834 has 23.61 GiB memory in use. ", "23.00 GiB"));
  EXPECT_EQ(own.judgment.cause, Cause::kExhausted) << own.judgment.reason;
  const Explanation unset =
      explain_text(message("Process 2834 has 17179869184.00 GiB memory in use. ", "23.00 GiB"));
  EXPECT_EQ(unset.judgment.cause, Cause::kExhausted) << unset.judgment.reason;
  const Explanation both = explain_text(message(
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
  const Explanation explanation = explain_text(text);
  EXPECT_EQ(explanation.judgment.cause, Cause::kAmbiguous);
  for (const Evidence& evidence : explanation.evidence) EXPECT_NE(evidence.name, "requested");
}

TEST(ExplainSituations, WhatIsShownIsFitForATerminal) {
  const Explanation explanation = explain_text(
      "\x1b]0;title\x07"  // split: C would be a digit of the escape
      "CUDA error: out of memory\x01\xff\x1b[2J \xe2\x82\xac\n");
  ASSERT_EQ(explanation.evidence.size(), 1u);
  EXPECT_EQ(explanation.evidence[0].text, "CUDA error: out of memory\\x01\\xff \xe2\x82\xac");
}

// Tables and pairs that lie on several lines.
TEST(ExplainSituations, BlocksAreReadAsOne) {
  struct Block {
    const char* log;
    std::vector<const char*> figures, says;
  };
  const Block blocks[] = {
      {"Executor creation failed due to insufficient GPU memory.\n\nThe following component could not be "
       "created: KV "
       "cache\nTotal GPU memory (GiB): 140.06\nFree GPU memory before component creation attempt (GiB): "
       "108.86\n\nPreviously created components and free GPU memory before/after creation (GiB):\nModel: "
       "139.55 / "
       "110.70\nSampler: 110.70 / 110.70\n",
       {"device total", "device free", "weights"},
       {"108.86 GiB of 140.06 GiB", "28.85 GiB"}},
      {"The following component could not be created: Model\nTotal GPU memory (GiB): 23.50\nFree GPU memory "
       "before "
       "component creation attempt (GiB): 23.10\n",
       {"device total", "device free"},
       {"model could not be created", "23.10 GiB of 23.50 GiB"}},
      {"Memory allocation error on worker 0: std::bad_alloc: out_of_memory\n- Free memory: 2.0GB\n- "
       "Requested "
       "memory: 6.0GB\n",
       {"device free", "requested"},
       {}},
      {"load_tensors:        CUDA0 model buffer size = 10678.72 MiB\nllama_kv_cache:      CUDA0 KV buffer "
       "size =  "
       "189.00 MiB\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 7421.07 MiB on device 0: "
       "cudaMalloc "
       "failed: out of memory\ngraph_reserve: failed to allocate compute buffers\n",
       {"requested", "weights", "cache"},
       {"7.25 GiB"}},
      {"XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3221225472 "
       "bytes.\nLargest "
       "temporaries:\n\tBuffer 1:\n\t\tSize: 2.00GiB\n\t\tOperator: op_name=\"jit(step)/dot_general\"\n",
       {"requested", "largest buffer"},
       {"2.00 GiB", "3.00 GiB"}},
      {"Free memory on device (22.52/23.51 GiB) on startup. Desired GPU memory utilization is (0.86, 20.32 "
       "GiB). "
       "Actual usage is 3.61 GiB for weight, 0.59 GiB for peak activation, 0.02 GiB for non-torch memory, "
       "and 2.28 "
       "GiB for CUDAGraph memory. Replace gpu_memory_utilization\nRuntimeError: CUDA out of memory occurred "
       "when "
       "warming up sampler with 512 dummy requests.\n",
       {"weights", "one step's activations", "recorded graphs"},
       {}},
      {"[TP0] Load weight begin. avail mem=78.61 GB\n[TP0] Load weight end. type=LlamaForCausalLM, avail "
       "mem=18.40 "
       "GB\nRuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n",
       {"weights"},
       {"60.21 GiB"}},
      {"ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on "
       "the node "
       "(IP: 10.1.1.1, ID: a) where the task (task ID: b, name=run, pid=1, memory used=229.84GB) was running "
       "was "
       "250.04GB / 251.54GB (0.994), which exceeds the threshold\n",
       {"machine's memory in use", "machine's memory"},
       {"229.84 GiB"}},
  };
  for (const Block& block : blocks) {
    const Explanation explanation = explain_text(block.log);
    for (const char* name : block.figures) {
      const auto has_name = [&](const Evidence& evidence) { return evidence.name == name; };
      EXPECT_TRUE(std::any_of(explanation.evidence.begin(), explanation.evidence.end(), has_name))
          << name << "\n"
          << block.log;
    }
    for (const char* part : block.says)
      EXPECT_NE(words_of(explanation).find(part), std::string::npos) << part << "\n" << words_of(explanation);
  }
}

TEST(ExplainSituations, NoNumbersIsNeverSaidBesideNumbers) {
  for (const Example& example : examples()) {
    const Explanation explanation = explain_text(example.log);
    const auto has_figure = [](const Evidence& evidence) { return evidence.bytes.has_value(); };
    if (std::none_of(explanation.evidence.begin(), explanation.evidence.end(), has_figure)) continue;
    const std::string words = words_of(explanation);
    for (const char* claim : {"no numbers", "does not say for what", "would have printed sizes"})
      EXPECT_EQ(words.find(claim), std::string::npos) << example.name << "\n" << words;
  }
}

std::string without_comment(const std::string& step) {
  return step.substr(0, step.find("  #"));
}

TEST(ExplainSituations, ACommandThatStaysAsItIsIsNoStep) {
  for (const Example& example : examples()) {
    const Log log = read_log(example.log);
    for (const Advice& advice : explain(log).next) {
      const std::string command = without_comment(advice.command);
      EXPECT_NE(command, log.command) << example.name;
      EXPECT_FALSE(command == "PROGRAM" || command == "python PROGRAM.py") << example.name << command;
    }
  }
}

TEST(ExplainSituations, ALongCommandIsNotRepeated) {
  for (const Example& example : examples()) {
    const Log log = read_log(example.log);
    if (log.command.size() <= 100) continue;
    for (const Advice& advice : explain(log).next)
      EXPECT_EQ(advice.command.find(log.command.substr(10)), std::string::npos)
          << example.name << advice.command;
  }
  const std::string log = log_of("torch_6gb_laptop");
  const auto first = [&](const std::string& command) {
    return explain_text("$ " + command + "\n" + log).next[0].command;
  };
  const std::string rest =
      " --model resnet50 --data /data/imagenet --epochs 90 --optimizer sgd --momentum 0.9 --output "
      "/runs/today/a";
  EXPECT_EQ(first("python train.py --batch-size 16 --lr 0.1" + rest), "python train.py --batch-size 8 ...");
  EXPECT_EQ(first("A=1 python train.py --lr 0.1 --batch-size=16" + rest),
            "... python train.py ... --batch-size=8 ...");
  EXPECT_EQ(first("torchrun train.py --per_device_train_batch_size 4 --gradient_accumulation_steps 2" + rest),
            "torchrun train.py --per_device_train_batch_size 2 --gradient_accumulation_steps 4 ...");
}

// Each program's own options, in the words that start it.
TEST(ExplainSituations, StepsAreInTheProgramsOwnVoice) {
  const std::string message = torch_message("2.00 GiB", "79.15 GiB", "1.00 GiB", "", "76.00 GiB", "0.20 GiB");
  const std::string cublas = "CUDA error: device-side assert triggered\n";
  struct Voice {
    std::string log, first;
  };
  const Voice voices[] = {
      {"$ python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.gpu_memory_utilization=0.5\n" + message,
       "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.gpu_memory_utilization=0.30"},
      {"$ trtllm-serve nvidia/Llama-3.1-8B --max_num_tokens 16384\n" + message,
       "trtllm-serve nvidia/Llama-3.1-8B --max_num_tokens 4096"},
      {"$ docker run --gpus all vllm/vllm-openai --model Qwen/Qwen3-8B --gpu-memory-utilization 0.95\n" +
           message,
       "docker run --gpus all vllm/vllm-openai --model Qwen/Qwen3-8B --gpu-memory-utilization 0.87"},
      {"$ accelerate launch grpo.py --vllm_mode colocate --vllm_gpu_memory_utilization 0.5\n  File "
       "\"/v/lib/trl/trainer/grpo_trainer.py\", line 712, in _move_model_to_vllm\n  File "
       "\"/v/lib/vllm/a.py\", line 1, in f\n" +
           message,
       "accelerate launch grpo.py --vllm_mode colocate --vllm_gpu_memory_utilization 0.30"},
      {"$ python gen.py\n  File \"gen.py\", line 3, in <module>\n    llm = LLM(model)\n  File "
       "\"/v/lib/vllm/a.py\", line 1, in f\n" +
           message,
       "gpu_memory_utilization=0.82  # an argument of the engine"},
      {"$ srun --gres=gpu:4 python train.py --batch-size 16\n" + message,
       "srun --gres=gpu:4 python train.py --batch-size 8"},
      {"$ torchrun --nproc_per_node 4 train.py --batch-size 16\n" + message,
       "torchrun --nproc_per_node 4 train.py --batch-size 8"},
      {"$ vllm serve Qwen/Qwen3-8B --max-num-seqs 16\n  File \"a.py\", line 1, in _dummy_sampler_run\n" +
           message,
       "vllm serve Qwen/Qwen3-8B --max-num-seqs 8"},
      {"$ accelerate launch train.py\n" + cublas, "CUDA_LAUNCH_BLOCKING=1 accelerate launch train.py"},
      {"$ torchrun train.py trainer.batch_size=4 model=unet\n" + message,
       "torchrun train.py trainer.batch_size=2 model=unet"},
  };
  for (const Voice& voice : voices)
    EXPECT_EQ(explain_text(voice.log).next[0].command, voice.first) << voice.log;
}

TEST(ExplainSituations, TheFrameworkIsTheOneThatFailed) {
  const std::pair<const char*, const char*> cases[] = {
      {"(W pid=3)   File \"/v/lib/vllm/device_allocator/cumem.py\", line 3, in wake_up\n(W pid=3) "
       "RuntimeError: CUDA "
       "Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62\n",
       "vLLM"},
      {"time=2025-01-17T16:39:27Z level=INFO source=memory.go:356 msg=\"offload to "
       "cuda\"\nggml_gallocr_reserve_n: "
       "failed to allocate CUDA0 buffer of size 2629828608\n",
       "Ollama"},
      {"I tensorflow/core/platform/cpu_feature_guard.cc:142] This binary\ntorch.OutOfMemoryError: CUDA out "
       "of memory. "
       "Tried to allocate 20.00 MiB.\n",
       "PyTorch"},
      {"Error: 500 Internal Server Error: unable to load model: cudaMalloc failed: out of memory\n",
       "Ollama"},
      {"  File \"/v/site-packages/torch/a.py\", line 1, in f\nCUDA Error: out of memory (errno 2) at line "
       "90\n",
       "PyTorch"},
      {"darknet detector train cfg/a.data cfg/yolov4.cfg\nCUDA Error: out of memory\n", "Darknet"},
  };
  for (const auto& [log, framework] : cases) EXPECT_EQ(explain_text(log).framework, framework) << log;
}

// A warning that a training copes with is a note; an exception ends it, whatever another run prints after it.
TEST(ExplainSituations, RecoveredIsNotFailed) {
  const std::string went_on = "Epoch 1: loss: 0.9\nEpoch 2: loss: 0.8\nEpoch 3: loss: 0.7\n";
  const std::string message =
      "CUDA out of memory. Tried to allocate 2.12 GiB. GPU 0 has a total capacity of 39.39 "
      "GiB of which 1.05 GiB is free.";
  for (const std::string& warning :
       {"| WARNING | train: Ran out of memory in batch 821: " + message + "\n" + went_on,
        "WARNING: CUDA OutOfMemoryError in TaskAlignedAssigner, using CPU\n" + went_on,
        "[W] " + message + " Skipping batch 3\n", "| WARNING: ran out of memory, skipping batch\n" + went_on,
        std::string(
            "E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 51748.72 MiB on device 1: cudaMalloc "
            "failed: out of memory\nE graph_reserve: failed to allocate compute buffers\nW sched_reserve: "
            "compute buffer allocation failed, retrying without pipeline parallelism\n")}) {
    const Explanation explanation = explain_text(warning);
    EXPECT_EQ(explanation.judgment.cause, Cause::kNotMemory) << warning << explanation.judgment.reason;
  }
  for (const std::string& failure :
       {"Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n" + message + "\n" + went_on,
        "torch.OutOfMemoryError: " + message + "\n" + went_on, "RuntimeError: " + message + "\n" + went_on,
        "WARNING: " + message + "\nEpoch 1: loss: 0.9\n",
        std::string("| WARNING: ran out of memory, skipping batch\n")}) {
    const Explanation explanation = explain_text(failure);
    EXPECT_EQ(explanation.judgment.cause, Cause::kExhausted) << failure << explanation.judgment.reason;
  }
  // What fails after a warning is the failure.
  const Explanation later = explain_text("WARNING: " + message + "\n" + went_on +
                                         "RuntimeError: cuDNN error: CUDNN_STATUS_VERSION_MISMATCH\n");
  EXPECT_EQ(later.judgment.cause, Cause::kVersionMismatch) << later.judgment.reason;
}

}  // namespace
}  // namespace headroom::explain
