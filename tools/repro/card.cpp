#include "tools/repro/card.h"

#include "allocators/strategies/strategy_text.h"

namespace headroom::repro {

Card::Card(const Stage& stage, std::string_view profile, const std::string& strategy)
    : device_(make_device(stage.card(profile))) {
  device_->initialise();
  context_bytes_ = process_bytes();
  allocator_ = make_allocator(parse_strategy(strategy), *device_);
}

Card::Tensor Card::randn(std::initializer_list<int64_t> shape) {
  int64_t bytes = sizeof(float);
  for (const int64_t extent : shape) bytes *= extent;
  return {*allocator_, bytes};
}

}  // namespace headroom::repro
