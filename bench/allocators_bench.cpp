// Real time of allocators on allocation traces, in a loop over one size, and under eight threads: ours on a
// GPU or a simulated one, and those of others as shared libraries (peers/peer.h). Prints one line of fields
// with tabs between them for each measurement, which bench/allocators makes tables of.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "allocators/strategies/strategy.h"
#include "allocators/strategies/strategy_text.h"
#include "base/bytes.h"
#include "bench/allocator_trials.h"
#include "bench/peers/peer.h"
#include "device/gpus.h"
#include "device/host/simulated_gpu.h"
#include "trace/read_trace.h"

namespace headroom {
namespace {

constexpr const char* kUsage =
    "usage: allocators_bench [--device auto|cuda|sim] [--passes N] [--threads N]\n"
    "                        [--peers LIBRARY [--as NAME]] [STRATEGY[@SHARE]...] -- TRACE...\n"
    "Measures the strategies, or all allocators of a peers' library. SHARE limits a strategy to that "
    "multiple\n"
    "of each trace's largest live set. NAME replaces the name of the library's one allocator. --threads "
    "plays\n"
    "the traces in 1, 2, 4 ... N threads and measures nothing else.\n";

// One of our strategies, made anew for each measurement.
class Ours {
 public:
  Ours(const StrategySettings& settings, Device& device) : allocator_(make_allocator(settings, device)) {}

  void* allocate(int64_t bytes, Stream stream) { return allocator_->allocate(bytes, stream); }
  void deallocate(void* pointer, int64_t bytes, Stream stream) {
    allocator_->deallocate(pointer, bytes, stream);
  }
  int64_t reserved_peak_bytes() const { return allocator_->statistics().reserved.peak; }
  int64_t driver_calls() const { return allocator_->statistics().driver_calls(); }

 private:
  std::unique_ptr<Allocator> allocator_;
};

class Peer {
 public:
  explicit Peer(const headroom_peer& peer) : peer_(peer) {
    if (peer_.start() == 0) throw InvalidArgument(fmt::format("{} does not start", peer_.name));
  }
  ~Peer() { peer_.trim(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void* allocate(int64_t bytes, Stream stream) {
    void* pointer = peer_.allocate(static_cast<size_t>(bytes), stream.handle);
    if (pointer != nullptr) return pointer;
    MemoryFacts facts;
    facts.requested = bytes;
    throw OutOfMemory(facts);
  }
  void deallocate(void* pointer, int64_t bytes, Stream stream) {
    peer_.deallocate(pointer, static_cast<size_t>(bytes), stream.handle);
  }
  int64_t reserved_peak_bytes() const { return peer_.reserved_peak_bytes(); }
  int64_t driver_calls() const { return peer_.driver_calls(); }

 private:
  const headroom_peer& peer_;
};

std::string name_of(const Trace& trace) {
  return std::filesystem::path(trace.name).stem().stem().string();
}

// Fields: "trace", allocator, trace, ns per call of the first pass, of the later ones, and of their calls
// without the driver, reserved over requested peak after the first pass and at the end, driver calls of the
// first pass and of the last (-1: unknown).
void print_trace(const std::string& who, const Trace& trace, const TraceTimes& times) {
  fmt::print("trace\t{}\t{}\t{:.1f}\t{:.1f}\t{:.1f}\t{:.4f}\t{:.4f}\t{}\t{}\n", who, name_of(trace),
             times.first_ns, times.warm_ns, times.own_ns, times.first_ratio, times.last_ratio,
             times.first_calls, times.last_calls);
}

// Fields: "threads", allocator, million calls per second of one thread and of all.
template <typename A>
void print_threads(const std::string& who, const std::vector<Stream>& streams, A& allocator) {
  const auto worker_of = [&](size_t thread) {
    return Worker<A>(allocator, streams[thread], static_cast<uint32_t>(thread) * 7919 + 1);
  };
  fmt::print("threads\t{}\t{:.3f}\t{:.3f}\n", who, calls_a_second(1, worker_of) / 1e6,
             calls_a_second(streams.size(), worker_of) / 1e6);
}

// Fields: "trace in threads", allocator, trace, threads, million calls per second of all.
template <typename A>
void print_trace_in_threads(const std::string& who, const Trace& trace, const std::vector<Stream>& streams,
                            size_t threads, A& allocator) {
  const double rate =
      calls_a_second(threads, [&](size_t thread) { return Player<A>(trace, allocator, streams[thread]); });
  fmt::print("trace in threads\t{}\t{}\t{}\t{:.3f}\n", who, name_of(trace), threads, rate / 1e6);
}

struct Settings {
  std::string device = "auto", peers, peer_name;
  int passes = 6;
  size_t threads = 0;  // 0: measure everything else
  std::vector<std::string> strategies, traces;
};

Settings parse(const std::vector<std::string>& arguments) {
  Settings settings;
  size_t at = 0;
  for (; at < arguments.size() && arguments[at] != "--"; ++at) {
    const std::string& name = arguments[at];
    if (!name.starts_with("--")) {
      settings.strategies.push_back(name);
      continue;
    }
    if (at + 1 == arguments.size()) throw InvalidArgument(fmt::format("{} needs a value\n{}", name, kUsage));
    const std::string& value = arguments[++at];
    if (name == "--device") {
      settings.device = value;
    } else if (name == "--peers") {
      settings.peers = value;
    } else if (name == "--as") {
      settings.peer_name = value;
    } else if (name == "--threads") {
      settings.threads = std::strtoul(value.c_str(), nullptr, 10);
    } else if (name == "--passes") {
      settings.passes = std::atoi(value.c_str());
    } else {
      throw InvalidArgument(fmt::format("unknown option {}\n{}", name, kUsage));
    }
  }
  for (++at; at < arguments.size(); ++at) settings.traces.push_back(arguments[at]);
  if (settings.traces.empty() || settings.passes < 2 ||
      settings.strategies.empty() == settings.peers.empty()) {
    throw InvalidArgument(kUsage);
  }
  return settings;
}

// A simulated one has memory for the trace of each thread.
std::unique_ptr<Device> make_device(const std::string& name, size_t threads) {
  if (name != "auto" && name != "cuda" && name != "sim") {
    throw InvalidArgument(fmt::format("unknown device {}\n{}", name, kUsage));
  }
  if (name != "sim") {
    try {
      return make_cuda_device({});
    } catch (const InvalidArgument& none) {
      if (name == "cuda") throw;
      fmt::print(stderr, "allocators_bench: {}; on the simulated H200 instead\n", none.what());
    }
  }
  DeviceProfile profile = find_profile("h200");
  profile.total_bytes *= std::max<int64_t>(1, static_cast<int64_t>(threads));
  return std::make_unique<SimulatedGpu>(profile, 0, Backing::kNone);
}

// Measures one allocator; `with(trace, play)` makes it, for a trace or null, and calls `play` with it.
template <typename With>
void measure(const std::string& who, const std::vector<Trace>& traces, const Settings& settings,
             Device& device, const std::vector<Stream>& streams, const With& with) {
  const auto attempt = [&](const char* kind, const Trace* trace, const auto& play) {
    try {
      with(trace, play);
    } catch (const OutOfMemory&) {
      fmt::print("no room\t{}\t{}\t{}\n", who, kind, trace == nullptr ? "" : trace->name);
    }
    std::fflush(stdout);
  };
  for (const Trace& trace : traces) {
    for (size_t threads = 1; threads <= settings.threads; threads *= 2) {
      attempt("trace in threads", &trace,
              [&](auto& a) { print_trace_in_threads(who, trace, streams, threads, a); });
    }
    if (settings.threads > 0) continue;
    attempt("trace", &trace,
            [&](auto& a) { print_trace(who, trace, time_trace(trace, settings.passes, device, a)); });
  }
  if (settings.threads > 0) return;
  for (const int64_t bytes : {4 * kKiB, 1 * kMiB, 64 * kMiB}) {
    attempt("pair", nullptr,
            [&](auto& a) { fmt::print("pair\t{}\t{}\t{:.1f}\n", who, bytes, ns_of_a_pair(bytes, a)); });
  }
  if (device.kernel_target().gpu != nullptr) {
    attempt("pair", nullptr, [&](auto& a) {
      fmt::print("pair\t{}\tworking\t{:.1f}\n", who, ns_of_a_pair_at_work(1 * kMiB, device, a));
    });
  }
  attempt("pair", nullptr,
          [&](auto& a) { fmt::print("pair\t{}\tamong\t{:.1f}\n", who, ns_of_a_pair_among_others(a)); });
  attempt("threads", nullptr, [&](auto& a) { print_threads(who, streams, a); });
}

void measure_strategy(const std::string& text, const std::vector<Trace>& traces, const Settings& all,
                      Device& device, const std::vector<Stream>& streams) {
  const size_t at = text.find('@');
  const double share = at == std::string::npos ? 0 : std::atof(text.c_str() + at + 1);
  if (at != std::string::npos && !(share >= 1)) {
    throw InvalidArgument(fmt::format("{}: what follows @ is a multiple, 1 or more", text));
  }
  const StrategySettings chosen = parse_strategy(text.substr(0, at));
  measure(text, traces, all, device, streams, [&](const Trace* trace, const auto& play) {
    StrategySettings settings = chosen;
    if (share > 0) {
      const int64_t bytes = trace == nullptr ? 4 * kGiB : trace->peak_bytes;
      settings.limit_bytes = round_up(static_cast<int64_t>(static_cast<double>(bytes) * share), 2 * kMiB);
    }
    Ours ours(settings, device);
    play(ours);
  });
}

void measure_peers(const Settings& settings, const std::vector<Trace>& traces, Device& device,
                   const std::vector<Stream>& streams) {
  if (device.kernel_target().gpu == nullptr) {
    fmt::print(stderr, "allocators_bench: {} needs a GPU: skipped\n", settings.peers);
    return;
  }
  void* library = dlopen(settings.peers.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw InvalidArgument(dlerror());
  const auto peers = reinterpret_cast<decltype(headroom_peers)*>(dlsym(library, "headroom_peers"));
  if (peers == nullptr) throw InvalidArgument(settings.peers + " has no headroom_peers");
  size_t count = 0;
  const headroom_peer* all = peers(&count);
  for (const headroom_peer* peer = all; peer != all + count; ++peer) {
    const std::string who = settings.peer_name.empty() ? peer->name : settings.peer_name;
    measure(who, traces, settings, device, streams, [&](const Trace*, const auto& play) {
      Peer theirs(*peer);
      play(theirs);
    });
  }
}

int bench(const std::vector<std::string>& arguments) {
  const Settings settings = parse(arguments);
  std::vector<Trace> traces;
  for (const std::string& path : settings.traces) {
    for (Trace& trace : read_traces(path)) traces.push_back(std::move(trace));
  }
  const std::unique_ptr<Device> device = make_device(settings.device, settings.threads);
  device->initialize();
  fmt::print("device\t{}\n", device->description());
  std::vector<Stream> streams(std::max<size_t>(8, settings.threads));
  for (Stream& stream : streams) stream = device->streams().new_stream();
  for (const std::string& strategy : settings.strategies) {
    measure_strategy(strategy, traces, settings, *device, streams);
  }
  if (!settings.peers.empty()) measure_peers(settings, traces, *device, streams);
  for (const Stream stream : streams) device->streams().delete_stream(stream);
  return kExitDone;
}

}  // namespace
}  // namespace headroom

int main(int count, char** arguments) {
  try {
    return headroom::bench({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "allocators_bench: {}\n", error.what());
    return headroom::exit_code(error);
  }
}
