#include <fmt/format.h>

#include <limits>

#include "tests/kernels/kernel_cases.h"

namespace headroom::test {
namespace {

constexpr float kHiddenScore = -std::numeric_limits<float>::infinity();

struct Sizes {
  int64_t batch, queries, keys, heads, extent;
  int64_t sharing = 1;  // heads that share keys and values
};

// A mask with its tiles, or nothing; adds a row for these.
std::vector<HostTensor> with_tiles(std::vector<KernelCase>& cases, const std::string& what, const Sizes& s,
                                   const std::vector<HostTensor>& mask) {
  if (mask.empty()) return {};
  const MaskTiles op{{s.batch, s.heads, s.queries, s.keys}};
  cases.push_back({"mask_tiles_" + what, op, mask});
  return {mask[0], run_op(op, mask)[0]};
}

void add(std::vector<KernelCase>& cases, const std::string& what, const Attention& op, const Sizes& s,
         const std::vector<HostTensor>& numbers = {}) {
  const std::vector<HostTensor> mask = with_tiles(cases, what, s, numbers);
  const Shape of_queries = {s.batch, s.queries, s.heads, s.extent},
              of_keys = {s.batch, s.keys, s.heads / s.sharing, s.extent};
  std::vector<HostTensor> forward = {random_floats(of_queries, 1), random_floats(of_keys, 2),
                                     random_floats(of_keys, 3)};
  forward.insert(forward.end(), mask.begin(), mask.end());
  const std::vector<HostTensor> results = run_op(op, forward);
  std::vector<HostTensor> backward = {
      random_floats(of_queries, 4), forward[0], forward[1], forward[2], results[0], results[1]};
  backward.insert(backward.end(), mask.begin(), mask.end());
  cases.push_back({"attention_" + what, op, std::move(forward)});
  // Sums over all queries, or keys, in f32.
  cases.push_back(
      {"attention_grad_" + what, AttentionGrad{op.scale, false, op.softcap}, std::move(backward), 5e-5});
}

// Adds cases in which one tensor holds queries, keys and values.
void add_packed(std::vector<KernelCase>& cases, const std::string& what, Attention op, const Sizes& s,
                const std::vector<HostTensor>& numbers = {}) {
  const std::vector<HostTensor> mask = with_tiles(cases, "packed_" + what, s, numbers);
  op.packed = true;
  std::vector<HostTensor> forward = {random_floats({s.batch, s.queries, 3, s.heads, s.extent}, 1)};
  forward.insert(forward.end(), mask.begin(), mask.end());
  const std::vector<HostTensor> results = run_op(op, forward);
  std::vector<HostTensor> backward = {random_floats({s.batch, s.queries, s.heads, s.extent}, 4), forward[0],
                                      results[0], results[1]};
  backward.insert(backward.end(), mask.begin(), mask.end());
  cases.push_back({"attention_packed_" + what, op, std::move(forward)});
  cases.push_back(
      {"attention_grad_packed_" + what, AttentionGrad{op.scale, true}, std::move(backward), 5e-5});
}

// Adds attention to a cache (B,G,L,D) with new rows at these places.
void add_cached(std::vector<KernelCase>& cases, const std::string& what, const CachedAttention& op,
                const Sizes& s, const HostTensor& mask, const std::vector<int32_t>& places) {
  const Shape of_cache = {s.batch, s.heads / s.sharing, s.keys, s.extent};
  const auto count = std::ssize(places);
  std::vector<HostTensor> inputs = {random_floats({s.batch, s.queries, s.heads, s.extent}, 1)};
  for (const uint32_t seed : {2u, 3u}) inputs.push_back(random_floats(of_cache.with(2, count), seed));
  for (const uint32_t seed : {4u, 5u}) inputs.push_back(random_floats(of_cache, seed));
  inputs.push_back(tensor<int32_t>({count}, places));
  const std::vector<HostTensor> tiles = with_tiles(cases, "cached_" + what, s, {mask});
  inputs.insert(inputs.end(), tiles.begin(), tiles.end());
  cases.push_back({"cached_attention_" + what, op, std::move(inputs)});
}

// Returns a mask with `hidden` where a key comes after its query, counted from the end.
HostTensor causal(int64_t queries, int64_t keys, float hidden) {
  HostTensor mask({DType::kF32, {queries, keys}});
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = 0; j < keys; ++j) mask.data()[i * keys + j] = j - i > keys - queries ? hidden : 0;
  }
  return mask;
}

}  // namespace

// Extents below, at and above those of a tile; masks that hide whole tiles, parts of them and rows.
void add_attention_cases(std::vector<KernelCase>& cases) {
  for (const Sizes& s :
       {Sizes{1, 1, 1, 1, 1}, Sizes{2, 3, 5, 2, 4}, Sizes{1, 64, 64, 1, 64}, Sizes{1, 70, 130, 2, 24},
        Sizes{1, 5, 197, 3, 32}, Sizes{1, 66, 3, 1, 128}, Sizes{2, 9, 70, 1, 72}, Sizes{1, 20, 20, 2, 19}}) {
    add(cases, fmt::format("{}_{}_{}_{}_{}", s.batch, s.queries, s.keys, s.heads, s.extent), {.scale = 0.3f},
        s);
  }
  // As many blocks and tiles of keys that a GPU has four, two and one team to a block; some teams see no key.
  for (const int64_t heads : {3, 70, 140})
    add(cases, fmt::format("of_{}_heads", heads), {.scale = 0.3f}, {1, 70, 270, heads, 8});
  add(cases, "long_causal", {.scale = 0.3f}, {1, 320, 320, 2, 64}, {causal(320, 320, kHiddenScore)});
  add(cases, "long_and_wide", {.scale = 0.3f}, {1, 20, 300, 2, 128}, {causal(20, 300, kHiddenScore)});
  add_packed(cases, "short", {.scale = 0.3f}, {2, 9, 9, 3, 20});
  add_packed(cases, "tiles", {.scale = 0.3f}, {2, 130, 130, 2, 64});
  add_packed(cases, "causal", {.scale = 0.3f}, {1, 70, 70, 2, 16}, {causal(70, 70, kHiddenScore)});
  const Sizes sizes{2, 130, 140, 2, 16};
  add(cases, "causal", {.scale = 0.25f}, sizes, {causal(130, 140, kHiddenScore)});
  add(cases, "causal_lowest", {.scale = 0.25f}, sizes,
      {causal(130, 140, std::numeric_limits<float>::lowest())});
  // Heads that share keys, and scores under a soft cap, as Llama 3 and Gemma 2 have them.
  add(cases, "shared", {.scale = 0.3f}, {2, 70, 130, 6, 24, 3});
  add(cases, "shared_by_all", {.scale = 0.3f}, {1, 64, 64, 4, 64, 4}, {causal(64, 64, kHiddenScore)});
  add(cases, "capped", {.scale = 0.6f, .softcap = 2}, {2, 70, 130, 2, 24});
  add(cases, "shared_capped", {.scale = 0.6f, .softcap = 2}, {2, 130, 140, 4, 16, 2},
      {causal(130, 140, kHiddenScore)});
  add(cases, "weak", {.scale = 0.25f}, sizes, {causal(130, 140, -3)});
  for (const Shape& shape : {Shape{2, 1, 1, 140}, Shape{1, 2, 130, 140}, Shape{2, 2, 130, 140}, Shape{140}})
    add(cases, "mask_" + to_string(shape), {.scale = 0.25f}, sizes, {random_floats(shape, 5)});
  HostTensor padding({DType::kF32, {2, 1, 1, 140}});
  for (int64_t j = 100; j < 140; ++j) padding.data()[j] = kHiddenScore;      // the first text's end
  for (int64_t j = 0; j < 140; ++j) padding.data()[140 + j] = kHiddenScore;  // no text
  add(cases, "padding", {.scale = 0.25f, .zero_nan_rows = true}, sizes, {padding});
  // Rows that finite numbers hide throughout have equal shares, or those between their few larger ones.
  for (const float hidden : {std::numeric_limits<float>::lowest(), -1e9f}) {
    HostTensor rows = causal(130, 140, hidden);
    for (int64_t j = 0; j < 140; ++j) {
      rows.data()[50 * 140 + j] = hidden;
      rows.data()[129 * 140 + j] = j % 3 == 0 ? hidden : 2 * hidden;
    }
    add(cases, fmt::format("hidden_rows_{:.0e}", hidden), {.scale = 0.25f}, sizes, {rows});
  }
  HostTensor rows = causal(130, 140, kHiddenScore);
  for (int64_t j = 0; j < 140; ++j) rows.data()[50 * 140 + j] = rows.data()[129 * 140 + j] = kHiddenScore;
  add(cases, "hidden_rows", {.scale = 0.25f, .zero_nan_rows = true}, sizes, {rows});
  // A step of decoding: one query, or a few, of which those at the end of a cache see all of it.
  const auto shown = [](int64_t queries, int64_t keys, int64_t position) {
    HostTensor mask({DType::kF32, {1, 1, queries, keys}});
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t j = 0; j < keys; ++j) mask.data()[i * keys + j] = j > position + i ? kHiddenScore : 0;
    }
    return mask;
  };
  const CachedAttention cached{.scale = 0.3f};
  for (const int32_t place : {0, 63, 64, 700, 1023})
    add_cached(cases, fmt::format("{}", place), cached, {2, 1, 1024, 3, 64}, shown(1, 1024, place), {place});
  add_cached(cases, "short", cached, {1, 1, 5, 2, 20}, shown(1, 5, 2), {2});
  add_cached(cases, "shared", cached, {2, 1, 200, 6, 128, 3}, shown(1, 200, 130), {130});
  add_cached(cases, "few", cached, {2, 3, 200, 4, 24, 2}, shown(3, 200, 126), {126, 127, 128});
  add_cached(cases, "odd", cached, {1, 5, 70, 3, 19}, shown(5, 70, 60), {60, 61, 62, 63, -6});
  add_cached(cases, "capped", {.scale = 0.6f, .softcap = 2}, {1, 2, 130, 4, 40, 4}, shown(2, 130, 120),
             {120, 121});
  HostTensor sliding = shown(1, 300, 250);
  for (int64_t j = 0; j < 180; ++j) sliding.data()[j] = kHiddenScore;
  add_cached(cases, "sliding", {.scale = 0.3f, .zero_nan_rows = true}, {1, 1, 300, 2, 72}, sliding, {250});
  add_cached(cases, "hidden", {.scale = 0.3f, .zero_nan_rows = true}, {1, 1, 70, 2, 8}, shown(1, 70, -1),
             {3});
  add_cached(cases, "weak", cached, {2, 2, 140, 2, 16}, random_floats({2, 1, 2, 140}, 6), {8, 7});
}

}  // namespace headroom::test
