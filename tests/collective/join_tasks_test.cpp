#include "collective/join_tasks.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "device/host/cpu_device.h"

namespace headroom {
namespace {

class JoinTasks : public testing::Test {
 protected:
  Task does(char what, std::vector<int> after = {}, std::vector<int> after_previous = {}) {
    return {[this, what](Stream) { done_ += what; }, std::move(after), std::move(after_previous)};
  }
  Task calls(char what, std::vector<int> after = {}, std::vector<int> after_previous = {}) {
    Task task = does(what, std::move(after), std::move(after_previous));
    task.is_collective = true;
    return task;
  }
  std::vector<Task> join(const std::vector<Task>& a, const std::vector<Task>& b) {
    const std::span<const Task> both[] = {a, b};
    return join_tasks(both, [this](Stream) { done_ += '!'; });
  }

  std::string done_;
};

TEST_F(JoinTasks, EachRanksTasksKeepTheirPredecessors) {
  const std::vector<Task> joined =
      join({does('a', {}, {1}), does('b', {0})}, {does('c'), does('d', {0}, {0, 1})});
  CpuDevice().captures().capture(joined, 2)->launch({});
  EXPECT_EQ(done_, "abcdabcd");
  EXPECT_EQ(joined[0].after_previous, std::vector<int>{1});
  EXPECT_EQ(joined[1].after, std::vector<int>{0});
  EXPECT_EQ(joined[3].after, std::vector<int>{2});
  EXPECT_EQ(joined[3].after_previous, (std::vector<int>{2, 3}));
}

TEST_F(JoinTasks, ACollectiveTaskWaitsForTheTasksOfAllRanks) {
  const std::vector<Task> joined = join({does('a'), calls('x', {0}), does('b', {1}), calls('y', {2})},
                                        {calls('X'), calls('Y', {0}), does('c', {1})});
  CpuDevice().captures().capture(joined, 1)->launch({});
  EXPECT_EQ(done_, "axX!byY!c");
  ASSERT_EQ(joined.size(), 5u);
  EXPECT_EQ(joined[1].after, std::vector<int>{0});
  EXPECT_EQ(joined[3].after, (std::vector<int>{2, 1}));
  EXPECT_EQ(joined[4].after, std::vector<int>{3});
}

TEST_F(JoinTasks, RanksWithOtherNumbersOfCollectiveTasksAreRefused) {
  EXPECT_THROW(join({calls('x'), does('a')}, {does('b')}), InvalidArgument);
}

}  // namespace
}  // namespace headroom
