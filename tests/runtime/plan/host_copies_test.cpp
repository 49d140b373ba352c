// Tests the positions of copies to host memory and back in a step, and the nodes that wait for them.

#include "runtime/plan/host_copies.h"

#include <gtest/gtest.h>

#include <vector>

namespace headroom {
namespace {

const std::vector<double> kTenNodes(10, 1.0);

TEST(HostCopies, ACopyThatNodesHideCostsNothing) {
  std::vector<HostCopy> stores = {{.source = 0, .reader = 1, .us = 2.5}};
  std::vector<HostCopy> loads = {{.source = 0, .reader = 8, .us = 2.5}};
  EXPECT_EQ(place_host_copies(kTenNodes, stores, loads), 10);
  EXPECT_EQ(stores[0].position, 4) << "begun behind node 0 at 1, done at 3.5";
  EXPECT_EQ(loads[0].position, 5) << "to be done at 8 it begins at 5.5, while node 5 runs";
}

TEST(HostCopies, ACopyThatWaitsFreesMemoryAtOnceForItsTime) {
  std::vector<HostCopy> stores = {{.source = 3, .reader = 4, .waits = true, .us = 2.5}};
  std::vector<HostCopy> loads = {{.source = 0, .reader = 8, .waits = true, .us = 2}};
  EXPECT_EQ(place_host_copies(kTenNodes, stores, loads), 10 + 1.5 + 2) << "node 4 hides 1 of the store";
  EXPECT_EQ(stores[0].position, 5);
  EXPECT_EQ(loads[0].position, 8);
}

TEST(HostCopies, ALinkThatIsTooSlowMakesTheReaderWait) {
  std::vector<HostCopy> stores = {{.source = 0, .reader = 0, .us = 6}};
  std::vector<HostCopy> loads = {{.source = 0, .reader = 5, .us = 6}};
  EXPECT_EQ(place_host_copies(kTenNodes, stores, loads), 1 + 6 + 6 + 5);
  EXPECT_EQ(stores[0].position, 5);
  EXPECT_EQ(loads[0].position, 5);
}

TEST(HostCopies, CopiesOfOneDirectionFollowEachOtherAndTheTwoDirectionsDoNot) {
  std::vector<HostCopy> stores = {{.source = 0, .reader = 0, .us = 3}, {.source = 1, .reader = 1, .us = 3}};
  std::vector<HostCopy> loads = {{.source = 1, .reader = 9, .us = 1}, {.source = 0, .reader = 9, .us = 1}};
  EXPECT_EQ(place_host_copies(kTenNodes, stores, loads), 10);
  EXPECT_EQ(stores[0].position, 4);
  EXPECT_EQ(stores[1].position, 7);
  EXPECT_EQ(loads[0].position, 7);
  EXPECT_EQ(loads[1].position, 8);
}

TEST(HostCopies, AValueGoesOnceHoweverOftenItComesBack) {
  std::vector<HostCopy> stores = {{.source = 0, .reader = 0, .us = 1}};
  std::vector<HostCopy> loads = {{.source = 0, .reader = 4, .us = 1}, {.source = 0, .reader = 8, .us = 1}};
  EXPECT_EQ(place_host_copies(kTenNodes, stores, loads), 10);
  EXPECT_EQ(stores[0].position, 2);
  EXPECT_EQ(loads[0].position, 3);
  EXPECT_EQ(loads[1].position, 7);
}

}  // namespace
}  // namespace headroom
