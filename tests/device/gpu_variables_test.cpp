// Tests which names of environment variables are reported as misspelled.
#include "device/gpu_variables.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace headroom {
namespace {

TEST(GpuVariables, AMisspelledNameHasTheVariableThatWasMeant) {
  const std::pair<const char*, const char*> cases[] = {
      {"CUDA_VISIBLE_DIVICES", "CUDA_VISIBLE_DEVICES"},
      {"CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"},
      {"CUDE_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"},
      {"cuda_visible_devices", "CUDA_VISIBLE_DEVICES"},
      {"CUDA_DEVICES_VISIBLE", "CUDA_VISIBLE_DEVICES"},
      {"CUDA_LAUNCH_BLOKING", "CUDA_LAUNCH_BLOCKING"},
      {"TF_FORCE_GPU_ALLOW_GROTH", "TF_FORCE_GPU_ALLOW_GROWTH"},
      {"TF_GPU_FORCE_ALLOW_GROWTH", "TF_FORCE_GPU_ALLOW_GROWTH"},
      {"XLA_PYTHON_CLIENT_PRE_ALLOCATE", "XLA_PYTHON_CLIENT_PREALLOCATE"},
      {"XLA_PYTHON_CLIENT_MEMORY_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"},
      {"PYTORCH_CUDA_ALLOC_CONFIG", "PYTORCH_CUDA_ALLOC_CONF"},
      {"NCCL_P2P_DISABEL", "NCCL_P2P_DISABLE"},
  };
  for (const auto& [name, intended] : cases) {
    EXPECT_EQ(intended_variable(name), intended) << name;
    EXPECT_EQ(intended_variable(intended), "") << "is one itself";
  }
}

TEST(GpuVariables, NamesOfOtherProgramsAreNotReported) {
  for (const char* name : {"",
                           "_",
                           "HOME",
                           "PATH",
                           "CUDA",
                           "CUDA_",
                           "CUDA_HOME",
                           "CUDA_HOME_12",
                           "CUDA_PATH_V12_8",
                           "MY_CUDA_VISIBLE_DEVICES",
                           "HIP_VISIBLE_DEVICES",
                           "ROCR_VISIBLE_DEVICES",
                           "ASCEND_VISIBLE_DEVICES",
                           "CUDA_ERROR_OUT_OF_MEMORY",
                           "TF_DATA",
                           "TF_MY_FLAG",
                           "TERM",
                           "TZ",
                           "NCCL_IB_HCA2",
                           "TORCH_CUDA",
                           "JAX_TESTS",
                           "CUDA_R_16F"}) {
    EXPECT_EQ(intended_variable(name), "") << name;
  }
  EXPECT_EQ(intended_variable("CUDA_" + std::string(100'000, 'X')), "");
}

TEST(GpuVariables, OfAnEnvironmentOnlyTheMisspelledOnesAreFound) {
  const char* const environment[] = {"HOME=/root", "CUDA_VISIBLE_DIVICES=1", "CUDA_VISIBLE_DEVICES=0",
                                     "NCCL_DEBUGG", nullptr};
  std::vector<std::string> texts;
  for (const MisspelledVariable& each : misspelled_variables(environment)) texts.push_back(each.text());
  EXPECT_EQ(texts, (std::vector<std::string>{
                       "nothing reads CUDA_VISIBLE_DIVICES; did you mean CUDA_VISIBLE_DEVICES?",
                       "nothing reads NCCL_DEBUGG; did you mean NCCL_DEBUG?"}));
  EXPECT_TRUE(misspelled_variables(nullptr).empty());
}

}  // namespace
}  // namespace headroom
