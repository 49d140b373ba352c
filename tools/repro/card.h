// A card with a strategy on it, and tensors as blocks of memory: the view of PyTorch's allocator. Knows no
// scenario.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "allocators/allocator.h"
#include "tools/repro/scenario.h"

namespace headroom::repro {

class Card {
 public:
  // A tensor of float32, freed when this ends or gets another.
  class Tensor {
   public:
    Tensor() = default;
    Tensor(Allocator& allocator, int64_t bytes)
        : allocator_(&allocator), bytes_(bytes), pointer_(allocator.allocate(bytes)) {}
    Tensor(Tensor&& other) noexcept { swap(other); }
    // The old one is freed after the new one is made, as in an assignment in Python.
    Tensor& operator=(Tensor&& other) noexcept {
      Tensor old(std::move(*this));
      swap(other);
      return *this;
    }
    ~Tensor() {
      if (allocator_ != nullptr) allocator_->deallocate(pointer_, bytes_);
    }

   private:
    void swap(Tensor& other) noexcept {
      std::swap(allocator_, other.allocator_);
      std::swap(bytes_, other.bytes_);
      std::swap(pointer_, other.pointer_);
    }

    Allocator* allocator_ = nullptr;
    int64_t bytes_ = 0;
    void* pointer_ = nullptr;
  };

  // Makes a card of that profile with its context. Throws the exceptions of make_device and make_allocator.
  Card(const Stage& stage, std::string_view profile, const std::string& strategy = "caching");

  // Begins the next step of a loop.
  void begin_step();
  // Throws OutOfMemory.
  Tensor randn(std::initializer_list<int64_t> shape);

  Device& device() { return *device_; }
  Allocator& allocator() { return *allocator_; }
  // Returns the memory of this process as nvidia-smi shows it, and the part of it beyond the context.
  int64_t process_bytes() const { return device_->memory().info().process; }
  int64_t above_context_bytes() const { return process_bytes() - context_bytes_; }

 private:
  std::unique_ptr<Device> device_;
  int64_t context_bytes_ = 0;
  std::unique_ptr<Allocator> allocator_;
  TraceBuilder* recording_;
  int64_t steps_ = 0;
};

// Throws InvalidArgument when there is no visible GPU of that number, when others use it, or when we cannot
// know: a scenario takes the rest of the card, so their next allocation would fail.
void require_unused_card(int ordinal);

}  // namespace headroom::repro
