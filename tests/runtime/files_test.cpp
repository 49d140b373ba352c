#include "runtime/files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/core/errors.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

TEST(RequireWritable, LeavesTheFileAsItIsAndNothingBesideIt) {
  const ScratchFolder folder;
  const std::string old = folder.write("old", "content");
  require_writable(old);
  require_writable(folder / "new");
  EXPECT_EQ(read_file(old, 100), "content");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(RequireWritable, RefusesFoldersAndWhatLiesInNone) {
  const ScratchFolder folder;
  EXPECT_THROW(require_writable(folder.path()), InvalidArgument);
  EXPECT_THROW(require_writable(folder / "missing/file"), InvalidArgument);
}

}  // namespace
}  // namespace headroom
