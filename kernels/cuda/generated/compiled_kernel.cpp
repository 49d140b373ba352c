#include "kernels/cuda/generated/compiled_kernel.h"

#include <fmt/format.h>
#include <nvrtc.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "device/cuda/check.h"
#include "device/cuda/driver.h"
#include "kernels/cuda/generated/cubin_cache.h"
#include "kernels/cuda/generated/device_texts.h"

namespace headroom::cuda {
namespace {

constexpr size_t kMostParameters = 16;  // of a kernel: more than an expression has

// Replaces the headers of the system that device_texts() include.
constexpr DeviceText kSystemTexts[] = {
    {"cmath", ""},
    {"cuda_runtime.h", ""},
    {"cstdint", "using uint8_t = unsigned char; using uint16_t = unsigned short; using uint32_t = unsigned;"},
    {"numbers",
     "#pragma once\nnamespace std::numbers { inline constexpr double sqrt2 = 1.4142135623730951, log2e = "
     "1.4426950408889634,"
     " inv_sqrtpi = 0.5641895835477563; }"},
};

void check(nvrtcResult status, const char* call, const std::string& description = {}) {
  if (status == NVRTC_SUCCESS) return;
  throw DeviceError(call, fmt::format("NVRTC status {}", static_cast<int>(status)),
                    description.empty() ? nvrtcGetErrorString(status) : description, "");
}

class Compilation {
 public:
  explicit Compilation(const std::string& source) {
    std::vector<const char*> names, texts;
    const auto add = [&](const DeviceText& header) {
      names.push_back(header.name);
      texts.push_back(header.text);
    };
    for (const DeviceText& header : kSystemTexts) add(header);
    for (const DeviceText& header : device_texts()) add(header);
    check(nvrtcCreateProgram(&program_, source.c_str(), "kernel.cu", static_cast<int>(names.size()),
                             texts.data(), names.data()),
          "nvrtcCreateProgram");
  }
  ~Compilation() { nvrtcDestroyProgram(&program_); }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  std::string code(int compute_capability) {
    int known = 0;
    check(nvrtcGetNumSupportedArchs(&known), "nvrtcGetNumSupportedArchs");
    std::vector<int> capabilities(static_cast<size_t>(known));
    check(nvrtcGetSupportedArchs(capabilities.data()), "nvrtcGetSupportedArchs");
    int newest = 0;
    for (const int other : capabilities) {
      if (other <= compute_capability) newest = std::max(newest, other);
    }
    const bool is_known = newest == compute_capability;
    const std::string architecture =
        fmt::format("--gpu-architecture={}_{}", is_known ? "sm" : "compute", newest);
    const std::array<const char*, 2> options = {architecture.c_str(), "--std=c++20"};
    const nvrtcResult status = nvrtcCompileProgram(program_, options.size(), options.data());
    if (status != NVRTC_SUCCESS) check(status, "nvrtcCompileProgram", log());
    size_t bytes = 0;
    check(is_known ? nvrtcGetCUBINSize(program_, &bytes) : nvrtcGetPTXSize(program_, &bytes),
          "nvrtcGetCUBINSize");
    std::string code(bytes, '\0');
    check(is_known ? nvrtcGetCUBIN(program_, code.data()) : nvrtcGetPTX(program_, code.data()),
          "nvrtcGetCUBIN");
    return code;
  }

 private:
  std::string log() const {
    size_t bytes = 0;
    nvrtcGetProgramLogSize(program_, &bytes);
    std::string log(bytes, '\0');
    if (bytes > 0) nvrtcGetProgramLog(program_, log.data());
    return log.substr(0, log.find('\n'));
  }

  nvrtcProgram program_ = nullptr;
};

// All that decides what the compiler makes, as 128 bits.
std::string key_of(const std::string& source, int compute_capability) {
  int major = 0, minor = 0;
  check(nvrtcVersion(&major, &minor), "nvrtcVersion");
  std::string all = fmt::format("{} {} {}\n", compute_capability, major, minor) + source;
  for (const DeviceText& header : device_texts()) all += header.text;
  return key_of_text(all);
}

}  // namespace

std::string compile_kernel(const std::string& source, int compute_capability) {
  return Compilation(source).code(compute_capability);
}

std::shared_ptr<const CompiledKernel> CompiledKernel::of(const std::string& source, const CudaGpu& device) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const CompiledKernel>> loaded;
  const int capability = device.compute_capability();
  const std::string key = key_of(source, capability);
  const std::lock_guard lock(mutex);
  std::weak_ptr<const CompiledKernel>& known = loaded[key];
  std::shared_ptr<const CompiledKernel> kernel = known.lock();
  if (kernel) return kernel;
  const std::string folder = cubin_cache_folder();
  std::string cubin = kept_cubin(folder, key);
  if (cubin.empty()) {
    cubin = compile_kernel(source, capability);
    keep_cubin(folder, key, cubin);
  }
  known = kernel = std::make_shared<const CompiledKernel>(cubin);
  return kernel;
}

CompiledKernel::CompiledKernel(const std::string& cubin) {
  const Driver& driver = Driver::instance();
  HR_CHECK(driver.load_library(&library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  const CUresult found = driver.get_kernel(&kernel_, library_, "kernel");
  if (found != CUDA_SUCCESS) driver.unload_library(library_);
  HR_CHECK(found);
}
CompiledKernel::~CompiledKernel() {
  Driver::instance().unload_library(library_);
}

void CompiledKernel::launch(dim3 grid, int threads, std::span<const void*> addresses,
                            cudaStream_t stream) const {
  std::array<void*, kMostParameters> parameters{};
  for (size_t i = 0; i < addresses.size(); ++i) parameters.at(i) = &addresses[i];
  // The driver takes a kernel where it takes a function (CUDA driver API, "Library Management").
  HR_CHECK(Driver::instance().launch_kernel(reinterpret_cast<CUfunction>(kernel_), grid.x, grid.y, grid.z,
                                            static_cast<unsigned>(threads), 1, 1, 0, stream,
                                            parameters.data(), nullptr));
}

}  // namespace headroom::cuda
