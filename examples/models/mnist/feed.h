// Feeds training and test steps: from data on the device, so that a whole epoch runs without the host, or
// step by step from the host. Both give the same results. Knows no command line.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "examples/models/mnist/dataset.h"
#include "examples/models/mnist/training_graph.h"
#include "runtime/session/session.h"

namespace headroom {

struct StepResult {
  float loss, accuracy;
};

class Feed {
 public:
  virtual ~Feed() = default;

  // Prepares an epoch that continues at step `first`: the images in training order, at least steps * batch,
  // and the learning rate of each step.
  virtual void begin_epoch(std::span<const int64_t> order, std::span<const float> rates, int64_t first) = 0;
  // Runs `steps` steps from `first` on and returns their results. Steps must run in order. Throws as
  // Session::run does.
  virtual std::vector<StepResult> train(int64_t first, int64_t steps) = 0;
  // The predicted class of each test image. Throws as Session::run does.
  virtual std::vector<int32_t> predict() = 0;
};

// Everything here must outlive the feed.
struct FeedContext {
  const TrainingGraph& net;
  const Dataset &training, &test;
  int64_t batch;
  int64_t loader_depth;  // batches to prefetch with data on the host
  Variables& variables;
  Session &train_session, &test_session;
};

// The feed for the `data_on` of the graph. Copies the data to the device if it belongs there.
std::unique_ptr<Feed> make_feed(DataOn data_on, const FeedContext& context);

}  // namespace headroom
