#include "tools/run/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace headroom {
namespace {

// Weights of a byte, by Evidence: docs/notes/limit.md says where they come from.
constexpr std::array<double, 6> kWeights = {4, 8.0 / 3, 2, 1, 1, 0.6};

// A cause weighs at least this part of what a process had: several things may share the blame, but not ten.
constexpr int64_t kLeastPart = 5;

// What the start-up hook says of a list, sum, model or other object of a program that keeps arrays: its name,
// file and line, count, bytes, `own` bytes (without the rest of what they are views of), and `graphs`; its
// kind (tensor, model, optimizer) and owner (library, queue, object of a library that is made of others,
// optimizer, error, buffer, call of a library, iterator; none: the program's own); `grows` where a line that
// may run again puts more into it, `in_step` if it is made anew in each step before its backward, `once` if
// all that a library put into it came from one call that has not ended.
bool is_filled_once(const Facts& holder) {
  return holder.is_set("once");
}

bool has_tensors(const Facts& holder) {
  return !holder.has("kind") || holder.text("kind") == "tensor";
}

bool are_views(const Facts& holder) {
  const int64_t own = holder.number("own");
  return has_tensors(holder) && own > 0 && holder.number("bytes") / 4 > own;
}

std::string line_of(const Facts& holder) {
  return fmt::format("{}:{}", holder.text("file"), holder.number("line"));
}

std::string text_of(const Facts& holder) {
  const int64_t count = holder.number("count"), bytes = holder.number("bytes");
  const std::string owner = holder.text("owner");
  return fmt::format(
      "{}{} keeps {} {}{}{}{}{}{}{}, at {}", holder.text("name"),
      owner == "queue" ? ", a queue without maxsize," : "", count,
      has_tensors(holder) ? "tensor" : holder.text("kind"), count == 1 ? "" : "s",
      are_views(holder) ? ", views that hold all of larger ones" : "",
      holder.is_set("graphs") ? " with the graph behind " + std::string(count == 1 ? "it" : "them") : "",
      owner == "error" ? " in tracebacks of errors" : "",
      is_filled_once(holder) ? ", all made in one call" : "",
      bytes >= 1 << 20 ? ", " + format_bytes(bytes) : "", line_of(holder));
}

std::string_view advice_on(const Facts& holder) {
  const std::string owner = holder.text("owner"), kind = holder.text("kind");
  if (are_views(holder))
    return "keep .clone() of a view, or a copy on the CPU (.cpu()): a view holds the whole tensor";
  if (holder.is_set("graphs") && has_tensors(holder) && owner.empty())
    return "keep values without their graph: .detach(), or under torch.no_grad()";
  if (is_filled_once(holder))
    return "make it smaller: what is made in advance takes positions x sequences x layers";
  if (owner == "buffer") return "update the buffer under torch.no_grad(), or from .detach()";
  if (owner == "iterator") return "make a new iterator for each pass: itertools.cycle keeps all that it gave";
  if (owner == "optimizer") return "a smaller history_size  # of L-BFGS, or another optimizer";
  if (owner == "error") return "keep str(error): an error's traceback holds the variables of its functions";
  if (owner == "queue") return "queue.Queue(maxsize=2)  # whoever fills it then waits";
  if (owner == "call" && holder.text("name").find(", in ") != std::string::npos)
    return "have the evaluation keep less of each batch, or keep it on the CPU  # Trainer: "
           "eval_accumulation_steps";
  if (owner == "call") return "have the call return less of each step, or make fewer steps at once";
  if (owner == "object") return "make a new one for each round, or empty it";
  if (kind == "optimizer")
    return "one optimizer for weights that several share, and drop those before: each has a state of its "
           "own";
  if (kind == "model" && owner == "library")
    return "free what each round prepares: accelerator.free_memory(), or a new object for each";
  if (kind == "model") return "keep one model on the GPU, and of the others state_dict() on the CPU";
  return "keep a copy in the machine's memory (.cpu(); np.asarray of a JAX array), or only what is needed "
         "of it";
}

// A finding of PyTorch's history.
Candidate candidate_of(const Facts& finding, const std::string& sentence, const Facts& facts) {
  Candidate made{.evidence = Evidence::kMoment,
                 .bytes = finding.number("bytes"),
                 .cause = {sentence},
                 .next = {"next: " + finding.text("advice")},
                 .cause_name = finding.text("cause")};
  if (made.is_kept()) made.evidence = Evidence::kGrowth;
  const Facts trained = facts.part("trained");
  if (const std::string at = trained.text("made");
      finding.text("title") == "Optimizers are kept" && !at.empty())
    made.add_note(fmt::format("{} optimizers are alive, made at {}", trained.number("optimizers"), at), at);
  if (made.is(Cause::kFragmentation)) made.evidence = Evidence::kIdle;
  // A seeming evaluation may be the forward pass of a long step, whose backward comes later.
  if (made.is(Cause::kGraphsKept) && facts.part("moment").is_set("backward") &&
      made.next.front().find("no_grad") != std::string::npos) {
    made.evidence = Evidence::kMoment;
    made.cause = {fmt::format("exhausted: one step keeps {} of activations until its backward",
                              format_bytes(made.bytes))};
    made.next = {"next: fewer or shorter passes before each backward",
                 "next: torch.utils.checkpoint.checkpoint(...)  # around a pass: computed again in backward"};
    made.cause_name = name_of(Cause::kExhausted);
  }
  return made;
}

// Lists, sums and other objects that keep arrays. What PyTorch's history shows to grow is the holder's, where
// that has as much, or the graphs that grew.
void add_holders(const Facts& facts, std::vector<Candidate>& all) {
  const auto grown = std::find_if(all.begin(), all.end(), [](const Candidate& each) {
    return each.evidence == Evidence::kGrowth && each.is_kept();
  });
  const int64_t bytes = grown == all.end() ? 0 : grown->bytes;
  const bool is_leak = bytes > 0 && grown->is(Cause::kLeak);
  const std::vector<Facts> holders = facts.parts("kept");
  const Facts *most = nullptr, *graph = nullptr;
  const auto is_of_call = [](const Facts& holder) { return holder.text("owner") == "call"; };
  for (const Facts& holder : holders) {
    // Models and optimizers may be needed: arrays that are about as much as what grew come first.
    const bool is_better = most != nullptr && !has_tensors(*most) && has_tensors(holder);
    if (bytes > 0 && holder.number("bytes") >= bytes / 3 && (most == nullptr || is_better)) most = &holder;
    // A call under way has graphs in any forward pass, and a sum of the step in any training.
    const bool is_of_step = holder.is_set("in_step") && is_leak;
    if (holder.is_set("graphs") && !is_of_step &&
        (graph == nullptr || (is_of_call(*graph) && !is_of_call(holder))))
      graph = &holder;
  }
  const bool is_explained = is_leak && most != nullptr && most->number("bytes") >= bytes / 2;
  const std::string owner = graph == nullptr ? "" : graph->text("owner");
  if (bytes > 0 && graph != nullptr && (!is_explained || owner == "buffer")) {
    grown->add_note(text_of(*graph), line_of(*graph));
    if (owner == "buffer" || owner == "error" || is_leak)
      grown->next.insert(grown->next.begin(), fmt::format("next: {}", advice_on(*graph)));
    return;
  }
  std::vector<Candidate> kept;
  const Facts outputs = facts.part("outputs");
  for (const Facts& holder : holders) {
    if (holder.number("count") < (has_tensors(holder) ? 3 : 2) ||
        (holder.text("kind") == "optimizer" && bytes == 0))
      continue;
    const bool is_seen = &holder == most || holder.text("owner") == "error";
    const Evidence alone = holder.is_set("grows") ? Evidence::kHeld : Evidence::kMaybeNeeded;
    const std::string cause(name_of(is_filled_once(holder) ? Cause::kExhausted : Cause::kLeak));
    kept.push_back({.evidence = is_seen ? Evidence::kGrowth : alone,
                    .bytes = std::max(&holder == most ? bytes : 0, holder.number("bytes")),
                    .cause = {cause + ": " + text_of(holder)},
                    .next = {fmt::format("next: {}", advice_on(holder))},
                    .cause_name = cause,
                    .line = line_of(holder)});
    if (is_of_call(holder) && !outputs.text("name").empty())
      kept.back().cause.push_back(fmt::format("more is asked for than the last layer: {}{}",
                                              outputs.text("name"),
                                              line_part(", at ", outputs.text("line"))));
  }
  if (most != nullptr) all.erase(grown);  // told by its holder
  all.insert(all.end(), std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end()));
}

void add_largest(const Facts& facts, int64_t least, Candidate& found) {
  const Facts largest = facts.part("largest");
  const std::string line = largest.text("line");
  const int64_t bytes = largest.number("bytes");
  if (bytes < std::max(least, int64_t{1}) || line.empty()) return;
  found.add_note(fmt::format("{} takes {}, made at {}", largest.text("name"), format_bytes(bytes), line),
                 found.line.empty() ? line : "");
}

// A part of a model that was to stay as it is: an optimizer has a state of twice its bytes, and gradients.
void add_evaluating(const Facts& facts, const RunFigures& run, Candidate& found) {
  const Facts part = facts.part("evaluating");
  const int64_t bytes = part.number("bytes");
  if (bytes == 0 || 4 * bytes < run.peak / kLeastPart) return;
  found.add_note(
      fmt::format("{} is in evaluation mode, yet an optimizer trains its weights ({}){}", part.text("name"),
                  format_bytes(bytes), line_part(", made at ", part.text("line"))),
      part.text("line"));
  found.next.insert(found.next.begin(),
                    "next: requires_grad_(False) on the frozen part; give the optimizer only the rest");
}

// Whose state it is that does not fit.
void add_state(const Facts& facts, const RunFigures& run, Candidate& found) {
  add_evaluating(facts, run, found);
  const Facts trained = facts.part("trained");
  const std::string made = trained.text("made");
  const int64_t count = trained.number("optimizers");
  if (!found.line.empty() || made.empty()) return;
  found.add_note(fmt::format("the state is that of {}{}, made at {}", trained.text("class"),
                             count > 1 ? fmt::format(" and other optimizers, {} in all", count) : "", made),
                 made);
}

// Says why, or by what, the program does what the best candidate says.
void add_reasons(const Facts& facts, const RunFigures& run, Candidate& best) {
  const Facts hooks = facts.part("hooks"), growth = facts.part("growth"), trained = facts.part("trained");
  const std::string padding = facts.text("padding");
  if (hooks.number("count") >= 3 && best.is_kept()) {
    const std::string names = hooks.text("names"), call = hooks.text("call");
    const std::string keeps = names.empty() ? ""
                                            : fmt::format(", and keeps {} by its closure, {}", names,
                                                          format_bytes(hooks.number("bytes")));
    best.add_note(fmt::format("leak: {} is {} times a hook of the same {}{}{}", hooks.text("name"),
                              hooks.number("count"), hooks.text("owner"), keeps,
                              line_part(", registered again at ", hooks.text("line"))),
                  hooks.text("line"),
                  {fmt::format("next: handle.remove()  # of what {} returned, when it has been used", call)});
    std::rotate(best.cause.begin(), best.cause.end() - 1, best.cause.end());
  }
  if (best.evidence == Evidence::kIdle && best.line.empty()) {
    for (const Facts& holder : facts.parts("kept")) {
      if (!has_tensors(holder) || !holder.text("owner").empty() || 2 * holder.number("bytes") < best.bytes)
        continue;
      best.add_note(text_of(holder) + ": the pieces lie between them", line_of(holder));
      break;
    }
  }
  const std::string graphs = facts.part("settings").text("graphs");
  if (best.line.empty() && best.is(Cause::kGraphsKept) && !graphs.empty())
    best.add_note("a backward keeps its graph, as asked for at " + graphs, graphs);
  const bool grows = best.is(Cause::kGrowingBatch);
  if (grows && !padding.empty() && !growth.is_set("sized")) {
    best.add_note("each batch is padded to its longest item, at " + padding, padding,
                  {"next: cut longer items, or put items of equal length into a batch"});
  } else if (grows && !growth.text("line").empty()) {
    best.add_note(fmt::format("{} is made larger at {}", growth.text("name"), growth.text("line")),
                  growth.text("line"));
  }
  const bool is_state = best.is(Cause::kOptimizerState);
  const bool is_of_step = best.evidence == Evidence::kMoment && best.is(Cause::kExhausted);
  if (!is_state && !(is_of_step && best.line.empty())) return;
  const int64_t bytes = trained.number("bytes"), total = trained.number("total");
  if (bytes > 0 && bytes >= total / 2) {
    best.add_note(fmt::format("of the {} of weights that are trained, {} are {}{}", format_bytes(total),
                              format_bytes(bytes), trained.text("names"),
                              line_part(", named at ", trained.text("line"))),
                  trained.text("line"));
  }
  if (!is_state) return;
  add_state(facts, run, best);
}

}  // namespace

std::string line_part(const std::string& before, const std::string& line) {
  return line.empty() ? "" : before + line;
}

void Candidate::add_note(const std::string& text, const std::string& at, std::vector<std::string> steps) {
  cause.push_back(text);
  if (!at.empty()) line = at;
  if (!steps.empty()) next = std::move(steps);
}

bool Candidate::is_kept() const {
  return is(Cause::kLeak) || is(Cause::kGraphsKept) || is(Cause::kLossesKept);
}

double Candidate::weight() const {
  return static_cast<double>(bytes) * kWeights.at(static_cast<size_t>(evidence));
}

int64_t ranks_of(const Facts& facts) {
  return std::max<int64_t>(1, facts.part("starts").number("ranks"));
}

std::vector<Candidate> rank_candidates(const Facts& facts, const Facts& report, const RunFigures& run) {
  std::vector<Candidate> all;
  const Facts verdict = report.part("verdict");
  std::string sentence = verdict.text("sentence");  // with that of the first finding
  for (const Facts& finding : verdict.parts("findings")) {
    // The place where the program stopped tells more than the pieces of a pool.
    if (finding.text("cause") == name_of(Cause::kFragmentation) && run.has_phase) continue;
    // A library's workspaces, which are known by their size alone, are no leak of the line that first needs
    // them.
    if (finding.text("cause") == name_of(Cause::kLeak) &&
        finding.number("bytes") <= workspaces_of(facts, report))
      continue;
    if (sentence.empty()) sentence = finding.text("title") + ": " + finding.text("sentence");
    all.push_back(candidate_of(finding, sentence, facts));
    sentence.clear();
  }
  add_holders(facts, all);
  add_rows(facts, report, all);
  const Facts growth = facts.part("growth");
  const auto is_growing = [](const Candidate& each) { return each.is(Cause::kGrowingBatch); };
  // PyTorch's history need not show that a batch grows, or is too large in each rank.
  const std::vector<Facts> holders = facts.parts("kept");
  const int64_t kept =
      holders.empty() ? 0 : holders.front().number("bytes");  // no step's, though a step made them
  const int64_t ranks = ranks_of(facts), activations = report.part("by_category").number("activations");
  const int64_t requested = verdict.part("failure").number("requested_bytes");
  const int64_t bytes = activations == 0 ? 0 : activations - kept + requested;  // 0: before any step
  const std::string batch = ranks > 1 ? facts.part("settings").text("batch") : "";
  const bool is_most = 2 * bytes * ranks >= run.peak;
  const bool grows = !growth.text("line").empty() && (ranks > 1 || (is_most && growth.is_set("sized")));
  if (std::none_of(all.begin(), all.end(), is_growing) && (grows || (is_most && !batch.empty()))) {
    const std::string cause(name_of(grows ? Cause::kGrowingBatch : Cause::kExhausted));
    all.push_back({.evidence = Evidence::kMoment,
                   .bytes = grows ? bytes : bytes * ranks,
                   .cause = {fmt::format("{}: the activations of one step take {}{}{}", cause,
                                         format_bytes(bytes), ranks > 1 ? " in each rank" : "",
                                         grows ? "" : "; its batch is sized at " + batch)},
                   .next = {"next: the largest batch that fits, and accumulated gradients beyond it"},
                   .cause_name = cause,
                   .line = grows ? "" : batch});
  }
  if (run.others > 0) {
    all.push_back(
        {.evidence = Evidence::kHeld,
         .bytes = run.others,
         .cause = {fmt::format("other-process: other processes of this command hold {} of the limit of {}",
                               format_bytes(run.others), format_bytes(run.limit))},
         .next = {"next: headroom who  # beside the next run: what each of them holds"},
         .cause_name = std::string(name_of(Cause::kOtherProcess))});
    add_start(facts, all.back());
    add_largest(facts, run.peak / kLeastPart, all.back());
  }
  const auto least = static_cast<double>(std::max<int64_t>(1, run.peak / ranks_of(facts) / kLeastPart));
  std::erase_if(all, [&](const Candidate& each) {
    const bool is_measured = each.evidence == Evidence::kMoment || each.evidence == Evidence::kGrowth ||
                             each.evidence == Evidence::kIdle;
    return each.bytes == 0 || each.weight() < least || (!is_measured && each.bytes < run.lacking);
  });
  // Each rank of a run holds, or grows, as this one does: that they share a card tells less, if it is as
  // much.
  const auto is_other = [](const Candidate& each) { return each.is(Cause::kOtherProcess); };
  const auto is_of_each = [&](const Candidate& each) {
    const bool is_needed = each.evidence == Evidence::kMoment || each.evidence == Evidence::kMaybeNeeded;
    const bool is_as_much = 2 * ranks * each.bytes >= run.others;
    return is_as_much && (is_growing(each) || each.is_kept() || (!is_needed && !is_other(each)));
  };
  if (ranks_of(facts) > 1 && std::any_of(all.begin(), all.end(), is_of_each)) std::erase_if(all, is_other);
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.weight() > b.weight(); });
  if (!all.empty()) add_reasons(facts, run, all.front());
  return all;
}

void add_start(const Facts& facts, Candidate& others) {
  const Facts starts = facts.part("starts");
  others.line = starts.text("line");
  if (!others.line.empty()) others.cause.push_back("started at " + others.line);
  if (ranks_of(facts) > 1) {
    if (!others.line.empty())
      others.cause.back() = "ranks of this run share the card; each chooses its own at " + others.line;
    others.next = {"next: a card for each rank, or fewer ranks: --nproc-per-node"};
  } else if (starts.is_set("jax")) {
    others.next.insert(others.next.begin(),
                       "next: XLA_PYTHON_CLIENT_PREALLOCATE=false  # or JAX takes three quarters");
  }
}

void add_kept(const Facts& facts, Candidate& logged) {
  constexpr int64_t kFew = 16 << 20;
  const std::vector<Facts> holders = facts.parts("kept");
  if (holders.empty() || holders.front().number("bytes") < kFew) return;
  logged.add_note(text_of(holders.front()), line_of(holders.front()));
  logged.next.insert(logged.next.begin(), "next: keep less of each, or write it to a file as it is made");
}

void add_request(const Facts& facts, const Facts& report, const RunFigures& run, Logged& logged) {
  const Facts request = facts.part("request"), transform = facts.part("transform");
  const std::string text = request.text("text"), line = transform.text("line"),
                    graphs = facts.part("moment").text("graphs");
  if (logged.makes_state) add_state(facts, run, logged);
  if (facts.part("moment").is_set("makes_model") && (logged.is_large || logged.is_bare)) {
    logged.cause_name = name_of(Cause::kModelTooLarge);
    logged.cause = {
        fmt::format("{}: memory ran out while the model was made, before any step", logged.cause_name)};
    logged.next = {
        "next: a smaller model, or its weights in 16 bits: torch.set_default_dtype(torch.bfloat16)",
        "next: layers on several devices (device_map, FSDP), or on the CPU until they are needed"};
    logged.is_large = logged.is_bare = false;
  }
  const bool is_product = text.find(" product of ") != std::string::npos;
  if (!logged.shows_attention && !is_product)
    std::erase_if(logged.next,
                  [](const std::string& step) { return step.find("flash-attn") != std::string::npos; });
  if (const std::string name = transform.text("name"); !line.empty() && logged.requested > 0) {
    if (name == "vmap") {
      logged.add_note(
          "vmap makes the gradients of all its examples at once, as large as the weights for each, at " +
              line,
          line,
          {transform.is_set("torch")
               ? "next: torch.func.vmap(..., chunk_size=16), and the sum of each chunk alone kept"
               : "next: jax.lax.map(f, xs, batch_size=16)  # instead of vmap over all examples"});
    } else if (name == "scan") {
      logged.add_note(
          "a scan stores what it returns at each step and, for gradients, what each step computes, at " +
              line,
          line,
          {"next: jax.checkpoint(body)  # of the scan; or a scan in parts, each in a checkpoint",
           "next: return less of each step"});
    } else {
      logged.add_note(
          name + " makes all rows of a matrix of derivatives at once, at " + line, line,
          {"next: products with vectors (jvp, vjp), or some rows at a time  # chunk_size of jacrev"});
    }
  }
  if (!graphs.empty() && logged.has_graphs) {
    logged.add_note("CUDA graphs are recorded at " + graphs, graphs);
  } else if (!text.empty()) {
    logged.add_note("of the request that failed: " + text, logged.line.empty() ? request.text("line") : "");
  }
  const Facts settings = facts.part("settings");
  const std::string fraction = settings.text("fraction");
  if (logged.is(Cause::kLimit) && !fraction.empty())
    logged.add_note("the program sets a limit of its own, at " + fraction, fraction);
  const std::string doubles = settings.text("double"),
                    wide = doubles.empty() ? facts.part("arrays").text("line") : doubles;
  if (!wide.empty() &&
      (text.find("float64") != std::string::npos || text.find("complex128") != std::string::npos))
    logged.add_note("its numbers have 8 bytes, by " + wide, wide,
                    {"next: float32 where it is precise enough: half the memory"});
  const int64_t activations = report.part("by_category").number("activations");
  const std::string batch = settings.text("batch");
  const bool is_batch = logged.is_large ? !batch.empty() && text.empty() : logged.is_bare;
  const int64_t of_step = activations + (logged.is_large ? logged.requested : 0);
  const bool trains = facts.part("trained").number("optimizers") > 0;
  if (is_batch && trains && run.peak > 0 && 2 * of_step >= run.peak && !logged.makes_state) {
    logged.add_note(fmt::format("the activations of one step take {}{}", format_bytes(of_step),
                                line_part("; its batch is sized at ", batch)),
                    logged.line.empty() ? batch : "");
    logged.next.insert(logged.next.begin(), "next: a batch half as large, and gradients added up over two");
  }
  if (request.is_set("rows"))
    logged.next = {"next: torch.einsum or a matmul, which adds up without storing each product"};
  if (request.is_set("pair"))
    logged.next = {"next: make the shapes equal first  # .squeeze(1), .view_as(other)"};
  const int64_t least = std::max<int64_t>(1, run.peak / kLeastPart);
  const size_t lines = logged.cause.size();
  add_largest(facts, least, logged);
  int64_t bytes = 0;
  std::string weights, first;
  for (const Facts& model : facts.parts("weights")) {
    if (model.text("line").empty()) continue;
    if (first.empty()) first = model.text("line");
    bytes += model.number("bytes");
    weights += fmt::format("{}{} takes {}, made at {}", weights.empty() ? "weights and gradients: " : "; ",
                           model.text("name"), format_bytes(model.number("bytes")), model.text("line"));
  }
  if (logged.cause.size() == lines && bytes >= least)
    logged.add_note(weights, logged.line.empty() ? first : "");
}

}  // namespace headroom
