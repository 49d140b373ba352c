// headroom models: lists public nets, prints the lines of Python that export one, or a net of one's own, and
// shows an ONNX file.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/errors.h"
#include "base/text.h"
#include "runtime/app/option_set.h"
#include "sheet/writers.h"
#include "tools/models/show.h"
#include "tools/subcommands.h"

namespace headroom {
namespace {

enum class Takes : uint8_t { kImages, kTokens, kPairsOfTokens };

struct PublicModel {
  std::string_view name, package;
  int64_t parameters;
  Takes takes;
  std::string_view net;  // an expression of Python
};

// Parameters as the packages count them.
constexpr PublicModel kModels[] = {
    {"resnet18", "torchvision", 11'689'512, Takes::kImages, "torchvision.models.resnet18()"},
    {"resnet50", "torchvision", 25'557'032, Takes::kImages, "torchvision.models.resnet50()"},
    {"densenet121", "torchvision", 7'978'856, Takes::kImages, "torchvision.models.densenet121()"},
    {"mobilenet_v2", "torchvision", 3'504'872, Takes::kImages, "torchvision.models.mobilenet_v2()"},
    {"efficientnet_b0", "torchvision", 5'288'548, Takes::kImages, "torchvision.models.efficientnet_b0()"},
    {"convnext_tiny", "torchvision", 28'589'128, Takes::kImages, "torchvision.models.convnext_tiny()"},
    {"swin_t", "torchvision", 28'288'354, Takes::kImages, "torchvision.models.swin_t()"},
    {"vit_small", "timm", 22'050'664, Takes::kImages, "timm.create_model('vit_small_patch16_224')"},
    {"bert", "transformers", 109'514'298, Takes::kTokens,
     "transformers.BertForMaskedLM(transformers.BertConfig())"},
    {"gpt2", "transformers", 124'439'808, Takes::kTokens,
     "transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))"},
    {"t5_small", "transformers", 60'506'624, Takes::kPairsOfTokens,
     "transformers.T5ForConditionalGeneration(transformers.T5Config(use_cache=False))"},
};

const PublicModel* find_model(std::string_view name) {
  const auto* const found =
      std::ranges::find_if(kModels, [&](const PublicModel& model) { return model.name == name; });
  return found == std::end(kModels) ? nullptr : found;
}

std::string_view example_of(Takes takes) {
  return takes == Takes::kImages ? "torch.randn(2, 3, 224, 224)" : "torch.randint(0, 1000, (2, 128))";
}

std::string_view text_of(Takes takes) {
  switch (takes) {
    case Takes::kImages:
      return "images";
    case Takes::kTokens:
      return "tokens";
    case Takes::kPairsOfTokens:
      return "tokens twice";
  }
  return "";
}

// The lines that export `net`. Both exporters keep batch normalization so, and leave the batch free.
std::vector<std::string> export_lines(const PublicModel* model, bool is_old) {
  const bool is_pair = model != nullptr && model->takes == Takes::kPairsOfTokens;
  std::vector<std::string> lines;
  if (model == nullptr) {
    lines.push_back("import torch; net = ...                 # your torch.nn.Module");
    lines.push_back(
        "x = torch.randn(2, 3, 224, 224)         # an example of its input, a batch of 2 or more");
  } else {
    lines.push_back(fmt::format("import torch, {}; net = {}", model->package, model->net));
    lines.push_back(fmt::format("x = {}", example_of(model->takes)));
  }
  const std::string file = model == nullptr ? "net.onnx" : fmt::format("{}.onnx", model->name);
  const std::string args = is_pair ? "kwargs={'input_ids': x, 'decoder_input_ids': x}, " : "";
  const std::string operands = is_pair ? "()" : "(x,)";
  if (is_old) {
    const std::string names = is_pair ? "'x', 'y'" : "'x'";
    const std::string axes = is_pair ? "'x': {0: 'batch'}, 'y': {0: 'batch'}" : "'x': {0: 'batch'}";
    lines.push_back(fmt::format(
        "torch.onnx.export(net.train(), {}, '{}', {}dynamo=False, training=torch.onnx.TrainingMode.TRAINING, "
        "do_constant_folding=False, input_names=[{}], dynamic_axes={{{}}})",
        operands, file, args, names, axes));
  } else {
    const std::string batch = "{0: torch.export.Dim('batch')}";
    const std::string axes = is_pair
                                 ? fmt::format("{{'input_ids': {}, 'decoder_input_ids': {}}}", batch, batch)
                                 : fmt::format("({},)", batch);
    lines.push_back(fmt::format(
        "torch.onnx.export(net.eval(), {}, '{}', {}dynamo=True, optimize=False, dynamic_shapes={})", operands,
        file, args, axes));
  }
  return lines;
}

void add_lines(Sheet& sheet, const PublicModel* model) {
  CodeBlock code{.lines = {"# PyTorch's exporter of today; optimize=False keeps", "# batch normalization"},
                 .indent = 0};
  for (std::string& line : export_lines(model, false)) code.lines.push_back(std::move(line));
  code.lines.insert(code.lines.end(),
                    {"", "# the older one; with TRAINING it keeps batch normalization", "# and dropout"});
  for (std::string& line : export_lines(model, true)) code.lines.push_back(std::move(line));
  sheet.code(std::move(code));
}

SheetTable to_table(const std::vector<const PublicModel*>& models) {
  SheetTable table{.key = "models",
                   .columns = {{"name", "name"},
                               {"package", "package", kText, 1},
                               {"parameters", "parameters", kCount},
                               {"takes", "takes", kWrappedText},
                               {{}, "export"},
                               {{}, "export_older"}}};
  for (const PublicModel* model : models) {
    table.add({model->name, model->package, model->parameters, text_of(model->takes),
               export_lines(model, false), export_lines(model, true)});
  }
  return table;
}

// A misspelled file is a file as well.
bool is_file(const std::string& name) {
  if (find_model(name) != nullptr) return false;
  std::error_code ignored;
  return name.ends_with(".onnx") || name.find('/') != std::string::npos ||
         std::filesystem::exists(name, ignored);
}

}  // namespace

int run_models(int argc, char** argv) {
  std::vector<std::string> names;
  ShowOptions show;
  OptionSet set(
      "headroom models",
      "Shows the layers of an ONNX file and what uses memory in a training step. Without a file, lists "
      "public nets and prints the Python code that exports them to ONNX.");
  set.add_arguments("FILE|NAME...", "An ONNX file, or public nets whose Python code to print", &names, false);
  add_show_options(set, show);
  set.add_switch("json", "Print JSON, sizes in bytes", &show.json);
  set.set_examples(
      "  headroom models                             public nets, and how to export yours\n"
      "  headroom models resnet50                    how to export this one\n"
      "  headroom models net.onnx --batch 32         its layers and their memory\n"
      "  headroom models net.onnx --html net.html    a picture of them\n"
      "  headroom models bert.onnx --dim length=128 --depth 3\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (names.size() == 1 && is_file(names[0])) {
    show.model.path = names[0];
    show_model(show, set.terminal());
    return kExitDone;
  }
  std::vector<const PublicModel*> wanted;
  for (const std::string& name : names) {
    wanted.push_back(find_model(name));
    if (wanted.back() != nullptr) continue;
    std::vector<std::string_view> known;
    for (const PublicModel& model : kModels) known.push_back(model.name);
    throw InvalidArgument(fmt::format("models: unknown net '{}'; known: {}", printable(name),
                                      list_with_suggestion(name, known)));
  }
  Sheet sheet;
  if (!wanted.empty()) {
    for (const PublicModel* model : wanted) add_lines(sheet, model);
    sheet.table(to_table(wanted)).hide();
    sheet.next = {{fmt::format("headroom models {}.onnx --batch 8", wanted.back()->name)}};
  } else {
    for (const PublicModel& model : kModels) wanted.push_back(&model);
    sheet.verdict(
        fmt::format("{} public nets; headroom models NAME prints how to export one", wanted.size()));
    sheet.table(to_table(wanted));
    sheet.heading("your own net in three lines");
    add_lines(sheet, nullptr);
    sheet.next = {{"headroom models net.onnx --batch 8"}};
  }
  print(sheet, show.json, set.terminal());
  return kExitDone;
}

}  // namespace headroom
