#include "tools/models/model_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <string_view>

#include "base/bytes.h"
#include "sheet/writers.h"

namespace headroom {
namespace {

// Sizes in the units of the drawing. Rows have room for the larger letters of narrow screens.
constexpr double kPictureWidth = 760, kRowHeight = 30;
constexpr size_t kMaxDepth = 16;

std::string begin_picture(double height, std::string_view label) {
  return fmt::format("<svg class=\"curve\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                     kPictureWidth, height, label);
}

// A box with its text inside, cut off at its end.
std::string box(double x, double y, double width, const std::string& fill, const std::string& ink,
                const std::string& text, const std::string& title) {
  return fmt::format(
      "<svg x=\"{0:.1f}\" y=\"{1:.1f}\" width=\"{2:.1f}\" height=\"{3}\"><title>{4}</title>"
      "<rect width=\"100%\" height=\"100%\" style=\"fill:{5}\"/>{6}</svg>\n",
      x, y, std::max(width - 1, 0.5), kRowHeight - 1, escaped_html(title), fill,
      width < 24
          ? ""
          : fmt::format("<text x=\"4\" y=\"21\" style=\"fill:{}\">{}</text>", ink, escaped_html(text)));
}

struct Module {
  std::string name, path;
  int64_t amount = 0;
  std::vector<Module> children = {};
  std::map<std::string, size_t, std::less<>> places = {};
};

void add_to(Module& root, const ModuleAmount& added) {
  Module* at = &root;
  at->amount += added.amount;
  size_t begin = 0;
  for (size_t depth = 1; depth < kMaxDepth && begin <= added.module.size(); ++depth) {
    const size_t end = std::min(added.module.find('.', begin), added.module.size());
    const std::string name = added.module.substr(begin, end - begin);
    const auto [place, is_new] = at->places.try_emplace(name, at->children.size());
    if (is_new) at->children.push_back({.name = name, .path = added.module.substr(0, end)});
    at = &at->children[place->second];
    at->amount += added.amount;
    begin = end + 1;
  }
}

// Returns how many rows are drawn.
size_t draw(const Module& module, int64_t whole, double x, double width, size_t depth, const Unit& unit,
            std::string& svg) {
  const std::string amount = shown_as(module.amount, unit);
  const std::string title =
      fmt::format("{}: {}, {:.1f} %", module.path, amount,
                  100 * static_cast<double>(module.amount) / static_cast<double>(whole));
  const bool is_leaf = module.children.empty();
  svg += box(x, kRowHeight * static_cast<double>(depth), width,
             is_leaf ? "var(--c4)" : fmt::format("var(--flame-{})", depth % 2 == 0 ? 'a' : 'b'),
             is_leaf ? "#000" : "var(--ink)", module.name + " " + amount, title);
  size_t rows = depth + 1;
  for (const Module& child : module.children) {
    const double part =
        width * static_cast<double>(child.amount) / static_cast<double>(std::max<int64_t>(module.amount, 1));
    if (part >= 1) rows = std::max(rows, draw(child, whole, x, part, depth + 1, unit, svg));
    x += part;
  }
  return rows;
}

}  // namespace

std::string draw_parts(const std::vector<MemoryPart>& parts) {
  int64_t whole = 0;
  for (const MemoryPart& part : parts) whole += part.bytes;
  std::string svg =
      begin_picture(kRowHeight * (1.5 + static_cast<double>(parts.size())), "parts of the memory");
  double x = 0, y = kRowHeight * 1.3;
  for (const MemoryPart& part : parts) {
    const double share = static_cast<double>(part.bytes) / static_cast<double>(std::max<int64_t>(whole, 1));
    const std::string fill = fmt::format("var(--c{})", part.color);
    const std::string text =
        fmt::format("{}: {}, {:.1f} %", part.name, format_bytes(part.bytes), 100 * share);
    if (part.bytes > 0) svg += box(x, 0, kPictureWidth * share, fill, "#000", {}, text);
    svg += fmt::format("<rect x=\"0\" y=\"{:.1f}\" width=\"18\" height=\"18\" style=\"fill:{}\"/>", y, fill);
    svg += fmt::format("<text x=\"26\" y=\"{:.1f}\">{}</text>\n", y + 16, escaped_html(text));
    x += kPictureWidth * share;
    y += kRowHeight;
  }
  return svg + "</svg>\n";
}

std::string draw_modules(const std::vector<ModuleAmount>& modules, const Unit& unit) {
  Module root{.name = "all", .path = "all"};
  for (const ModuleAmount& module : modules) add_to(root, module);
  std::string boxes;
  const size_t rows = root.amount == 0 ? 0 : draw(root, root.amount, 0, kPictureWidth, 0, unit, boxes);
  return begin_picture(kRowHeight * static_cast<double>(std::max<size_t>(rows, 1)), "amounts by module") +
         boxes + "</svg>\n";
}

}  // namespace headroom
