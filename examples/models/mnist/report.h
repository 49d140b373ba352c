// What a person reads after training: verdict, figures, what to do next. Knows no training.
#pragma once

#include <string>

#include "examples/models/mnist/trainer.h"

namespace headroom {

// Figures, the confusion matrix after success, the lines that led to a failure.
std::string describe(const TrainResult& result);

// One line: the next useful command, or the setting to change. Never names a setting that is already on.
std::string advice(const TrainResult& result, const Runtime& runtime);

// Training and test images: MNIST from `folder`, or drawn digits when it is empty.
struct TrainingData {
  Dataset training, test;
  std::string origin;  // "12000 drawn digits", "60000 images of data/mnist"
};
inline constexpr int64_t kDrawnTraining = 12000, kDrawnTest = 2000;  // 97 % and more in one epoch of seconds
TrainingData load_or_draw(const std::string& folder, uint64_t seed);

}  // namespace headroom
