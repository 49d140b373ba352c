#include "collective/collective.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "collective/faulty/faulty_collective.h"
#include "collective/in_process/in_process_collective.h"

namespace headroom {
namespace {

using Collectives = std::vector<std::unique_ptr<Collective>>;
using Failures = std::vector<std::optional<CollectiveError>>;

// Runs `program` for each rank in its own thread; a rank dies when its program returns or throws. Returns the
// failures by rank.
Failures run_ranks(Collectives collectives, const std::function<void(Collective&)>& program) {
  Failures failures(collectives.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    threads.emplace_back([&program, &failure = failures[rank], own = std::move(collectives[rank])]() mutable {
      const std::unique_ptr<Collective> collective = std::move(own);
      try {
        program(*collective);
      } catch (const CollectiveError& error) {
        failure = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

void expect_no_failure(const Failures& failures) {
  for (const auto& failure : failures) EXPECT_FALSE(failure) << failure->what();
}

std::span<std::byte> bytes_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Magnitudes far enough apart for another order of adding to give other bits.
std::vector<float> random_values(int rank, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(rank) + 1);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(random()) / 4294967296.0f - 0.5f, static_cast<int>(random() % 24));
  }
  if (!values.empty()) values[0] = -0.0f;
  return values;
}

TEST(CollectiveTest, AllRanksGetTheBitsOfTheSumInRankOrder) {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const size_t count : {0, 1, 1000, 100003}) {
      std::vector<std::vector<float>> inputs;
      for (int rank = 0; rank < ranks; ++rank) inputs.push_back(random_values(rank, count));
      std::vector<float> sum = inputs[0];
      for (int rank = 1; rank < ranks; ++rank) {
        for (size_t i = 0; i < count; ++i) sum[i] += inputs[rank][i];
      }
      std::vector<std::vector<float>> results = inputs;
      const Failures failures = run_ranks(make_in_process_group(ranks), [&](Collective& collective) {
        EXPECT_EQ(collective.size(), ranks);
        collective.all_reduce_sum(results[collective.rank()]);
      });
      expect_no_failure(failures);
      for (const auto& result : results) EXPECT_TRUE(same_bits(result, sum)) << ranks << " ranks, " << count;
    }
  }
}

TEST(CollectiveTest, EachOfManyCallsInARowSumsItsOwnValues) {
  constexpr int kRanks = 3;
  constexpr int kCalls = 200;
  const Failures failures = run_ranks(make_in_process_group(kRanks), [](Collective& collective) {
    for (int call = 0; call < kCalls; ++call) {
      std::vector<float> values(5, static_cast<float>(call + collective.rank()));
      collective.all_reduce_sum(values);
      EXPECT_EQ(values, std::vector<float>(5, static_cast<float>(kRanks * call + 3)));
    }
  });
  expect_no_failure(failures);
}

TEST(CollectiveTest, BroadcastGivesAllRanksTheBytesOfTheRoot) {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const size_t count : {0, 1, 1000}) {
      const Failures failures = run_ranks(make_in_process_group(ranks), [&](Collective& collective) {
        for (int root = 0; root < ranks; ++root) {
          std::vector<float> values = random_values(collective.rank(), count);
          collective.broadcast(bytes_of(values), root);
          EXPECT_TRUE(same_bits(values, random_values(root, count))) << root << " of " << ranks;
        }
      });
      expect_no_failure(failures);
    }
  }
}

TEST(CollectiveTest, NoRankPassesABarrierBeforeAllHaveArrived) {
  constexpr int kRanks = 4;
  std::atomic<int> come = 0;
  const Failures failures = run_ranks(make_in_process_group(kRanks), [&](Collective& collective) {
    for (int round = 1; round <= 100; ++round) {
      ++come;
      collective.barrier();
      EXPECT_GE(come, round * kRanks);
    }
  });
  expect_no_failure(failures);
}

struct Mismatch {
  std::function<void(Collective&, std::vector<float>&)> usual, odd;
  std::string usual_text, odd_text;
};

TEST(CollectiveTest, MismatchIsRefusedOnAllRanksByNameAndLeavesEverythingAsItWas) {
  const auto sum = [](Collective& c, std::vector<float>& v) { c.all_reduce_sum(v); };
  const auto sum_fewer = [](Collective& c, std::vector<float>& v) { c.all_reduce_sum({v.data(), 7}); };
  const auto broadcast = [](Collective& c, std::vector<float>& v) { c.broadcast(bytes_of(v), 0); };
  const auto broadcast_fewer = [](Collective& c, std::vector<float>& v) {
    c.broadcast(bytes_of(v).first(39), 0);
  };
  const auto broadcast_own = [](Collective& c, std::vector<float>& v) { c.broadcast(bytes_of(v), c.rank()); };
  const auto barrier = [](Collective& c, std::vector<float>&) { c.barrier(); };
  const std::vector<Mismatch> mismatches = {
      {sum, sum_fewer, "all_reduce_sum of 10 floats", "all_reduce_sum of 7 floats"},
      {sum, broadcast, "all_reduce_sum of 10 floats", "broadcast of 40 bytes from rank 0"},
      {broadcast, broadcast_fewer, "broadcast of 40 bytes from rank 0", "broadcast of 39 bytes from rank 0"},
      {broadcast, broadcast_own, "broadcast of 40 bytes from rank 0", "broadcast of 40 bytes from rank 2"},
      {barrier, sum, "barrier", "all_reduce_sum of 10 floats"},
  };
  for (const Mismatch& mismatch : mismatches) {
    const std::string cause = "rank 0 called " + mismatch.usual_text + ", rank 2 called " + mismatch.odd_text;
    const Failures failures = run_ranks(make_in_process_group(4), [&](Collective& collective) {
      const std::vector<float> before = random_values(collective.rank(), 10);
      std::vector<float> values = before;
      try {
        (collective.rank() == 2 ? mismatch.odd : mismatch.usual)(collective, values);
        ADD_FAILURE() << cause << ": passed on rank " << collective.rank();
      } catch (const CollectiveError& error) {
        EXPECT_EQ(error.cause(), cause);
        EXPECT_EQ(error.rank(), collective.rank());
      }
      EXPECT_TRUE(same_bits(values, before)) << cause;
      collective.broadcast(bytes_of(values), 1);
      EXPECT_TRUE(same_bits(values, random_values(1, 10))) << cause;
    });
    expect_no_failure(failures);
  }
}

TEST(CollectiveTest, MismatchIsWhatEachRankHearsOfEvenWhenOthersDieOfItFirst) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Failures failures = run_ranks(make_in_process_group(4), [](Collective& collective) {
      std::vector<float> values(collective.rank() == 3 ? 2 : 1);
      collective.all_reduce_sum(values);
    });
    for (const auto& failure : failures) {
      ASSERT_TRUE(failure);
      EXPECT_EQ(failure->cause(),
                "rank 0 called all_reduce_sum of 1 floats, rank 3 called all_reduce_sum of 2 floats");
    }
  }
}

TEST(CollectiveTest, DeadRankIsNamedToThoseThatWaitAndThoseThatComeLater) {
  for (const int dying : {0, 1, 2}) {
    const Failures failures = run_ranks(make_in_process_group(3), [&](Collective& collective) {
      collective.barrier();
      if (collective.rank() == dying) return;
      EXPECT_THROW(collective.barrier(), CollectiveError);
      std::vector<float> values = {1};
      collective.all_reduce_sum(values);
    });
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(failures[rank].has_value(), rank != dying);
      if (rank == dying) continue;
      EXPECT_EQ(failures[rank]->rank(), rank);
      EXPECT_EQ(failures[rank]->call(), "all_reduce_sum");
      EXPECT_EQ(failures[rank]->cause(), "rank " + std::to_string(dying) + " has died");
      EXPECT_EQ(failures[rank]->what(), "all_reduce_sum failed on rank " + std::to_string(rank) + ": rank " +
                                            std::to_string(dying) + " has died");
      EXPECT_EQ(exit_code(*failures[rank]), kExitLibraryFailure);
    }
  }
}

TEST(CollectiveTest, RankThatNeverComesIsNamedAndFindsTheGroupGivenUp) {
  const Collectives pair = make_in_process_group(2, std::chrono::milliseconds(5));
  for (const int rank : {0, 1}) {
    try {
      pair[rank]->barrier();
      FAIL() << "rank " << rank << " passed alone";
    } catch (const CollectiveError& error) {
      EXPECT_EQ(error.cause(), "rank 1 did not arrive within 5 ms");
    }
  }

  Collectives group = make_in_process_group(3, std::chrono::milliseconds(5));
  const std::unique_ptr<Collective> absent = std::move(group.back());
  group.pop_back();
  const Failures failures = run_ranks(std::move(group), [](Collective& collective) { collective.barrier(); });
  for (const auto& failure : failures) EXPECT_TRUE(failure);
  EXPECT_THROW(absent->barrier(), CollectiveError);
}

TEST(CollectiveTest, FaultInAnyCallOfAnyRankEndsAllRanksThere) {
  constexpr int kRanks = 3;
  const std::vector<std::function<void(Collective&, std::vector<float>&)>> program = {
      [](Collective& c, std::vector<float>& v) { c.broadcast(bytes_of(v), 0); },
      [](Collective& c, std::vector<float>& v) { c.all_reduce_sum(v); },
      [](Collective& c, std::vector<float>&) { c.barrier(); },
      [](Collective& c, std::vector<float>& v) { c.all_reduce_sum(v); },
      [](Collective& c, std::vector<float>& v) { c.broadcast(bytes_of(v), 2); },
  };
  const int calls = static_cast<int>(program.size());
  for (int dying = 0; dying < kRanks; ++dying) {
    for (int failing_call = 1; failing_call <= calls + 1; ++failing_call) {
      Collectives group = make_in_process_group(kRanks);
      auto faulty = std::make_unique<FaultyCollective>(std::move(group[dying]));
      faulty->faults().arm({.failing_call = failing_call});
      group[dying] = std::move(faulty);
      std::vector<int> passed(kRanks, 0);
      const Failures failures = run_ranks(std::move(group), [&](Collective& collective) {
        std::vector<float> values(10, 1.0f);
        for (const auto& call : program) {
          call(collective, values);
          ++passed[collective.rank()];
        }
      });
      EXPECT_EQ(passed, std::vector<int>(kRanks, failing_call - 1));
      for (int rank = 0; rank < kRanks; ++rank) {
        ASSERT_EQ(failures[rank].has_value(), failing_call <= calls);
        if (!failures[rank]) continue;
        EXPECT_EQ(failures[rank]->cause(),
                  rank == dying ? "injected fault" : "rank " + std::to_string(dying) + " has died");
      }
    }
  }
}

TEST(CollectiveTest, FaultyRankStaysDead) {
  Collectives group = make_in_process_group(1);
  FaultyCollective faulty(std::move(group[0]));
  faulty.faults().arm({.failing_call = 2});
  faulty.barrier();
  EXPECT_THROW(faulty.barrier(), CollectiveError);
  EXPECT_THROW(faulty.barrier(), CollectiveError);
  EXPECT_EQ(faulty.rank(), 0);
  EXPECT_EQ(faulty.size(), 1);
}

TEST(CollectiveTest, ImpossibleGroupsAndRootsAreTheCallersMistake) {
  EXPECT_THROW(make_in_process_group(0), InvalidArgument);
  EXPECT_THROW(make_in_process_group(2, std::chrono::milliseconds(0)), InvalidArgument);
  EXPECT_THROW(make_in_process_group(2, std::chrono::milliseconds::max()), InvalidArgument);
  const Collectives group = make_in_process_group(1);
  EXPECT_THROW(group[0]->broadcast({}, -1), InvalidArgument);
  EXPECT_THROW(group[0]->broadcast({}, 1), InvalidArgument);
}

}  // namespace
}  // namespace headroom
