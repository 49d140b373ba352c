#include "tools/run/holder.h"

#include <fmt/format.h>

#include "base/bytes.h"

namespace headroom {
namespace {

bool are_views(const Facts& holder) {
  const int64_t own = holder.number("own");
  return has_tensors(holder) && own > 0 && holder.number("bytes") / 4 > own;
}

}  // namespace

bool is_filled_once(const Facts& holder) {
  return holder.is_set("once");
}

bool has_tensors(const Facts& holder) {
  return !holder.has("kind") || holder.text("kind") == "tensor";
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

}  // namespace headroom
