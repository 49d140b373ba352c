// C and D5: PyTorch's allocator with a few tensors on a card of 6 GB. Every run has a new one.

#include <fmt/format.h>

#include <deque>
#include <memory>

#include "allocators/strategies/caching_rules.h"
#include "answers/lower.h"
#include "answers/play.h"
#include "base/bytes.h"
#include "base/edge.h"
#include "base/errors.h"
#include "examples/models/mnist/training_graph.h"
#include "runtime/session/session.h"
#include "tools/repro/card.h"
#include "tools/repro/runs.h"

namespace headroom::repro {
namespace {

void note_memory(Measured& measured, const Card& card) {
  measured.add("process_bytes", card.process_bytes());
  measured.add("above_context_bytes", card.above_context_bytes());
}

Measured memory_of(const Card& card) {
  Measured measured;
  note_memory(measured, card);
  return measured;
}

// Formats the failure in PyTorch's words, in which it was reported: the size is that of the segment requested
// from the driver.
std::string torch_message(const MemoryFacts& facts) {
  return fmt::format(
      "CUDA out of memory. Tried to allocate {} (GPU 0; {} total capacity; {} already allocated; {} free; {} "
      "reserved in total by PyTorch)",
      format_bytes(CachingRules{}.segment_bytes(facts.requested)), format_bytes(facts.device_total),
      format_bytes(facts.allocated), format_bytes(facts.device_free), format_bytes(facts.reserved));
}

void note_failure(Measured& measured, const OutOfMemory& error, size_t kept) {
  measured.add("outcome", "out_of_memory");
  measured.add("tensors_kept", static_cast<int64_t>(kept));
  measured.add("message", torch_message(error.facts()));
  measured.lines = {torch_message(error.facts()), error.what()};
}

Card::Tensor large(Card& card) {
  return card.randn({200, 300, 200, 20});
}

// "Code B": the name is given another tensor six times.
Measured reassign(const Stage& stage) {
  Card card(stage, kSixGb);
  Card::Tensor x;
  for (int i = 0; i < 6; ++i) x = large(card);
  Measured measured;
  measured.add("outcome", "ok");
  note_memory(measured, card);
  return measured;
}

// One step of the conv net as its plan asks for memory: its peak in the pool without a limit.
class NetInPool {
 public:
  NetInPool(const Stage& stage, bool no_grad) : options_(stage.card(kSixGb)), no_grad_(no_grad) {}

  Prediction play(int64_t batch, const char* strategy) const {
    TrainSettings settings;
    settings.batch = batch;
    settings.data_on = DataOn::kHost;
    settings.fused = false;
    const auto net = std::make_shared<TrainingGraph>(settings, TrainingSizes{batch, batch, 1});
    const Program program{{net, &net->graph}, {no_grad_ ? net->test_targets() : net->training_targets()}};
    RuntimeOptions options = options_;
    options.strategy = strategy;
    return headroom::play(lower(planned({program}, PlanMode::kDynamic), options), setup_of(options));
  }
  int64_t allocated_bytes(int64_t batch) const {
    return play(batch, "caching").front().statistics.allocated.peak;
  }
  int64_t largest_batch() const {
    constexpr int64_t kMost = 1 << 14;
    SearchWork work;
    EdgeSearch search(work, [&](int64_t batch) { return EdgeTrial{.fits = play(batch, kPool).fits}; });
    return search.between(1, kMost).fitting;
  }

  static constexpr const char* kPool = "caching=64MiB";

 private:
  const RuntimeOptions options_;
  const bool no_grad_;
};

// Runs that step: training the net, or (no_grad) evaluating it.
std::string try_net(const Stage& stage, int64_t batch, bool no_grad) {
  Card card(stage, kSixGb, NetInPool::kPool);
  TrainSettings settings;
  settings.batch = batch;
  settings.data_on = DataOn::kHost;
  settings.fused = false;
  const TrainingGraph net(settings, {batch, batch, 1});
  try {
    Variables variables(net.graph, card.device(), card.allocator());
    Session session(net.graph, no_grad ? net.test_targets() : net.training_targets(), PlanMode::kDynamic,
                    variables);
    session.run();  // images are black: their content changes no size
    return "ok";
  } catch (const OutOfMemory&) {
    return "out_of_memory";
  }
}

// Tries if another library or process finds room for a large piece of the card beside the cache.
std::string try_beside(Card& card) {
  constexpr int64_t kBytes = 4 * kGiB;
  void* block = card.device().memory().try_allocate(kBytes);
  if (block == nullptr) return "out_of_memory";
  card.device().memory().release(block, kBytes);
  return "ok";
}

}  // namespace

Measured run_c1(const Stage& stage) {
  Card card(stage, kSixGb);
  const Card::Tensor x = card.randn({1});
  return memory_of(card);
}

Measured run_c2(const Stage& stage) {
  Card card(stage, kSixGb);
  const Card::Tensor x = large(card);
  return memory_of(card);
}

Measured run_c3(const Stage& stage) {
  Card card(stage, kSixGb);
  Card::Tensor x = large(card);
  x = card.randn({200, 300});
  if (stage.fixed) card.allocator().trim();
  Measured measured;
  note_memory(measured, card);
  measured.add("allocated_bytes", card.allocator().statistics().allocated.current);
  return measured;
}

Measured run_c4(const Stage& stage) {
  Card card(stage, kSixGb);
  Card::Tensor x = large(card);
  if (stage.fixed) {
    x = {};
    card.allocator().trim();
  }
  x = card.randn({300, 300, 300, 20});
  return memory_of(card);
}

Measured run_c5(const Stage& stage) {
  if (stage.fixed) return reassign(stage);
  Card card(stage, kSixGb);
  std::vector<Card::Tensor> kept;
  Measured measured;
  try {
    for (int i = 0; i < 6; ++i) kept.push_back(large(card));
    measured.add("outcome", "ok");
  } catch (const OutOfMemory& error) {
    note_failure(measured, error, kept.size());
  }
  return measured;
}

Measured run_c6(const Stage& stage) {
  return reassign(stage);
}

Measured run_c7(const Stage& stage) {
  Card card(stage, kSixGb);
  { const Card::Tensor x = large(card), y = card.randn({300, 300, 300, 20}); }
  Measured measured;
  measured.add("after_dropping_two_bytes", card.process_bytes());
  card.allocator().trim();
  note_memory(measured, card);
  Card::Tensor x;
  for (int i = 0; i < 6; ++i) x = large(card);
  measured.add("after_six_in_turn_bytes", card.process_bytes());
  x = card.randn({200, 300});
  card.allocator().trim();
  measured.add("a_small_tensor_left_bytes", card.process_bytes());
  measured.add("above_context_with_it_bytes", card.above_context_bytes());
  return measured;
}

Measured run_c8(const Stage& stage) {
  constexpr size_t kKept = 2, kSteps = 100;
  Card card(stage, kSixGb);
  std::deque<Card::Tensor> losses;
  Measured measured;
  try {
    for (size_t step = 0; step < kSteps; ++step) {
      card.begin_step();
      losses.push_back(card.randn({100, 512, 512}));
      if (stage.fixed && losses.size() > kKept) losses.pop_front();
    }
    measured.add("outcome", "ok");
    note_memory(measured, card);
  } catch (const OutOfMemory& error) {
    note_failure(measured, error, losses.size());
  }
  return measured;
}

Measured run_c9(const Stage& stage) {
  constexpr int64_t kBatch = 256;
  const NetInPool training(stage, false);
  Measured measured;
  Card card(stage, kSixGb);
  { const Card::Tensor x = large(card); }
  if (!stage.fixed) {
    measured.add("training", try_net(stage, kBatch, false));
    measured.add("beside_the_cache", try_beside(card));
    measured.add("training_allocates_bytes", training.allocated_bytes(kBatch));
    measured.add("largest_batch_of_training", training.largest_batch());
    measured.add("beside_the_cache_are_free_bytes", card.device().memory().info().free);
    return measured;
  }
  const NetInPool evaluation(stage, true);
  measured.add("half_the_batch", try_net(stage, kBatch / 2, false));
  measured.add("evaluation_without_gradients", try_net(stage, kBatch, true));
  measured.add("references_dropped", *reassign(stage).find("outcome"));
  card.allocator().trim();
  measured.add("beside_the_cache_emptied", try_beside(card));
  measured.add("half_the_batch_allocates_bytes", training.allocated_bytes(kBatch / 2));
  measured.add("evaluation_allocates_bytes", evaluation.allocated_bytes(kBatch));
  measured.add("largest_batch_of_training", training.largest_batch());
  measured.add("largest_batch_of_evaluation", evaluation.largest_batch());
  measured.add("emptied_are_free_bytes", card.device().memory().info().free);
  return measured;
}

Measured run_c10(const Stage& stage) {
  Card card(stage, kSixGb);
  Measured measured;
  const auto idle = [&] {
    return card.above_context_bytes() - card.allocator().statistics().allocated.current;
  };
  { const Card::Tensor x = large(card); }
  measured.add("idle_bytes", idle());
  measured.add("first_call_gives_back_bytes", card.allocator().trim());
  measured.add("second_call_gives_back_bytes", card.allocator().trim());
  Card::Tensor x = card.randn({3, 512, 512});
  const Card::Tensor y = card.randn({8, 512, 512});  // in the same segment of 20 MiB
  x = {};
  measured.add("idle_beside_a_live_tensor_bytes", idle());
  measured.add("any_call_gives_back_bytes", card.allocator().trim());
  return measured;
}

Measured run_c11(const Stage& stage) {
  Card card(stage, kSixGb, stage.fixed ? "caching:gc=0.6+limit=3000MiB" : "caching=3000MiB");
  { const Card::Tensor x = large(card), z = large(card); }
  const Card::Tensor y = card.randn({1100, 512, 512});
  const Statistics statistics = card.allocator().statistics();
  Measured measured;
  measured.add("idle_bytes", statistics.reserved.current - statistics.allocated.current);
  measured.add("above_context_bytes", card.above_context_bytes());
  return measured;
}

Measured run_d5(const Stage& stage) {
  Card card(stage, kSixGb);
  Allocator& allocator = card.allocator();
  Measured measured;
  {
    const Card::Tensor x = card.randn({200, 300, 200, 20});
    measured.add("memory_allocated_bytes", allocator.statistics().allocated.current);
    measured.add("memory_reserved_bytes", allocator.statistics().reserved.current);
  }
  measured.add("allocated_after_del_bytes", allocator.statistics().allocated.current);
  measured.add("reserved_after_del_bytes", allocator.statistics().reserved.current);
  allocator.trim();
  measured.add("reserved_after_empty_cache_bytes", allocator.statistics().reserved.current);
  measured.add("max_memory_allocated_bytes", allocator.statistics().allocated.peak);
  measured.add("max_memory_reserved_bytes", allocator.statistics().reserved.peak);
  return measured;
}

}  // namespace headroom::repro
