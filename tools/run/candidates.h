// The causes that the facts of a failed program speak for: who holds how many bytes, which line put them
// there, and what to do. All are rows of one list, ranked by the bytes that each explains.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cause.h"
#include "tools/run/facts.h"

namespace headroom {

// Kinds of evidence for a cause; kWeights in candidates.cpp says how much each counts.
enum class Evidence : uint8_t {
  kGarbage,      // nothing in the program can reach it
  kIdle,         // it lies in pieces, though together they are enough for the request
  kGrowth,       // it grew in step after step: PyTorch's history shows it, or the line that makes it larger
  kMoment,       // PyTorch's history shows what the step that failed needs
  kHeld,         // somebody holds it, and the program would run without
  kMaybeNeeded,  // somebody holds it, and the program may need it
};

struct Candidate {
  Evidence evidence = Evidence::kHeld;
  int64_t bytes = 0;                     // that would not have been needed
  std::vector<std::string> cause, next;  // lines: a sentence with its notes, and the steps against it
  std::string cause_name = "exhausted";  // of base/cause.h
  std::string line = {};                 // of the program, where it is known better than from the traceback
  bool is(Cause which) const { return cause_name == name_of(which); }
  bool is_kept() const;   // true if the program keeps more and more
  double weight() const;  // bytes, by what speaks for them
  // Adds a line, whose place it tells from then on if it has one, and steps in place of those before.
  void add_note(const std::string& text, const std::string& at, std::vector<std::string> steps = {});
};

// The cause that `headroom explain` finds in the end of the program's stderr.
struct Logged : Candidate {
  int64_t requested = 0;           // by the request that failed
  bool makes_state = false;        // the optimizer was at its first step
  bool has_figures_alone = false;  // the log does not say what the program did
  bool is_bare = false;            // or that decides nothing: it tells what the pool has
  bool is_large = false;           // or that decides nothing: a quarter of the device was asked for at once
  bool has_graphs = false;         // recorded CUDA graphs have much
  bool shows_attention = false;
};

// Figures of the run that all candidates are measured by.
struct RunFigures {
  int64_t peak = 0;               // of the run on one card
  int64_t lacking = 0;            // what the request that failed found no room for; 0: unknown
  int64_t others = 0, limit = 0;  // what other processes of the run held of a limit
  bool has_phase = false;  // the log says what the program was doing, so that pieces of a pool tell less
};

// The candidates that count, the best first, with their notes: each explains what the request lacked, and a
// fifth of what a process of the run had. `report` is what `headroom report --json` says of PyTorch's
// snapshot.
std::vector<Candidate> rank_candidates(const Facts& facts, const Facts& report, const RunFigures& run);

// Adds the candidates of facts that are one holder each: a variable, a library, a cache, a kind of models.
void add_rows(const Facts& facts, const Facts& report, std::vector<Candidate>& all);

// Bytes of blocks as large as a workspace of cuBLAS that no array of the program has; 0 where few threads and
// streams are alive.
int64_t workspaces_of(const Facts& facts, const Facts& report);

// The place of a fact with words before it; empty without one.
std::string line_part(const std::string& before, const std::string& line);

// Adds to a candidate where the program starts processes, or puts ranks on a card.
void add_start(const Facts& facts, Candidate& others);
// Adds, to the sentence of a log about a request of that many bytes, what the request is made of, where CUDA
// graphs are recorded, and what takes most beside it.
void add_request(const Facts& facts, const Facts& report, const RunFigures& run, Logged& logged);
// Adds, to the sentence of a log about the machine's memory, what keeps most of it, if the hook found that.
void add_kept(const Facts& facts, Candidate& logged);
// Returns how many processes a launcher started beside each other; 1 for any other.
int64_t ranks_of(const Facts& facts);

}  // namespace headroom
