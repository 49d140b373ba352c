// What runtimes of languages, databases, compilers and commands print when the machine's own memory is short.
#include "tools/explain/message_tables.h"

namespace headroom::explain {
namespace {

using enum Kind;
using enum Framework;

constexpr Message kMessages[] = {
    // Languages.
    {kHost, kNone, "java.lang.OutOfMemoryError"},
    {kHost, kNone, "There is insufficient memory for the Java Runtime Environment to continue"},
    {kHost, kNone, "JavaScript heap out of memory"},
    {kHost, kNone, "RangeError: Array buffer allocation failed"},
    {kHost, kNone, "runtime: out of memory"},
    {kHost, kNone, "runtime: out of memory: cannot allocate {requested#}-byte block"},
    {kHost, kNone, "runtime: cannot allocate memory"},
    {kHost, kNone, "memory allocation of {requested#} bytes failed"},
    {kHost, kNone, "ERROR: OutOfMemoryError()"},
    {kHost, kNone, "LoadError: OutOfMemoryError()"},
    {kHost, kNone, "cannot allocate vector of size {requested}"},
    {kHost, kNone, "cannot allocate memory block of size {requested}"},
    {kHost, kNone, "array exceeds maximum array size preference"},
    {kHost, kNone, "Out of memory. Type \"help memory\" for your options"},
    {kHost, kNone, "out of memory or dimension too large for Octave's index type"},
    {kHost, kNone, "Allowed memory size of {requested#} bytes exhausted"},
    {kHost, kNone, "System.OutOfMemoryException"},
    {kHost, kNone, "failed to allocate memory (NoMemoryError)"},
    {kHost, kNone, "eheap_alloc: Cannot allocate {requested#} bytes of memory"},
    {kHost, kNone, "heap exhausted"},
    {kHost, kNone, "Heap exhausted"},
    {kHost, kNone, "insufficient virtual memory"},
    {kHost, kNone, "No more memory available."},
    {kHost, kNone, "op. sys. refuses to provide memory"},

    // Libraries for arrays and tables, allocators.
    {kHost, kNone, "malloc of size {requested#} failed"},
    {kHost, kNone, "realloc of size {requested#} failed"},
    {kHost, kNone, "mkl_malloc: failed to allocate memory"},
    {kHost, kNone, "posix_memalign failed"},
    {kHost, kNone, "OpenBLAS blas_thread_init: pthread_create failed"},
    {kHost, kNone, "MemoryError: Unable to allocate {requested} for an array"},
    {kHost, kNone, "numpy.core._exceptions.MemoryError"},
    {kHost, kNone, "numpy.core._exceptions._ArrayMemoryError"},
    {kHost, kNone, "_ArrayMemoryError: Unable to allocate {requested} for an array"},

    // Databases.
    {kHost, kNone, "duckdb.OutOfMemoryException"},
    {kHost, kNone, "Out of Memory Error: failed to allocate data of size {requested}"},
    {kHost, kNone, "Out of Memory Error: could not allocate block of size {requested}"},
    {kHost, kNone, "OOM command not allowed when used memory > 'maxmemory'"},
    {kHost, kNone, "ERROR: out of memory DETAIL: Failed on request of size {requested#}"},
    {kHost, kNone, "Out of memory (Needed {requested#} bytes)"},
    {kHost, kNone, "CircuitBreakingException: [parent] Data too large"},

    // Compilers and commands.
    {kHost, kNone, "virtual memory exhausted"},
    {kHost, kNone, "out of memory allocating {requested#} bytes after a total of"},
    {kHost, kNone, "final link failed: memory exhausted"},
    {kHost, kNone, "final link failed: Memory exhausted"},
    {kHost, kNone, "LLVM ERROR: out of memory"},
    {kHost, kNone, "Killed signal terminated program"},
    {kHost, kNone, "internal compiler error: Killed"},
    {kHost, kNone, "ld terminated with signal 9"},
    {kHost, kNone, "died due to signal 9"},
    {kHost, kNone, "process didn't exit successfully: `rustc {*}SIGKILL"},
    {kHost, kNone, "nvcc fatal : Memory allocation failure"},
    {kHost, kNone, "Out of memory, malloc failed (tried to allocate {requested#} bytes)"},
    {kHost, kNone, "malloc failed (tried to allocate {requested#} bytes)"},
    {kHost, kNone, "xrealloc: cannot allocate {requested#} bytes"},
};

}  // namespace

std::span<const Message> runtime_messages() {
  return kMessages;
}

}  // namespace headroom::explain
