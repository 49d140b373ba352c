#include "examples/models/mnist/step_options.h"

#include "examples/models/mnist/train_settings.h"
#include "runtime/graph/optimizer.h"

namespace headroom {

void add_step_options(OptionSet& set, StepOptions& options) {
  set.add_integer("batch", "Images in one step", &options.batch, 1);
  set.add_choice("optimizer", "Rule that changes the weights", &options.optimizer,
                 {optimizer_names().begin(), optimizer_names().end()});
  set.add_choice("kernels", "Fuse convolutions with bias, relu and pooling, or call one kernel per op",
                 &options.kernels, {"fused", "library"});
  set.add_choice("math", "How a GPU rounds what it multiplies; sums are f32", &options.math,
                 {math_names().begin(), math_names().end()});
  set.add_choice("data-on", "Keep MNIST's images on the device, or copy each step's from the host",
                 &options.data_on, {"device", "host"});
  set.add_integer(
      "loader-depth",
      "Batches that a thread prefetches with --data-on host, 2 or more; 0: each step copies its own",
      &options.loader_depth, 0, 1024);
  set.add_integer("steps", "Steps of each epoch; 0: all of the data", &options.steps, 0);
}

}  // namespace headroom
