// The session: carries out a plan on its devices. walk.h knows the order; this copies, launches kernels, and
// captures steps to replay them.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "device/host_buffer.h"
#include "runtime/session/bound_plan.h"
#include "runtime/session/walk.h"

namespace headroom {

class Session : private PlanWork {
 public:
  // Plans the targets and binds the plan to the devices of the variables. Graph and variables must outlive
  // the session. Throws OutOfMemory when an arena of a packed plan does not fit.
  Session(const Graph& graph, const Targets& targets, PlanMode mode, Variables& variables);
  // Uses a plan and kernels made before, which sessions of one graph may share. Sessions that share arenas
  // must run in turn and on one stream.
  Session(const Graph& graph, Plan plan, std::shared_ptr<const Kernels> kernels, Variables& variables,
          const SharedArenas* arenas = nullptr);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Plan& plan() const { return bound_.plan(); }
  const Variables& variables() const { return bound_.variables(); }
  // Later runs queue their work on `stream`; at first it is the default one. The stream must stay until
  // another one is set or the session ends. A session on several devices uses the default stream of each.
  void use_stream(Stream stream) { stream_ = stream; }
  // Returns the reason that steps of a plan with an arena are queued node by node; empty if they are captured
  // and replayed.
  std::string_view not_captured_because() const;

  // Host memory of an input, written by the caller before run(); keeps its content between runs. Throws
  // InvalidArgument when the plan does not read that input or T is not its dtype.
  template <typename T>
  std::span<T> input(const Value& value) {
    std::span<std::byte> bytes = staging(value, dtype_of<T>, inputs_);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  // Host memory of a fetched value as the last run left it.
  template <typename T>
  std::span<const T> output(const Value& value) {
    std::span<std::byte> bytes = staging(value, dtype_of<T>, outputs_);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  // Copies the inputs in, runs the plan `steps` times, copies out the fetched values of the last step, and
  // waits for all of it. With an arena the steps are captured after the first one and replayed many at a
  // time, with no host work and no allocation in between. Throws OutOfMemory, LibraryError or DeviceError
  // naming node and value; then nothing of the step stays allocated, the session can run again, and no
  // variable has changed since the step before. A GPU reports a fault in the data (an index out of range) in
  // one of several steps only at their end, when the variables have changed. Throws InvalidArgument for fewer
  // than one step.
  void run(int64_t steps = 1);
  // Like run(), with the inputs that the last run left on the device, if the plan has an arena. If it has
  // none, and before the first run, they are copied in.
  void run_again(int64_t steps = 1);

  // For a plan with doubled inputs: device memory for the inputs of a step, set 0 or 1, and the offset of an
  // input in it. run() uses set 0. The latter throws InvalidArgument when the plan does not read that input.
  std::byte* input_set(int set) const { return bound_.memory().input_set(set); }
  int64_t offset_in_input_set(const Value& value) const { return bound_.memory().offset_in_input_set(value); }
  // Like run() for one step, whose inputs are in that set by the time of `arrival`.
  void run_on_set(int set, const Event& arrival);
  // Queues a step that is not the last one of a run, and fetches nothing; run_on_set() does the last. Returns
  // the step's end; the set must not change before that. A later call may throw its failure.
  std::unique_ptr<Event> queue_on_set(int set, const Event& arrival);
  // Waits for what was queued. Throws as run() does.
  void finish();
  Device& device() const { return bound_.variables().device(); }

 private:
  Session(const Graph& graph, const Targets& targets, PlanMode mode, std::shared_ptr<const Kernels> kernels,
          Variables& variables);
  struct Staging {
    int value;
    HostBuffer bytes;
  };
  // The state of a group of nodes of the walk.
  struct GroupState {
    bool can_be_captured = true;  // every node
    bool has_run = false;
    std::array<std::unique_ptr<Capture>, 2> captures;  // by set of inputs

    bool is_ready() const { return has_run && can_be_captured; }  // to be captured
  };

  void copy_in(int value) override;
  void copy_out(int value) override;
  void run_group(int group) override;
  void wait_before_updates() override;
  int64_t replay(int64_t most) override;

  const Graph& graph() const { return bound_.graph(); }
  bool has_several_devices() const;
  void synchronize();
  void run_node(int node, Stream stream);
  void run_steps(int64_t steps, bool copies_in);
  template <typename Work>
  void guard_run(const Work& work);
  std::unique_ptr<Capture> capture_steps(int64_t steps);
  std::unique_ptr<Capture> capture(std::span<const int> nodes, int64_t repeats);
  void use_arrived_set(int set, const Event& arrival);
  void clean_up() noexcept;
  std::span<std::byte> staging(const Value& value, DType dtype, std::vector<Staging>& all);
  const HostBuffer& staging_of(int value, std::vector<Staging>& all);

  BoundPlan bound_;
  Walk walk_;
  std::vector<GroupState> groups_;  // by group of the walk
  std::vector<Staging> inputs_, outputs_;
  Stream stream_;
  bool device_takes_work_ = false;                       // as the devices say when a run begins
  DeviceCollective* collective_ = nullptr;               // one that some of the nodes call, on any device
  std::array<std::unique_ptr<Capture>, 2> whole_steps_;  // one step, by set of inputs
  std::unique_ptr<Capture> many_;  // several steps, as many as the longest run so far needed
  int64_t steps_of_many_ = 0, max_of_many_ = 1;
  bool many_is_queued_ = false;  // in this run: it must not be captured anew
};

}  // namespace headroom
