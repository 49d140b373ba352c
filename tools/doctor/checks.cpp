#include "tools/doctor/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace headroom::doctor {
namespace {

std::string cuda_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

const LibraryFile* find(const Facts& facts, std::string_view name) {
  const auto at =
      std::ranges::find_if(facts.libraries, [&](const LibraryFile& library) { return library.name == name; });
  return at == facts.libraries.end() ? nullptr : &*at;
}

Finding gpu(const Facts& facts) {
  if (facts.gpus.gpus.empty()) {
    return {"GPU", Level::kNote, "none found; simulated GPUs work without one", "headroom devices"};
  }
  return {"GPU", Level::kOk, fmt::format("{}, the first {}", facts.gpus.gpus.size(), facts.gpus.gpus[0].name),
          ""};
}

Finding driver(const Facts& facts) {
  const LibraryFile* library = find(facts, "libcuda");
  const std::string user_part = library == nullptr ? "" : library->version;
  if (facts.kernel_driver.empty()) {
    const bool any_gpu = !facts.gpus.gpus.empty();
    return {"driver", any_gpu || user_part.empty() ? Level::kNote : Level::kProblem,
            user_part.empty()
                ? "no NVIDIA driver is installed"
                : fmt::format("libcuda {} is installed, but the kernel module is not visible", user_part),
            user_part.empty() || any_gpu
                ? ""
                : "load the driver's module (modprobe nvidia), or start the container with GPUs"};
  }
  // nvidia-smi's "Driver/library version mismatch": after an update without a restart.
  if (user_part.find('.') != user_part.npos && user_part != facts.kernel_driver) {
    return {"driver", Level::kProblem,
            fmt::format("the kernel runs {}, libcuda is {}", facts.kernel_driver, user_part),
            "restart the machine, or load the new module (rmmod nvidia; modprobe nvidia)"};
  }
  return {"driver", Level::kOk, facts.kernel_driver, ""};
}

// Within a major version an older driver runs a newer toolkit's programs (NVIDIA's minor version
// compatibility), but cannot compile its PTX.
Finding toolkit(const Facts& facts) {
  if (!facts.runtime_cuda) return {"driver and toolkit", Level::kNote, "no CUDA runtime library found", ""};
  if (!facts.driver_cuda) {
    return {"driver and toolkit", Level::kNote,
            fmt::format("CUDA runtime {}, no driver to compare with", cuda_text(*facts.runtime_cuda)), ""};
  }
  const std::string both = fmt::format("the driver runs CUDA up to {}, the runtime is {}",
                                       cuda_text(*facts.driver_cuda), cuda_text(*facts.runtime_cuda));
  if (*facts.driver_cuda >= *facts.runtime_cuda) return {"driver and toolkit", Level::kOk, both, ""};
  if (*facts.driver_cuda / 1000 == *facts.runtime_cuda / 1000) {
    return {"driver and toolkit", Level::kNote, both + ": programs run, but kernels that are only PTX do not",
            "update the driver if a program says 'unsupported PTX'"};
  }
  return {"driver and toolkit", Level::kProblem, both + ": none of its programs will run",
          fmt::format("update the driver, or use builds for CUDA {}", cuda_text(*facts.driver_cuda))};
}

Finding copies(const Facts& facts) {
  const std::vector<std::string> twice = duplicates(facts.libraries);
  if (twice.empty()) {
    return {"copies", Level::kOk,
            facts.libraries.empty() ? "no library of CUDA is loaded" : "each library is loaded once", ""};
  }
  std::vector<std::string> paths;
  for (const LibraryFile& library : facts.libraries) {
    if (library.name == twice[0]) paths.push_back(library.path);
  }
  return {"copies", Level::kProblem,
          fmt::format("{} loaded more than once; {}", fmt::join(twice, ", "), fmt::join(paths, " and ")),
          "remove one of the folders from LD_LIBRARY_PATH and LD_PRELOAD"};
}

std::string major_of(const std::string& version) {
  return version.substr(0, version.find('.'));
}

Finding pairs(const Facts& facts) {
  const LibraryFile* blas = find(facts, "libcublas");
  const LibraryFile* lt = find(facts, "libcublasLt");
  if (blas != nullptr && lt != nullptr && major_of(blas->version) != major_of(lt->version)) {
    return {"matching parts", Level::kProblem,
            fmt::format("libcublas {} with libcublasLt {}", blas->version, lt->version),
            fmt::format("put the folder of {} first in LD_LIBRARY_PATH", blas->path)};
  }
  return {"matching parts", Level::kOk, "libcublas and libcublasLt have one major version, or one is missing",
          ""};
}

Finding visible(const Facts& facts) {
  const std::string set = facts.visible_devices
                              ? fmt::format("CUDA_VISIBLE_DEVICES='{}'", *facts.visible_devices)
                              : "CUDA_VISIBLE_DEVICES is not set";
  if (facts.gpus.gpus.empty()) return {"visible devices", Level::kOk, set, ""};
  std::vector<std::string> order;
  for (const PhysicalGpu& one : facts.gpus.gpus) {
    if (one.ordinal) order.push_back(fmt::format("cuda:{} is GPU {}", *one.ordinal, one.index));
  }
  if (order.empty()) {
    return {"visible devices", Level::kProblem,
            fmt::format("{}: CUDA shows no GPU ({})", set, facts.gpus.problem),
            facts.visible_devices ? "unset CUDA_VISIBLE_DEVICES" : "headroom devices"};
  }
  return {"visible devices", Level::kOk, fmt::format("{}; {}", set, fmt::join(order, ", ")), ""};
}

Finding kernel_cache(const Facts& facts) {
  for (const CacheFolder& cache : facts.caches) {
    if (!cache.exists || (cache.owner.empty() && cache.writable)) continue;
    // Left by a program run with sudo; some versions of cuBLAS and cuDNN then fail to start.
    const std::string why =
        cache.owner.empty() ? "cannot be written" : fmt::format("belongs to {}", cache.owner);
    return {"kernel cache", Level::kProblem, fmt::format("{} {}", cache.path, why),
            fmt::format("sudo chown -R \"$USER\" {}", cache.path)};
  }
  return {"kernel cache", Level::kOk, "yours, or not created yet", ""};
}

Finding variables(const Facts& facts) {
  if (facts.misspelled.empty()) return {"variables", Level::kOk, "no name is nearly that of a known one", ""};
  const MisspelledVariable& first = facts.misspelled.front();
  std::vector<std::string> names;
  for (const MisspelledVariable& each : facts.misspelled) {
    names.push_back(fmt::format("{} (meant: {}?)", each.name, each.intended));
  }
  return {"variables", Level::kProblem, fmt::format("nothing reads {}", fmt::join(names, ", ")),
          fmt::format("export {}=\"${}\"; unset {}", first.intended, first.name, first.name)};
}

// All checks, in the order of the output.
constexpr Finding (*kChecks[])(const Facts&) = {gpu,   driver,  toolkit,   copies,
                                                pairs, visible, variables, kernel_cache};

}  // namespace

std::vector<Finding> examine(const Facts& facts) {
  std::vector<Finding> findings;
  for (const auto check : kChecks) findings.push_back(check(facts));
  return findings;
}

}  // namespace headroom::doctor
