// How training and test steps get their data: resident on the device, where a whole epoch runs without the
// host, or copied from the host step by step. Both give the same results. Knows no command line.
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

  // Before the steps of an epoch, of which `first` is the next: the images in the order they are seen, at
  // least steps * batch, and the rate of each step.
  virtual void begin_epoch(std::span<const int64_t> order, std::span<const float> rates, int64_t first) = 0;
  // Runs `steps` of the epoch from `first` on and gives what each gave; steps must be run in order. Throws as
  // Session::run does.
  virtual std::vector<StepResult> train(int64_t first, int64_t steps) = 0;
  // The net's answer for each test image. Throws as Session::run does.
  virtual std::vector<int32_t> predict() = 0;
};

// What a feed works with; all of it must outlive the feed.
struct FeedContext {
  const TrainingGraph& net;
  const Dataset &training, &test;
  int64_t batch;
  int64_t loader_depth;  // of training steps with the data on the host
  Variables& variables;
  Session &train_session, &test_session;
};

// The feed for the place that the graph was made for. Copies the data to the device if it belongs there.
std::unique_ptr<Feed> make_feed(DataOn data_on, const FeedContext& context);

}  // namespace headroom
