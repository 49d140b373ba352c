#include "runtime/graph/precedence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.h"
#include "runtime/graph/ancestors.h"

namespace headroom {
namespace {

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  // In [0, end).
  int below(int end) {
    return static_cast<int>(random_words(seed_, 0, count_++)[0] % static_cast<uint64_t>(end));
  }

 private:
  uint64_t seed_, count_ = 0;
};

using Links = std::vector<std::vector<int>>;  // by item: its predecessors

Predecessors listed(const Links& links) {
  Predecessors predecessors(links.size());
  for (const std::vector<int>& before : links) {
    for (const int item : before) predecessors.add(static_cast<size_t>(item));
    predecessors.finish_item();
  }
  return predecessors;
}

Ancestors all_pairs(const Links& links) {
  Ancestors ancestors(links.size());
  for (size_t item = 0; item < links.size(); ++item) {
    for (const int before : links[item]) ancestors.add(item, static_cast<size_t>(before));
  }
  return ancestors;
}

std::vector<int> last_unordered(const Links& links, const std::vector<int>& later) {
  const Ancestors ancestors = all_pairs(links);
  std::vector<int> last(links.size(), -1);
  for (const int item : later) {
    for (size_t before = 0; before < static_cast<size_t>(item); ++before) {
      if (!ancestors.has(static_cast<size_t>(item), before)) last[before] = item;
    }
  }
  return last;
}

// Up to `most` predecessors for each item, of the `window` before it.
Links random_links(Draws& draws, int count, int most, int window) {
  Links links(static_cast<size_t>(count));
  for (int item = 1; item < count; ++item) {
    for (auto left = draws.below(most + 1); left > 0; --left) {
      const int before = item - 1 - draws.below(std::min(window, item));
      links[static_cast<size_t>(item)].push_back(before);
    }
  }
  return links;
}

// A training step: layers of a branch that a sum joins with its input, then back, with a gradient of weights
// for each layer and an update that follows it, at the end.
Links training(int blocks) {
  Links links = {{}};
  const auto add = [&](std::vector<int> before) {
    links.push_back(std::move(before));
    return static_cast<int>(links.size()) - 1;
  };
  std::vector<int> inputs, inner, gradients;
  int last = 0;
  for (int i = 0; i < blocks; ++i) {
    inputs.push_back(last);
    inner.push_back(add({last}));
    last = add({add({inner.back()}), last});
  }
  for (int i = blocks; i-- > 0;) {
    const auto at = static_cast<size_t>(i);
    gradients.push_back(add({last, inner[at]}));
    const int branch = add({last, inner[at]});
    gradients.push_back(add({branch, inputs[at]}));
    last = add({add({branch}), last});
  }
  for (const int gradient : gradients) add({gradient});
  return links;
}

// A trunk and two towers on it, whose items alternate. The last item follows from only one of them.
Links towers(int height) {
  Links links = {{}, {0}, {0}};  // two ends of the trunk
  const auto end = [&] { return static_cast<int>(links.size()) - 1; };
  links.push_back({1});
  links.push_back({2});
  for (int i = 0; i < height; ++i) links.push_back({end() - 1, i == 1 ? 1 : 2});
  links.push_back({end() - 1});
  return links;
}

// Steps of a chain, each of which another item reads together with the end of an earlier chain and one more
// end; finally the chain alone.
Links decoder(int steps) {
  Links links = {{}};
  for (int i = 1; i < steps; ++i) links.push_back({i - 1});
  links.push_back({});
  for (int i = 1; i < steps; ++i) links.push_back({steps + i - 1});
  int state = 0;
  for (int i = 0; i < steps; ++i) {
    links.push_back({state});
    state = static_cast<int>(links.size()) - 1;
    links.push_back({state, steps - 1, 2 * steps - 1});
  }
  links.push_back({state});
  return links;
}

// One item, many that follow from it, and one that follows from them.
Links fan(int width) {
  Links links = {{}};
  std::vector<int> all;
  for (int i = 1; i <= width; ++i) {
    links.push_back({0});
    all.push_back(i);
  }
  links.push_back(all);
  links.push_back({width + 1});
  return links;
}

std::vector<int> every(size_t count, int step) {
  std::vector<int> items;
  for (int item = 0; item < static_cast<int>(count); item += step) items.push_back(item);
  return items;
}

TEST(Precedence, FindsWhatABitForEachPairWouldSay) {
  Draws draws(1);
  for (int round = 0; round < 300; ++round) {
    const int count = 2 + draws.below(200);
    const int window = 1 + draws.below(round % 2 == 0 ? 8 : count);
    const Links links = random_links(draws, count, 1 + round % 3, window);
    const std::vector<int> later = every(links.size(), 1 + draws.below(3));
    Precedence precedence(listed(links));
    EXPECT_EQ(precedence.last_unordered(later), last_unordered(links, later)) << round;
    const Ancestors expected = all_pairs(links);
    for (size_t item = 0; item < links.size(); ++item) {
      for (size_t other = 0; other < links.size(); ++other) {
        ASSERT_EQ(precedence.has(item, other), expected.has(item, other))
            << round << ' ' << item << ' ' << other;
      }
    }
  }
  for (const Links& links : {training(50), towers(200), decoder(100), fan(300)}) {
    Precedence precedence(listed(links));
    EXPECT_EQ(precedence.last_unordered(every(links.size(), 1)),
              last_unordered(links, every(links.size(), 1)));
  }
}

TEST(Precedence, FourTimesTheItemsTakeAboutFourTimesTheWork) {
  // Checks for each item if all earlier readers of one of its predecessors come before it, as an op that
  // works in place needs.
  const auto readers_in_order = [](const Links& links) {
    Precedence precedence(listed(links), 0);
    std::vector<int> reader(links.size(), -1);
    for (size_t item = 1; item < links.size(); ++item) {
      for (const int before : links[item]) {
        int& last = reader[static_cast<size_t>(before)];
        if (last >= 0) precedence.has(item, static_cast<size_t>(last));
        last = static_cast<int>(item);
      }
    }
    return precedence.visits();
  };
  const auto last_ones = [](const Links& links) {
    Precedence precedence(listed(links), 0);
    precedence.last_unordered(every(links.size(), 1));
    return precedence.visits();
  };
  for (Links (*make)(int) : {training, towers, decoder, fan}) {
    EXPECT_LE(last_ones(make(8000)), 5 * last_ones(make(2000)));
    EXPECT_LE(last_ones(make(8000)), 5 * static_cast<int64_t>(make(8000).size())) << "no limit is met";
    EXPECT_LE(readers_in_order(make(8000)), 5 * readers_in_order(make(2000)));
  }
}

// If it gives up, it may only report that items are not ordered.
TEST(Precedence, WithLittleWorkAllowedItsAnswersAreSafe) {
  Draws draws(2);
  for (int round = 0; round < 20; ++round) {
    const Links links = random_links(draws, 2000, 2, round % 2 == 0 ? 40 : 2000);
    Precedence precedence(listed(links), -1'000'000);
    const std::vector<int> later = every(links.size(), 1), found = precedence.last_unordered(later);
    const std::vector<int> expected = last_unordered(links, later);
    for (size_t item = 0; item < links.size(); ++item) ASSERT_GE(found[item], expected[item]);
    const Ancestors ancestors = all_pairs(links);
    for (size_t item = 0; item < links.size(); ++item) {
      const auto other = static_cast<size_t>(draws.below(static_cast<int>(links.size())));
      ASSERT_LE(precedence.has(item, other), ancestors.has(item, other));
    }
  }
}

}  // namespace
}  // namespace headroom
