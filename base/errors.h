// The errors of the runtime. Each carries the numbers that explain it; the exit code of a program follows
// from its type (see exit_code).
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace headroom {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller's mistake: a bad shape, setting, file or size. The message is one line that names the mistake
// and its place.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// Numbers known when memory ran out, in bytes. Unknown numbers are absent.
struct MemoryFacts {
  int64_t requested = 0;           // 0: a library does not say what it asks for
  int64_t allocated = 0;           // live blocks of this allocator
  int64_t asked = 0;               // bytes that the blocks were requested with, before rounding
  int64_t reserved = 0;            // bytes that this allocator has from the driver, live or cached
  int64_t largest_free_block = 0;  // inside what is reserved
  int64_t device_free = 0;         // bytes that the driver could still give
  int64_t device_total = 0;
  int64_t others = 0;                 // held on the device by other processes
  std::optional<int64_t> limit;       // the cap on this allocator, if any
  bool limit_is_reserve = false;      // derived: free memory at the start minus the reserve for libraries
  bool limit_is_on_process = false;   // also counts context and libraries
  std::optional<int64_t> limit_room;  // bytes that the cap still lets it reserve, regardless of the device
  std::string strategy;
  std::string device;  // "/device:GPU:1"; empty where there is no other
  std::string op;      // name of the node that needed the bytes
  std::string tensor;  // name of the value, or "workspace"
  std::string source;  // the line of code that made the value: "net.cpp:31"
};

// Formats the users of the memory: "strategy caching: 4.47 GiB allocated, ...; device: 6.00 GiB total, ...".
std::string memory_breakdown(const MemoryFacts& facts);
// Formats the request, as far as known: "916.00 MiB for x of conv1 at net.cpp:31".
std::string request_text(const MemoryFacts& facts);
// "out of memory: tried to allocate ... (strategy ...; device: ...)": all of it, without the cause.
std::string out_of_memory_message(const MemoryFacts& facts);

// No room, after trimming and retrying. The runtime is usable afterwards and its accounts are as before the
// call.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(MemoryFacts facts);
  const MemoryFacts& facts() const { return facts_; }
  const char* what() const noexcept override { return message_.c_str(); }
  // Adds the user of the bytes, which the allocator below could not know.
  void set_user(std::string op, std::string tensor, std::string source = {});

 private:
  MemoryFacts facts_;
  std::string message_;
};

// No room in the memory of the machine itself, which holds the inputs of a step and all that a simulated
// device computes.
class HostOutOfMemory : public std::bad_alloc {
 public:
  explicit HostOutOfMemory(int64_t bytes);
  const char* what() const noexcept override { return message_.what(); }

 private:
  Error message_;
};

// A driver call that failed, or one whose arguments the driver refused.
class DeviceError : public Error {
 public:
  DeviceError(std::string call, std::string status, std::string description, std::string where);
  // With the whole message in the words of the framework that users know it from.
  DeviceError(const std::string& message, std::string call, std::string status);
  const std::string& call() const { return call_; }
  const std::string& status() const { return status_; }

 private:
  std::string call_, status_;
};

// A library (Blas, Dnn) that could not start or whose call failed. `log` holds the lines that led to it, in
// order, as a user of the library's own framework would have seen them.
class LibraryError : public Error {
 public:
  LibraryError(std::string message, std::string call, std::string status, std::vector<std::string> log);
  const std::string& call() const { return call_; }
  const std::string& status() const { return status_; }  // "CUBLAS_STATUS_NOT_INITIALIZED"
  const std::vector<std::string>& log() const { return log_; }

  // Returns true if too little memory may be the reason: a handle was not created, or a status says so.
  // Neither proves it.
  bool may_lack_memory() const;
  // Memory numbers; absent if no code added them. `message` is what() without them.
  const std::optional<MemoryFacts>& memory() const { return memory_; }
  const std::string& message() const { return message_; }
  void set_memory(MemoryFacts facts);
  const char* what() const noexcept override { return full_message_.c_str(); }

 private:
  std::string message_, full_message_, call_, status_;
  std::vector<std::string> log_;
  std::optional<MemoryFacts> memory_;
};

// A collective call that the ranks of a group did not make identically and in time. `rank` reports it;
// `cause` names the ranks responsible.
class CollectiveError : public Error {
 public:
  CollectiveError(int rank, std::string call, std::string cause);
  int rank() const { return rank_; }
  const std::string& call() const { return call_; }    // "all_reduce_sum"
  const std::string& cause() const { return cause_; }  // "rank 2 has died"

 private:
  int rank_;
  std::string call_, cause_;
};

// Work of one stream uses memory that work of another stream may still write or read: a wait is missing.
// Found if the device checks its streams, before the later work is queued.
class StreamHazard : public Error {
 public:
  struct Access {
    void* stream = nullptr;  // as in Stream; null is the default one
    bool writes = false;
    std::string work;   // "dense/matmul"
    std::string place;  // line of code that requested it; empty if unknown
  };
  StreamHazard(Access before, Access now, std::string value);
  const Access& before() const { return before_; }
  const Access& now() const { return now_; }
  const std::string& value() const { return value_; }  // the value that both use

 private:
  Access before_, now_;
  std::string value_;
};

// Exit codes of all programs of the project.
enum ExitCode : int {
  kExitDone = 0,
  kExitOther = 1,           // output that cannot be written, and errors without a code of their own
  kExitBadInput = 2,        // bad arguments, settings or files
  kExitOutOfMemory = 3,     // out of memory in a strategy, or on the host
  kExitLibraryFailure = 4,  // a library, the driver or a device failed
  kExitCheckFailed = 5,     // finished, but a requested check failed
};

// The code of a program that ends with `error`.
ExitCode exit_code(const std::exception& error);

}  // namespace headroom
