// headroom doctor: which GPU software is installed, and which versions conflict.

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "device/gpu_variables.h"
#include "runtime/app/option_set.h"
#include "sheet/writers.h"
#include "tools/doctor/checks.h"
#include "tools/subcommands.h"

namespace headroom::doctor {
namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 20;  // size limit of a file of /proc

// "580.65.06" of "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build ...".
std::string kernel_driver() {
  const std::string path = "/proc/driver/nvidia/version";
  if (access(path.c_str(), R_OK) != 0) return "";
  std::istringstream words(read_file(path, kMaxBytes));
  for (std::string word; words >> word;) {
    const bool is_version = word.find('.') != word.npos && word.find_first_not_of("0123456789.") == word.npos;
    if (is_version) return word;
  }
  return "";
}

CacheFolder look_at(const std::string& path) {
  CacheFolder folder{.path = path, .owner = {}};
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return folder;
  folder.exists = true;
  folder.writable = access(path.c_str(), W_OK) == 0;
  if (status.st_uid != geteuid()) {
    const passwd* entry = getpwuid(status.st_uid);
    folder.owner = entry == nullptr ? fmt::format("{}", status.st_uid) : entry->pw_name;
  }
  return folder;
}

std::vector<CacheFolder> cache_folders() {
  std::vector<CacheFolder> folders;
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    folders.push_back(look_at(fmt::format("{}/.nv", home)));
    folders.push_back(look_at(fmt::format("{}/.nv/ComputeCache", home)));
  }
  if (const char* path = std::getenv("CUDA_CACHE_PATH"); path != nullptr && *path != '\0') {
    folders.push_back(look_at(path));
  }
  return folders;
}

// Returns those of another process, as it was started.
std::vector<MisspelledVariable> misspelled_variables_of(int64_t pid) {
  const std::string text = read_file(fmt::format("/proc/{}/environ", pid), kMaxBytes) + '\0';
  std::vector<const char*> entries;
  for (size_t begin = 0; begin < text.size(); begin = text.find('\0', begin) + 1) {
    entries.push_back(text.c_str() + begin);
  }
  entries.push_back(nullptr);
  return misspelled_variables(entries.data());
}

Facts gather(int64_t pid) {
  Facts facts;
  facts.driver_cuda = driver_cuda_version();
  facts.runtime_cuda = runtime_cuda_version();
  facts.of_other_process = pid != 0;
  facts.libraries =
      pid == 0 ? load_libraries() : mapped_libraries(read_file(fmt::format("/proc/{}/maps", pid), kMaxBytes));
  facts.kernel_driver = kernel_driver();
  facts.gpus = list_gpus();
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible_devices = visible;
  facts.misspelled = pid == 0 ? misspelled_variables() : misspelled_variables_of(pid);
  facts.caches = cache_folders();
  return facts;
}

const char* name_of(Level level) {
  constexpr const char* kNames[] = {"ok", "note", "problem"};
  return kNames[static_cast<int>(level)];
}

std::string verdict(const Facts& facts, const std::vector<Finding>& findings) {
  const auto count =
      std::ranges::count_if(findings, [](const Finding& f) { return f.level == Level::kProblem; });
  const std::string place = facts.gpus.gpus.empty() ? "no GPU on this machine" : "";
  if (count == 0) return place.empty() ? "no problem" : place + "; no other problem";
  return fmt::format("{} problem{}{}{}", count, count == 1 ? "" : "s", place.empty() ? "" : "; ", place);
}

Color color_of(Level level) {
  constexpr Color kColors[] = {Color::kGreen, Color::kYellow, Color::kRed};
  return kColors[static_cast<int>(level)];
}

Datum text_or_null(const std::string& text) {
  return text.empty() ? Datum() : Datum(text);
}

Sheet to_sheet(const Facts& facts, const std::vector<Finding>& findings) {
  Sheet sheet;
  sheet.verdict(verdict(facts, findings));
  sheet.set("verdict", verdict(facts, findings));
  sheet.set("gpus", facts.gpus.gpus.size());
  sheet.set("problem", text_or_null(facts.gpus.problem));
  sheet.set("kernel_driver", text_or_null(facts.kernel_driver));
  sheet.set("driver_cuda", facts.driver_cuda);
  sheet.set("runtime_cuda", facts.runtime_cuda);
  sheet.set("visible_devices", facts.visible_devices);
  SheetTable& checks = sheet.table(
      {.key = "checks", .columns = {{"", "level"}, {"", "check"}, {"", "text", kWrappedText}, {{}, "fix"}}});
  for (const Finding& finding : findings) {
    checks.add({{name_of(finding.level), color_of(finding.level)},
                finding.check,
                finding.text,
                text_or_null(finding.fix)});
    if (finding.level == Level::kProblem) sheet.next.push_back({finding.fix});
  }
  SheetTable& libraries = sheet.table(
      {.key = "libraries",
       .columns = {{"library", "name"}, {"version", "version"}, {"path", "path", kWrappedText, 1}}});
  for (const LibraryFile& library : facts.libraries) {
    libraries.add({library.name, {text_or_null(library.version), library.version}, library.path});
  }
  sheet.set("duplicates", duplicates(facts.libraries));
  if (sheet.next.empty())
    sheet.next = {{fmt::format("headroom {}", facts.gpus.gpus.empty() ? "predict --device sim" : "who")}};
  return sheet;
}

}  // namespace

int run_doctor(int argc, char** argv) {
  int64_t pid = 0;
  bool json = false;
  OptionSet set(
      "headroom doctor",
      "Lists the GPU driver and libraries of this machine and their version conflicts. Exits with 5 "
      "if there is a conflict. Needs no GPU.");
  set.add_integer("pid", "Check the libraries that this process has loaded; 0: those that the loader finds",
                  &pid, 0);
  set.add_switch("json", "Print JSON", &json);
  set.set_examples(
      "  headroom doctor\n"
      "  headroom doctor --pid $(pgrep -n python)     the cuBLAS that a training has loaded\n"
      "  headroom doctor --json | jq -r '.libraries[] | .path'\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  const Facts facts = gather(pid);
  const std::vector<Finding> findings = examine(facts);
  print(to_sheet(facts, findings), json, set.terminal());
  const bool wrong =
      std::ranges::any_of(findings, [](const Finding& f) { return f.level == Level::kProblem; });
  return wrong ? kExitCheckFailed : kExitDone;
}

}  // namespace headroom::doctor
