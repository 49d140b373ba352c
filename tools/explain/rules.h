// Holds all that explain knows as data: the checked rows of rules/*.txt, and of a file of one's own before
// them (docs/explain.md has the form). Knows no log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cause.h"
#include "base/judge.h"
#include "tools/explain/kinds.h"
#include "tools/explain/template_match.h"
#include "tools/explain/word_scanner.h"

namespace headroom::explain {

// All texts are views of the files' text.

// A program's own words for what its users can change: what they make smaller ("less"), how its model or
// state takes fewer bytes ("lighter"), "share", "tokens" and others. "a || b" is a command's option and an
// argument.
using Changes = std::vector<std::pair<std::string_view, std::string_view>>;

struct FrameworkInfo {
  std::string_view id, name;  // "webui", "Stable Diffusion web UI"
  std::string_view start;     // usual command of a program if the log does not show it
  Changes changes;
  bool is_tool = false;  // stands on a framework, whose failure it is; advice comes in the tool's words
  bool serves = false;   // runs models and has no training step
  bool trains = false;   // a program of its own, which may run a server's engine inside
  bool is_python = false;
};

struct Message {
  Kind kind = Kind::kBackground;
  Framework framework = Framework::kNone;  // kNone: several print it
  std::string_view pattern{};              // see read_template; begins with text
  int64_t at_least = 0;                    // the first version that printed it so, as 1000 * major + minor
  int64_t at_most = 0;                     // the last one; 0: still does
  bool weak = false;                       // counts only on a line that no other failure is read from
  bool is_a_shells = false;   // counts only as what a shell prints of a job: alone on its line, or before it
  bool is_exit_code = false;  // counts after words such as "exit code" only
  std::span<const TemplatePart> parts{};  // of the pattern
};

// A setting as a log shows it when it is on; or the program's activity (a phase), by a line of its log. The
// text does not count in a piece of advice ("try setting ...").
struct Setting {
  std::string_view name, pattern;
  std::span<const TemplatePart> parts{};  // of the pattern
};

// The verdict of messages of a kind that need no figures. The first row for a kind decides whose parts
// ("a|b") are in the message.
struct Verdict {
  Kind kind;
  Cause cause;
  Confidence confidence;
  std::string_view reason,
      parts{};                 // the reason may have holes for figures: "{requested} are larger than {limit}"
  std::string_view setting{};  // that the log also has to show, if any
};

// Says why memory ran out while a program did something, which tells more than the arithmetic of its pool.
struct During {
  std::string_view phase, setting;  // the setting that it also needs, if any
  Cause cause;
  Confidence confidence;
  std::string_view reason;
};

// A list of the causes of one status, likeliest first.
struct PossibleCause {
  std::string_view list;
  Cause cause;
  std::string_view reason, confirm{};
};

// A message that holds this text has this list of causes.
struct Status {
  std::string_view list, text;
};

// A number of the driver's fault reports (Xid).
struct Fault {
  int64_t xid = 0;
  bool by_program = false;  // the program did it, not the GPU
  std::string_view meaning;
};

// Steps are written for NVIDIA's GPUs; these are other vendors' names.
struct VendorWord {
  std::string_view setting, nvidia, own;
};

// Something that the log shows of the system, the program or its activity: one of `any` holds, where each is
// a list of facts that hold together, and none of `unless`.
struct Fact {
  std::string_view name;
  std::vector<std::vector<std::string_view>> any;
  std::vector<std::string_view> unless;
  Changes changes = {};
};

// Steps with these words are good only where one of the facts holds, or only where none does.
struct StepCondition {
  std::string_view words;
  bool is_needed;
  std::vector<std::string_view> facts;
};

// A step for a cause, and its conditions.
struct AdviceRow {
  Cause cause = Cause::kUnknown;
  int8_t place = 0;                               // -1 before and 1 after other rows of the cause
  Framework framework = Framework::kNone;         // or tool; kNone: any
  std::vector<std::string_view> unless;           // facts, each of which makes the step useless
  std::vector<std::vector<std::string_view>> on;  // facts that the step is for: of each list one
  int64_t from = 0;          // not for a version that is known to be older, as in Message
  int64_t before = 0;        // only for a version that is known to be older
  std::optional<Kind> kind;  // kind of failure; nullopt: any
  When when = When::kAlways;
  bool no_batch = false;   // not where the user's own command can be halved
  bool batch = false;      // only where it can
  bool workers = false;    // only where loader workers are at work, or the command sets their number
  bool python = false;     // only for a program of Python
  std::string_view parts;  // one of "a|b" is in the failure's own words
  std::string_view command, why;
  // A program's own, of a code row; its command is their heading.
  std::vector<std::string_view> lines = {};
};

// Facts that follow from figures and not from a line of the log, see facts.cpp.
inline constexpr std::string_view kOwnRanks = "own_ranks";  // other processes of the run are on the device
inline constexpr std::string_view kCarveOut = "carve_out";  // the GPU has a part of the machine's memory
inline constexpr std::string_view kSmallShare =
    "small_share";  // a server may take less than half of the device

// A line says that one number is larger than another may be: counts of things, or sizes.
inline constexpr std::string_view kPair = "pair", kSizePair = "size_pair";
// The limit of such a pair is written like a setting of a program.
inline constexpr std::string_view kOptionPair = "option_pair";
// A model only runs (a server, a pipeline, generate()), or is trained: rows of rules/facts.txt decide.
inline constexpr std::string_view kInference = "inference", kTraining = "training";
// A framework or tool that the log names only runs models, or trains them.
inline constexpr std::string_view kServes = "serves", kTrains = "trains";
// The log says how much was requested; it was attention scores, or refused by Apple's GPU.
inline constexpr std::string_view kSized = "sized", kScores = "scores", kMps = "mps";
// A card of 8 GiB or less; a request of 64 MiB or less where the log does not say how large the device is, of
// a 64th of the device or less, or of a quarter of it or more; of 32 GiB or more at once.
inline constexpr std::string_view kSmallCard = "small_card", kTinyRequest = "tiny_request",
                                  kSmallRequest = "small_request", kLargeRequest = "large_request",
                                  kHugeRequest = "huge_request";
// The driver refused a request of unknown size while gigabytes were free, or a small one of a process that
// holds next to nothing where it does not say what is free; a count was refused that is not above the most
// that there may be.
inline constexpr std::string_view kRefusedWithRoom = "refused_with_room",
                                  kRefusedWhenEmpty = "refused_when_empty", kFitsByCount = "fits_by_count";
// The memory that this process does not hold and that is not free would have been enough, less 1 GiB for a
// context and libraries.
inline constexpr std::string_view kRestElsewhere = "rest_elsewhere";
// A buffer of weights was refused that is smaller than what was free at the start.
inline constexpr std::string_view kFitsAtStart = "fits_at_start";
// The log says that a step takes one example.
inline constexpr std::string_view kBatchOfOne = "batch_of_one";
// The log has the user's command, which sets options: else a program sets arguments in its code.
inline constexpr std::string_view kOptionsGiven = "options_given";
// A server's requests may have 32768 tokens or more.
inline constexpr std::string_view kLongContext = "long_context";
// Half of what this process holds, or more, is outside the framework's pool.
inline constexpr std::string_view kOutsidePool = "outside_pool";
// Less was requested than is free.
inline constexpr std::string_view kFitsInFree = "fits_in_free";
// All but a fiftieth of the device, or more, is given to one pool.
inline constexpr std::string_view kWholeFraction = "whole_fraction";
// The program says itself what to change.
inline constexpr std::string_view kOwnTip = "own_tip";
// The program has words of its own for what to make smaller.
inline constexpr std::string_view kOwnWords = "own_words";
// Private pools of recorded graphs hold a large part of what is allocated.
inline constexpr std::string_view kGraphPools = "graph_pools";
// More is allocated outside the tensors than in them, on an Apple GPU.
inline constexpr std::string_view kMpsKept = "mps_kept";
// A second request failed while the exception of the first one was handled, which keeps its tensors.
inline constexpr std::string_view kHeldByHandler = "held_by_handler";
// The log says how many tokens a sequence of a training has: 1024 or more.
inline constexpr std::string_view kLongSequence = "long_sequence";
// The message of a failure comes before the line that says that weights were loaded.
inline constexpr std::string_view kFailedLoading = "failed_loading", kLoading = "loading";
// One request of at least 4 GiB, with more than that free.
inline constexpr std::string_view kLargePiece = "large_piece";

inline constexpr std::string_view kDerivedFacts[] = {
    kOwnRanks,      kCarveOut,        kSmallShare,   kPair,
    kSizePair,      kOptionPair,      kGraphPools,   kMpsKept,
    kRestElsewhere, kOptionsGiven,    kBatchOfOne,   kFitsAtStart,
    kLongContext,   kHeldByHandler,   kLongSequence, kLargePiece,
    kServes,        kTrains,          kSized,        kScores,
    kMps,           kSmallCard,       kTinyRequest,  kLargeRequest,
    kHugeRequest,   kRefusedWithRoom, kFitsInFree,   kRefusedWhenEmpty,
    kFitsByCount,   kWholeFraction,   kOwnTip,       kOwnWords,
    kOutsidePool,   kSmallRequest};

struct RulesFile {
  std::string_view name, text;
};
// The files of the source tree, put into the program by the build.
std::span<const RulesFile> built_in_files();

class Rules {
 public:
  // Throws InvalidArgument with file and line for a line that is not a rule.
  explicit Rules(std::optional<RulesFile> own = std::nullopt);
  // The rules of the program, made once.
  static const Rules& built_in();
  Rules(const Rules&) = delete;
  Rules& operator=(const Rules&) = delete;

  // In the order in which their settings decide, kNone first.
  std::span<const Framework> frameworks() const { return order_; }
  const FrameworkInfo& operator[](Framework framework) const {
    return infos_[static_cast<size_t>(framework)];
  }

  // If several messages match at one place, the longest match counts.
  std::span<const Message> messages() const { return messages_; }
  std::span<const Setting> settings() const { return settings_; }
  std::span<const Setting> phases() const { return phases_; }
  // The words before a failure's words that make them a tip or a comment.
  std::span<const std::string_view> hypothetical_words() const { return hypothetical_words_; }
  // The words before a setting that make it a piece of advice.
  std::span<const std::string_view> advising_words() const { return advising_words_; }

  std::span<const Verdict> verdicts() const { return verdicts_; }
  std::span<const During> during() const { return during_; }
  std::vector<PossibleCause> possible_causes(std::string_view list) const;
  // Returns the list of the first row whose text is in `message`; "start" if there is none.
  std::string_view list_of(std::string_view message) const;
  const Fault* fault(int64_t xid) const;  // null where none is known

  std::span<const VendorWord> vendor_words() const { return vendor_words_; }
  // In order: a fact may build on those before it.
  std::span<const Fact> facts() const { return facts_; }
  std::span<const StepCondition> step_conditions() const { return step_conditions_; }
  // Names of changes that some program has.
  const std::set<std::string_view>& change_names() const { return change_names_; }
  // By cause, in order of preference.
  std::span<const AdviceRow> advice() const { return advice_; }
  // Lines to paste into a program. The first row that fits counts.
  std::span<const AdviceRow> code() const { return code_; }

  // The words that a log is searched for: the text before the first hole of each message, setting and phase,
  // sorted, each once; and their readings.
  struct Readings {
    std::vector<const Message*> messages;
    std::vector<const Setting*> settings, phases, options;
    bool is_hint = false;    // and nothing else
    bool is_fact = false;    // no message of a failure: it may also be a part of a name in camel case
    bool is_sample = false;  // figures of memory in use follow: it may also end a name, "gpu_mem"
  };
  std::span<const std::string_view> words() const { return words_; }
  const WordScanner& scanner() const { return *scanner_; }
  const Readings& readings(size_t word) const { return readings_[word]; }

 private:
  friend class RulesReader;
  void make_index();
  void read_templates();

  std::string own_text_;
  std::deque<std::string> made_;  // patterns that are in no file
  std::vector<FrameworkInfo> infos_;
  std::vector<Framework> order_;
  std::vector<Message> messages_;
  std::vector<Setting> settings_, phases_, options_;
  std::vector<std::string_view> hypothetical_words_, advising_words_;
  std::vector<Verdict> verdicts_;
  std::vector<During> during_;
  std::vector<PossibleCause> possible_causes_;
  std::vector<Status> statuses_;
  std::vector<Fault> faults_;
  std::vector<VendorWord> vendor_words_;
  std::vector<Fact> facts_;
  std::vector<StepCondition> step_conditions_;
  std::vector<AdviceRow> advice_, code_;
  std::set<std::string_view> change_names_;
  std::vector<TemplatePart> parts_;
  std::vector<std::string_view> words_;
  std::optional<WordScanner> scanner_;
  std::vector<Readings> readings_;
};

}  // namespace headroom::explain
