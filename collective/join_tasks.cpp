#include "collective/join_tasks.h"

#include "base/errors.h"

namespace headroom {

std::vector<Task> join_tasks(std::span<const std::span<const Task>> tasks_of_ranks,
                             const std::function<void(Stream)>& finish) {
  const size_t ranks = tasks_of_ranks.size();
  std::vector<Task> joined;
  std::vector<std::vector<int>> places(ranks);  // positions of each rank's tasks so far
  for (;;) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      const std::span<const Task> rest = tasks_of_ranks[rank].subspan(places[rank].size());
      for (const Task& task : rest) {
        if (task.is_collective) break;
        places[rank].push_back(static_cast<int>(joined.size()));
        joined.push_back(
            {.run = task.run, .after = {}, .after_previous = {}, .starts_early = task.starts_early});
      }
    }
    const auto at_end = [&](size_t rank) { return places[rank].size() == tasks_of_ranks[rank].size(); };
    size_t ended = 0;
    for (size_t rank = 0; rank < ranks; ++rank) ended += at_end(rank) ? 1 : 0;
    if (ended == ranks) break;
    if (ended > 0) throw InvalidArgument("ranks record different numbers of collective calls");

    std::vector<std::function<void(Stream)>> runs;
    for (size_t rank = 0; rank < ranks; ++rank) {
      runs.push_back(tasks_of_ranks[rank][places[rank].size()].run);
      places[rank].push_back(static_cast<int>(joined.size()));
    }
    const auto run_all = [runs, finish](Stream stream) {
      for (const auto& run : runs) run(stream);
      finish(stream);
    };
    joined.push_back({.run = run_all, .after = {}, .after_previous = {}});
  }
  for (size_t rank = 0; rank < ranks; ++rank) {
    const std::vector<int>& place = places[rank];
    for (size_t i = 0; i < place.size(); ++i) {
      const Task& task = tasks_of_ranks[rank][i];
      Task& moved = joined[static_cast<size_t>(place[i])];
      for (int other : task.after) moved.after.push_back(place[static_cast<size_t>(other)]);
      for (int other : task.after_previous) moved.after_previous.push_back(place[static_cast<size_t>(other)]);
    }
  }
  return joined;
}

}  // namespace headroom
