#include "examples/models/mnist/feed.h"

#include <cstring>
#include <numeric>
#include <optional>

#include "runtime/session/loader.h"

namespace headroom {
namespace {

// Copies image `index` of the data to row `row` of the batch.
void copy_image(const Dataset& data, int64_t index, std::span<uint8_t> images, int64_t row) {
  std::memcpy(images.data() + row * Dataset::kImageBytes, data.images.data() + index * Dataset::kImageBytes,
              Dataset::kImageBytes);
}

template <typename T>
std::vector<T> read(const FeedContext& context, const Value& variable) {
  const std::vector<std::byte> bytes = context.variables.read(variable);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Reads the results that the steps left in variables.
std::vector<StepResult> results_of(const FeedContext& context, int64_t first, int64_t steps) {
  const auto losses = read<float>(context, context.net.losses);
  const auto accuracies = read<float>(context, context.net.accuracies);
  std::vector<StepResult> results;
  for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(first + steps); ++i)
    results.push_back({losses[i], accuracies[i]});
  return results;
}

class HostFeed final : public Feed {
 public:
  explicit HostFeed(const FeedContext& context) : c_(context) {
    if (c_.loader_depth == 0) return;
    loader_.emplace(
        c_.train_session,
        [this](int64_t step, const Loader::Batch& batch) {
          fill(step, batch.input<uint8_t>(c_.net.images), batch.input<int32_t>(c_.net.labels),
               batch.input<float>(c_.net.learning_rate));
        },
        c_.loader_depth);
  }

  void begin_epoch(std::span<const int64_t> order, std::span<const float> rates, int64_t first) override {
    if (loader_) loader_->stop();  // its thread reads order_ and rates_
    order_.assign(order.begin(), order.end());
    rates_.assign(rates.begin(), rates.end());
    if (loader_) loader_->begin(first, static_cast<int64_t>(rates_.size()));
  }

  std::vector<StepResult> train(int64_t first, int64_t steps) override {
    if (loader_) {
      loader_->run(steps);
    } else {
      Session& session = c_.train_session;
      for (int64_t step = first; step < first + steps; ++step) {
        fill(step, session.input<uint8_t>(c_.net.images), session.input<int32_t>(c_.net.labels),
             session.input<float>(c_.net.learning_rate));
        session.run();
      }
    }
    return results_of(c_, first, steps);
  }

  // The last batch is padded with image 0, whose prediction is dropped.
  std::vector<int32_t> predict() override {
    Session& session = c_.test_session;
    const std::span<uint8_t> images = session.input<uint8_t>(c_.net.images);
    std::vector<int32_t> predictions;
    for (int64_t first = 0; first < c_.test.count; first += c_.batch) {
      for (int64_t row = 0; row < c_.batch; ++row)
        copy_image(c_.test, first + row < c_.test.count ? first + row : 0, images, row);
      session.run();
      const std::span<const int32_t> batch = session.output<int32_t>(c_.net.predictions);
      predictions.insert(predictions.end(), batch.begin(), batch.end());
    }
    predictions.resize(static_cast<size_t>(c_.test.count));
    return predictions;
  }

 private:
  void fill(int64_t step, std::span<uint8_t> images, std::span<int32_t> labels, std::span<float> rate) const {
    for (int64_t row = 0; row < c_.batch; ++row) {
      const int64_t index = order_[static_cast<size_t>(step * c_.batch + row)];
      copy_image(c_.training, index, images, row);
      labels[static_cast<size_t>(row)] = c_.training.labels[static_cast<size_t>(index)];
    }
    rate[0] = rates_[static_cast<size_t>(step)];
  }

  const FeedContext c_;
  std::vector<int64_t> order_;
  std::vector<float> rates_;
  std::optional<Loader> loader_;  // last member, destroyed first: its thread reads the others
};

class ResidentFeed final : public Feed {
 public:
  explicit ResidentFeed(const FeedContext& context) : c_(context) {
    const TrainingGraph& net = c_.net;
    write<uint8_t>(net.training.images, c_.training.images);
    write<int32_t>(net.training.labels, {c_.training.labels.begin(), c_.training.labels.end()});
    write<uint8_t>(net.test.images, c_.test.images);
    // The last batch is padded with image 0, whose prediction is dropped.
    std::vector<int32_t> order(static_cast<size_t>(net.test.order.shape().elements()));
    std::iota(order.begin(), order.begin() + c_.test.count, 0);
    write<int32_t>(net.test.order, order);
  }

  // The device counts the steps.
  void begin_epoch(std::span<const int64_t> order, std::span<const float> rates, int64_t) override {
    const auto used = static_cast<size_t>(c_.net.training.order.shape().elements());
    write<int32_t>(c_.net.training.order, {order.begin(), order.begin() + static_cast<long>(used)});
    write<float>(c_.net.rates, {rates.begin(), rates.end()});
  }

  std::vector<StepResult> train(int64_t first, int64_t steps) override {
    c_.train_session.run(steps);
    return results_of(c_, first, steps);
  }

  std::vector<int32_t> predict() override {
    c_.test_session.run(c_.net.all_predictions.shape()[0]);
    std::vector<int32_t> predictions = read<int32_t>(c_, c_.net.all_predictions);
    predictions.resize(static_cast<size_t>(c_.test.count));
    return predictions;
  }

 private:
  template <typename T>
  void write(const Value& variable, const std::vector<T>& values) {
    c_.variables.write(variable, std::as_bytes(std::span(values)));
  }
  const FeedContext c_;
};

}  // namespace

std::unique_ptr<Feed> make_feed(DataOn data_on, const FeedContext& context) {
  if (data_on == DataOn::kDevice) return std::make_unique<ResidentFeed>(context);
  return std::make_unique<HostFeed>(context);
}

}  // namespace headroom
