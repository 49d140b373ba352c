// Declarations that the parts of the stand-in driver share: the memory of this process. Only for tests.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "guard/driver.h"
#include "guard/standin/cards.h"

namespace headroom::guard {

struct CUctx_st {
  int card;
  size_t limits[3] = {1024, 1 << 20, 8 << 20};
};
// A pool is made of pieces; a block lies within one of them.
struct CUmemPoolHandle_st {
  int card;
  int64_t reserved = 0, used = 0;
  uint64_t threshold = 0;
  std::map<int64_t, int64_t> pieces = {}, idle = {};  // bytes by place
  int64_t end = 0;                                    // the place of the next piece
};
struct CUgraphNode_st {
  int type;
  CUDA_MEM_ALLOC_NODE_PARAMS alloc;
};
struct CUgraph_st {
  std::vector<CUgraphNode> nodes;
};
struct CUgraphExec_st {
  int64_t bytes;
  bool frees;
};

}  // namespace headroom::guard

namespace standin {

using namespace headroom::guard;  // the types of the interface

inline constexpr int64_t kPage = int64_t{2} << 20, kPiece = int64_t{32} << 20;
inline constexpr int64_t kSms = 4, kThreads = 1024;

struct Block {
  int card;
  int64_t bytes;
  CUcontext context;
  CUmemoryPool pool;
  int64_t place = 0;  // in the pool
};
struct Memory {
  int card;
  int64_t bytes;
  int refs;
};

// The state of this process. A child after fork has none of it, as with the real driver.
struct Own {
  std::map<CUdeviceptr, Block> blocks;
  std::map<CUdeviceptr, std::pair<int64_t, Memory*>> mappings;
  std::map<CUmemGenericAllocationHandle, std::pair<Memory*, int>> handles;
  int64_t small[standin::kMaxCards] = {};
  CUctx_st* primary[standin::kMaxCards] = {};
  int primary_refs[standin::kMaxCards] = {};
  CUmemPoolHandle_st* pools[standin::kMaxCards] = {};  // current ones
  CUmemPoolHandle_st defaults[standin::kMaxCards] = {};
  int64_t graph_reserved[standin::kMaxCards] = {}, graph_used[standin::kMaxCards] = {};
  CUdeviceptr next = 0x7f0000000000;
  bool has_lazy = false;
  int pid = getpid();
};

extern Own* own;  // null before cuInit
extern std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;

// True if this is the call that shall fail.
bool fails();
CUresult take(int card, int64_t bytes);
// The current context.
CUresult here(CUcontext* context);
int64_t up(int64_t bytes, int64_t unit);
CUdeviceptr address(int64_t bytes);
CUresult allocate(CUdeviceptr* pointer, int64_t bytes);
CUresult deallocate(CUdeviceptr pointer);
// Frees a block of a pool.
void give_back(const Block& block);
// Gives back pieces that a pool keeps beyond `keep`.
void trim(CUmemPoolHandle_st& pool, int64_t keep);

}  // namespace standin
