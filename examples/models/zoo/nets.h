// The nets of the zoo, see zoo.h. They know nothing of each other.
#pragma once

#include "examples/models/zoo/zoo.h"

namespace headroom {

void build_mlp(ZooStep& step, const ZooSettings& settings);
void build_lenet(ZooStep& step, const ZooSettings& settings);
void build_residual(ZooStep& step, const ZooSettings& settings);
void build_unet(ZooStep& step, const ZooSettings& settings);
void build_attention(ZooStep& step, const ZooSettings& settings);

}  // namespace headroom
