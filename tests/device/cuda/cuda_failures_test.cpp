// Tests that need a process of their own on a real GPU: contexts, and the answers of a full or broken GPU,
// the errors that simulated GPUs imitate. Statuses are those of CUDA 12 and 13.
#include <filesystem>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "device/cuda/ballast.h"
#include "device/cuda/cuda_device.h"
#include "tests/require_cuda.h"
#include "tests/run_shell.h"

namespace headroom::cuda {
namespace {

int64_t free_on_the_card() {
  const GpuList list = list_gpus();
  const PhysicalGpu* gpu = list.find(0);
  return gpu == nullptr ? 0 : gpu->free_bytes;
}

class CudaFailures : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    free_before_ = free_on_the_card();
  }
  // The driver allocates and frees a few MiB of the card with each process that starts or ends (11 MiB were
  // seen on an H200 where other tests ran); a leaked context, cuBLAS handle or ballast takes more.
  void TearDown() override {
    if (free_before_ == 0) return;
    EXPECT_GE(free_on_the_card(), free_before_ - 48 * kMiB);
  }

  // Returns the output of the child, a program beside this test's program.
  std::string child(const std::string& what) {
    const std::filesystem::path program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "cuda_failure_child";
    const Outcome outcome = run_shell(folder_, program.string() + " '" + what + "'");
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.errors;
    return outcome.out;
  }

  ScratchFolder folder_;
  int64_t free_before_ = 0;
};

TEST_F(CudaFailures, ANewContextGivesItsStacksBackAndKernelsGetWhatTheyNeed) {
  EXPECT_EQ(child("make context"), "stacks: ok\nkernel: ok\n");
}

TEST_F(CudaFailures, AContextThatWasThereKeepsItsStacks) {
  EXPECT_EQ(child("find context"), "stacks: ok\n");
}

TEST_F(CudaFailures, BlasWithoutRoomInThisProcessSaysAllocFailedAndStartsOnceThereIsRoom) {
  EXPECT_EQ(child("blas"),
            "full: LibraryError cublasCreate CUBLAS_STATUS_ALLOC_FAILED\n"
            "again: LibraryError cublasCreate CUBLAS_STATUS_ALLOC_FAILED\n"
            "free: ok\n");
}

TEST_F(CudaFailures, DnnWithoutRoomInThisProcessSaysInternalErrorAndStartsOnceThereIsRoom) {
  EXPECT_EQ(child("dnn"),
            "full: LibraryError cudnnCreate CUDNN_STATUS_INTERNAL_ERROR\n"
            "again: LibraryError cudnnCreate CUDNN_STATUS_INTERNAL_ERROR\n"
            "free: ok\n");
}

// Users of the frameworks see this as NOT_INITIALIZED: another process occupies the card.
TEST_F(CudaFailures, AProcessThatComesToAFullCardHasNoContextAndNotInitializedLibraries) {
  {
    CudaDevice device({});
    device.initialize();
    free_before_ = free_on_the_card();  // this process' context stays
    Ballast all;
    all.leave(0);
    EXPECT_EQ(child("late"),
              "context: DeviceError cuDevicePrimaryCtxRetain CUDA_ERROR_OUT_OF_MEMORY\n"
              "blas: LibraryError cublasCreate CUBLAS_STATUS_NOT_INITIALIZED\n"
              "dnn: LibraryError cudnnCreate CUDNN_STATUS_INTERNAL_ERROR\n"
              "list: ok\n");
  }
}

TEST_F(CudaFailures, AnAssertOnTheDeviceIsNeverReportedAsLackOfMemory) {
  const std::string out = child("assert");
  EXPECT_NE(out.find("before: ok\n"), std::string::npos) << out;
  for (const char* step : {"synchronize", "blas", "dnn", "allocate"}) {
    const size_t at = out.find(std::string(step) + ": DeviceError ");
    ASSERT_NE(at, std::string::npos) << out;
    EXPECT_TRUE(out.substr(at, out.find('\n', at) - at).ends_with(" cudaErrorAssert")) << out;
  }
  EXPECT_NE(out.find("info: ok\n"), std::string::npos) << out;
  EXPECT_EQ(out.find("OutOfMemory"), std::string::npos) << out;
}

}  // namespace
}  // namespace headroom::cuda
