#include "tools/run/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/cause.h"
#include "base/text.h"

namespace headroom {

struct Facts {
  nlohmann::json values;
};

namespace {

// An object of the facts; an empty one if it is missing or anything else.
nlohmann::json object_of(const nlohmann::json& facts, const char* name) {
  const auto found = facts.find(name);
  return found != facts.end() && found->is_object() ? *found : nlohmann::json::object();
}

std::string text_of(const nlohmann::json& facts, const char* name) {
  const auto found = facts.find(name);
  return found != facts.end() && found->is_string() ? printable(found->get<std::string>(), 300) : "";
}

// A count of at most 2^60, so that sums of a few do not overflow; 0 if it is missing or anything else.
int64_t number_of(const nlohmann::json& facts, const char* name) {
  const auto found = facts.find(name);
  if (found == facts.end() || !found->is_number_integer()) return 0;
  return std::clamp<int64_t>(found->get<int64_t>(), 0, int64_t{1} << 60);
}

bool is_set(const nlohmann::json& facts, const char* name) {
  const auto found = facts.find(name);
  return found != facts.end() && found->is_boolean() && found->get<bool>();
}

// The list, or sum, in the program that keeps arrays.
struct Kept {
  std::string name, line;                 // "train.py:49"
  int64_t count = 0, bytes = 0, own = 0;  // `own`: without the rest of what they are views of
  bool graphs = false;
  std::string kind = "tensor";  // or "model", "optimizer"
  // Its owner: "library", "queue", "object" (of a library, made of others), "optimizer", "error",
  // "buffer", "call" (of a library); empty: the program's own.
  std::string owner;

  std::string text() const {
    return fmt::format("{}{} keeps {} {}{}{}{}{}{}", name,
                       owner == "queue" ? ", a queue without maxsize," : "", count, kind,
                       count == 1 ? "" : "s", are_views() ? ", views that hold all of larger ones" : "",
                       graphs ? " with the graph behind " + std::string(count == 1 ? "it" : "them") : "",
                       owner == "error" ? " in tracebacks of errors" : "",
                       bytes >= 1 << 20 ? ", " + format_bytes(bytes) : "");
  }
  bool are_views() const { return kind == "tensor" && own > 0 && bytes / 4 > own; }
  std::string_view advice() const {
    if (are_views())
      return "keep .clone() of a view, or a copy on the CPU (.cpu()): a view holds the whole tensor";
    if (graphs && kind == "tensor" && owner.empty())
      return "keep values without their graph: .detach(), or under torch.no_grad()";
    if (owner == "buffer") return "update the buffer under torch.no_grad(), or from .detach()";
    if (owner == "iterator")
      return "make a new iterator for each pass: itertools.cycle keeps all that it gave";
    if (owner == "optimizer") return "a smaller history_size  # of L-BFGS, or another optimizer";
    if (owner == "error") return "keep str(error): an error's traceback holds the variables of its functions";
    if (owner == "queue") return "queue.Queue(maxsize=2)  # whoever fills it then waits";
    if (owner == "call" && name.find(", in ") != std::string::npos)
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
};

// The entry that holds graphs if the snapshot shows that graphs are kept, or if none explains the bytes that
// the program keeps; else the one that holds most.
std::optional<Kept> find_kept(const nlohmann::json& facts, const Explained& found) {
  std::optional<Kept> most, graph;
  const auto list = facts.find("kept");
  if (list == facts.end() || !list->is_array()) return most;
  for (const nlohmann::json& entry : *list) {
    if (!entry.is_object()) continue;
    const Kept kept{.name = text_of(entry, "name"),
                    .line = fmt::format("{}:{}", text_of(entry, "file"), number_of(entry, "line")),
                    .count = number_of(entry, "count"),
                    .bytes = number_of(entry, "bytes"),
                    .own = number_of(entry, "own"),
                    .graphs = is_set(entry, "graphs"),
                    .kind = entry.contains("kind") ? text_of(entry, "kind") : "tensor",
                    .owner = text_of(entry, "owner")};
    // Models and optimizers in a list may be needed: arrays that are about as much as what is kept come
    // first.
    const bool is_better = most && found.is_kept && most->kind != "tensor" && kept.kind == "tensor" &&
                           kept.bytes >= found.bytes / 3;
    if (!most || is_better) most = kept;
    // A call under way has graphs in any forward pass.
    if (kept.graphs && (!graph || (graph->owner == "call" && kept.owner != "call"))) graph = kept;
  }
  const bool is_leak = found.cause_name == name_of(Cause::kLeak);
  const bool is_explained = most && most->bytes >= found.bytes / 2;
  if (!graph || (is_leak && is_explained && graph->owner != "buffer")) return most;
  return graph;
}

}  // namespace

std::shared_ptr<const Facts> read_facts(const std::string& text) {
  nlohmann::json values = nlohmann::json::parse(text, nullptr, false);
  if (!values.is_object()) values = nlohmann::json::object();
  return std::make_shared<const Facts>(Facts{std::move(values)});
}

bool is_kept(std::string_view cause) {
  return cause == name_of(Cause::kLeak) || cause == name_of(Cause::kGraphsKept) ||
         cause == name_of(Cause::kLossesKept);
}

Explained explain_libraries(const Facts& facts) {
  Explained explained;
  const nlohmann::json held = object_of(facts.values, "libraries");
  for (const auto& [name, bytes] : held.items()) {
    const int64_t size = number_of(held, name.c_str());
    if (size <= explained.bytes) continue;
    explained.bytes = size;
    explained.cause = {
        fmt::format("other-library: {} holds {} of this process's memory, where PyTorch cannot use it",
                    printable(name, 40), format_bytes(explained.bytes))};
    explained.next = {
        name == "CuPy" ? "next: cupy.get_default_memory_pool().free_all_blocks()  # before PyTorch needs it"
                       : "next: XLA_PYTHON_CLIENT_PREALLOCATE=false  # in the environment: JAX then grows"};
    if (const std::string line = text_of(object_of(held, "lines"), name.c_str()); !line.empty()) {
      explained.cause.push_back((name == "CuPy" ? "CuPy is first used at " : name + " is imported at ") +
                                line);
      explained.line = line;
    }
  }
  return explained;
}

Explained explain_untrained(const Facts& facts, int64_t peak) {
  const nlohmann::json weights = object_of(facts.values, "untrained"),
                       misspelt = object_of(weights, "misspelt");
  const int64_t gradients = number_of(weights, "gradients");
  const std::string model = text_of(weights, "runs"), line = text_of(misspelt, "line");
  Explained found;
  if (gradients > peak / 10) {
    found = {.cause = {fmt::format(
                 "exhausted: backward makes {} of gradients for weights that no optimizer trains",
                 format_bytes(gradients))},
             .next = {"next: model.requires_grad_(False)  # then True for what is trained"},
             .bytes = gradients};
  } else if (!model.empty() && number_of(weights, "bytes") >= peak / 200) {
    found = {
        .cause = {fmt::format("exhausted: {} runs with gradients, though no optimizer trains it: all its "
                              "activations are kept",
                              model)},
        .next = {"next: with torch.no_grad():  # around it"}};
  }
  if (!found.cause.empty() && !line.empty()) {
    found.cause.push_back(fmt::format("its weights have {}, which PyTorch does not read, at {}",
                                      text_of(misspelt, "name"), line));
    found.next = {"next: requires_grad, or model.requires_grad_(False)"};
    found.line = line;
  }
  return found;
}

Explained explain_models(const Facts& facts, int64_t peak) {
  const auto models = facts.values.find("weights");
  if (models == facts.values.end() || !models->is_array() || models->empty() || !models->front().is_object())
    return {};
  const nlohmann::json& most = models->front();
  const int64_t count = number_of(most, "count"), bytes = number_of(most, "bytes");
  const std::string line = text_of(most, "line");
  if (count < 3 || bytes < std::max(peak / 3, int64_t{1})) return {};
  return {
      .cause = {fmt::format("exhausted: the weights and gradients of {} models of class {} take {}{}", count,
                            text_of(most, "name"), format_bytes(bytes),
                            line.empty() ? "" : ", made at " + line)},
      .next =
          {"next: one model for all that use it (threads, requests, members that can wait for their turn)"},
      .bytes = bytes,
      .line = line};
}

Explained explain_grown(const Facts& facts, int64_t least) {
  const nlohmann::json grown = object_of(facts.values, "grown");
  const std::string name = text_of(grown, "name"), line = text_of(grown, "line");
  const int64_t bytes = number_of(grown, "bytes");
  if (bytes < std::max(least, int64_t{1})) return {};
  return {
      .cause = {fmt::format("leak: {} grows by {} and takes {}, at {}", name, text_of(grown, "call"),
                            format_bytes(bytes), line)},
      .next = {"next: keep no more than is needed, or the parts on the CPU: while they are joined, the old "
               "and the new one are both there"},
      .bytes = bytes,
      .is_kept = true,
      .cause_name = std::string(name_of(Cause::kLeak)),
      .line = line};
}

Explained explain_doubles(const Facts& facts, int64_t peak) {
  const nlohmann::json arrays = object_of(facts.values, "arrays");
  const int64_t bytes = number_of(arrays, "bytes"), doubles = number_of(arrays, "doubles");
  if (doubles < bytes / 2 || doubles < peak / 4 || doubles == 0) return {};  // name_doubles() tells of fewer
  const std::string line = text_of(arrays, "line");
  return {.cause = {fmt::format(
              "exhausted: of the arrays in these functions, {}, {} are float64 or complex128{}",
              format_bytes(bytes), format_bytes(doubles), line.empty() ? "" : ", since " + line)},
          .next = {"next: float32 and complex64 where they are precise enough: half the memory"},
          .bytes = doubles,
          .line = line};
}

void name_doubles(const Facts& facts, Explained& found) {
  const nlohmann::json arrays = object_of(facts.values, "arrays");
  const std::string line = text_of(arrays, "line");
  const int64_t bytes = number_of(arrays, "bytes"), doubles = number_of(arrays, "doubles");
  if (doubles < int64_t{16} << 20 || doubles < bytes / 10 * 8 || line.empty()) return;
  found.cause.push_back("most arrays in these functions are float64 or complex128, since " + line);
  found.next.insert(found.next.begin(), "next: float32 where it is precise enough: half the memory");
  if (found.line.empty()) found.line = line;
}

namespace {

Explained explain_variable(const nlohmann::json& variable, int64_t least, const std::string& why) {
  const int64_t bytes = number_of(variable, "bytes");
  if (bytes < std::max(least, int64_t{1})) return {};
  const std::string name = text_of(variable, "name"), line = text_of(variable, "line");
  return {
      .cause = {fmt::format("exhausted: {} still holds {} {} at {}", name, format_bytes(bytes), why, line)},
      .next = {fmt::format("next: del {}  # when it has been used", name)},
      .bytes = bytes,
      .line = line};
}

}  // namespace

Explained explain_replaced(const Facts& facts, int64_t least) {
  return explain_variable(object_of(facts.values, "replaced"), least, "while its next value is made,");
}

Explained explain_loaded(const Facts& facts, int64_t least) {
  const nlohmann::json loaded = object_of(facts.values, "loaded");
  const std::string call = text_of(loaded, "call");
  Explained found = explain_variable(loaded, least, "that " + call + " returned,");
  if (!found.cause.empty() && call == "torch.load")
    found.next.insert(found.next.begin(), "next: map_location=\"cpu\"  # of torch.load");
  return found;
}

void name_largest(const Facts& facts, int64_t least, Explained& found) {
  const nlohmann::json largest = object_of(facts.values, "largest");
  const std::string line = text_of(largest, "line");
  const int64_t bytes = number_of(largest, "bytes");
  if (bytes < std::max(least, int64_t{1}) || line.empty()) return;
  found.cause.push_back(
      fmt::format("{} takes {}, made at {}", text_of(largest, "name"), format_bytes(bytes), line));
  if (found.line.empty()) found.line = line;
}

void name_weights(const Facts& facts, int64_t least, Explained& found) {
  const auto models = facts.values.find("weights");
  if (models == facts.values.end() || !models->is_array()) return;
  int64_t bytes = 0;
  std::string text, first;
  for (const nlohmann::json& model : *models) {
    if (!model.is_object() || text_of(model, "line").empty()) continue;
    if (first.empty()) first = text_of(model, "line");
    bytes += number_of(model, "bytes");
    text +=
        fmt::format("{}{} takes {}, made at {}", text.empty() ? "weights and gradients: " : "; ",
                    text_of(model, "name"), format_bytes(number_of(model, "bytes")), text_of(model, "line"));
  }
  if (bytes < std::max(least, int64_t{1})) return;
  found.cause.push_back(text);
  if (found.line.empty()) found.line = first;
}

void name_trained(const Facts& facts, Explained& found) {
  const nlohmann::json trained = object_of(facts.values, "trained");
  const int64_t bytes = number_of(trained, "bytes"), total = number_of(trained, "total");
  const std::string line = text_of(trained, "line");
  if (bytes < total / 2 || bytes == 0) return;
  found.cause.push_back(fmt::format("of the {} of weights that are trained, {} are {}{}", format_bytes(total),
                                    format_bytes(bytes), text_of(trained, "names"),
                                    line.empty() ? "" : ", named at " + line));
  if (!line.empty()) found.line = line;
}

void name_backward(const Facts& facts, Explained& found) {
  const nlohmann::json moment = object_of(facts.values, "moment");
  if (found.cause_name != name_of(Cause::kGraphsKept) || !is_set(moment, "backward")) return;
  const bool is_evaluation = !found.next.empty() && found.next.front().find("no_grad") != std::string::npos;
  if (!is_evaluation) return;
  found.cause = {fmt::format("exhausted: one step keeps {} of activations until its backward",
                             format_bytes(found.bytes))};
  found.next = {"next: fewer or shorter passes before each backward",
                "next: torch.utils.checkpoint.checkpoint(...)  # around a pass: computed again in backward"};
  found.is_kept = false;
  found.cause_name = name_of(Cause::kExhausted);
}

std::string moment_of(const Facts& facts) {
  const nlohmann::json moment = object_of(facts.values, "moment");
  const auto lines = moment.find("lines");
  std::string text;
  if (lines == moment.end() || !lines->is_array() ||
      number_of(object_of(facts.values, "starts"), "ranks") < 2)
    return text;
  for (const nlohmann::json& line : *lines) {
    if (!line.is_string()) continue;
    const std::string frame = printable(line.get<std::string>(), 300);
    if (!text.empty() && frame.ends_with(" in <module>")) break;
    text += text.empty() ? frame : ", called at " + frame.substr(frame.rfind('/') + 1);
  }
  return text;
}

Explained explain_cycles(const Facts& facts) {
  const nlohmann::json cycles = object_of(facts.values, "cycles");
  const std::string name = text_of(cycles, "name"), line = text_of(cycles, "line");
  const int64_t bytes = number_of(cycles, "bytes");
  if (bytes == 0) return {};
  return {.cause = {fmt::format(
              "leak: objects that refer to each other{} keep {} until Python's collector runs{}",
              name.empty() ? "" : ", as " + name + " does,", format_bytes(bytes),
              line.empty() ? "" : ", at " + line)},
          .next = {"next: weakref.ref(...) for the way back, or save_for_backward for what a backward needs",
                   "next: gc.collect()  # after each round"},
          .bytes = bytes,
          .is_kept = true,
          .cause_name = std::string(name_of(Cause::kLeak)),
          .line = line};
}

void name_evaluating(const Facts& facts, int64_t peak, Explained& found) {
  const nlohmann::json part = object_of(facts.values, "evaluating");
  const int64_t bytes = number_of(part, "bytes");
  if (bytes < peak / 10 || bytes == 0) return;
  const std::string line = text_of(part, "line");
  found.cause.push_back(fmt::format("{} is in evaluation mode, yet an optimizer trains its weights ({}){}",
                                    text_of(part, "name"), format_bytes(bytes),
                                    line.empty() ? "" : ", made at " + line));
  if (!line.empty()) found.line = line;
  found.next.insert(found.next.begin(),
                    "next: requires_grad_(False) on the frozen part; give the optimizer only the rest");
}

int64_t ranks_of(const Facts& facts) {
  return std::max<int64_t>(1, number_of(object_of(facts.values, "starts"), "ranks"));
}

void name_start(const Facts& facts, Explained& found) {
  if (found.cause.empty()) return;
  const nlohmann::json starts = object_of(facts.values, "starts");
  const std::string line = text_of(starts, "line");
  if (!line.empty()) found.cause.push_back("started at " + line);
  if (number_of(starts, "ranks") > 1) {
    if (!line.empty())
      found.cause.back() = "ranks of this run share the card; each chooses its own at " + line;
    found.next = {"next: a card for each rank, or fewer ranks: --nproc-per-node"};
  } else if (is_set(starts, "jax")) {
    found.next.insert(found.next.begin(),
                      "next: XLA_PYTHON_CLIENT_PREALLOCATE=false  # or JAX takes three quarters");
  }
  found.line = line;
}

void name_kept(const Facts& facts, int64_t peak, Explained& found) {
  const std::optional<Kept> kept = find_kept(facts.values, found);
  if (!kept) return;
  // Much that is idle in pieces is no leak; what tracebacks keep always is one.
  const bool is_in_pieces = found.cause_name == name_of(Cause::kFragmentation) && kept->owner != "error";
  const int64_t least = is_in_pieces ? 2 * found.bytes : found.bytes / 10 * 9;
  if (found.is_kept && kept->graphs) {
    found.cause.push_back(fmt::format("{}, at {}", kept->text(), kept->line));
    if (kept->owner == "buffer" || found.cause_name == name_of(Cause::kLeak))
      found.next.insert(found.next.begin(), fmt::format("next: {}", kept->advice()));
  } else if (kept->count >= (kept->kind == "tensor" ? 3 : 2) &&
             (found.is_kept || kept->kind != "optimizer") &&
             kept->bytes >= (found.is_kept ? found.bytes / 3 : std::max(least, peak / 4))) {
    found = {.cause = {fmt::format("leak: {}, at {}", kept->text(), kept->line)},
             .next = {fmt::format("next: {}", kept->advice())},
             .bytes = kept->bytes,
             .is_kept = true,
             .cause_name = std::string(name_of(Cause::kLeak))};
  } else {
    return;
  }
  found.line = kept->line;
  const nlohmann::json outputs = object_of(facts.values, "outputs");
  if (kept->owner == "call" && !text_of(outputs, "name").empty()) {
    const std::string line = text_of(outputs, "line");
    found.cause.push_back(fmt::format("the model returns more than its last layer: {}{}",
                                      text_of(outputs, "name"), line.empty() ? "" : ", at " + line));
  }
}

void name_hooks(const Facts& facts, Explained& found) {
  const nlohmann::json hooks = object_of(facts.values, "hooks");
  const int64_t count = number_of(hooks, "count");
  if (count < 3 || !found.is_kept) return;
  const std::string line = text_of(hooks, "line");
  found.cause.insert(found.cause.begin(),
                     fmt::format("leak: {} is {} times a hook of the same module{}", text_of(hooks, "name"),
                                 count, line.empty() ? "" : ", registered at " + line));
  found.next = {"next: handle.remove()  # of what register_forward_hook returned, when it has been used"};
  if (!line.empty()) found.line = line;
}

void name_growth(const Facts& facts, Explained& found) {
  const nlohmann::json growth = object_of(facts.values, "growth");
  const std::string padding = text_of(facts.values, "padding");
  const std::string line = padding.empty() ? text_of(growth, "line") : padding;
  if (line.empty()) return;
  found.line = line;
  if (padding.empty()) {
    found.cause.push_back(fmt::format("{} is made larger at {}", text_of(growth, "name"), line));
    return;
  }
  found.cause.push_back("each batch is padded to its longest item, at " + line);
  found.next = {"next: cut longer items, or put items of equal length into a batch"};
}

void name_request(const Facts& facts, Explained& found) {
  const nlohmann::json request = object_of(facts.values, "request"),
                       transform = object_of(facts.values, "transform");
  const std::string text = text_of(request, "text"), line = text_of(transform, "line"),
                    graphs = text_of(object_of(facts.values, "moment"), "graphs");
  const bool is_of_graphs =
      !found.cause.empty() && found.cause.front().find("CUDA graphs hold") != std::string::npos;
  if (!line.empty() && found.requested > 0 && text_of(transform, "name") == "vmap") {
    found.cause.push_back(
        "vmap makes the gradients of all its examples at once, as large as the weights for each, at " + line);
    found.next = {is_set(transform, "torch")
                      ? "next: torch.func.vmap(..., chunk_size=16), and the sum of each chunk alone kept"
                      : "next: jax.lax.map(f, xs, batch_size=16)  # instead of vmap over all examples"};
    found.line = line;
  } else if (!line.empty() && found.requested > 0) {
    found.cause.push_back(
        "a scan stores what it returns at each step and, for gradients, what each step computes, at " + line);
    found.next = {"next: jax.checkpoint(body)  # of the scan; or a scan in parts, each in a checkpoint",
                  "next: return less of each step"};
    found.line = line;
  }
  if (is_of_graphs && !graphs.empty()) {
    found.cause.push_back("CUDA graphs are recorded at " + graphs);
    found.line = graphs;
  } else if (!text.empty()) {
    found.cause.push_back("of the request that failed: " + text);
  }
  if (is_set(request, "rows"))
    found.next = {"next: torch.einsum or a matmul, which adds up without storing each product"};
  if (is_set(request, "pair"))
    found.next = {"next: make the shapes equal first  # .squeeze(1), .view_as(other)"};
}

}  // namespace headroom
