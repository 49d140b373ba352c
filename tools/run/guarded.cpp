#include "tools/run/guarded.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "allocators/strategies/strategy_text.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/process/process.h"
#include "base/process/temporary_folder.h"
#include "base/text.h"
#include "guard/account.h"
#include "guard/watcher.h"
#include "runtime/app/option_set.h"
#include "tools/run/device_cgroup.h"
#include "tools/run/launch.h"
#include "tools/run/python_hook.h"
#include "tools/run/recording.h"
#include "tools/run/verdict.h"

namespace headroom {
namespace {

// The account's file, removed with the last process that it counts.
class AccountFile {
 public:
  AccountFile() {
    remove_old();
    path_ = fmt::format("{}/{}{}-{:x}", guard::kAccountFolder, guard::kAccountPrefix, getpid(),
                        std::chrono::steady_clock::now().time_since_epoch().count());
    account_ = guard::create_account(path_.c_str());
    if (account_ == nullptr) throw Error(fmt::format("cannot create {}: {}", path_, strerror(errno)));
  }
  ~AccountFile() {
    guard::reap(*account_);
    if (!has_owners(*account_)) unlink(path_.c_str());
    guard::close_account(account_);
  }
  AccountFile(const AccountFile&) = delete;
  AccountFile& operator=(const AccountFile&) = delete;
  guard::Account& operator*() const { return *account_; }
  const std::string& path() const { return path_; }

 private:
  static bool has_owners(const guard::Account& account) {
    return std::any_of(std::begin(account.slots), std::end(account.slots),
                       [](const guard::Slot& slot) { return slot.owner != 0; });
  }
  // Removes the accounts of runs that were killed; one of another version a day later, as a container that
  // shares the folder may still use it.
  static void remove_old() {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(guard::kAccountFolder, ignored)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with(guard::kAccountPrefix)) continue;
      guard::Account* account = guard::open_account(entry.path().c_str());
      if (account == nullptr) {
        const int process = std::atoi(name.c_str() + std::strlen(guard::kAccountPrefix));
        const auto age = std::filesystem::file_time_type::clock::now() - entry.last_write_time(ignored);
        if (process > 0 && !ignored && age > std::chrono::hours(24) && guard::owner_of(process) == 0)
          unlink(entry.path().c_str());
        continue;
      }
      guard::reap(*account);
      const bool in_use = guard::owner_of(account->parent) != 0 || has_owners(*account);
      guard::close_account(account);
      if (!in_use) unlink(entry.path().c_str());
    }
  }

  std::string path_;
  guard::Account* account_ = nullptr;
};

// The card of "0" (as nvidia-smi numbers them), or of the start of its name, "GPU-6b3a".
int find_card(guard::Account& account, guard::Watcher& watcher, const std::string& name) {
  const std::vector<guard::Watcher::Found> cards = watcher.cards();
  std::vector<std::string> known;
  for (size_t i = 0; i < cards.size(); ++i) {
    known.push_back(fmt::format("{} ({})", i, cards[i].uuid));
    if (name != std::to_string(i) && (name.size() < 5 || !cards[i].uuid.starts_with(name))) continue;
    unsigned char uuid[16];
    if (guard::parse_uuid(cards[i].uuid, uuid)) return guard::card_of(account, uuid);
  }
  unsigned char uuid[16];  // a part of a card (MIG) is not in the list
  if (guard::parse_uuid(name, uuid)) return guard::card_of(account, uuid);
  throw InvalidArgument(fmt::format("--limit: no GPU {}; this machine has {}", printable(name, 100),
                                    known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
}

void set_limits(const GuardOptions& options, guard::Account& account, guard::Watcher& watcher) {
  std::vector<std::string> parts;
  for (const std::string& text : options.limits) {
    for (const std::string_view part : split(text, ",")) parts.emplace_back(part);
  }
  if (options.soft) account.soft_bytes = *options.soft;
  account.leave_bytes = options.leave.value_or(0);
  // The common limit first: cards take it when they are added.
  for (const std::string& part : parts) {
    if (part.find('=') == std::string::npos) account.limit_bytes = parse_bytes(part, "--limit");
  }
  for (const std::string& part : parts) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) continue;
    account.wanted = 1;  // all cards, in their order
    if (account.knows_cards == 0) watcher.measure();
    const int card = find_card(account, watcher, part.substr(0, equals));
    if (card < 0) throw InvalidArgument(fmt::format("--limit: at most {} GPUs", guard::kMaxCards));
    account.cards[card].limit_bytes = parse_bytes(part.substr(equals + 1), "--limit");
  }
  if (options.soft && account.limit_bytes != guard::kNoLimit && *options.soft > account.limit_bytes) {
    throw InvalidArgument(fmt::format("--soft: {} is above the limit of {}", format_bytes(*options.soft),
                                      format_bytes(account.limit_bytes)));
  }
}

// The limit of the card with a PCI address, by what the driver says of it.
std::optional<DeviceLimit> limit_at(const guard::Account& account, const std::string& address) {
  int64_t most = account.limit_bytes;
  unsigned char uuid[16];
  std::ifstream facts("/proc/driver/nvidia/gpus/" + address + "/information");
  for (std::string line; std::getline(facts, line);) {
    const size_t at = line.find("GPU-");
    if (at == std::string::npos || !guard::parse_uuid(line.substr(at), uuid)) continue;
    for (const guard::Card& card : account.cards) {
      if (card.known == 2 && std::memcmp(card.uuid, uuid, sizeof uuid) == 0) most = card.limit_bytes;
    }
  }
  if (most == guard::kNoLimit) return {};
  const int64_t soft = account.soft_bytes;
  return DeviceLimit{most, soft == guard::kNoLimit ? 0 : soft};
}

// "peak 5.32 GiB of 8.00 GiB", card by card.
std::string peaks_text(const guard::Account& account) {
  std::vector<std::string> parts;
  int cards = 0;
  for (const guard::Card& card : account.cards) cards += card.known == 2 && card.peak_bytes > 0 ? 1 : 0;
  for (int i = 0; i < guard::kMaxCards; ++i) {
    const guard::Card& card = account.cards[i];
    if (card.known != 2 || card.peak_bytes == 0) continue;
    const int64_t whole =
        card.limit_bytes != guard::kNoLimit ? card.limit_bytes.load() : card.total_bytes.load();
    parts.push_back(format_bytes(card.peak_bytes) + (whole > 0 ? " of " + format_bytes(whole) : "") +
                    (cards > 1 ? fmt::format(" on GPU {}", i) : ""));
  }
  return parts.empty() ? "no GPU memory used" : fmt::format("peak {}", fmt::join(parts, ", "));
}

using Environment = std::vector<std::pair<std::string, std::string>>;

std::string with_first(const std::string& first, const char* variable, const char* between) {
  const char* others = std::getenv(variable);
  return others == nullptr || *others == 0 ? first : first + between + others;
}

// Frameworks' own settings for a strategy, and our strategies where a framework takes another allocator.
Environment strategy_variables(const GuardOptions& options, guard::Account& account) {
  const std::string& strategy = options.strategy;
  if (strategy.starts_with("hard-limit="))
    throw InvalidArgument("--strategy hard-limit=SIZE: write --limit SIZE");
  const bool grows = strategy == "allow-growth", grabs = strategy == "grab-all";
  if (strategy.empty()) return {};
  if (strategy == "hard-limit") {
    if (options.limits.empty()) throw InvalidArgument("--strategy hard-limit needs --limit");
    return {};
  }
  if (grows || grabs) {
    if (grabs && options.limits.empty() && !options.reserve) {
      throw InvalidArgument("--strategy grab-all needs --limit, or --reserve for a part of the card");
    }
    account.grab_bytes = grabs ? options.reserve.value_or(guard::kNoLimit) : 0;
    return {{"TF_FORCE_GPU_ALLOW_GROWTH", grows ? "true" : "false"},
            {"XLA_PYTHON_CLIENT_PREALLOCATE", grows ? "false" : "true"}};
  }
  parse_strategy(strategy);  // throws where there is none
  return {{"HEADROOM_RUN_STRATEGY", strategy}};
}

void write_result(const std::string& path, const guard::Account& account, const Ended& ended,
                  double seconds) {
  int64_t peak = 0, limit = 0, refusals = 0;
  for (const guard::Card& card : account.cards) {
    if (card.known != 2 || card.peak_bytes <= peak) continue;
    peak = card.peak_bytes;
    limit = card.limit_bytes == guard::kNoLimit ? 0 : card.limit_bytes.load();
  }
  for (const guard::Slot& slot : account.slots) refusals += slot.refusals;
  const int code = WIFEXITED(ended.status) ? WEXITSTATUS(ended.status) : 128 + WTERMSIG(ended.status);
  const std::string text = fmt::format(
      "{{\"peak_bytes\": {}, \"limit_bytes\": {}, \"refusals\": {}, \"seconds\": {:.3f}, \"exit_code\": {}, "
      "\"escaped_process\": {}, \"escaped_bytes\": {}}}\n",
      peak, limit, refusals, seconds, code, account.escaped_process.load(), account.escaped_bytes.load());
  const std::string_view parts[] = {text};
  write_file(path, parts);
}

// The first file that the start-up hook wrote beside a recording since then, RECORD.PID.pickle (PyTorch's
// snapshot) or RECORD.PID.json; empty if there is none.
std::string first_since(const std::string& record, const char* ending,
                        std::filesystem::file_time_type began) {
  namespace fs = std::filesystem;
  const fs::path path = fs::absolute(record);
  std::string found;
  fs::file_time_type first;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path.parent_path(), error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(path.filename().string() + ".") || !name.ends_with(ending)) continue;
    const fs::file_time_type written = entry.last_write_time(error);
    if (error || written < began || (!found.empty() && written >= first)) continue;
    found = fs::path(record).replace_filename(name);
    first = written;
  }
  return found;
}

constexpr int64_t kMostFactsBytes = int64_t{64} << 20;

// True if the loader would find NVIDIA's driver: in LD_LIBRARY_PATH, or in its cache. Loading the driver
// takes longer than all else that the command does, so it is only loaded where neither has it.
bool has_driver() {
  constexpr std::string_view kDriver = "libcuda.so.1";
  const char* folders = std::getenv("LD_LIBRARY_PATH");
  for (const std::string_view folder : split(folders == nullptr ? "" : folders, ":")) {
    if (!folder.empty() && access(fmt::format("{}/{}", folder, kDriver).c_str(), R_OK) == 0) return true;
  }
  std::ifstream cache("/etc/ld.so.cache", std::ios::binary);
  const std::string known{std::istreambuf_iterator<char>(cache), {}};
  const size_t path = known.find("/" + std::string(kDriver));
  if (path != std::string::npos) {
    const size_t begin = known.rfind('\0', path) + 1;
    if (access(known.c_str() + begin, R_OK) == 0) return true;
  }
  return dlopen(kDriver.data(), RTLD_LAZY | RTLD_LOCAL) != nullptr;
}

// The status of waitpid; empty if only the help was asked for.
std::optional<int> run_command(int argc, char** argv) {
  GuardOptions options;
  OptionSet set("headroom run", "Runs a program under a limit on GPU memory.");
  set.take_command();
  set.add_list("limit", "All GPU memory that its processes may take: 1GiB, or by GPU 0=4GiB,1=8GiB",
               &options.limits);
  set.add_text("strategy",
               "grab-all, allow-growth or hard-limit; or any other (headroom strategies) under PyTorch, CuPy "
               "and Numba",
               &options.strategy);
  set.add_text("record", "Record what the driver gave to this file, for report, diff, replay and compare",
               &options.record);
  add_command_options(set, options);
  set.set_examples(
      "  headroom run -- python train.py                  the peak at the end; on failure the cause and your "
      "line\n"
      "  headroom run --limit 1GiB -- python train.py     everything that its processes take stays below\n"
      "  headroom run --limit 0=4GiB,1=8GiB --strategy allow-growth -- python train.py\n"
      "  headroom run --record run.trace -- ./server; headroom report run.trace\n");
  if (!set.parse(argc, argv, std::cout)) return {};
  const std::vector<std::string>& words = set.command();
  for (const std::string& note : set.notes()) fmt::print(stderr, "note: {}\n", note);

  const std::string program = find_program(words[0]);
  if (program.empty())
    throw InvalidArgument(fmt::format("cannot run {}: no such command", printable(words[0], 200)));
  if (const std::string why = why_not_preloaded(program); !why.empty()) {
    throw InvalidArgument(
        fmt::format("cannot limit {}: {}, so no library can be loaded in front of it", program, why));
  }
  const std::string library = path_of_sibling("libheadroom_guard.so");
  if (access(library.c_str(), R_OK) != 0)
    throw Error(fmt::format("{} is missing; install it again", library));
  if (library.find_first_of(" :") != std::string::npos) {
    throw InvalidArgument(fmt::format("{}: LD_PRELOAD takes no path with blanks or colons", library));
  }
  if (!has_driver()) {
    throw LibraryError("no GPU: NVIDIA's driver (libcuda.so.1) is not installed", "dlopen", "not found", {});
  }

  if (!options.failure.empty()) require_writable(options.failure);
  const AccountFile file;
  guard::Account& account = *file;
  const std::string title = printable(fmt::format("{}", fmt::join(words, " ")), 60);
  title.copy(account.command, sizeof account.command - 1);
  guard::Watcher watcher(account);
  set_limits(options, account, watcher);
  const std::optional<DeviceCgroup> group =
      DeviceCgroup::make([&account](const std::string& address) { return limit_at(account, address); });
  const TemporaryFolder folder;  // for what its processes leave
  Environment variables = strategy_variables(options, account);
  std::string shown;  // of the settings that frameworks read
  for (const auto& [name, value] : variables) shown += fmt::format("; {}={}", name, value);
  variables.insert(variables.end(), {{guard::kAccountVariable, file.path()},
                                     {"LD_PRELOAD", with_first(library, "LD_PRELOAD", ":")}});
  // PyTorch's snapshot is kept beside a recording, and otherwise until the verdict is told.
  std::string snapshots = folder.path() + "/torch";
  if (!options.record.empty()) {
    require_writable(options.record);
    folder.path().copy(account.record_folder, sizeof account.record_folder - 1);
    snapshots = std::filesystem::absolute(options.record);
  }
  variables.insert(variables.end(),
                   {{"HEADROOM_RUN_SNAPSHOT", snapshots},
                    {"PYTHONPATH", with_first(python_hook_folder(folder.path()), "PYTHONPATH", ":")}});

  std::atomic<bool> stop{false};
  account.is_watched = 1;
  std::thread watching([&] { watcher.watch(stop); });
  const int64_t killed_before = killed_for_memory();
  const auto began = std::chrono::steady_clock::now();
  // Less a second: the times of files are those of a coarser clock.
  const auto began_writing = std::filesystem::file_time_type::clock::now() - std::chrono::seconds(1);
  Ended ended;
  const auto finish = [&] {
    stop = true;
    account.wanted++;
    guard::wake(account.wanted);
    watching.join();
  };
  try {
    ended = launch(words, variables, group ? group->processes_file() : std::string());
  } catch (...) {
    finish();
    throw;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  finish();
  std::vector<std::string> traces;
  if (!options.record.empty()) traces = write_recordings(account.record_folder, options.record, account);
  // Below a line that the program left open, as progress bars do.
  if (!ended.errors.empty() && ended.errors.back() != '\n') fmt::print(stderr, "\n");
  if (!WIFEXITED(ended.status) || WEXITSTATUS(ended.status) != 0) {
    const std::string snapshot = first_since(snapshots, ".pickle", began_writing),
                      facts = first_since(snapshots, ".json", began_writing);
    const Failure failure{
        .account = account,
        .ended = ended,
        .killed_for_memory = killed_for_memory() > killed_before,
        .traces = traces,
        .report =
            Facts::parse(snapshot.empty() ? "" : run_child(own_path(), {"report", "--json", snapshot}).out),
        .facts = Facts::parse(facts.empty() ? "" : read_file(facts, kMostFactsBytes)),
        .kept_snapshot = options.record.empty() ? "" : snapshot,
        .command = command_line(words[0], std::span(words).subspan(1))};
    fmt::print(stderr, "{}", verdict_of_command(failure));
    if (!options.failure.empty()) write_failure(options.failure, failure);
  }
  fmt::print(stderr, "headroom: {} ({}){}{}\n", peaks_text(account), title, shown,
             group ? "; the kernel (cgroup dmem) holds the limit as well" : "");
  if (account.escaped_process != 0) {
    const int64_t bytes = account.escaped_bytes;  // 0: the driver does not say
    fmt::print(stderr, "headroom: process {} {} without the limit: it was started without LD_PRELOAD\n",
               account.escaped_process.load(),
               bytes > 0 ? "took " + format_bytes(bytes) : std::string("used the GPU"));
  }
  if (!options.result.empty()) write_result(options.result, account, ended, seconds.count());
  return ended.status;
}

}  // namespace

void add_command_options(OptionSet& set, GuardOptions& options) {
  set.begin_group("A program after --");
  set.add_bytes("soft", "Above this size only while --leave is free for other processes", &options.soft);
  set.add_bytes("leave", "What stays free for other processes above --soft", &options.leave);
  set.add_bytes("reserve", "What grab-all takes at the start; without it the limit", &options.reserve);
  set.add_text("result", "Also write peak, time and exit code to this file as JSON", &options.result);
  set.add_text(
      "failure",
      "On failure also write to this file what the verdict is told from; without a program, tell the "
      "verdict of such a file",
      &options.failure);
}

int run_guarded(int argc, char** argv) {
  const std::optional<int> status = run_command(argc, argv);
  if (!status) return kExitDone;
  std::fflush(nullptr);
  end_like(*status);
}

}  // namespace headroom
