#include "collective/staged_collective.h"

#include <algorithm>

#include "base/half.h"
#include "base/shard.h"

namespace headroom {
namespace {

constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

}  // namespace

std::span<float> StagedCollective::staging(int64_t elements) {
  const int64_t bytes = elements * kFloatBytes;
  if (!staging_ || static_cast<int64_t>(staging_->size()) < bytes) staging_.emplace(device_.memory(), bytes);
  return {reinterpret_cast<float*>(staging_->data()), static_cast<size_t>(elements)};
}

void StagedCollective::all_reduce_sum(std::span<const Term> terms, Stream stream) {
  int64_t elements = 0;
  for (const Term& term : terms) elements += term.elements;
  const std::span<float> sums = staging(elements);
  device_.streams().synchronize(stream);
  DeviceMemory& memory = device_.memory();
  const auto for_terms = [&](const auto& copy) {
    float* at = sums.data();
    for (const Term& term : terms) {
      if (term.elements > 0) copy(term, std::span(at, static_cast<size_t>(term.elements)));
      at += term.elements;
    }
  };
  for_terms([&](const Term& term, std::span<float> own) {
    if (term.dtype == DType::kF32) return memory.copy_to_host(own.data(), term.input, term.bytes());
    halves_.resize(own.size());
    memory.copy_to_host(halves_.data(), term.input, term.bytes());
    std::transform(halves_.begin(), halves_.end(), own.begin(), float_of_bf16);
  });
  host_.all_reduce_sum(sums);
  for_terms([&](const Term& term, std::span<float> own) {
    if (term.dtype == DType::kF32) return memory.copy_to_device(term.output, own.data(), term.bytes());
    halves_.resize(own.size());
    std::transform(own.begin(), own.end(), halves_.begin(), bf16_of);
    memory.copy_to_device(term.output, halves_.data(), term.bytes());
  });
}

void StagedCollective::all_gather(std::span<const std::span<float>> tensors, Stream stream) {
  const int ranks = size();
  const auto shard_of = [&](int owner, std::span<float> tensor) {
    const Shard shard{owner, ranks};
    return tensor.subspan(static_cast<size_t>(shard.begin(std::ssize(tensor))),
                          static_cast<size_t>(shard.size(std::ssize(tensor))));
  };
  device_.streams().synchronize(stream);
  for (int owner = 0; owner < ranks; ++owner) {
    int64_t elements = 0;
    for (const std::span<float> tensor : tensors) elements += std::ssize(shard_of(owner, tensor));
    if (elements == 0) continue;  // on every rank
    const std::span<float> shards = staging(elements);
    const auto for_shards = [&](const auto& copy) {
      float* at = shards.data();
      for (const std::span<float> tensor : tensors) {
        const std::span<float> shard = shard_of(owner, tensor);
        if (!shard.empty()) copy(shard.data(), at, static_cast<int64_t>(shard.size_bytes()));
        at += shard.size();
      }
    };
    if (owner == rank()) {
      for_shards([&](float* device, float* host, int64_t bytes) {
        device_.memory().copy_to_host(host, device, bytes);
      });
    }
    host_.broadcast(std::as_writable_bytes(shards), owner);
    if (owner != rank()) {
      for_shards([&](float* device, float* host, int64_t bytes) {
        device_.memory().copy_to_device(device, host, bytes);
      });
    }
  }
}

}  // namespace headroom
