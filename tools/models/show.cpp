// headroom show, the earlier name of `headroom models FILE`.
#include "tools/models/show.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "runtime/graph/categories.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/step_cost.h"
#include "sheet/writers.h"
#include "tools/models/model_pictures.h"
#include "tools/subcommands.h"
#include "tools/workload/workload.h"

namespace headroom {
namespace {

struct LayerRow {
  std::string module = {}, ops = {}, output = {};
  int64_t parameters = 0, flops = 0, activation_bytes = 0;
};

std::string module_at(const std::string& module, int64_t depth) {
  if (depth == 0) return module;
  size_t end = 0;
  for (int64_t i = 0; i < depth && end != std::string::npos; ++i)
    end = module.find('.', end == 0 ? 0 : end + 1);
  return module.substr(0, end);
}

// The layer that has made a value, or -1; layers are in the order of their values.
int layer_of(const std::vector<onnx::LayerSummary>& layers, int value) {
  const auto after =
      std::upper_bound(layers.begin(), layers.end(), value,
                       [](int id, const onnx::LayerSummary& layer) { return id < layer.first_value; });
  if (after == layers.begin() || value >= std::prev(after)->last_value) return -1;
  return static_cast<int>(after - layers.begin()) - 1;
}

// Returns the layer of a node that was merged from several: the layer of its result, else of its operands.
int layer_of(const std::vector<onnx::LayerSummary>& layers, const Node& node) {
  int found = -1;
  for (int output : node.outputs) found = std::max(found, layer_of(layers, output));
  if (found >= 0) return found;
  for (int input : node.inputs) found = std::max(found, layer_of(layers, input));
  return found;
}

std::vector<LayerRow> rows_of(const onnx::ImportedModel& model, const Graph& graph, int64_t depth) {
  std::vector<LayerRow> rows;
  std::map<std::string, size_t> place_of;
  std::vector<size_t> row_of;  // row of each layer
  for (const onnx::LayerSummary& layer : model.layers) {
    const std::string module = module_at(layer.module, depth);
    auto [place, is_new] = place_of.try_emplace(module, rows.size());
    if (is_new) rows.push_back({module});
    row_of.push_back(place->second);
    LayerRow& row = rows[place->second];
    std::vector<std::string> ops;
    for (const std::string& text : {row.ops, layer.ops}) {
      for (const std::string_view op : split(text, " ")) {
        if (!op.empty() && std::ranges::find(ops, op) == ops.end()) ops.emplace_back(op);
      }
    }
    row.ops = fmt::format("{}", fmt::join(ops, " "));
    row.output = to_string(layer.output);
    row.parameters += layer.parameters;
  }
  for (const Node& node : graph.nodes()) {
    const int layer = layer_of(model.layers, node);
    if (layer < 0) continue;
    LayerRow& row = rows[row_of[static_cast<size_t>(layer)]];
    row.flops += flops_of(graph, node);
    if (std::holds_alternative<Reshape>(node.op)) continue;  // shares its operand's bytes
    for (int output : node.outputs) row.activation_bytes += graph.value(output).spec.bytes();
  }
  return rows;
}

struct StepMemory {
  int64_t weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0, input_bytes = 0;
  int64_t step_bytes = 0;  // the most results that live at once, gradients among them
};

StepMemory training_step(const std::shared_ptr<const onnx::Model>& model, const ShowOptions& options,
                         const onnx::ImportSettings& import) {
  onnx::ModelStepSettings settings;
  settings.import = import;
  settings.loss = options.model.loss;
  settings.output = options.model.output;
  settings.optimizer = options.optimizer;
  const auto made = make_model_step(model, settings);
  const Plan plan = make_plan(made->graph, made->targets(), PlanMode::kDynamic,
                              std::vector<int64_t>(made->graph.nodes().size(), 0));
  StepMemory step;
  step.weight_bytes = variable_bytes(made->graph, MemoryCategory::kWeights);
  step.optimizer_bytes = variable_bytes(made->graph, MemoryCategory::kOptimizerState);
  step.input_bytes = variable_bytes(made->graph, MemoryCategory::kInputs);
  for (const Value& gradient : made->gradients) step.gradient_bytes += gradient.spec().bytes();
  step.step_bytes = plan.peak_bytes;
  return step;
}

std::string flops_text(int64_t flops) {
  const auto count = static_cast<double>(flops);
  return count < 1e8 ? fmt::format("{:.1f} MFLOP", 1e-6 * count) : fmt::format("{:.2f} GFLOP", 1e-9 * count);
}

std::string shortened(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

void add_layers(Sheet& sheet, const std::vector<LayerRow>& rows, const LayerRow& total) {
  SheetTable& table = sheet.table(
      {.key = "layers",
       .columns = {{"module", "module", kWrappedText},
                   {"ops", "ops", kWrappedText, 2},
                   {"output", "output", kText, 3},
                   {"parameters", "parameters", kCount},
                   {"MFLOP", "flops", kMega, 1},
                   {.title = "results MiB", .key = "activation_bytes", .unit = kMib, .has_bar = true}}});
  const auto add = [&table](const LayerRow& row, Mark mark) {
    table.add({{row.module, shortened(row.module, 44)},
               {row.ops, shortened(row.ops, 24)},
               row.output,
               row.parameters,
               row.flops,
               row.activation_bytes},
              mark);
  };
  for (const LayerRow& row : rows) add(row, Mark::kNone);
  add(total, Mark::kTotal);
}

// The pictures of the page: the parts of a step's memory, and each module's share.
void add_pictures(Sheet& sheet, const std::vector<LayerRow>& rows, const std::optional<StepMemory>& step) {
  if (step) {
    sheet.parts.emplace_back(
        Picture{"Memory of a training step, without workspace",
                draw_parts({{"weights", step->weight_bytes, 1},
                            {"optimizer state", step->optimizer_bytes, 3},
                            {"constants and counters", step->input_bytes, 5},
                            {"activations and gradients at the peak", step->step_bytes, 4}})});
  }
  std::vector<ModuleAmount> results, parameters;
  for (const LayerRow& row : rows) {
    const std::string& name = row.module.empty() ? row.ops : row.module;
    results.push_back({name, row.activation_bytes});
    parameters.push_back({name, row.parameters});
  }
  sheet.parts.emplace_back(Picture{"Results of the forward pass by module", draw_modules(results, kSize)});
  sheet.parts.emplace_back(Picture{"Parameters by module", draw_modules(parameters, kCount)});
}

void add_step(Sheet& sheet, const StepMemory& step, const std::string& optimizer) {
  sheet.set("training", Record{{"optimizer", optimizer},
                               {"weight_bytes", step.weight_bytes},
                               {"gradient_bytes", step.gradient_bytes},
                               {"optimizer_bytes", step.optimizer_bytes},
                               {"step_bytes", step.step_bytes}});
  const std::pair<const char*, int64_t> parts[] = {
      {"weights", step.weight_bytes},
      {"optimizer state", step.optimizer_bytes},
      {"constants and counters", step.input_bytes},
      {"activations and gradients at the peak", step.step_bytes}};
  const auto* const largest =
      std::ranges::max_element(parts, [](const auto& a, const auto& b) { return a.second < b.second; });
  SheetTable& table =
      sheet.table({.caption = fmt::format("a training step with {}, without workspace", optimizer),
                   .columns = {{""}, {"MiB", "", kMib}, {""}}});
  for (const auto& part : parts)
    table.add({part.first, part.second, {&part == largest ? "the most" : "", Color::kYellow}});
}

}  // namespace

void add_show_options(OptionSet& set, ShowOptions& options) {
  set.add_text("weights", "Load the weights from this safetensors file", &options.model.weights);
  set.add_list("dim", "Sizes of free axes, NAME=N; --batch sets the first axis", &options.model.dims);
  set.add_integer("batch", "Batch size of a step", &options.batch, 1, int64_t{1} << 40);
  set.add_integer("depth", "Combine modules below this depth; 0: none", &options.depth, 0, 100);
  set.add_choice("loss", "Loss function of the output", &options.model.loss);
  set.add_text("output", "Output to compute the loss from (default: the first)", &options.model.output);
  set.add_choice("optimizer", "Optimizer of the training step", &options.optimizer,
                 {"sgd", "momentum", "rmsprop", "adam", "adamw"});
  set.add_text("html", "Also write a page with pictures to this file", &options.html);
}

void show_model(const ShowOptions& options, const Terminal& terminal) {
  if (!options.html.empty()) {
    if (is_same_file(options.html, options.model.path))
      throw InvalidArgument(fmt::format("{}: would overwrite the model", options.html));
    require_writable(options.html);
  }
  const std::shared_ptr<const onnx::Model> model = read_model(options.model);
  onnx::ImportSettings import;
  import.batch = options.batch;
  import.dims = parse_dims(options.model.dims);
  Graph graph;
  const onnx::ImportedModel imported = import_model(model, import, graph);
  const std::vector<LayerRow> rows = rows_of(imported, graph, options.depth);
  LayerRow total{"total"};
  for (const LayerRow& row : rows) {
    total.parameters += row.parameters;
    total.flops += row.flops;
    total.activation_bytes += row.activation_bytes;
  }
  std::optional<StepMemory> step;
  std::string why_no_step;
  try {
    step = training_step(model, options, import);
  } catch (const InvalidArgument& error) {
    why_no_step = error.what();
  }

  Sheet sheet;
  sheet.title = model->path;
  sheet.verdict(fmt::format("{}: {} parameters in {} tensor{}, {} forward at batch {}", model->path,
                            shown_as(total.parameters, kCount), imported.parameters.size(),
                            imported.parameters.size() == 1 ? "" : "s", flops_text(total.flops),
                            options.batch));
  sheet.fact(
      fmt::format("opset {}, written by {} {}", model->opset(), model->producer, model->producer_version));
  for (const onnx::BoundTensor& input : imported.inputs) {
    sheet.fact(fmt::format("input {} {} {}", input.name, to_string(input.type), to_string(input.shape)));
  }
  for (size_t i = 0; i < imported.outputs.size(); ++i) {
    sheet.fact(fmt::format("output {} {} {}", imported.output_names[i], to_string(imported.outputs[i].type),
                           to_string(imported.outputs[i].shape)));
  }
  for (const std::string& note : imported.notes) sheet.fact("note: " + note, 2);
  if (imported.absent_bytes > 0) {
    sheet.fact(fmt::format("note: {} of weights are missing; run and train initialize them",
                           format_bytes(imported.absent_bytes)),
               2);
  }
  sheet.set("model", model->path);
  sheet.set("opset", model->opset());
  sheet.set("producer", model->producer);
  sheet.set("batch", options.batch);
  sheet.set("parameters", total.parameters);
  sheet.set("flops", total.flops);
  sheet.set("activation_bytes", total.activation_bytes);
  sheet.set("absent_bytes", imported.absent_bytes);
  sheet.set("notes", imported.notes);
  if (!options.html.empty()) add_pictures(sheet, rows, step);
  add_layers(sheet, rows, total);
  if (!step) {
    sheet.fact("no training step: " + why_no_step, 2);
  } else {
    add_step(sheet, *step, options.optimizer);
    WorkloadOptions next;
    next.model = options.model;
    next.step.batch = options.batch;
    next.step.optimizer = options.optimizer;
    const std::vector<std::string> words = to_words(next, OptionSet::Words::kChanged);
    sheet.next = {{command_line("headroom predict", words)}};
  }
  if (!options.html.empty()) {
    const std::string page = to_html(sheet);
    const std::string_view parts[] = {page};
    write_file(options.html, parts);
    sheet.next.push_back({"xdg-open " + shell_word(options.html), {}, !sheet.next.empty()});
  }
  print(sheet, options.json, terminal);
}

int run_show(int argc, char** argv) {
  ShowOptions options;
  std::vector<std::string> files;
  OptionSet set("headroom show", "Shows an ONNX file, as headroom models FILE does.");
  set.add_arguments("FILE", "The ONNX file", &files);
  add_show_options(set, options);
  set.add_switch("json", "Print JSON, sizes in bytes", &options.json);
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (files.size() != 1) throw InvalidArgument("show takes one file");
  options.model.path = files[0];
  show_model(options, set.terminal());
  return kExitDone;
}

}  // namespace headroom
