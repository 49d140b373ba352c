#include "guard/watcher.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

namespace headroom::guard {
namespace {

struct Library {
  int (*nvmlInit_v2)();
  int (*nvmlDeviceGetCount_v2)(unsigned*);
  int (*nvmlDeviceGetHandleByIndex_v2)(unsigned, nvmlDevice_t*);
  int (*nvmlDeviceGetHandleByUUID)(const char*, nvmlDevice_t*);
  int (*nvmlDeviceGetUUID)(nvmlDevice_t, char*, unsigned);
  int (*nvmlDeviceGetName)(nvmlDevice_t, char*, unsigned);
  int (*nvmlDeviceGetMemoryInfo)(nvmlDevice_t, nvmlMemory_t*);
  int (*processes)(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*);
} nvml;

constexpr int kInsufficientSize = 7;
constexpr int64_t kSecond = 1000000000;

// A file of /proc/PROCESS; empty where it cannot be read.
std::string process_file(int process, const char* name) {
  const std::string path = "/proc/" + std::to_string(process) + "/" + name;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  std::string text;
  char part[4096];
  while (file != nullptr) {
    const size_t count = std::fread(part, 1, sizeof part, file.get());
    if (count == 0) break;
    text.append(part, count);
  }
  return text;
}

bool runs_this_program(int process) {
  struct stat own, other;
  return stat("/proc/self/exe", &own) == 0 &&
         stat(("/proc/" + std::to_string(process) + "/exe").c_str(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

// A program with the rights of another user has the variable, and the loader ignores it. A child of this
// process that has not become the program yet has the driver from here.
bool uses_driver_unguarded(int process) {
  constexpr char kLibrary[] = "libheadroom_guard.so";
  struct stat facts;
  if (stat(("/proc/" + std::to_string(process)).c_str(), &facts) != 0 || runs_this_program(process))
    return false;
  const bool is_asked = process_file(process, "environ").find(kLibrary) != std::string::npos;
  if (is_asked && facts.st_uid == geteuid()) return false;
  const std::string maps = process_file(process, "maps");
  return maps.find("/libcuda.so") != std::string::npos && maps.find(kLibrary) == std::string::npos;
}

std::string text_of(const unsigned char (&uuid)[16], const char* prefix) {
  std::string text = prefix;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += "0123456789abcdef"[uuid[i] >> 4];
    text += "0123456789abcdef"[uuid[i] & 15];
  }
  return text;
}

}  // namespace

bool parse_uuid(const std::string& text, unsigned char (&uuid)[16]) {
  const size_t start = text.find('-');
  if (start == std::string::npos) return false;
  int digits = 0;
  for (size_t i = start; i < text.size() && digits < 32; ++i) {
    if (text[i] == '-') continue;
    if (std::isxdigit(static_cast<unsigned char>(text[i])) == 0) return false;
    const int digit =
        std::isdigit(static_cast<unsigned char>(text[i])) != 0 ? text[i] - '0' : (text[i] | 32) - 'a' + 10;
    uuid[digits / 2] = static_cast<unsigned char>(uuid[digits / 2] << 4 | digit);
    ++digits;
  }
  return digits == 32;
}

Watcher::Watcher(Account& account) : account_(account), began_ns_(monotonic_ns()) {}

bool Watcher::open() {
  if (is_open_) return true;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return false;
  const auto find = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  if (!find(nvml.nvmlInit_v2, "nvmlInit_v2") || !find(nvml.nvmlDeviceGetCount_v2, "nvmlDeviceGetCount_v2") ||
      !find(nvml.nvmlDeviceGetHandleByIndex_v2, "nvmlDeviceGetHandleByIndex_v2") ||
      !find(nvml.nvmlDeviceGetHandleByUUID, "nvmlDeviceGetHandleByUUID") ||
      !find(nvml.nvmlDeviceGetUUID, "nvmlDeviceGetUUID") ||
      !find(nvml.nvmlDeviceGetName, "nvmlDeviceGetName") ||
      !find(nvml.nvmlDeviceGetMemoryInfo, "nvmlDeviceGetMemoryInfo")) {
    return false;
  }
  if (!find(nvml.processes, "nvmlDeviceGetComputeRunningProcesses_v3")) {
    find(nvml.processes, "nvmlDeviceGetComputeRunningProcesses_v2");
  }
  is_open_ = nvml.nvmlInit_v2() == 0;
  return is_open_;
}

std::vector<Watcher::Found> Watcher::cards() {
  std::vector<Found> found;
  unsigned count = 0;
  if (!open() || nvml.nvmlDeviceGetCount_v2(&count) != 0) return found;
  for (unsigned i = 0; i < count; ++i) {
    nvmlDevice_t device = nullptr;
    char uuid[96] = {}, name[96] = {};
    nvmlMemory_t memory{};
    if (nvml.nvmlDeviceGetHandleByIndex_v2(i, &device) != 0) continue;
    nvml.nvmlDeviceGetUUID(device, uuid, sizeof uuid);
    nvml.nvmlDeviceGetName(device, name, sizeof name);
    nvml.nvmlDeviceGetMemoryInfo(device, &memory);
    found.push_back({uuid, name, static_cast<int64_t>(memory.total)});
  }
  return found;
}

void Watcher::measure_card(int number) {
  Card& card = account_.cards[number];
  if (devices_[number] == nullptr) {
    for (const char* prefix : {"GPU-", "MIG-"}) {
      if (nvml.nvmlDeviceGetHandleByUUID(text_of(card.uuid, prefix).c_str(), &devices_[number]) == 0) break;
      devices_[number] = nullptr;
    }
    if (devices_[number] == nullptr) return;
  }
  const int slots = account_.slots_used;
  for (int i = 0; i < slots; ++i) {
    Share& share = account_.slots[i].cards[number];
    share.recent = share.held.load();
    raise_to(share.recent, share.held);  // what was asked for between the two
  }
  std::vector<nvmlProcessInfo_t> listed(256);
  auto count = static_cast<unsigned>(listed.size());
  int result = nvml.processes == nullptr ? 1 : nvml.processes(devices_[number], &count, listed.data());
  if (result == kInsufficientSize) {
    listed.resize(count + 64);
    count = static_cast<unsigned>(listed.size());
    result = nvml.processes(devices_[number], &count, listed.data());
  }
  listed.resize(result == 0 ? count : 0);
  nvmlMemory_t memory{};
  if (nvml.nvmlDeviceGetMemoryInfo(devices_[number], &memory) == 0) {
    card.total_bytes = static_cast<int64_t>(memory.total);
    card.used_bytes = static_cast<int64_t>(memory.used);
  }

  int with_context = 0, matched = 0;
  int64_t tree = 0;
  for (int i = 0; i < slots; ++i) {
    if (is_counted(account_.slots[i].owner) && account_.slots[i].cards[number].floor > 0) ++with_context;
  }
  for (int i = 0; i < slots; ++i) {
    Slot& slot = account_.slots[i];
    Share& share = slot.cards[number];
    if (!is_counted(slot.owner)) continue;
    const auto pid = static_cast<unsigned>(process_of(slot.owner));
    auto own = std::find_if(listed.begin(), listed.end(),
                            [pid](const nvmlProcessInfo_t& p) { return p.pid == pid; });
    // In a container the library tells process ids of the host, which nobody has here; one process can then
    // be no other's.
    if (own == listed.end() && listed.size() == 1 && with_context == 1 && share.floor > 0 &&
        owner_of(static_cast<int>(listed.front().pid)) == 0)
      own = listed.begin();
    if (own == listed.end() || own->used == kNvmlUnknown) {
      share.driver = 0;
      continue;
    }
    ++matched;
    const auto process = static_cast<int64_t>(own->used);
    tree += process;
    share.driver = process;
    const int64_t held = share.held, most = std::max(held, share.recent.load()), extra = share.extra;
    const int64_t least = held - share.growth;
    // Memory in flight makes this too small, never too large: a request is counted before the driver has it.
    // So it falls only when it was smaller three times while the process asked for nothing.
    Quiet& quiet = quiet_[i][number];
    const bool is_smaller = most == held && process - least < extra;
    quiet.times = is_smaller && quiet.held == held ? quiet.times + 1 : 0;
    quiet.held = held;
    if (process - most > extra)
      share.extra = process - most;
    else if (quiet.times >= 3)
      share.extra = std::max(share.floor.load(), process - least);
  }
  for (const nvmlProcessInfo_t& process : listed) {  // what was started without the library
    const auto pid = static_cast<int>(process.pid);
    const bool is_counted_one = std::any_of(account_.slots, account_.slots + slots, [pid](const Slot& slot) {
      return is_counted(slot.owner) && process_of(slot.owner) == pid;
    });
    if (is_counted_one || process.used == kNvmlUnknown || !is_descendant(pid, account_.parent)) continue;
    raise_to(account_.escaped_bytes, static_cast<int64_t>(process.used));
    account_.escaped_process = pid;
  }
  if (matched > 0) {
    card.lists_processes = 1;
    raise_to(card.peak_bytes, tree);  // also pieces of pools that no call has confirmed yet
  }
  card.tree_bytes = tree;
  raise_to(card.tree_peak_bytes, tree);
  raise_peak(account_, number);
}

// For `headroom who`, which shows growth.
void Watcher::begin_minute() {
  const int64_t now = monotonic_ns();
  if (account_.minute_ns != 0 && now - account_.minute_ns < 60 * kSecond) return;
  account_.minute_ns = now;
  const int used = account_.slots_used;
  for (int i = 0; i < used; ++i) {
    for (Share& share : account_.slots[i].cards) share.before = share.held + share.extra;
  }
}

// Processes that loaded the driver without the library: what the driver lists may be ids that a container
// does not know, or nothing. Looked for twice a second, among ids above the parent's: reading all processes
// of a large machine would cost as much as the rest of the measurement.
void Watcher::find_escaped() {
  const int64_t now = monotonic_ns();
  if (account_.escaped_process != 0 || now - searched_ns_ < kSecond / 2) return;
  searched_ns_ = now;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  while (const dirent* entry = folder == nullptr ? nullptr : readdir(folder.get())) {
    const int process = std::atoi(entry->d_name);
    if (process > account_.parent && is_descendant(process, account_.parent) &&
        uses_driver_unguarded(process))
      account_.escaped_process = process;
  }
}

void Watcher::measure() {
  reap(account_);
  begin_minute();
  find_escaped();
  // Opening the library takes longer than all else here, so it waits for a program that uses a GPU, or that
  // runs for a while: a process that is not counted may be found by this library alone.
  if (account_.wanted == 0 && monotonic_ns() - began_ns_ < kSecond / 2) return;
  if (!open()) return;
  if (account_.knows_cards == 0) {  // also those that no guarded process uses
    for (const Found& card : cards()) {
      unsigned char uuid[16];
      if (parse_uuid(card.uuid, uuid)) card_of(account_, uuid);
    }
    account_.knows_cards = 1;
  }
  for (int i = 0; i < kMaxCards; ++i) {
    if (account_.cards[i].known == 2) measure_card(i);
  }
}

void Watcher::watch(const std::atomic<bool>& stop) {
  account_.is_watched = 1;
  while (!stop) {
    const uint32_t wanted = account_.wanted;
    measure();
    account_.measured = wanted;
    wake(account_.measured);
    usleep(1000);
    wait_while(account_.wanted, wanted, 50000000);
  }
  account_.is_watched = 0;
}

}  // namespace headroom::guard
