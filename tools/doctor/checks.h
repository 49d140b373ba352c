// Checks of a machine's GPU software; each judges given facts. Knows no GPU and reads nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/gpu_variables.h"
#include "device/gpus.h"
#include "tools/doctor/libraries.h"

namespace headroom::doctor {

// The folder in which CUDA keeps compiled kernels.
struct CacheFolder {
  std::string path;
  bool exists = false, writable = true;
  std::string owner;  // empty: the user
};

struct Facts {
  std::vector<LibraryFile> libraries;
  bool of_other_process = false;                 // the libraries are those of another process
  std::optional<int> driver_cuda, runtime_cuda;  // see libraries.h
  std::string kernel_driver;                     // version of the loaded kernel module; empty: none
  GpuList gpus;
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES
  std::vector<MisspelledVariable> misspelled;
  std::vector<CacheFolder> caches;
};

enum class Level { kOk, kNote, kProblem };

struct Finding {
  std::string check;
  Level level = Level::kOk;
  std::string text;
  std::string fix;  // a command or a sentence; empty if there is nothing to do
};

// One finding for each check, in a fixed order.
std::vector<Finding> examine(const Facts& facts);

}  // namespace headroom::doctor
