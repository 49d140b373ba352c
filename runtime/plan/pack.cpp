#include "allocators/pack.h"

#include <vector>

#include "runtime/plan/plan.h"

namespace headroom {

int64_t pack(std::span<Buffer> buffers) {
  std::vector<PlannedBlock> blocks;
  for (const Buffer& buffer : buffers) blocks.push_back({buffer.bytes, buffer.first_step, buffer.end_step});
  const int64_t height = pack(blocks);
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].offset_bytes = blocks[i].offset_bytes;
  return height;
}

}  // namespace headroom
