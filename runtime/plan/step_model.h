// A training step as a list of nodes whose results may be dropped and computed again, or go to host memory
// and come back: what each choice costs in time and takes in memory, fast enough to try thousands. Knows no
// search.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "runtime/graph/node_schedule.h"
#include "runtime/plan/host_copies.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/step_cost.h"

namespace headroom {

// The fate of a value between two uses, or after the last one, if only repeated nodes read it.
enum class Keep : uint8_t {
  kAlways,  // it stays
  kOnce,    // it goes, and is computed again once, at the first need
  kNever,   // it goes after each need, and is computed again at the next
  // It goes to host memory, and comes back once, for the first need.
  kHost,  // nothing waits for the copies, where the link has the time: they take the device's memory longer
  kHostAtOnce  // it is gone at once, and comes back when it is needed: nodes wait for the copies
};
constexpr bool is_on_host(Keep keep) {
  return keep == Keep::kHost || keep == Keep::kHostAtOnce;
}

class StepModel {
 public:
  // Gaps between uses, by number; all values' gaps follow each other.
  using Choices = std::vector<Keep>;
  struct Outcome {
    int64_t peak_bytes =
        std::numeric_limits<int64_t>::max();  // limit on a step's values, as in a plan with an arena
    double us = 0;
    int64_t host_bytes = 0;  // the most that lies in host memory
    bool is_valid = false;   // false: it runs too many nodes, or the host has no room
  };
  // A gap between two uses of a value, and what dropping the value there saves and costs.
  struct Gap {
    int number = -1;
    int64_t bytes = 0;
    double repeat_us = 0;  // about what computing it again costs
    double us = 0;         // approximate length
  };

  // Models the nodes that the targets need (find_needed_nodes), with the pure ones in another order if
  // wanted: each after those that it reads from. The graph must outlive this.
  // With no link, no value may move to the host.
  StepModel(const Graph& graph, const Targets& targets, const NeededNodes& needed, const NodeCosts& costs,
            const HostLink& host = {});

  // Everything stays as long as the nodes themselves need it.
  const Choices& keep_all() const { return keep_all_; }
  Outcome evaluate(const Choices& choices);
  // Results of the last evaluation, which must have been valid: values that are live where the peak is, and
  // wait; and values that are computed again, with what that cost.
  std::vector<Gap> waiting_at_peak(const Choices& choices) const;
  std::vector<Gap> repeats() const;
  // The most that is live at each position of the step, while its node, or what that needs, runs.
  const std::vector<int64_t>& most_at() const { return most_at_; }
  // Returns the live bytes above `bytes`, summed over the positions.
  int64_t bytes_above(int64_t bytes) const;
  // Returns the nodes that the last evaluation ran.
  NodeSchedule schedule() const;
  // Returns true if the value of a gap could stay throughout it, in addition to the values live there.
  bool has_room_for(int gap, int64_t budget_bytes, std::span<const int64_t> most_at) const;
  // About what computing the value of a gap again costs.
  double repeat_us(const Choices& choices, int gap) const;
  // Updates and the caller must read the value itself, not a recomputed one.
  bool can_drop(int gap) const { return can_leave(gap) && nodes_[root_of(gap).maker].can_repeat; }
  bool has_host() const { return host_.exists(); }
  bool can_go_to_host(int gap) const { return host_.exists() && can_leave(gap); }
  // Returns the time to copy the value of a gap, each way.
  double copy_us(int gap) const { return host_.copy_us(root_of(gap).bytes); }

  // No schedule of these nodes takes less: some node needs its operands, results and workspace at once.
  int64_t least_bytes() const { return least_bytes_; }
  // The work of an evaluation: how many entries it went through.
  int64_t work() const { return work_; }

 private:
  struct NodeInfo {
    int id = -1;
    double us = 0;
    int64_t workspace = 0;
    bool is_reshape = false, can_repeat = true, is_backward = false;
    std::span<const int> inputs = {}, outputs = {};  // value ids
    std::span<const int> in_place = {};     // by output: the input whose bytes it may take over, or -1
    std::span<const int> is_optional = {};  // by output, 0 or 1
  };
  // A value with memory of its own, and its uses.
  struct Root {
    int64_t bytes = 0;
    int maker = -1;      // position in nodes_; -1 for inputs and variables
    int first_gap = -1;  // gap i comes after uses[i]
    // Positions that read it or a reshape of it; before these its maker's, where it waits for the backward
    // pass from there on.
    std::span<const int> uses;
  };
  struct Instance {
    int value = -1, storage = -1;  // storage: the instance whose memory it is
    int gap = -1;                  // after which it comes back from the host
  };
  struct Entry {
    int node = -1;  // see node_at; the end is one past the last
    int time = 0;   // the position that it is run for
    bool is_repeat = false;
    int first_input = 0, first_output = 0;  // in entry_inputs_, in instances_
    ScheduledKind kind = ScheduledKind::kNode;
  };
  struct Buffer {
    int64_t bytes = 0;
    int reads_left = 0;
    int first = 0, last = 0;  // entries
  };

  int64_t bytes_of_root(int root) const { return roots_[root].bytes; }
  const Root& root_of(int gap) const { return roots_[root_of_gap_[gap]]; }
  bool can_leave(int gap) const { return root_of(gap).uses.back() + 1 < static_cast<int>(nodes_.size()); }
  // Returns the info of an entry; a copy takes no time.
  const NodeInfo& info_of(const Entry& entry) const;
  // Returns the node at a position or, after the end, a restorer, which has no position.
  const NodeInfo& node_at(int node) const {
    const auto at = static_cast<size_t>(node);
    return at < nodes_.size() ? nodes_[at] : restorers_[at - nodes_.size()];
  }
  NodeInfo info_of(const Node& node, int id, const NodeCosts& costs);
  void find_restorers(const NodeCosts& costs);
  int value_of(const Entry& entry, size_t output) const {
    return instances_[static_cast<size_t>(entry.first_output) + output].value;
  }
  void emit_all(const Choices& choices);
  int need(int value, int time, const Choices& choices);
  void emit(int node, int time, const Choices& choices);
  bool can_restore(int root, int time) const;
  bool need_inputs(const NodeInfo& node, int time, const Choices& choices);
  void add_entry(int node, int time, bool is_repeat, size_t base);
  void emit_restorer(int root, int time, const Choices& choices);
  void forget_behind(int root, const Choices& choices);
  void load(int root, int gap);
  void close_gaps(int time, const Choices& choices);
  void count_reads();
  double us_of(const Entry& entry) const;
  void insert_copies(const Choices& choices);
  Outcome measure();
  int gap_at(int root, int time) const;
  double gap_us(int gap) const;
  double repeat_us(const Choices& choices, int root, int time, std::vector<int>& seen) const;
  void find_results_given_again(std::vector<std::vector<int>>& uses);
  std::span<const int> keep(const std::vector<int>& list);

  const Graph& graph_;
  const HostLink host_;
  // Memory of all lists of nodes and roots, contiguous because an evaluation goes through all of them.
  std::unique_ptr<std::pmr::monotonic_buffer_resource> lists_ =
      std::make_unique<std::pmr::monotonic_buffer_resource>();
  const NodeInfo store_, load_;   // in place of a node, for the copies
  std::vector<double> begin_us_;  // by position in nodes_, without levers
  std::vector<NodeInfo> nodes_;   // in order; the last one is the end, which reads what leaves the step
  std::vector<Root> roots_;       // by value id
  std::vector<int> root_of_;      // by value id
  std::vector<int> node_of_;      // by value id: position in nodes_ of its maker, or -1
  std::vector<int> spec_of_;      // by value id: equal for equal specs
  // By value id: the value that a node gives with the same bits, if readers follow that node, or -1; and
  // what giving it costs.
  std::vector<int> again_of_;
  std::vector<double> again_us_;
  std::vector<NodeInfo> restorers_;  // that the step itself does not need
  std::vector<int> restorer_of_;     // by value id: the node that restores it (see node_at), or -1
  std::vector<int> root_of_gap_;
  std::vector<std::span<const int>> used_at_;  // by position: the roots that it reads, each once
  Choices keep_all_;
  int64_t input_bytes_ = 0, least_bytes_ = 0, work_ = 0;
  size_t max_entries_ = 0;

  // Results of the last evaluation.
  std::vector<Entry> entries_;
  std::vector<int> entry_inputs_;  // instances; -1 for what the step finds there
  std::vector<Instance> instances_;
  std::vector<int> now_;        // by value id: its instance, or -1
  std::vector<int> passed_;     // by root: uses so far
  std::vector<char> has_run_;   // by node, 0 or 1: read too often for bits
  std::vector<int> transient_;  // roots to drop after the present position
  std::vector<int> stack_;      // instances that nodes on their way will read
  bool is_too_long_ = false;
  std::vector<int> loads_;              // instances, in the order in which they are first needed
  std::vector<int> first_instance_of_;  // by value id: what its node made first, which goes to the host
  double us_with_copies_ = 0;
  int64_t host_bytes_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<char> is_given_again_;       // by value id, 0 or 1: read as a node gives it again
  std::vector<int> buffer_of_, reads_of_;  // by instance
  std::vector<int64_t> most_at_;           // by position
  int peak_entry_ = 0;
};

}  // namespace headroom
