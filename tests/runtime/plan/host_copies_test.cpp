// Tests the positions of copies to host memory and back in a step, and the nodes that wait for them.

#include "runtime/plan/host_copies.h"

#include <gtest/gtest.h>

#include <vector>

namespace headroom {
namespace {

const std::vector<double> kTenNodes(10, 1.0);

TEST(HostCopies, ACopyThatNodesHideCostsNothing) {
  const HostStore store{.maker = 0, .last_reader = 1, .us = 2.5};
  const HostLoad load{.store = 0, .reader = 8, .us = 2.5};
  const HostCopies copies = place_host_copies(kTenNodes, {&store, 1}, {&load, 1});
  EXPECT_EQ(copies.us, 10);
  EXPECT_EQ(copies.store_at[0], 4) << "begun behind node 0 at 1, done at 3.5";
  EXPECT_EQ(copies.load_at[0], 5) << "to be done at 8 it begins at 5.5, while node 5 runs";
}

TEST(HostCopies, ACopyThatWaitsFreesMemoryAtOnceForItsTime) {
  const HostStore store{.maker = 3, .last_reader = 4, .waits = true, .us = 2.5};
  const HostLoad load{.store = 0, .reader = 8, .waits = true, .us = 2};
  const HostCopies copies = place_host_copies(kTenNodes, {&store, 1}, {&load, 1});
  EXPECT_EQ(copies.store_at[0], 5);
  EXPECT_EQ(copies.load_at[0], 8);
  EXPECT_EQ(copies.us, 10 + 1.5 + 2) << "node 4 hides 1 of the store";
}

TEST(HostCopies, ALinkThatIsTooSlowMakesTheReaderWait) {
  const HostStore store{.maker = 0, .last_reader = 0, .us = 6};
  const HostLoad load{.store = 0, .reader = 5, .us = 6};
  const HostCopies copies = place_host_copies(kTenNodes, {&store, 1}, {&load, 1});
  EXPECT_EQ(copies.store_at[0], 5);
  EXPECT_EQ(copies.load_at[0], 5);
  EXPECT_EQ(copies.us, 1 + 6 + 6 + 5);
}

TEST(HostCopies, CopiesOfOneDirectionFollowEachOtherAndTheTwoDirectionsDoNot) {
  const std::vector<HostStore> stores = {{.maker = 0, .last_reader = 0, .us = 3},
                                         {.maker = 1, .last_reader = 1, .us = 3}};
  const std::vector<HostLoad> loads = {{.store = 1, .reader = 9, .us = 1},
                                       {.store = 0, .reader = 9, .us = 1}};
  const HostCopies copies = place_host_copies(kTenNodes, stores, loads);
  EXPECT_EQ(copies.store_at, (std::vector<int>{4, 7}));
  EXPECT_EQ(copies.load_at, (std::vector<int>{7, 8}));
  EXPECT_EQ(copies.us, 10);
}

TEST(HostCopies, AValueGoesOnceHoweverOftenItComesBack) {
  const HostStore store{.maker = 0, .last_reader = 0, .us = 1};
  const std::vector<HostLoad> loads = {{.store = 0, .reader = 4, .us = 1},
                                       {.store = 0, .reader = 8, .us = 1}};
  const HostCopies copies = place_host_copies(kTenNodes, {&store, 1}, loads);
  EXPECT_EQ(copies.store_at[0], 2);
  EXPECT_EQ(copies.load_at, (std::vector<int>{3, 7}));
  EXPECT_EQ(copies.us, 10);
}

}  // namespace
}  // namespace headroom
