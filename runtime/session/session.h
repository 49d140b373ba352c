// The session: does what a plan says, on each device with its strategy. The only loop of the runtime.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/device/host_buffer.h"
#include "runtime/session/bound_plan.h"

namespace headroom {

class Session {
 public:
  // Plans the targets and binds the plan to the devices of the variables. Graph and variables must outlive
  // the session. Throws OutOfMemory when an arena of a packed plan does not fit.
  Session(const Graph& graph, const Targets& targets, PlanMode mode, Variables& variables);
  // The same with a plan and kernels made before, which sessions of one graph may share.
  Session(const Graph& graph, Plan plan, std::shared_ptr<const Kernels> kernels, Variables& variables);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Plan& plan() const { return bound_.plan(); }
  // Runs queue their work there from the next one on; on the default stream at first. The stream must stay
  // until another one is set or the session ends. A session on several devices has the default one of each.
  void use_stream(Stream stream) { stream_ = stream; }
  // Why steps of a plan with an arena are queued node by node, not as recordings; empty where they are
  // recorded.
  std::string_view unrecorded_because() const;

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

  // Copies the inputs in, runs the plan `steps` times and copies out what the last of them gives; all of it
  // is done on return. With an arena the steps are recorded after the first one and queued many at a time,
  // with no host work and no allocation in between. Throws OutOfMemory, LibraryError or DeviceError with node
  // and value named; then nothing of the step stays allocated, the session can run again, and no variable has
  // changed since the step before. A fault in the data (an index out of range) that a GPU met before the last
  // of several steps is known only at the end of them, when the variables have followed it. Throws
  // InvalidArgument for fewer than one step.
  void run(int64_t steps = 1);

  // Of a plan with doubled inputs: device memory for the inputs of a step, 0 or 1, and where in it each lies.
  // run() uses set 0. The second throws InvalidArgument when the plan does not read that input.
  std::byte* input_set(int set) const { return bound_.input_set(set); }
  int64_t offset_in_input_set(const Value& value) const { return bound_.offset_in_input_set(value); }
  // As run() for one step, whose inputs are in that set by the time of `arrival`.
  void run_on_set(int set, const Event& arrival);
  // The same for a step of several, of which run_on_set() does the last: it is queued, and fetches nothing.
  // Returns its end, until when the set must stay as it is. What it fails with may come out of a later call.
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
  // Nodes that run without a copy between them.
  struct Part {
    std::vector<int> nodes;
    bool can_be_recorded = true;  // every node
    bool has_run = false;
    std::array<std::unique_ptr<Recording>, 2> recordings;  // by set of inputs

    bool is_ready() const { return has_run && can_be_recorded; }  // to be recorded
  };

  const Graph& graph() const { return bound_.graph(); }
  bool has_arenas() const { return has_arena(bound_.plan().mode); }
  void synchronize();
  void run_node(int node, Stream stream);
  void get_ready(int node);
  void get_ready(const std::vector<int>& nodes);
  void copy(const Step& step);
  void run_dynamic(bool is_last);
  void run_arena(int64_t steps);
  void begin_updates(bool is_last);
  void run_part(Part& part);
  void run_whole(int64_t steps);
  void guard_run(const std::function<void()>& work);
  void queue_step();
  std::unique_ptr<Recording> record_steps(int64_t steps);
  std::unique_ptr<Recording> record(const std::vector<int>& nodes, int64_t repeats);
  void use_arrived_set(int set, const Event& arrival);
  void clean_up() noexcept;
  std::span<std::byte> staging(const Value& value, DType dtype, std::vector<Staging>& all);
  const HostBuffer& staging_of(int value, std::vector<Staging>& all);

  BoundPlan bound_;
  std::vector<Staging> inputs_, outputs_;
  Stream stream_;
  bool device_takes_work_ = false;          // as the devices say when a run begins
  std::vector<bool> is_ready_;              // by node id: its library is started, its module loaded
  DeviceCollective* collective_ = nullptr;  // what some of the nodes are calls of
  bool copies_inputs_ = true;               // or they are there
  Part pure_, updates_;                     // the nodes before and after the copies out
  std::array<std::unique_ptr<Recording>, 2> whole_steps_;  // one step, by set of inputs
  std::unique_ptr<Recording> many_;  // steps, as many as the longest run so far had need of
  int64_t steps_of_many_ = 0, most_of_many_ = 1;
};

}  // namespace headroom
