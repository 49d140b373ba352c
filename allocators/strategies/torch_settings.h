// PyTorch's allocator settings as people write them in PYTORCH_CUDA_ALLOC_CONF, as settings of strategies.
#pragma once

#include <span>
#include <string_view>

#include "allocators/strategies/strategy.h"

namespace headroom {

// The name of strategies with such settings: "pytorch,expandable_segments:True,max_split_size_mb:128".
inline constexpr std::string_view kTorchStrategy = "pytorch";

// One of PyTorch's settings.
struct TorchSetting {
  std::string_view key;
  std::string_view value;  // "True|False"
  // Null for settings that change no device memory.
  void (*apply)(std::string_view value, StrategySettings& settings);
};
std::span<const TorchSetting> torch_settings();

// The settings for "KEY:VALUE,KEY:VALUE"; PyTorch's defaults for an empty text. `caching`, or
// `stream-ordered` for backend:cudaMallocAsync, which ignores the settings of the other as PyTorch does.
// Throws InvalidArgument for a key that PyTorch does not have, with the nearest one that it has, and for
// values out of range.
StrategySettings parse_torch_settings(std::string_view text);

}  // namespace headroom
