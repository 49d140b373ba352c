#include "tools/run/holder.h"

#include <fmt/format.h>

#include "base/bytes.h"

namespace headroom {

std::string Holder::text() const {
  return fmt::format(
      "{}{} keeps {} {}{}{}{}{}{}", name, owner == "queue" ? ", a queue without maxsize," : "", count, kind,
      count == 1 ? "" : "s", are_views() ? ", views that hold all of larger ones" : "",
      graphs ? " with the graph behind " + std::string(count == 1 ? "it" : "them") : "",
      owner == "error" ? " in tracebacks of errors" : "", bytes >= 1 << 20 ? ", " + format_bytes(bytes) : "");
}

std::string_view Holder::advice() const {
  if (are_views())
    return "keep .clone() of a view, or a copy on the CPU (.cpu()): a view holds the whole tensor";
  if (graphs && kind == "tensor" && owner.empty())
    return "keep values without their graph: .detach(), or under torch.no_grad()";
  if (owner == "buffer") return "update the buffer under torch.no_grad(), or from .detach()";
  if (owner == "iterator") return "make a new iterator for each pass: itertools.cycle keeps all that it gave";
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

std::vector<Holder> read_holders(const Facts& facts) {
  std::vector<Holder> all;
  for (const Facts& entry : facts.parts("kept")) {
    all.push_back({.name = entry.text("name"),
                   .line = fmt::format("{}:{}", entry.text("file"), entry.number("line")),
                   .count = entry.number("count"),
                   .bytes = entry.number("bytes"),
                   .own = entry.number("own"),
                   .graphs = entry.is_set("graphs"),
                   .grows = entry.is_set("grows"),
                   .in_step = entry.is_set("in_step"),
                   .kind = entry.has("kind") ? entry.text("kind") : "tensor",
                   .owner = entry.text("owner")});
  }
  return all;
}

}  // namespace headroom
