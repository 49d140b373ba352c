// Joins the tasks of several ranks for one capture. Knows no device and no collective.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "device/device.h"

namespace headroom {

// All tasks of all ranks, in the order of each rank. The first collective tasks of all ranks become one task,
// likewise the second ones and so on: it calls the task of each rank, in rank order, then `finish`, on one
// stream. Tasks of different ranks are otherwise not ordered. Throws InvalidArgument when ranks have
// different numbers of collective tasks.
std::vector<Task> join_tasks(std::span<const std::span<const Task>> tasks_of_ranks,
                             const std::function<void(Stream)>& finish);

}  // namespace headroom
