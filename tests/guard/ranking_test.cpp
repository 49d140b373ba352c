// Tests which cause a verdict chooses where the facts speak for several, from files of `run --failure`.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/guard/guard_fixture.h"

namespace headroom {
namespace {

class Ranking : public Guard {
 protected:
  struct Row {
    const char* promise;
    std::string facts, findings;  // of the hook, and of the report on PyTorch's history
    int64_t others = 0;           // MiB of other processes
    std::string first, second;    // how the verdict begins, and what follows; "!text" must not be in it
    int64_t requested = 256;      // MiB
    std::string log = {};         // if not the bare request
    int64_t activations = 2000;   // MiB
  };

  // The verdict on a process that has 4 GiB, less `others`, of a limit of 4 GiB.
  std::string verdict(const Row& row) const {
    const std::string bare = fmt::format("CUDA out of memory. Tried to allocate {}.00 MiB", row.requested);
    const std::string& log = row.log.empty() ? bare : row.log;
    const std::string failure = fmt::format(
        R"({{"event": 1, "requested_bytes": {0}, "driver_bytes": {0}, "live_bytes": {1}, "free_bytes": 0, "workspace_bytes": {2}}})",
        row.requested * kMib, (3800 - row.others) * kMib, 1600 * kMib);
    const std::string report = fmt::format(
        R"({{"by_category": {{"activations": {}}}, "verdict": {{"sentence": "Out of memory; the history.", "failure": {}, "findings": [{}]}}}})",
        row.activations * kMib, failure, row.findings);
    const std::string file = folder_.write(
        "failure.json",
        fmt::format(
            R"({{"headroom_failure": 1, "status": 256, "killed_for_memory": false, "command": "python train.py",
 "errors": "{}", "first_refusal_of": 7, "report": {}, "facts": {{{}}},
 "cards": [{{"card": 0, "limit": {}, "peak": {}, "context_refused": 0}}],
 "slots": [{{"owner": 7, "refusals": 1, "refused": {}, "ns": 1, "others": {}, "card": 0}}]}})",
            log, report, row.facts, 4096 * kMib, 4000 * kMib, row.requested * kMib, row.others * kMib));
    return run_shell(folder_, HEADROOM_COMMAND " run --failure " + file).out;
  }
  // A program's error, whose recorded graphs have so much.
  static std::string full(const char* recorded) {
    return fmt::format(
        R"(Traceback (most recent call last):\n  File \"train.py\", line 88, in <module>\n    main()\n)"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total "
        "capacity of 4.00 GiB of which 4.00 MiB is free. Including non-PyTorch memory, this process has 3.99 "
        "GiB memory in use. Of the allocated memory 3.60 GiB is allocated by PyTorch, with {} allocated in "
        "private pools (e.g., CUDA Graphs), and 90.00 MiB is reserved by PyTorch but unallocated.",
        recorded);
  }
  static std::string kept(const char* name, int64_t mib, const char* more = "") {
    return fmt::format(
        R"({{"name": "{}", "file": "train.py", "line": 7, "count": 40, "bytes": {}, "own": {}, "graphs": false, "owner": ""{}}})",
        name, mib * kMib, mib * kMib, more);
  }
  static std::string finding(const char* cause, int64_t mib) {
    return fmt::format(R"({{"cause": "{}", "bytes": {}, "title": "T", "sentence": "found", "advice": "do"}})",
                       cause, mib * kMib);
  }
  static std::string fact(const char* name, int64_t mib, const char* more = "") {
    return fmt::format(R"("{}": {{"name": "x", "line": "train.py:9", "bytes": {}, "call": "torch.load"{}}})",
                       name, mib * kMib, more);
  }
};

TEST_F(Ranking, TheCauseThatExplainsMostIsTold) {
  const std::string grows = R"(, "grows": true)";
  const std::string called =
      R"({"name": "generate", "file": "train.py", "line": 7, "count": 40, "bytes": 2097152000, "owner": "call"})";
  const Row rows[] = {
      {"a list that the history shows to grow is told by its name", "\"kept\": [" + kept("preds", 2000) + "]",
       finding("leak", 2100), 0, "leak: preds keeps 40 tensors", ""},
      {"a list that may be needed comes after a state that does not fit",
       "\"kept\": [" + kept("images", 1500) + "]", finding("optimizer-state", 1200), 0,
       "Out of memory; the history", "or leak: images"},
      {"nearly as much is told in a second line", "\"kept\": [" + kept("replay", 1100, grows.c_str()) + "]",
       finding("optimizer-state", 1200), 0, "Out of memory; the history", "or leak: replay keeps 40 tensors"},
      {"a small list is no cause", "\"kept\": [" + kept("ids", 300, grows.c_str()) + "]", "", 0,
       "Out of memory", "!ids keeps"},
      {"a checkpoint that stays comes before a smaller state", fact("loaded", 2000),
       finding("optimizer-state", 900), 0, "exhausted: x still holds 1.95 GiB that torch.load returned",
       "next: map_location"},
      {"other processes come before a list that may be needed", "\"kept\": [" + kept("images", 1000) + "]",
       "", 2500, "other-process: other processes of this command hold 2.44 GiB", ""},
      {"each rank keeps as this one does",
       R"("starts": {"ranks": 2, "line": ""}, "kept": [)" + kept("maps", 900, grows.c_str()) + "]", "", 2000,
       "leak: maps keeps 40 tensors", "!other processes"},
      {"each rank has a batch that grows",
       R"("starts": {"ranks": 2, "line": ""}, "growth": {"name": "size", "line": "train.py:37"})", "", 2000,
       "growing-batch: the activations of one step take 2.20 GiB in each rank\nsize is made larger at "
       "train.py:37",
       "!other processes"},
      {"a step of a size that grows is told where it is most",
       R"("growth": {"name": "n", "line": "train.py:3", "sized": true})", "", 0,
       "growing-batch: the activations of one step take 2.20 GiB\nn is made larger at train.py:3", ""},
      {"and not for what is only called like a size", R"("growth": {"name": "size", "line": "train.py:3"})",
       "", 0, "Out of memory", "!growing-batch"},
      {"whose state it is that does not fit",
       R"("trained": {"class": "Adam", "made": "train.py:4", "optimizers": 1})", "", 0,
       "exhausted: The optimizer makes", "the state is that of Adam, made at train.py:4", 256,
       R"(    state[\"exp_avg_sq\"] = torch.zeros_like(\n)"
       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity "
       "of 4.00 GiB of which 4.00 MiB is free. Including non-PyTorch memory, this process has 3.99 GiB "
       "memory "
       "in use."},
      {"each rank has a large batch",
       R"("starts": {"ranks": 2, "line": ""}, "settings": {"batch": "train.py:5"})", "", 2000,
       "exhausted: the activations of one step take 2.20 GiB in each rank; its batch is sized at train.py:5",
       ""},
      {"a request before any step is that of no batch",
       R"("starts": {"ranks": 2, "line": ""}, "settings": {"batch": "train.py:5"})",
       "",
       2000,
       "other-process: other processes of this command hold",
       "!batch is sized",
       2200,
       {},
       0},
      {"each rank holds a checkpoint", R"("starts": {"ranks": 2, "line": ""}, )" + fact("loaded", 700), "",
       2000, "exhausted: x still holds 700.00 MiB that torch.load returned", "!other processes"},
      {"garbage comes before what holds it",
       "\"kept\": [" + kept("maps", 900, grows.c_str()) + "], " + fact("cycles", 900), "", 0,
       "leak: objects that refer to each other, as x does", "!maps"},
      {"what would not have made room is no cause", "\"kept\": [" + kept("maps", 1500, grows.c_str()) + "]",
       "", 0, "Out of memory", "!maps", 3000},
      {"a model that runs with gradients counts by its activations",
       R"("untrained": {"bytes": 1000, "gradients": 0, "runs": "Teacher"})", "", 0,
       "exhausted: Teacher runs with gradients", ""},
      {"numbers of 8 bytes count where they are most",
       fmt::format(R"("arrays": {{"bytes": {}, "doubles": {}, "line": "train.py:3"}})", 1000 * kMib,
                   900 * kMib),
       "", 0, "exhausted: of the arrays in these functions", "since train.py:3"},
      {"and not where they are few",
       fmt::format(R"("arrays": {{"bytes": {}, "doubles": {}, "line": "train.py:3"}})", 2500 * kMib,
                   900 * kMib),
       "", 0, "Out of memory", "!float64"},
      {"models that are all needed are told as what they take",
       fmt::format(R"("weights": [{{"name": "Net", "line": "train.py:4", "bytes": {}, "count": 5}}])",
                   2000 * kMib),
       "", 0, "exhausted: the weights and gradients of 5 models of class Net take", ""},
      {"a library beside PyTorch that has most is told",
       fmt::format(R"("libraries": {{"CuPy": {}}})", 2000 * kMib), finding("growing-batch", 900), 0,
       "other-library: CuPy holds", ""},
      {"weights of 8 bytes make all that is computed twice as large",
       fmt::format(
           R"("settings": {{"double": "train.py:8"}}, "weights": [{{"name": "net", "line": "train.py:4", "bytes": {0}, "doubles": {0}, "count": 1}}])",
           500 * kMib),
       "", 0,
       "exhausted: the weights of net are float64, and so is what it computes, 1.95 GiB in all, made at "
       "train.py:8",
       ""},
      {"pools of recorded graphs that hold most are told", fact("cycles", 490), "", 0,
       "exhausted: Recorded CUDA graphs hold 2.93 GiB", "!objects that refer", 256, full("3000.00 MiB")},
      {"and small ones are not", fact("cycles", 900), "", 0, "leak: objects that refer to each other",
       "!CUDA graphs", 256, full("600.00 MiB")},
      {"pieces come before a list that may be needed",
       "\"kept\": [" + kept("index", 1500, grows.c_str()) + "]", finding("fragmentation", 1200), 0,
       "Out of memory; the history", "!leak: index"},
      {"pieces lie between what is kept, which is told with its line",
       "\"kept\": [" + kept("index", 700) + "]", finding("fragmentation", 1200), 0,
       "Out of memory; the history",
       "index keeps 40 tensors, 700.00 MiB, at train.py:7: the pieces lie between them"},
      {"what is kept is no part of each rank's step",
       R"("starts": {"ranks": 2, "line": ""}, "settings": {"batch": "train.py:5"}, "kept": [)" +
           kept("scores", 1900, grows.c_str()) + "]",
       "", 1900, "leak: scores keeps 40 tensors", "!activations"},
      {"and after a list that is much larger", "\"kept\": [" + kept("index", 2900, grows.c_str()) + "]",
       finding("fragmentation", 900), 0, "leak: index", ""},
      {"a limit that the program sets is told with its line", R"("settings": {"fraction": "train.py:6"})", "",
       0, "limit: 1.13 GiB are needed", "the program sets a limit of its own, at train.py:6", 256,
       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity "
       "of 4.00 "
       "GiB of which 2.50 GiB is free. Including non-PyTorch memory, this process has 1.50 GiB memory in "
       "use. 1.00 "
       "GiB allowed; Of the allocated memory 900.00 MiB is allocated by PyTorch, and 20.00 MiB is reserved "
       "by PyTorch "
       "but unallocated."},
      {"each stream has workspaces of cuBLAS, which are no leak of what first needs them",
       R"("threads": {"line": "train.py:9", "bytes": 104857600, "count": 24, "call": "streams"})",
       finding("leak", 1400), 0,
       "workspace: cuBLAS keeps 1.46 GiB of workspaces, one for each stream in each thread that uses it: 24 "
       "streams, made at train.py:9",
       "next: fewer streams"},
      {"and few threads do not matter", fact("threads", 100, R"(, "count": 3)"), "", 0, "Out of memory",
       "!workspace"},
      {"ranks share a card where each keeps little", R"("starts": {"ranks": 2, "line": "train.py:2"})",
       finding("graphs-kept", 230), 1900, "other-process: other processes of this command hold 1.86 GiB",
       "each chooses its own at train.py:2"},
      {"what a library filled in one call is no leak",
       "\"kept\": [" + kept("cache", 2000, R"(, "once": true)") + "]", "", 0,
       "exhausted: cache keeps 40 tensors, all made in one call", "next: make it smaller"},
      {"hooks that are registered again are told with what they keep",
       fmt::format(
           R"("hooks": {{"count": 60, "name": "report", "owner": "optimizer", "names": "x", "bytes": {}, "line": "train.py:4", "call": "register_step_post_hook"}})",
           1000 * kMib),
       finding("leak", 1000), 0,
       "leak: report is 60 times a hook of the same optimizer, and keeps x by its closure, 1000.00 MiB, "
       "registered again at train.py:4",
       "next: handle.remove()  # of what register_step_post_hook returned"},
      {"optimizers that are kept are told with the line that makes them",
       R"("trained": {"class": "Adam", "made": "train.py:4", "optimizers": 10})",
       fmt::format(
           R"({{"cause": "leak", "bytes": {}, "title": "Optimizers are kept", "sentence": "3 of state", "advice": "do"}})",
           1000 * kMib),
       0, "Out of memory; the history", "10 optimizers are alive, made at train.py:4"},
      {"a call that is asked for scores keeps them",
       R"("outputs": {"name": "output_scores", "line": "train.py:8"}, "kept": [)" + called + "]", "", 0,
       "leak: generate keeps 40 tensors",
       "more is asked for than the last layer: output_scores, at train.py:8"},
      {"a model that is being made has no batch", R"("moment": {"makes_model": true})", "", 0,
       "model-too-large: memory ran out while the model was made", "!batch", 256, full("60.00 MiB"), 0},
      {"attention is advised on where it is shown", "", "", 0, "too-large-for-device", "!flash-attn", 5000,
       R"(Traceback (most recent call last):\n  File \"/a/train.py\", line 88, in main\n    x.contiguous()\n)"
       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.00 GiB. GPU 0 has a total capacity "
       "of 4.00 GiB of which 3.00 GiB is free.",
       0},
      {"a backward that keeps its graph is told", R"("settings": {"graphs": "train.py:6"})",
       finding("graphs-kept", 2000), 0, "Out of memory; the history",
       "keeps its graph, as asked for at train.py:6"},
      {"what is as large as a batch grows before what pads it",
       R"("padding": "train.py:3", "growth": {"name": "n", "line": "train.py:8", "sized": true})",
       finding("growing-batch", 2000), 0, "Out of memory; the history", "n is made larger at train.py:8"},
      {"what a step computes is told where nothing else is found",
       R"("trained": {"optimizers": 1}, "settings": {"batch": "train.py:5"})", "", 0,
       "exhausted: Tensors of this process hold",
       "the activations of one step take 1.95 GiB; its batch is sized at train.py:5", 256, full("60.00 MiB")},
  };
  for (const Row& row : rows) {
    const std::string text = verdict(row);
    EXPECT_EQ(text.substr(0, row.first.size()), row.first) << row.promise << "\n" << text;
    const bool is_absent = row.second.starts_with('!');
    EXPECT_EQ(has(text, row.second.substr(is_absent ? 1 : 0)), !is_absent) << row.promise << "\n" << text;
  }
}

}  // namespace
}  // namespace headroom
