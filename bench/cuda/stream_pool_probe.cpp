// How the driver's stream-ordered pool (cudaMallocAsync) places blocks: addresses and reserved bytes after
// each call of short experiments, and of whole traces, so that the simulated pool can do the same.
//
//   stream_pool_probe FOLDER [TRACE...]
//
// Prints the experiments. Writes FOLDER/NAME.csv for each trace: a line of op, bytes, offset of the block
// from the first one, reserved bytes and used bytes per event.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "runtime/app/run_main.h"
#include "trace/read_trace.h"

namespace headroom {
namespace {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  fmt::print(stderr, "{}: {}\n", call, cudaGetErrorString(status));
  std::exit(1);
}

// A pool of its own that keeps all that it got.
class Pool {
 public:
  explicit Pool(bool keeps = true) {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, 0};
    check(cudaMemPoolCreate(&pool_, &properties), "cudaMemPoolCreate");
    uint64_t threshold = keeps ? std::numeric_limits<uint64_t>::max() : 0;
    check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold), "threshold");
  }
  ~Pool() {
    cudaDeviceSynchronize();
    cudaMemPoolDestroy(pool_);
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  char* allocate(int64_t bytes, cudaStream_t stream = nullptr) {
    void* pointer = nullptr;
    check(cudaMallocFromPoolAsync(&pointer, static_cast<size_t>(bytes), pool_, stream), "cudaMallocAsync");
    if (base_ == nullptr) base_ = static_cast<char*>(pointer);
    return static_cast<char*>(pointer);
  }
  void free(void* pointer, cudaStream_t stream = nullptr) { check(cudaFreeAsync(pointer, stream), "free"); }
  int64_t attribute(cudaMemPoolAttr which) const {
    uint64_t bytes = 0;
    check(cudaMemPoolGetAttribute(pool_, which, &bytes), "cudaMemPoolGetAttribute");
    return static_cast<int64_t>(bytes);
  }
  int64_t reserved() const { return attribute(cudaMemPoolAttrReservedMemCurrent); }
  int64_t used() const { return attribute(cudaMemPoolAttrUsedMemCurrent); }
  int64_t offset(const char* pointer) const { return pointer - base_; }

 private:
  cudaMemPool_t pool_ = nullptr;
  char* base_ = nullptr;
};

// "a8 a8 f0 s a4": allocations in units, frees by number of the allocation, s waits for the device.
void play(std::string_view title, std::string_view script, int64_t unit) {
  Pool pool;
  std::vector<char*> blocks;
  fmt::print("\n{}: {}, unit {}\n", title, script, unit);
  for (size_t at = 0; at < script.size();) {
    const size_t end = std::min(script.find(' ', at), script.size());
    const std::string step(script.substr(at, end - at));
    at = end + 1;
    const int64_t number = step.size() > 1 ? std::strtoll(step.c_str() + 1, nullptr, 10) : 0;
    std::string where;
    if (step[0] == 'a') {
      blocks.push_back(pool.allocate(number * unit));
      where = fmt::format("at {}", pool.offset(blocks.back()));
    } else if (step[0] == 'f') {
      pool.free(blocks[static_cast<size_t>(number)]);
      blocks[static_cast<size_t>(number)] = nullptr;
    } else {
      check(cudaDeviceSynchronize(), "synchronise");
    }
    fmt::print("  {:<6} {:<16} reserved {:>14} used {:>14}\n", step, where, pool.reserved(), pool.used());
  }
  for (char* block : blocks) {
    if (block != nullptr) pool.free(block);
  }
}

void print_sizes() {
  fmt::print("one block in a fresh pool, then a second of the same size\n");
  for (const int64_t bytes :
       {int64_t{1},   int64_t{512}, int64_t{513}, 100 * kKiB,  kMiB,       2 * kMiB,
        2 * kMiB + 1, 10 * kMiB,    16 * kMiB,    31 * kMiB,   32 * kMiB,  32 * kMiB + 1,
        33 * kMiB,    48 * kMiB,    63 * kMiB,    64 * kMiB,   65 * kMiB,  100 * kMiB,
        129 * kMiB,   500 * kMiB,   1000 * kMiB,  1025 * kMiB, 3000 * kMiB}) {
    Pool pool;
    char* first = pool.allocate(bytes);
    const int64_t reserved = pool.reserved(), used = pool.used();
    char* second = pool.allocate(bytes);
    fmt::print("  {:>12}: reserved {:>12} used {:>12}; second at {:>14} reserved {:>12} used {:>12}\n", bytes,
               reserved, used, pool.offset(second), pool.reserved(), pool.used());
    pool.free(first);
    pool.free(second);
  }
}

void play_trace(const std::string& folder, const std::string& path) {
  const Trace trace = read_traces(path).front();
  Pool pool;
  std::vector<char*> blocks(static_cast<size_t>(trace.blocks));
  const std::string name = std::filesystem::path(path).stem().stem().string();
  std::ofstream out(folder + "/" + name + ".csv");
  out << "op,bytes,offset,reserved,used\n";
  for (int pass = 0; pass < 2; ++pass) {
    for (const TraceEvent& event : trace.events) {
      char*& block = blocks[static_cast<size_t>(event.block)];
      if (event.allocates) {
        block = pool.allocate(event.bytes);
        out << fmt::format("a,{},{},{},{}\n", event.bytes, pool.offset(block), pool.reserved(), pool.used());
      } else {
        out << fmt::format("f,{},{},{},{}\n", event.bytes, pool.offset(block), pool.reserved(), pool.used());
        pool.free(block);
        block = nullptr;
      }
    }
    for (char*& block : blocks) {
      if (block != nullptr) pool.free(block);
      block = nullptr;
    }
    const int64_t high = pool.attribute(cudaMemPoolAttrReservedMemHigh);
    fmt::print("{} pass {}: reserved peak {}, {:.4f} of the largest live set\n", name, pass + 1, high,
               static_cast<double>(high) / static_cast<double>(trace.peak_bytes));
    out << fmt::format("p,{},0,{},{}\n", pass + 1, pool.reserved(), pool.used());
  }
}

int run(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: stream_pool_probe FOLDER [TRACE...]\n");
    return 2;
  }
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  fmt::print("{}, driver for CUDA {}\n", properties.name, driver);
  print_sizes();
  play("places of small blocks", "a1 a1 a1 a1 f1 a1 f2 f0 a2 a1 a1", kMiB);
  play("a hole is reused", "a8 a8 a8 a8 f1 a4 a4 a2", kMiB);
  play("a larger hole or a smaller one", "a4 a12 a4 a6 a4 f1 f3 a5 a5", kMiB);
  play("neighbours merge", "a8 a8 a8 a8 f1 f2 a16", kMiB);
  play("neighbours merge after a wait", "a8 a8 a8 a8 f1 f2 s a16", kMiB);
  play("two free chunks for one large block", "a32 a32 f0 f1 a64", kMiB);
  play("two free chunks for one large block, after a wait", "a32 a32 f0 f1 s a64", kMiB);
  play("free chunks that are not neighbours", "a32 a32 a32 a32 f0 f2 a64", kMiB);
  play("the same after a wait", "a32 a32 a32 a32 f0 f2 s a64", kMiB);
  play("holes that are not neighbours", "a20 a20 a20 a20 a20 a20 f0 f2 f4 s a60", kMiB);
  play("a smaller block in a large free one", "a512 f0 a100 a100 a100 a100 a100 a100", kMiB);
  play("growth beside a free chunk", "a100 f0 a120 a90 a40", kMiB);
  play("growth beside a free chunk, after a wait", "a100 f0 s a120 a90 a40", kMiB);
  play("a block that grows", "a100 f0 a101 f1 a102 f2 a103 f3 a140 f4 a200 f5 a300", kMiB);
  play("a block that grows, with a wait each time", "a100 f0 s a101 f1 s a102 f2 s a140 f3 s a200 f4 s a300",
       kMiB);
  play("tails of chunks", "a20 a20 a20 a10 a10 a10 a12", kMiB);
  play("tails of larger chunks", "a40 a40 a20 a20 a20 a20", kMiB);
  play("small blocks among large ones", "a1 a31 a1 a31 a1 a63 a1 f1 f3 a32 a30 a33", kMiB);
  play("bytes", "a1 a511 a512 a513 a1000 a4096 a1 f2 a300 f4 a513", 1);
  for (int i = 2; i < argc; ++i) play_trace(argv[1], argv[i]);
  return 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  return headroom::run_main("stream_pool_probe", headroom::run, argc, argv);
}
