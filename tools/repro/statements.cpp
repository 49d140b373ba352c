#include "tools/repro/statements.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <variant>

#include "base/errors.h"
#include "tools/repro/result.h"

namespace headroom::repro {
namespace {

constexpr auto kThen = Truth::kTrueThen, kFalse = Truth::kFalse;

constexpr Statement kTensorflow[] = {
    {"The net of the tutorial has 93,322 parameters.", "headroom repro A2", "{A2.parameters}"},
    {"The card has 2002 MiB, and the desktop holds 329 of them.", "headroom devices --device sim:laptop-2gb",
     "total 2002.0, used 329.0 MiB"},
    {"By default TensorFlow takes nearly all memory of a GPU.", "headroom repro A1",
     "all but 225 MiB; {A1.outcome}"},
    {"Training then fails: `CUBLAS_STATUS_NOT_INITIALIZED`, four times.", "headroom repro A1",
     "{A1.cublas_lines} lines. Today's cuBLAS says `CUBLAS_STATUS_ALLOC_FAILED`, and would fit into 225 MiB",
     kThen},
    {"The message means that cuBLAS is not installed properly.", "headroom repro A1 --fix",
     "{A1!.outcome}, with the same libraries: memory was missing", kFalse},
    {"With memory growth the net trains.", "headroom repro A2", "{A2.outcome}"},
    {"With growth the process peaks at 697 MiB, and the card at 1026.", "headroom repro A2",
     "{A2.process_bytes}, {A2.device_bytes}: context and libraries {A2.overhead_bytes}, pool "
     "{A2.reserved_bytes}, for "
     "any workspace of 130 to 224 MiB; our own kernels need none: {A2.our_process_bytes}"},
    {"With a limit of 1024 MiB it trains; the process takes 1455, the card 1784.", "headroom repro A3",
     "{A3.process_bytes}, {A3.device_bytes}"},
    {"The limit is what the process takes.", "headroom repro A3",
     "{A3.process_bytes} = {A3.reserved_bytes} + {A3.overhead_bytes} for context, libraries and kernels. "
     "`headroom run "
     "--limit` counts all",
     kFalse},
    {"A limit that is too high fails as the default does.", "headroom repro A4",
     "1244 MiB: {A4.limit_of_1244_mib}; 1242 MiB: {A4.limit_of_1242_mib}"},
    {"A limit that is too low makes training slower, no more.", "headroom repro A11",
     "too low is an error: a pool has the same speed down to {A11.working_set_bytes}, and a MiB below it is "
     "{A11.limit_of_a_mib_less}; "
     "planned for the limit a step is slower, down to {A11.least_planned_bytes}. \"Slower\" itself is right "
     "on a "
     "real GPU, where convolutions may choose slower algorithms with less workspace; \"no more\" is not",
     kFalse},
    {"Growth must be set before the GPU is used.", "headroom repro A7",
     "{A7.outcome}: `{A7.message}`; TensorFlow says `Physical devices cannot be modified after being "
     "initialized`"},
    {"Growth must be the same on all GPUs.", "headroom repro A8", "{A8.outcome}: `{A8.message}`"},
    {"`TF_FORCE_GPU_ALLOW_GROWTH=true` does the same without a change.", "headroom repro A6",
     "grows: {A6.grows}; {A6.outcome}"},
    {"With growth, memory is not given back to other programs.", "headroom repro A12",
     "{A12.with_a_large_tensor_bytes} for one tensor, {A12.without_it_bytes} without it. Regions in which "
     "nothing lies are freed when the process itself would run out; with a small tensor in the region "
     "{A12.and_idle_memory_given_back_bytes} stay even then, under `--strategy mapped` "
     "{A12!.and_idle_memory_given_back_bytes}"},
    {"Growth has a price, or it would be the default.", "headroom repro A5",
     "fragments: {A5.outcome} where a pool that takes all at once is {A5.all_at_once}; about ten calls of "
     "the driver "
     "([compare](compare.md))"},
    {"Two logical devices of 1024 MiB: \"1 Physical GPU, 2 Logical GPUs\".", "headroom repro A9",
     "{A9.counts}, on a card of 11 GB; beyond the first one's limit: {A9.beyond_the_first}. The card of 2 GB "
     "has room for two of 620 MiB"},
    {"MirroredStrategy trains over logical devices, data parallel.", "headroom repro A10",
     "{A10.images_per_gpu} of 64 images each, weights {A10.weights_of_all}"},
    {"`set_log_device_placement` says where every op runs.", "headroom repro B3", "`{B3.product}`"},
};

constexpr Statement kDevices[] = {
    {"`CUDA_VISIBLE_DEVICES=1,2` leaves two GPUs, counted from 0.", "headroom repro B1",
     "`{B1.mapping_0}`, `{B1.mapping_1}`"},
    {"`CUDA_VISIBLE_DIVICES=1,2` does so (as one article spells it).",
     "CUDA_VISIBLE_DIVICES=1,2 headroom doctor",
     "nothing reads that name; doctor, explain and our programs say so", kFalse},
    {"`visible_device_list=\"1,2\"` and `set_visible_devices` do so in the program.",
     "headroom devices --device sim:four-2080ti --visible-devices 1,2", "the same mapping"},
    {"A GPU that is not visible cannot be used: `/gpu:2` is an error.", "headroom repro B1",
     "{B1.outcome}: `{B1.message}`"},
    {"`list_local_devices` fails if one GPU is full.", "headroom repro B2",
     "{B2.listed} of 4 listed, then `CUDA_ERROR_OUT_OF_MEMORY`"},
    {"`list_physical_devices` works however full they are.", "headroom repro B2 --fix",
     "{B2!.listed} of 4 listed"},
    {"The list also has `XLA_CPU` and `XLA_GPU` devices.", "",
     "TensorFlow 1.13 to 2.3 listed the same hardware again under the name of XLA's compiler; later ones do "
     "not. Not "
     "here: a simulated GPU has one name",
     kThen},
    {"Logical devices are the visible ones plus the virtual ones.", "headroom repro B5",
     "{B5.first_of_two_split}, not 4: a GPU that is split is replaced by its parts", kFalse},
    {"Only the first of four visible: \"4 Physical GPUs, 1 Logical GPU\".", "headroom repro B5",
     "{B5.first_of_four_visible}"},
    {"`tf.device(\"/CPU:0\")` and `/GPU:1` place ops and tensors by name.", "headroom repro B3", "`{B3.a}`"},
    {"A device that does not exist is an error.", "headroom repro B3",
     "{B3.outcome}, as in TensorFlow 1. In TensorFlow 2 soft placement is on by default, and the op runs "
     "elsewhere; `tf.config.set_soft_device_placement(False)` makes it an error",
     kThen},
    {"`allow_soft_placement` takes another one instead.", "headroom repro B3 --fix", "`{B3!.product}`"},
    {"`per_process_gpu_memory_fraction = 0.4` takes 40 % of the card.", "headroom repro B4",
     "{B4.pool_bytes}, {B4.percent_of_device} %"},
    {"With `allow_growth` the fraction is the maximum.", "headroom repro B4",
     "{B4.pool_at_start_with_growth_bytes} at the start; beyond it {B4.beyond_the_fraction}"},
    {"`inter_op` threads share one op, `intra_op` threads run several (as one article has it).",
     "headroom repro B6",
     "the other way round: `intra_op` = {B6.intra_op_threads} are the threads of one op, `inter_op` = "
     "{B6.inter_op_threads} the ops at once",
     kFalse},
    {"0 threads: TensorFlow chooses.", "headroom repro B6", "{B6.chosen_for_0}"},
    {"`torch.cuda.is_available()`, `device_count()`, `current_device()`: True, 4, 0.", "headroom repro B7",
     "{B7.is_available}, {B7.device_count}, {B7.current_device}"},
    {"`is_initialized()` is False before a GPU is used.", "headroom repro B7",
     "{B7.is_initialized}, then {B7.is_initialized_after_use}"},
    {"`device_count()` is still 4 after `set_device(1)`.", "headroom repro B7",
     "{B7.count_after_set_device}: it changes the current device to {B7.current_after_set_device}, and hides "
     "none"},
    {"With one GPU visible, device 1 is an invalid ordinal.", "headroom repro B7",
     "{B7.count_with_one_visible} visible; `{B7.message}`"},
    {"`get_device_name`, `get_device_capability` describe the GPU.", "headroom repro B7",
     "{B7.device_name}, {B7.device_capability}"},
    {"`torch.version.cuda` and `cudnn.version()` say what is used.", "headroom doctor",
     "what the build was made with; doctor shows what is loaded"},
};

constexpr Statement kOutOfMemory[] = {
    {"The error: tried to allocate 916 MiB, 4.47 GiB allocated, 186.44 MiB free.", "headroom repro C5",
     "the same figures; PyTorch 2 words them otherwise, and `headroom explain` reads all versions", kThen},
    {"Any small tensor shows 448 MiB: the context and a first segment.", "headroom repro C1",
     "{C1.process_bytes}: {C1.above_context_bytes} above the context, which is another one on other cards"},
    {"`randn(200, 300, 200, 20)` makes it 1362.", "headroom repro C2", "{C2.process_bytes}"},
    {"Then `x = randn(200, 300)`: 1364, nothing is given back.", "headroom repro C3", "{C3.process_bytes}"},
    {"Instead `x = randn(300, 300, 300, 20)`: 3422.", "headroom repro C4", "{C4.process_bytes}"},
    {"Code A, six tensors in six names: out of memory at the sixth.", "headroom repro C5",
     "{C5.outcome} with {C5.tensors_kept} kept"},
    {"Code B, one name six times: fits, 2278.", "headroom repro C6", "{C6.process_bytes}"},
    {"The new tensor is made before the old one goes, so two take turns.", "headroom repro C6",
     "{C6.above_context_bytes} = 2 x {C2.above_context_bytes}"},
    {"`empty_cache` takes 2278 to 448.", "headroom repro C7",
     "{C7.after_six_in_turn_bytes} to {C7.a_small_tensor_left_bytes}, as x is a small tensor then"},
    {"`empty_cache` takes 3422 to 446.", "headroom repro C7",
     "{C7.after_dropping_two_bytes} to {C7.process_bytes}, as no tensor is left: the context alone"},
    {"`empty_cache` must be called several times.", "headroom repro C10",
     "the second call gives back {C10.second_call_gives_back_bytes}; a segment with a live tensor stays "
     "after any "
     "number of calls. More goes back only after more tensors have died (`gc.collect()` for cycles)",
     kFalse},
    {"`empty_cache` lets this program allocate more.", "headroom repro C9",
     "not a request that fails: PyTorch does the same by itself before. This program gains only between phases "
     "whose sizes differ, where small blocks would cut idle segments that a large request needs "
     "([predict](predict.md)). It helps others: beside the cache "
     "{C9.beside_the_cache}, "
     "{C9.beside_the_cache_are_free_bytes} free; afterwards {C9!.beside_the_cache_emptied}, "
     "{C9!.emptied_are_free_bytes} "
     "free",
     kFalse},
    {"PyTorch collects garbage when a threshold is reached.", "headroom repro C11",
     "{C11.idle_bytes} stay idle; only with a limit and `garbage_collection_threshold`, off by default, "
     "{C11!.idle_bytes}",
     kFalse},
    {"A list that keeps every loss fills the card.", "headroom repro C8",
     "{C8.outcome} after {C8.tensors_kept} steps of 100 MiB: no backward runs, so each loss keeps its graph, "
     "as "
     "in an evaluation without `no_grad`, or if losses are summed for one backward at the end. After its "
     "`backward()` a kept loss is one number (512 B)"},
    {"`loss.item()` instead of the loss cures it.", "headroom repro C8 --fix",
     "{C8!.outcome}, {C8!.above_context_bytes} above the context after 100 steps"},
    {"A smaller batch helps.", "headroom repro C9 --fix",
     "{C9.training_allocates_bytes} with 256 images, {C9!.half_the_batch_allocates_bytes} with 128; the "
     "largest in the "
     "pool: {C9.largest_batch_of_training}"},
    {"`no_grad` helps where nothing is trained.", "headroom repro C9 --fix",
     "{C9.training_allocates_bytes} with gradients, {C9!.evaluation_allocates_bytes} without; the largest "
     "batch: "
     "{C9!.largest_batch_of_evaluation} instead of {C9.largest_batch_of_training}"},
    {"`del` of what is no longer needed helps.", "headroom repro C5 --fix",
     "{C9!.references_dropped}: code B"},
    {"The context's memory never goes back while the process lives.", "headroom repro C7",
     "{C7.process_bytes}"},
};

constexpr Statement kMemoryModel[] = {
    {"In `with torch.cuda.device(1)` tensors are made on GPU 1; guards nest.", "headroom repro D1",
     "{D1.in_the_guard}, {D1.in_the_guard_inside}, then {D1.after_the_guard}"},
    {"An op on tensors of two GPUs is an error, unless one is copied.", "headroom repro D1",
     "{D1.outcome}; copied: {D1!.x_plus_y}"},
    {"A result lives where its operands do.", "headroom repro D1", "{D1.y_times_y}"},
    {"`x.new_zeros(...)`, `new_tensor` make tensors on x's device, of its type.", "headroom repro D1",
     "the same rule; a graph here has no `new_*`, its ops name no device and follow their operands: "
     "{D1.y_times_y}"},
    {"Calls return before the GPU has done the work.", "headroom repro D3",
     "after {D3.host_goes_on_at_us}; synchronize after {D3.synchronize_returns_at_us}"},
    {"An error therefore shows up at a later call.", "headroom repro D2", "at {D2.failure_comes_out_at}"},
    {"`CUDA_LAUNCH_BLOCKING=1` makes every call wait.", "headroom repro D2 --fix",
     "after {D2!.call_returns_at_us}; the error comes out at {D2!.failure_comes_out_at}"},
    {"Work on another stream may read before the first has written.", "headroom repro D4",
     "at {D4.read_at_us} it reads {D4.value_read}"},
    {"`wait_stream` makes it right.", "headroom repro D4 --fix",
     "at {D4!.read_at_us} it reads {D4!.value_read}"},
    {"`memory_allocated` and `max_memory_allocated` count tensors.", "headroom repro D5",
     "{D5.memory_allocated_bytes}, {D5.allocated_after_del_bytes} after del, peak "
     "{D5.max_memory_allocated_bytes}"},
    {"`memory_cached` and `max_memory_cached` count what the allocator holds.", "headroom repro D5",
     "{D5.reserved_after_del_bytes} after del; since PyTorch 1.4 they are deprecated names of "
     "`memory_reserved` "
     "and `max_memory_reserved`",
     kThen},
    {"`empty_cache` gives back what no tensor uses, and no tensor.", "headroom repro D5",
     "{D5.reserved_after_empty_cache_bytes} reserved"},
    {"Pinned memory and `non_blocking=True` let copies run beside work.", "headroom repro D6",
     "eight steps take {D6.eight_steps_end_at_us} from pageable memory, {D6!.eight_steps_end_at_us} from "
     "pinned memory"},
    {"A loader with `pin_memory=True` hands out pinned batches.", "headroom repro D6 --fix",
     "the loader of `--data-on host` does: weights {D6!.weights_with_a_loader}"},
    {"One program runs on CPU and GPU, by a flag.", "headroom repro D7",
     "{D7.on_the_cpu} on both, losses agree: {D7.losses_agree}"},
    {"CUDA tensors in several processes need `spawn`, not `fork`.", "",
     "`headroom explain` names the failure (`Cannot re-initialize CUDA in forked subprocess`). Not here: our "
     "programs "
     "start each process anew, so each makes its own context, {C1.process_bytes} before its first large "
     "tensor"},
    {"`DataParallel` cuts a batch over the GPUs.", "headroom repro D8",
     "{D8.images_per_gpu} of 64 images each, losses of one GPU: {D8.losses_of_one_gpu}"},
    {"Use `DataParallel` rather than several processes.", "headroom repro D8",
     "PyTorch now advises one process a GPU, `DistributedDataParallel`; the sums are the same "
     "([ranks](ranks.md))",
     kThen},
};

constexpr Document kDocuments[] = {
    {"TensorFlow's strategies on a card of 2 GB", kTensorflow},
    {"Devices in TensorFlow and PyTorch", kDevices},
    {"PyTorch's out-of-memory error", kOutOfMemory},
    {"PyTorch's memory model", kMemoryModel},
};

struct Hole {
  size_t begin = 0, end = 0;  // of the text, braces included
  std::string_view scenario, figure;
};

// Calls `take` for each hole from left to right.
void for_each_hole(std::string_view text, const std::function<void(const Hole&)>& take) {
  for (size_t open = 0; (open = text.find('{', open)) != std::string_view::npos;) {
    const size_t dot = text.find('.', open), close = text.find('}', open);
    take({open, close + 1, text.substr(open + 1, dot - open - 1), text.substr(dot + 1, close - dot - 1)});
    open = close + 1;
  }
}

// "out_of_memory" is a word of JSON.
std::string in_prose(std::string figure) {
  const bool is_word = figure.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
  if (is_word) std::replace(figure.begin(), figure.end(), '_', ' ');
  return figure;
}

std::string filled(std::string_view text, const MeasuredById& measured) {
  std::string result;
  size_t end = 0;
  for_each_hole(text, [&](const Hole& hole) {
    const auto scenario = measured.find(hole.scenario);
    const Measured::Figure* figure =
        scenario == measured.end() ? nullptr : scenario->second.find(hole.figure);
    if (figure == nullptr) {
      throw InvalidArgument(fmt::format("{} has no figure {}", hole.scenario, hole.figure));
    }
    result += text.substr(end, hole.begin - end);
    result += in_prose(figure_text(hole.figure, *figure));
    end = hole.end;
  });
  return result + std::string(text.substr(end));
}

}  // namespace

std::span<const Document> documents() {
  return kDocuments;
}

MeasuredById needed_scenarios() {
  MeasuredById needed;
  for (const Document& document : kDocuments) {
    for (const Statement& statement : document.statements) {
      for_each_hole(statement.figure,
                    [&](const Hole& hole) { needed.try_emplace(std::string(hole.scenario)); });
    }
  }
  return needed;
}

Sheet statements_sheet(const MeasuredById& measured) {
  Sheet sheet;
  int64_t count = 0, differ = 0;
  for (const Document& document : kDocuments) {
    count += std::ssize(document.statements);
    differ += std::count_if(document.statements.begin(), document.statements.end(),
                            [](const Statement& each) { return each.truth != Truth::kTrue; });
  }
  sheet.verdict(fmt::format("{} statements of {} documents; {} are not true, or no longer", count,
                            std::size(kDocuments), differ));
  List rows;
  for (const Document& document : kDocuments) {
    SheetTable& table = sheet.table({.caption = std::string(document.title),
                                     .columns = {{"statement", "", kWrappedText},
                                                 {"command", "", kWrappedText},
                                                 {"figure", "", kWrappedText},
                                                 {"is"}}});
    for (const Statement& each : document.statements) {
      constexpr Color kColors[] = {Color::kGreen, Color::kYellow, Color::kRed};
      const std::string figure = filled(each.figure, measured);
      table.add({each.says,
                 each.command,
                 figure,
                 {to_string(each.truth), kColors[static_cast<size_t>(each.truth)]}});
      rows.push_back(Record{{"document", document.title},
                            {"statement", each.says},
                            {"command", each.command},
                            {"figure", figure},
                            {"truth", to_string(each.truth)}});
    }
  }
  sheet.set("statements", std::move(rows));
  sheet.next = {{"headroom repro --all"}};
  return sheet;
}

std::string statements_markdown(const MeasuredById& measured) {
  std::string text;
  for (const Document& document : kDocuments) {
    text += fmt::format("## {}\n\n| statement | command | figure | |\n| --- | --- | --- | --- |\n",
                        document.title);
    for (const Statement& each : document.statements) {
      text += fmt::format("| {} | {} | {} | *{}* |\n", each.says,
                          each.command.empty() ? "" : fmt::format("`{}`", each.command),
                          filled(each.figure, measured), to_string(each.truth));
    }
    text += "\n";
  }
  return text;
}

}  // namespace headroom::repro
