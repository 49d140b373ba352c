#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "tools/run/candidates.h"

namespace headroom {
namespace {

// So many threads any program may have, of its libraries.
constexpr int64_t kFewThreads = 4;

// Facts that are one holder each, with its name, line, bytes, count and call. {at} is ", made at LINE" if
// that is known.
struct CauseRow {
  const char* fact;
  const char* sentence;
  std::array<const char*, 2> next;
  struct {
    Evidence evidence = Evidence::kHeld;
    int64_t percent = 100;  // of the bytes that would not have been needed
    Cause cause = Cause::kExhausted;
  } kind = {};
};
constexpr char kDelete[] = "next: del {name}  # when it has been used";
constexpr CauseRow kRows[] = {
    {"replaced",
     "exhausted: {name} still holds {bytes} while its next value is made, at {line}",
     {kDelete},
     {Evidence::kHeld, 50}},  // the next is needed
    {"loaded",
     "exhausted: {name} still holds {bytes} that {call} returned, at {line}",
     {"next: map_location=\"cpu\"  # of torch.load", kDelete}},
    {"loading",
     "exhausted: {call} has put {bytes} on the GPU so far, at {line}",
     {"next: map_location=\"cpu\"  # of torch.load"}},
    // While it is joined the old one and the new one are there.
    {"grown",
     "leak: {name} grows by {call} and takes {bytes}, at {line}",
     {"next: keep no more than is needed, or the parts on the CPU: a join needs the old and the new one"},
     {Evidence::kGrowth, 200, Cause::kLeak}},
    {"arrays",
     "exhausted: of the arrays in these functions, {total}, {bytes} are float64 or complex128{since}",
     {"next: float32 and complex64 where they are precise enough: half the memory"}},
    {"precise",
     "exhausted: the weights of {name} are float64, and so is what it computes, {bytes} in all{at}",
     {"next: float32 where it is precise enough: half the memory"},
     {Evidence::kHeld, 50}},
    {"models",
     "exhausted: the weights and gradients of {count} models of class {name} take {bytes}{at}",
     {"next: one model for all that use it (threads, requests, members that can wait for their turn)"},
     {Evidence::kMaybeNeeded}},
    {"cycles",
     "leak: objects that refer to each other{as} keep {bytes} until Python's collector runs{where}",
     {"next: weakref.ref(...) for the way back, or save_for_backward for what a backward needs",
      "next: gc.collect()  # after each round"},
     {Evidence::kGarbage, 100, Cause::kLeak}},
    {"plans",
     "leak: CuPy's cache keeps {count} FFT plans, whose work areas take {bytes}{at}",
     {"next: cupy.fft.config.get_plan_cache().set_size(1)  # or .clear() where the lengths change"},
     {Evidence::kHeld, 100, Cause::kLeak}},
    {"threads",
     "workspace: cuBLAS keeps {bytes} of workspaces, one for each stream in each thread that uses it: "
     "{count} {call}{at}",
     {"next: fewer {call}; CUBLAS_WORKSPACE_CONFIG=:4096:2 makes each workspace smaller"},
     {Evidence::kHeld, 100, Cause::kWorkspace}},
    {"CuPy",
     "other-library: CuPy holds {bytes} of this process's memory, where PyTorch cannot use it",
     {"next: cupy.get_default_memory_pool().free_all_blocks()  # before PyTorch needs it"}},
    {"JAX",
     "other-library: JAX holds {bytes} of this process's memory, where PyTorch cannot use it",
     {"next: XLA_PYTHON_CLIENT_PREALLOCATE=false  # in the environment: JAX then grows"}},
    {"untrained",
     "exhausted: backward makes {bytes} of gradients for weights that no optimizer trains",
     {"next: model.requires_grad_(False)  # then True for what is trained"}},
    {"unseen",
     "exhausted: {name} runs with gradients{where}, though no optimizer trains it: its activations are kept",
     {"next: with torch.no_grad():  # around it"}},
};

// Makes the candidate of a row, whose holder has so many bytes.
Candidate candidate_of(const CauseRow& row, const Facts& holder, int64_t bytes) {
  const std::string name = holder.text("name"), line = holder.text("line"), call = holder.text("call");
  const auto fill = [&](const char* text) {
    return fmt::format(
        fmt::runtime(text), fmt::arg("name", name), fmt::arg("line", line), fmt::arg("call", call),
        fmt::arg("bytes", format_bytes(bytes)), fmt::arg("count", holder.number("count")),
        fmt::arg("total", format_bytes(holder.number("bytes"))),
        fmt::arg("at", line_part(", made at ", line)), fmt::arg("where", line_part(", at ", line)),
        fmt::arg("since", line_part(", since ", line)),
        fmt::arg("as", name.empty() ? "" : ", as " + name + " does,"));
  };
  Candidate made{.evidence = row.kind.evidence,
                 .bytes = bytes * row.kind.percent / 100,
                 .cause = {fill(row.sentence)},
                 .next = {},
                 .cause_name = std::string(name_of(row.kind.cause)),
                 .line = line};
  for (const char* step : row.next) {
    const bool is_of_load =
        step != nullptr && std::string_view(step).find("of torch.load") != std::string_view::npos;
    if (step != nullptr && (!is_of_load || call == "torch.load")) made.next.push_back(fill(step));
  }
  return made;
}

// The holder that a row tells of, and its bytes; 0: none.
std::pair<Facts, int64_t> holder_of(const Facts& facts, const Facts& report, std::string_view fact) {
  const Facts kinds = report.part("by_category"), untrained = facts.part("untrained"),
              libraries = facts.part("libraries");
  if (fact == "models") {
    const std::vector<Facts> models = facts.parts("weights");
    if (models.empty() || models.front().number("count") < 3) return {};
    return {models.front(), models.front().number("bytes")};
  }
  if (fact == "precise") {
    const std::string line = facts.part("settings").text("double");
    int64_t bytes = 0;
    for (const char* kind : {"activations", "gradients", "optimizer_state", "weights"})
      bytes += kinds.number(kind);
    for (const Facts& model : facts.parts("weights")) {
      if (2 * model.number("doubles") >= model.number("bytes"))
        return {
            Facts(Record{{"name", model.text("name")}, {"line", line.empty() ? model.text("line") : line}}),
            bytes};
    }
    return {};
  }
  if (fact == "unseen") {
    if (untrained.text("runs").empty()) return {};
    // Its activations are a part of all.
    return {Facts(Record{{"name", untrained.text("runs")}, {"line", untrained.text("line")}}),
            std::max({int64_t{1}, untrained.number("bytes"), kinds.number("activations")})};
  }
  if (libraries.has(fact)) return {Facts(), libraries.number(fact)};
  const Facts holder = facts.part(fact);
  const int64_t bytes = holder.number("bytes"), doubles = holder.number("doubles");
  if (fact == "arrays") return {holder, doubles < bytes / 2 ? 0 : doubles};
  if (fact == "untrained") return {holder, holder.number("gradients")};
  return {holder, fact == "threads" ? workspaces_of(facts, report) : bytes};
}

}  // namespace

int64_t workspaces_of(const Facts& facts, const Facts& report) {
  const Facts threads = facts.part("threads");
  const int64_t sized = report.part("verdict").part("failure").number("workspace_bytes");
  return threads.number("count") < kFewThreads ? 0 : std::max<int64_t>(0, sized - threads.number("bytes"));
}

void add_rows(const Facts& facts, const Facts& report, std::vector<Candidate>& all) {
  const Facts misspelt = facts.part("untrained").part("misspelt");
  for (const CauseRow& row : kRows) {
    const std::string_view fact = row.fact;
    const auto [holder, bytes] = holder_of(facts, report, fact);
    if (bytes == 0) continue;
    all.push_back(candidate_of(row, holder, bytes));
    const std::string library = facts.part("libraries").part("lines").text(fact),
                      line = misspelt.text("line");
    if (!library.empty())
      all.back().add_note((fact == "CuPy" ? "CuPy is first used at " : "JAX is imported at ") + library,
                          library);
    if ((fact == "untrained" || fact == "unseen") && !line.empty()) {
      all.back().add_note(
          fmt::format("its weights have {}, which PyTorch does not read, at {}", misspelt.text("name"), line),
          line, {"next: requires_grad, or model.requires_grad_(False)"});
    }
  }
}

}  // namespace headroom
