// What a PyTorch program was doing, by the lines of its traceback, decides before the arithmetic of its pool.

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <tuple>

#include "tests/tools/explain_examples.h"
#include "tools/explain/explanation.h"

namespace headroom::explain {
namespace {

// Enough is idle for the request, so that the arithmetic alone says fragmentation.
constexpr std::string_view kMessage =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.20 GiB. GPU 0 has a total capacity of "
    "79.10 GiB of which 1.02 GiB is free. Including non-PyTorch memory, this process has 78.00 GiB memory in "
    "use. Of the allocated memory 64.40 GiB is allocated by PyTorch, and 12.27 GiB is reserved by PyTorch but "
    "unallocated.\n";

TEST(Activities, DecideBeforeThePoolsArithmetic) {
  EXPECT_EQ(explain_text(kMessage).judgment.cause, Cause::kFragmentation);
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"    state[\"exp_avg_sq\"] = torch.zeros_like(", "first step", "AdamW8bit"},
      {"    logits = logits.float()", "whole vocabulary", "shorter sequences"},
      {"    self.key_cache[layer_idx] = torch.cat([self.key_cache[layer_idx], key_states], dim=-2)",
       "cache of keys and values", "max_new_tokens"},
      {"  File \"deepspeed/runtime/engine.py\", line 3600, in _zero3_consolidated_16bit_state_dict",
       "put together on the GPU to be saved", "stage3_gather_16bit_weights_on_model_save"},
      {"    self._ddp_init_helper(", "buckets", "gradient_as_bucket_view"},
      {"    return self.gather(outputs, self.output_device)", "DataParallel", "DistributedDataParallel"},
      {"  File \"torch/_inductor/select_algorithm.py\", line 1800, in autotune", "autotuning",
       "torch.compile"},
      {"  File \"monai/inferers/utils.py\", line 215, in sliding_window_inference", "whole volume",
       "device=torch.device(\"cpu\")"},
      {"    optimizer.load_state_dict(checkpoint['optimizer'])", "checkpoint", "map_location=\"cpu\""},
      {"    result[k] = f.get_tensor(k)\n  File \"safetensors/torch.py\", line 338, in load_file",
       "read straight to the GPU", "map_location=\"cpu\""},
      {"    ema = copy.deepcopy(model)", "second model", "copy.deepcopy(model)"},
      {"    X_train = X_train.to(device)", "whole data set", "DataLoader"},
      {"  File \"slime/utils/ppo_utils.py\", line 219, in vocab_parallel_softmax", "whole vocabulary",
       "--log-probs-chunk-size"},
      {"    image_embeds = self.visual(pixel_values, grid_thw=image_grid_thw)", "grows with the picture",
       "smaller images"},
      {"  File \"sglang/srt/model_executor/model_runner.py\", line 1200, in forward_extend", "prefill",
       "--chunked-prefill-size"},
      {"  File \"run.py\", line 50, in validate", "validation", "torch.no_grad()"},
  };
  for (const auto& [line, reason, step] : cases) {
    const Explanation explanation = explain_text(std::string("Traceback (most recent call last):\n") + line +
                                                 "\n" + std::string(kMessage));
    EXPECT_EQ(explanation.judgment.cause, Cause::kExhausted) << line;
    EXPECT_NE(explanation.judgment.reason.find(reason), std::string::npos) << explanation.judgment.reason;
    EXPECT_NE(explanation.next[0].command.find(step), std::string::npos) << explanation.next[0].command;
  }
}

}  // namespace
}  // namespace headroom::explain
