// The order in which a plan is carried out, and all that it takes of its devices on the way. The session
// walks a plan with kernels, the prediction walks it without: a new kind of step is taught here and to both.
// Knows no kernel.
#pragma once

#include <span>
#include <vector>

#include "runtime/session/plan_memory.h"

namespace headroom {

// The work of a walk besides memory and library starts. Buffers are live and libraries started by the time
// they are needed.
class PlanWork {
 public:
  virtual ~PlanWork() = default;
  virtual void copy_in(int /*value*/) {}
  virtual void copy_out(int /*value*/) {}
  // Runs the nodes of a group in their order, or side by side as find_dependencies() allows.
  virtual void run_group(int /*group*/) {}
  // Everything before the first update of the last step was queued: a failure must be thrown now, before a
  // variable changes.
  virtual void wait_before_updates() {}
  // Runs up to `most` whole steps of a plan with an arena without copies, and returns how many: 0 when it has
  // no capture of them.
  virtual int64_t replay(int64_t /*most*/) { return 0; }
  // A step did so.
  virtual void allocated(int /*buffer*/) {}
  virtual void deallocated(int /*buffer*/) {}
};

class Walk {
 public:
  // Nodes with no other step between them; updates have groups of their own.
  struct Group {
    std::span<const int> nodes;
    bool is_update = false;
  };

  // The memory must outlive this.
  explicit Walk(PlanMemory& memory);
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  // In the order in which they run.
  const std::vector<Group>& groups() const { return groups_; }

  // Runs `steps` (> 0) steps; the last one copies out. If `copies_in` is false, the inputs are already there.
  // Throws OutOfMemory, LibraryError or DeviceError, naming the node; the buffers of a dynamic plan that are
  // live by then stay live.
  void run(int64_t steps, bool copies_in, Stream stream, PlanWork& work);
  // Runs a step of a longer run that is not the last one; its inputs are already there.
  void run_inner_step(Stream stream, PlanWork& work) { run_inner_steps(1, stream, work); }

 private:
  struct Pass {
    bool copies_in, is_last;
  };
  void run_pass(const Pass& pass, Stream stream, PlanWork& work);
  void run_inner_steps(int64_t steps, Stream stream, PlanWork& work);
  void start(int group);

  PlanMemory& memory_;
  std::vector<Step> steps_;  // as the plan's, but kRun is of a group
  std::vector<int> nodes_;   // nodes of all groups, in order
  std::vector<Group> groups_;
  std::vector<bool> is_started_;  // by group: its libraries are started, its modules loaded
};

}  // namespace headroom
