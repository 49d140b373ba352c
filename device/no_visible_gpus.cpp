// visible_gpus in a build without the CUDA toolkit.
#include "base/errors.h"
#include "device/gpus.h"

namespace headroom {

std::vector<std::string> visible_gpus() {
  throw InvalidArgument("this build has no CUDA: it was made without the CUDA toolkit 12.4 and cuDNN 9");
}

}  // namespace headroom
