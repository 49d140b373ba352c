// Kinds of failures that share a shape and not a text: each is tried in the words of several programs.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/tools/explain_examples.h"
#include "tools/explain/explanation.h"

namespace headroom::explain {
namespace {

constexpr std::string_view kFull =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.94 GiB. GPU 0 has a total capacity of "
    "23.65 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 22.40 GiB memory in "
    "use. Of the allocated memory 21.50 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch "
    "but unallocated.\n";

bool says(const Explanation& explanation, std::string_view part) {
  return words_of(explanation).find(part) != std::string::npos;
}

TEST(ExplainKinds, AModelThatOnlyRunsGetsNoStepsOfATraining) {
  for (const char* line :
       {"pipe = DiffusionPipeline.from_pretrained('a/b')\n",
        "$ python chat.py\n    out = model.generate(ids)\n",
        "  File \"/v/vllm/v1/worker/gpu_model_runner.py\", line 3, in load\n",
        "  File \"/srv/sglang/srt/managers/scheduler.py\", line 3, in run\n",
        "  File \"run.py\", line 12, in predict\n", "  File \"/v/gradio/routes.py\", line 3, in call\n",
        "  File \"/comfy/ComfyUI/execution.py\", line 3, in execute\n"}) {
    const Explanation explanation = explain_text(line + std::string(kFull));
    for (const char* part : {"batch half as large", "checkpoint.checkpoint", "headroom solve"})
      EXPECT_FALSE(says(explanation, part)) << line << part << "\n" << words_of(explanation);
  }
  // A server's engine inside a trainer, and a script that trains, are trainings.
  for (const char* line : {"$ python train.py\n    out = model.generate(ids)\n    loss.backward()\n",
                           "    loss.backward()\n    sample = model.generate(ids)\n",
                           "$ accelerate launch train_dreambooth_lora.py\n  File "
                           "\"/v/diffusers/models/unet.py\", line 3, in forward\n"}) {
    const Explanation explanation =
        explain_text("Traceback (most recent call last):\n" + (line + std::string(kFull)));
    EXPECT_TRUE(says(explanation, "shrink with the batch")) << line << words_of(explanation);
  }
}

TEST(ExplainKinds, AServerThatLoadsIsToldOfWeights) {
  const std::string message =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB.\nGPU 1 has a total capacity "
      "of 79.11 GiB of which 410.00 MiB is free.\nIncluding non-PyTorch memory, this process has 78.70 GiB "
      "memory in use.\n";
  for (const char* line :
       {"[gpu_model_runner.py:4100] Failed to load model - not enough GPU memory.\n",
        "ERROR sglang: Error while loading transformer\n", "Failed to load weights of the model\n"}) {
    const Explanation explanation = explain_text(message + line);
    EXPECT_EQ(explanation.judgment.cause, Cause::kModelTooLarge) << line << explanation.judgment.reason;
    EXPECT_TRUE(says(explanation, "78.70 GiB")) << explanation.judgment.reason;
    EXPECT_FALSE(says(explanation, "batch half")) << words_of(explanation);
  }
}

TEST(ExplainKinds, AnExceptionIsANoteOnlyIfWorkWentOnAfterIt) {
  const std::string message =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 72.00 MiB. GPU 0 has a total capacity "
      "of "
      "23.64 GiB of which 32.75 MiB is free.\n";
  for (const char* plan :
       {"Error while loading the text encoder, falling back to CPU\n", "retrying with smaller tiles\n",
        "Falling back to native version\n", "OOM during loading, trying again\n"}) {
    const Explanation stopped = explain_text(message + plan);
    EXPECT_NE(stopped.judgment.cause, Cause::kNotMemory) << plan << stopped.judgment.reason;
    EXPECT_TRUE(says(stopped, "does not show that it worked")) << stopped.judgment.reason;
    const Explanation served =
        explain_text(message + plan + "INFO: Application startup complete.\nINFO: Uvicorn running on :80\n");
    EXPECT_EQ(served.judgment.cause, Cause::kNotMemory) << plan << served.judgment.reason;
  }
}

TEST(ExplainKinds, ARequestThatFailedIsOneThoughTheServerGoesOn) {
  const std::string ok = "INFO: 10.0.0.1:80 - \"GET /health HTTP/1.1\" 200 OK\n";
  const Explanation explanation = explain_text(
      "ERROR batch: Server error: CUDA out of memory. Tried to allocate 2.22 GiB. GPU 0 has a total capacity "
      "of 39.39 "
      "GiB of which 217.94 MiB is free.\n" +
      ok + ok + ok);
  EXPECT_EQ(explanation.judgment.cause, Cause::kExhausted) << explanation.judgment.reason;
}

TEST(ExplainKinds, AnAllocationThatFailedIsAFailureInAnyWords) {
  for (const char* line :
       {"ggml_backend_sycl_buffer_type_alloc_buffer: can't allocate 427970304 Bytes of memory on device",
        "alloc_tensor_range: failed to allocate Vulkan0 buffer of size 427970304",
        "llama_model_load: error loading model: unable to allocate ROCm0 buffer",
        "[error] could not allocate 4294967296 Bytes on Level Zero device 0",
        "E engine: Allocation of size 4294967296 failed", "engine: unable to reserve 12.5 GB",
        "runtime: failed to allocate weights buffer of size 4294967296",
        "xrt: Can't allocate 512 MB on device 1"}) {
    EXPECT_NE(explain_text(std::string(line) + "\n").judgment.cause, Cause::kNone) << line;
  }
  for (const char* line : {"allocated 427970304 Bytes of memory on device", "waited 5 m for the queue"})
    EXPECT_EQ(explain_text(std::string(line) + "\n").judgment.cause, Cause::kNone) << line;
}

TEST(ExplainKinds, TwoSizesNearAFailureOfMemoryAreItsLimit) {
  for (const char* line :
       {"omlx.scheduler - WARNING - stopped at 1441 tokens: memory 42.8GB exceeds ceiling 42.0GB\n",
        "server: active memory 42.8 GiB exceeds limit 42 GiB, stopping\n"}) {
    const Explanation explanation =
        explain_text(line + std::string("ERROR - Prefill failed: Memory limit exceeded during prefill\n"));
    EXPECT_EQ(explanation.judgment.cause, Cause::kLimit) << explanation.judgment.reason;
    EXPECT_TRUE(says(explanation, "42.80 GiB")) << explanation.judgment.reason;
    EXPECT_TRUE(says(explanation, "shorter prompt")) << words_of(explanation);
  }
}

TEST(ExplainKinds, OnlyTheFirstLineOfAMessageNeedsItsRank) {
  const Explanation explanation = explain_text(
      "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.34 GiB.\n   GPU 5 has a "
      "total "
      "capacity of 79.11 GiB of which 2.59 GiB is free.\n   ... this process has 76.51 GiB memory in use.\n");
  EXPECT_EQ(explanation.failure_count, 1);
  EXPECT_TRUE(says(explanation, "76.51 GiB")) << explanation.judgment.reason;
}

TEST(ExplainKinds, ALongSequenceIsHalvedByItsNumber) {
  for (const char* setting :
       {"max_seq_length=8192\n", "--cutoff_len 8192\n", "sequence_len: 8192\n", "pack_size=8192\n"}) {
    const Explanation explanation = explain_text(setting + std::string(kFull));
    EXPECT_TRUE(says(explanation, "4096 tokens instead of 8192")) << setting << words_of(explanation);
  }
  EXPECT_FALSE(says(explain_text("max_seq_length=256\n" + std::string(kFull)), "128 tokens"));
}

// A function's name tells what any program was doing.
// The same words come again, each time with a larger figure.
TEST(ExplainKinds, ALineThatComesAgainShowsGrowth) {
  const auto log = [](std::string_view before, std::string_view after, const std::vector<int>& figures) {
    std::string text;
    for (const int figure : figures)
      text += "12:0" + std::to_string(text.size() % 10) + " " + std::string(before) + std::to_string(figure) +
              std::string(after) + "\n";
    return explain_text(text + std::string(kFull)).judgment.cause;
  };
  for (const auto& [before, after] :
       {std::pair("Engine 000: 8 reqs, NPU memory used: ", " GiB"), std::pair("step 3 gpu_mem=", "MB"),
        std::pair("{'loss': 1.2, 'VRAM in use': ", " GB}"), std::pair("worker rss ", " MiB after a batch")}) {
    EXPECT_EQ(log(before, after, {10, 12, 14, 17, 20}), Cause::kLeak) << before;
    EXPECT_EQ(log(before, after, {10, 12, 12, 12, 12}), Cause::kExhausted) << before;
  }
  EXPECT_EQ(log("free memory ", " GiB", {10, 12, 14, 17, 20}), Cause::kExhausted);
}

// What the log calls an option is what its users can change.
TEST(ExplainKinds, StepsNameTheOptionThatTheLogShows) {
  for (const auto& [shown, step] :
       {std::pair("$ python train.py --my_crop_size 512\n", "--my_crop_size 256"),
        std::pair("config: {'latent_num_frames': 128}\nloss.backward()\n",
                  "latent_num_frames: 64 instead of 128"),
        std::pair("train: micro_bsz=8, seq_len=4096\nloss.backward()\n", "micro_bsz: 4 instead of 8")})
    EXPECT_TRUE(says(explain_text(shown + std::string(kFull)), step))
        << shown << words_of(explain_text(shown + std::string(kFull)));
}

// The memory that this process holds outside its pool is an engine's, or a second framework's.
TEST(ExplainKinds, MemoryOutsideThePoolIsASecondPools) {
  const std::string message =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity "
      "of "
      "39.38 GiB of which 10.31 MiB is free. Including non-PyTorch memory, this process has 39.36 GiB memory "
      "in "
      "use. Of the allocated memory 4.12 GiB is allocated by PyTorch, and 60.20 MiB is reserved by PyTorch "
      "but "
      "unallocated.\n";
  const Explanation jax = explain_text("I xla_bridge.py:927] Unable to initialize backend 'tpu'\n" + message);
  EXPECT_EQ(jax.judgment.cause, Cause::kPreallocation);
  EXPECT_TRUE(jax.next[0].command.starts_with("XLA_PYTHON_CLIENT_PREALLOCATE=false")) << jax.next[0].command;
  const Explanation engine =
      explain_text("$ python grpo.py rollout.name=sglang rollout.gpu_memory_utilization=0.5\n" + message);
  EXPECT_EQ(engine.judgment.cause, Cause::kExhausted);
  EXPECT_TRUE(engine.next[0].command.starts_with("gpu_memory_utilization=0.30")) << engine.next[0].command;
  EXPECT_EQ(explain_text(message).judgment.cause, Cause::kHandleLeak);
}

TEST(ExplainKinds, AKilledProcessIsToldByWhatItPrintedLast) {
  const std::string loaded = "Loading checkpoint shards: 100%|####| 3/3\n",
                    mapped = "Map (num_proc=64):  31%|###| 18/59\n";
  const auto reason = [](const std::string& log) {
    return explain_text("$ python sft.py\n" + log + "Killed\n").judgment.reason;
  };
  EXPECT_NE(reason(loaded + mapped).find("prepares the data set"), std::string::npos)
      << reason(loaded + mapped);
  EXPECT_NE(reason(mapped + loaded).find("a checkpoint was read"), std::string::npos)
      << reason(mapped + loaded);
}

TEST(ExplainKinds, OffloadBesideAMoveOfTheWholeSavesNothing) {
  for (const char* program :
       {"pipe = FluxPipeline.from_pretrained(\"a/b\").to(\"cuda\")\npipe.enable_model_cpu_offload()\n",
        "pipe = "
        "DiffusionPipeline.from_pretrained(m)\npipe.to('cuda')\npipe.enable_sequential_cpu_offload()\n"}) {
    const Explanation explanation = explain_text(program + std::string(kFull));
    EXPECT_EQ(explanation.judgment.cause, Cause::kModelTooLarge) << explanation.judgment.reason;
    EXPECT_NE(explanation.next[0].command.find("remove .to(\"cuda\")"), std::string::npos)
        << explanation.next[0].command;
  }
  const Explanation one = explain_text(
      "pipe = FluxPipeline.from_pretrained(\"a/b\")\npipe.enable_model_cpu_offload()\n" + std::string(kFull));
  EXPECT_FALSE(says(one, "remove .to")) << words_of(one);
}

TEST(ExplainKinds, StepsAreThoseOfTheSystem) {
  for (const char* line :
       {"OSError: [WinError 1455] \xe9\xa1\xb5. Error loading \"F:\\torch\\lib\\cudnn.dll\"\n",
        "OSError: The paging file is too small for this operation to complete. (os error 1455)\n",
        "RuntimeError: unable to mmap: os error 1455\n",
        "  File \"C:\\Users\\a\\x.py\", line 3\nMemoryError: Unable to allocate 12.0 GiB for an array with "
        "shape (5, 8) and data type float32\n",
        "  File \"/Users/a/x.py\", line 3\nMemoryError: Unable to allocate 12.0 GiB for an array with shape "
        "(5, 8) and data type float32\n"}) {
    const Explanation explanation = explain_text(line);
    EXPECT_EQ(explanation.judgment.cause, Cause::kHostMemory) << line << explanation.judgment.reason;
    for (const char* part : {"dmesg", "free -h", "#SBATCH"})
      EXPECT_FALSE(says(explanation, part)) << line << words_of(explanation);
  }
  EXPECT_TRUE(says(explain_text("os error 1455\n"), "page file"));
}

TEST(ExplainKinds, ASecondTryInsideTheHandlerIsHeldUpByTheFirst) {
  const std::string chained =
      "Traceback (most recent call last):\n" + std::string(kFull) +
      "\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent "
      "call last):\n";
  const Explanation twice = explain_text(chained + std::string(kFull));
  EXPECT_TRUE(says(twice, "gc.collect()")) << words_of(twice);
  const Explanation other = explain_text(chained + "KeyError: 'x'\n");
  EXPECT_FALSE(says(other, "gc.collect()")) << words_of(other);
}

TEST(ExplainKinds, PrivatePoolsAreTheCauseWhereTheyAreLarge) {
  const auto with = [](std::string_view graphs) {
    return explain_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total "
        "capacity of "
        "23.65 GiB of which 120.00 MiB is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, "
        "with " +
        std::string(graphs) +
        " allocated in private pools (e.g., CUDA Graphs), and 30.00 MiB is reserved by PyTorch but "
        "unallocated.\n");
  };
  EXPECT_TRUE(says(with("12.40 GiB"), "pool=pool"));
  EXPECT_FALSE(says(with("299.88 MiB"), "pool=pool"));
}

TEST(ExplainKinds, AFewMiBThatAreIdleAreNoFragmentation) {
  const Explanation explanation = explain_text(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity "
      "of 4.00 "
      "GiB of which 22.00 MiB is free. Of the allocated memory 3.10 GiB is allocated by PyTorch, and 52.00 "
      "MiB is "
      "reserved by PyTorch but unallocated.\n");
  EXPECT_EQ(explanation.judgment.cause, Cause::kExhausted) << explanation.judgment.reason;
  const Explanation fits = explain_text(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 26.00 MiB. GPU 0 has a total capacity "
      "of 3.94 GiB of "
      "which 20.00 MiB is free. Of the allocated memory 3.50 GiB is allocated by PyTorch, and 60.00 MiB is "
      "reserved by "
      "PyTorch but unallocated.\n");
  EXPECT_EQ(fits.judgment.cause, Cause::kExhausted) << fits.judgment.reason;
}

// A test of pytest is no validation.
TEST(ExplainKinds, ValidationWithoutNoGradIsToldOfIt) {
  const auto in = [](std::string_view function) {
    return explain_text("Traceback (most recent call last):\n  File \"run.py\", line 50, in " +
                        std::string(function) + "\n    out = model(x)\n" + std::string(kFull));
  };
  for (const char* function : {"validate", "evaluate", "test", "eval_epoch"})
    EXPECT_NE(in(function).next[0].command.find("torch.no_grad()"), std::string::npos) << function;
  EXPECT_FALSE(says(in("test_forward"), "no_grad"));
  EXPECT_EQ(in("decorate_context\n    return func()\n  File \"run.py\", line 50, in validate")
                .next[0]
                .command.find("no_grad"),
            std::string::npos);
}

// The reason names what took the machine's memory.
TEST(ExplainKinds, TheMachinesMemoryHasAReason) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"RuntimeError: DataLoader worker (pid 22908) is killed by signal: Killed.\n", "own copy of the data",
       "num_workers"},
      {"Loading checkpoint shards:  40%|####      | 2/5 [00:30<00:45]Killed\n", "checkpoint was read",
       "low_cpu_mem_usage"},
      {"    self.pin_memory()\nRuntimeError: cudaHostRegister failed: out of memory\n", "locked for copies",
       "pin_memory=False"},
  };
  for (const auto& [log, reason, step] : cases) {
    const Explanation explanation = explain_text(log);
    EXPECT_EQ(explanation.judgment.cause, Cause::kHostMemory) << log;
    EXPECT_TRUE(says(explanation, reason)) << explanation.judgment.reason;
    EXPECT_NE(explanation.next[0].command.find(step), std::string::npos) << explanation.next[0].command;
  }
}

// What the log shows of the system, the program and its activity decides which steps are of use.
TEST(ExplainKinds, NoStepIsOfAnotherSystemProgramOrActivity) {
  const std::string full =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 350.00 MiB. GPU 0 has a total capacity "
      "of 23.68 "
      "GiB of which 212.81 MiB is free. Of the allocated memory 23.07 GiB is allocated by PyTorch, and 12.09 "
      "MiB is "
      "reserved by PyTorch but unallocated.\n";
  struct {
    std::string log;
    std::vector<std::string_view> never;
  } const cases[] = {
      {"/opt/homebrew/bin/python run.py\nTraining failed with exit code -9\n",
       {"dmesg", "nvidia-smi", "CUDA_"}},
      {"  File \"C:\\Users\\u\\run.py\", line 1\n" + full, {"expandable_segments", "dmesg", "ldconfig"}},
      {"  File \"/app/vllm/v1/worker/gpu_model_runner.py\", line 1, in execute_model\n" + full,
       {"checkpoint(", "gradient", "optimizer", "a batch half"}},
      {"pipe = MyOwnPipeline.from_pretrained(name)\n" + full, {"checkpoint(", "device_map", "optimizer"}},
      {"  File \"train.py\", line 9, in validate\n" + full, {"checkpoint("}},
      {"<ipython-input-3-abc> in <cell line: 1>()\n" + full, {"CUDA_VISIBLE_DEVICES=1"}},
      {"(raylet) 1 Workers (tasks / actors) killed due to memory pressure (OOM)\n", {"num_workers", "dmesg"}},
  };
  for (const auto& [log, never] : cases) {
    const std::string steps = steps_of(explain_text(log));
    for (const std::string_view words : never)
      EXPECT_EQ(steps.find(words), std::string::npos) << log << steps;
  }
}

// Numbers of one line are compared: what was free, and how large the request was.
TEST(ExplainKinds, ARefusalWithRoomIsNoLackOfMemory) {
  const Explanation refused =
      explain_text("error 39 UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, Error OP MUL_MAT with 27GB free\n");
  EXPECT_EQ(refused.judgment.cause, Cause::kLimit) << refused.judgment.reason;
  const Explanation full = explain_text("error 39 UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY with 0.2GB free\n");
  EXPECT_EQ(full.judgment.cause, Cause::kExhausted) << full.judgment.reason;
  const std::string pages =
      "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate ";
  const Explanation fits = explain_text(pages + "1444 tokens.\nAvailable tokens: 5120\n");
  EXPECT_NE(fits.judgment.reason.find("page"), std::string::npos) << fits.judgment.reason;
  const Explanation lacks = explain_text(pages + "5121 tokens.\nAvailable tokens: 5120\n");
  EXPECT_EQ(lacks.judgment.reason.find("page"), std::string::npos) << lacks.judgment.reason;
}

// What a program says itself to change is the step where no rule knows more.
TEST(ExplainKinds, TheProgramsOwnHintIsTheStepOfAnUnknownError) {
  const Explanation own = explain_text(
      "ValueError: the slot table of this engine has no room\nConsider raising --slots to 48. Exiting\n");
  EXPECT_NE(own.next[0].command.find("Consider raising --slots to 48"), std::string::npos)
      << own.next[0].command;
  EXPECT_EQ(own.next[0].command.find("Exiting"), std::string::npos) << own.next[0].command;
  const Explanation far = explain_text("Consider raising --slots to 48.\nValueError: no room\n");
  EXPECT_EQ(far.next[0].command.find("--slots"), std::string::npos) << far.next[0].command;
}

// Less at once is said in the words of the program, whatever the cause.
TEST(ExplainKinds, LessIsSaidInTheProgramsOwnWords) {
  const std::string large =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 99.00 GiB. GPU 0 has a total capacity "
      "of 23.68 GiB "
      "of which 20.00 GiB is free.\n";
  const std::pair<std::string, std::string> cases[] = {
      {"  File \"/x/isaaclab/envs/env.py\", line 1\n", "num_envs"},
      {"got prompt\n!!! Exception during processing !!!\n", "a smaller image"},
      {"$ boltz predict a.yaml\n  File \"/x/boltz/main.py\", line 1\n", "a shorter sequence"},
  };
  for (const auto& [lines, words] : cases) {
    const Explanation explanation = explain_text(lines + large);
    EXPECT_EQ(explanation.judgment.cause, Cause::kTooLargeForDevice) << lines;
    EXPECT_NE(explanation.next[0].command.find(words), std::string::npos) << explanation.next[0].command;
  }
}

// A step needs evidence: one large tensor is attention only where the log shows attention.
TEST(ExplainKinds, AStepForALargeTensorNeedsToSeeWhatMadeIt) {
  const std::string large =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 99.00 GiB. GPU 0 has a total capacity "
      "of 23.68 GiB of which 20.00 GiB is free.\n";
  const auto first = [&](const std::string& frame) {
    return explain_text("  File \"/x/run.py\", line 1, in main\n    " + frame + "\n" + large).next[0].command;
  };
  const std::string_view attention = "attn_implementation";
  EXPECT_NE(first("out = F.scaled_dot_product_attention(q, k, v)").find(attention), std::string::npos);
  for (const char* frame :
       {"x = embedding(tokens)", "d = torch.cdist(points, points)", "return F.conv2d(x, w)"})
    EXPECT_EQ(first(frame).find(attention), std::string::npos) << frame;
  EXPECT_NE(first("d = torch.cdist(points, points)").find("in parts"), std::string::npos);
}

// A server that is named by a container's image alone is not the program that failed.
TEST(ExplainKinds, AnImageThatIsNamedIsNoFramework) {
  const Explanation explanation = explain_text(
      "$ docker run -it intel/some-vllm:latest bash\n"
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
      "23.68 GiB of which 1.00 GiB is free.\n");
  EXPECT_EQ(explanation.framework, "PyTorch");
  for (const Advice& step : explanation.next)
    EXPECT_EQ(step.command.find("gpu_memory_utilization"), std::string::npos) << step.command;
}

// A process that fails has a context on the device: one that leaves no room for it is the process itself.
TEST(ExplainKinds, AProcessThatLeavesNoRoomForAContextIsItself) {
  const auto cause = [](const std::string& held) {
    return explain_text(
               "CUDA out of memory. Tried to allocate 190.00 MiB. GPU 0 has a total capacity of 79.15 GiB of "
               "which 101.62 MiB is free. Process 81 has " +
               held + " GiB memory in use.\n")
        .judgment.cause;
  };
  EXPECT_EQ(cause("79.03"), Cause::kExhausted);
  EXPECT_EQ(cause("77.03"), Cause::kOtherProcess);
}

// What the machine's memory or a cache ran out of, and the step for it; the first rows of a public log each.
TEST(ExplainKinds, TheStepForTheMachinesMemoryOrACacheIsForWhatFillsIt) {
  struct Row {
    const char* log;
    Cause cause;
    const char* step;
  };
  for (const Row& row : {
           Row{"[Tue Apr 14 16:07:00 2026] Out of memory: Killed process 1067104 (python)\n",
               Cause::kHostMemory, "less data"},
           Row{"level=INFO source=memory.go:309 msg=\"offload to cuda\" layers.requested=-1 layers.model=33 "
               "layers.offload=0 layers.split=\"\" memory.available=\"[4.6 GiB]\" "
               "memory.required.full=\"35.3 "
               "GiB\" memory.required.kv=\"31.2 GiB\" memory.weights.total=\"34.9 GiB\"\nError: llama runner "
               "process has terminated: error:failed to create context with model 'C:\\blobs\\sha256-c4'\n",
               Cause::kHostMemory, "num_ctx"},
           Row{"level=INFO source=memory.go:309 msg=\"offload to cuda\" layers.requested=-1 layers.model=33 "
               "layers.offload=0 memory.available=\"[4.6 GiB]\" memory.required.kv=\"0.5 GiB\" "
               "memory.weights.total=\"34.9 GiB\"\nError: llama runner process has terminated: error:failed "
               "to "
               "create context with model 'C:\\blobs\\sha256-c4'\n",
               Cause::kHostMemory, "SMALLER_MODEL"},
           Row{"[Error: could not find a KV slot for the batch (try reducing the size of the batch or "
               "increase "
               "the context)]\n",
               Cause::kKvCache, "a larger context"},
       }) {
    const Explanation explanation = explain_text(row.log);
    EXPECT_EQ(explanation.judgment.cause, row.cause) << row.log << explanation.judgment.reason;
    EXPECT_NE(explanation.next[0].command.find(row.step), std::string::npos)
        << row.log << explanation.next[0].command;
    EXPECT_FALSE(says(explanation, "-c 4096")) << words_of(explanation);
  }
}

// A server is known by the names of its processes; a pool that grows anyway needs no option for it first.
TEST(ExplainKinds, TheFirstStepIsTheProgramsOwn) {
  const Explanation server = explain_text(
      "(Worker_DP6_EP6 pid=3853) ERROR 05-18 14:27:49 [multiproc_executor.py:962] torch.OutOfMemoryError: "
      "CUDA "
      "out of memory. Tried to allocate 1.75 GiB. GPU 6 has a total capacity of 139.80 GiB of which 1003.31 "
      "MiB "
      "is free. Process 2479093 has 138.80 GiB memory in use. Of the allocated memory 136.24 GiB is "
      "allocated by "
      "PyTorch, and 556.66 MiB is reserved by PyTorch but unallocated.\n");
  EXPECT_EQ(server.judgment.cause, Cause::kExhausted) << server.judgment.reason;
  EXPECT_NE(server.next[0].command.find("--gpu-memory-utilization"), std::string::npos)
      << server.next[0].command;
  const Explanation paddle = explain_text(
      "Out of memory error on GPU 0. Cannot allocate 7.652161GB memory on GPU 0, 20.428650GB memory has been "
      "allocated and available memory is only 3.255493GB.\n");
  EXPECT_EQ(paddle.judgment.cause, Cause::kExhausted) << paddle.judgment.reason;
  EXPECT_NE(paddle.next[0].command.find("less at once"), std::string::npos) << paddle.next[0].command;
}

// Windows refuses what it could not move to the page file, whatever the device has free.
TEST(ExplainKinds, ARefusalWithRoomOnWindowsIsOfThePageFile) {
  const std::string refusal =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 108.00 MiB. GPU 0 has a total capacity "
      "of "
      "24.00 GiB of which 15.34 GiB is free.\n";
  const Explanation windows = explain_text("PS D:\\pack> .\\run.bat\n" + refusal);
  EXPECT_EQ(windows.judgment.cause, Cause::kNotMemory) << windows.judgment.reason;
  EXPECT_NE(windows.next[0].command.find("page file"), std::string::npos) << windows.next[0].command;
  EXPECT_FALSE(says(explain_text("$ ./run.sh\n" + refusal), "page file"));
}

}  // namespace
}  // namespace headroom::explain
