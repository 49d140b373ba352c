#!/bin/sh
# The recipes "A device" and "A device profile" of CONTRIBUTING.md, followed for a device `coprocessor` and a
# profile `tiny-64mb`. The contract of all devices and --device find both.
here=$(dirname "$0")
. "$here/../recipe.sh"

# 1. A class that hands out the parts of the device.
create device/coprocessor/coprocessor.h << 'END'
// A board with memory of its own whose kernels run on the host. Knows no kernel.
#pragma once

#include "device/device.h"
#include "device/host/cpu_memory.h"
#include "device/host/host_captures.h"
#include "device/host/simulated_streams.h"

namespace headroom {

class Coprocessor final : public Device {
 public:
  explicit Coprocessor(int64_t bytes) : memory_(bytes, streams_) {}

  const DeviceInfo& info() const override { return info_; }
  void initialize() override {}
  DeviceMemory& memory() override { return memory_; }
  DeviceStreams& streams() override { return streams_; }
  DeviceLibraries& libraries() override { return libraries_; }
  DeviceCaptures& captures() override { return captures_; }
  KernelTarget kernel_target() override { return {}; }

 private:
  const DeviceInfo info_{"/device:GPU:0", "coprocessor"};
  SimulatedStreams streams_;
  CpuMemory memory_;
  DeviceLibraries libraries_;
  HostCaptures captures_;
};

}  // namespace headroom
END

# 2. A row for the contract of all devices.
change after tests/device/device_rows.h '{"SimulatedGpu",' << 'END'
    {"Coprocessor", []() -> std::unique_ptr<Device> { return std::make_unique<Coprocessor>(64 * kMiB); }},
END
must_fail Coprocessor check tests/device/device_contract_test.cpp
change after tests/device/device_rows.h '#include <memory>' << 'END'

#include "base/bytes.h"
#include "device/coprocessor/coprocessor.h"
END

# 3. Its name, and how it is found and made.
change before runtime/app/options.cpp '  return names;' << 'END'
  names.push_back("coprocessor");
END
change after runtime/app/options.cpp 'DeviceName default_device(' << 'END'
  if (options.device == "coprocessor") return {DeviceType::kGpu, 0};
END
change before runtime/app/make_device.cpp '  if (options.device != "cpu") {' << 'END'
  if (options.device == "coprocessor") {
    PhysicalGpu board;
    board.ordinal = 0;
    board.name = "coprocessor";
    board.total_bytes = board.free_bytes = 64 * kMiB;
    return {board};
  }
END
change before runtime/app/make_device.cpp '  return make_cuda_device({*gpu.ordinal' << 'END'
  if (options.device == "coprocessor") return std::make_unique<Coprocessor>(gpu.total_bytes);
END
change after runtime/app/make_device.cpp '#include "base/errors.h"' << 'END'
#include "base/bytes.h"
#include "device/coprocessor/coprocessor.h"
END

# A profile is a constant and its name.
change before device/host/profiles.cpp 'const std::vector<DeviceProfile>& profiles() {' << 'END'
const DeviceProfile kTiny64Mb = [] {
  DeviceProfile profile = kLaptop2Gb;
  profile.name = "tiny-64mb";
  profile.total_bytes = 64 * kMiB;
  profile.others_bytes = 0;
  return profile;
}();

END
change before device/host/profiles.cpp '    return result;' << 'END'
    result.push_back(kTiny64Mb);
END

create made_test.cpp << 'END'
#include <gtest/gtest.h>

#include "runtime/app/options.h"

namespace headroom {

TEST(MadeDevices, HaveTheirNames) {
  EXPECT_EQ(make_device({.device = "coprocessor"})->description(), "coprocessor");
  EXPECT_EQ(make_device({.device = "sim:tiny-64mb"})->memory().info().total, 64 << 20);
}

}  // namespace headroom
END
compile all.o runtime/app/options.cpp runtime/app/make_device.cpp made_test.cpp device/host/profiles.cpp \
  tests/device/device_contract_test.cpp
# shellcheck disable=SC2086 # the libraries are words
$CXX $CXXFLAGS ./*.o $LIBRARIES -o tests_of_device
./tests_of_device --gtest_filter='*Coprocessor*:MadeDevices.*'
