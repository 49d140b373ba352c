// Turns the facts that the start-up hook wrote down, when a Python program ran out of memory, into causes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

// A cause in lines, and the steps against it.
struct Explained {
  std::vector<std::string> cause, next;
  int64_t bytes = 0;               // that the cause explains, where that is known
  int64_t requested = 0;           // by the request that failed, where a log says it
  bool is_kept = false;            // the program keeps more and more
  bool makes_state = false;        // the log says that the optimizer was at its first step
  bool has_figures_alone = false;  // a log that does not say what the program did
  std::string moment = {};         // of the request that failed, where no cause was found beside it
  std::string cause_name = {};
  std::string line = {};  // of the program, where it is known better than from the traceback
};
// True for the causes of memory that a program keeps.
bool is_kept(std::string_view cause);

struct Facts;
// Reads what the hook wrote; empty facts if it is empty or broken.
std::shared_ptr<const Facts> read_facts(const std::string& text);

// Tells what libraries beside PyTorch held in the process that wrote the facts.
Explained explain_libraries(const Facts& facts);
// Tells which weights no optimizer trains, though they require gradients. `peak`: of the run, in bytes.
Explained explain_untrained(const Facts& facts, int64_t peak);
// Tells which array of at least so many bytes is joined with more again and again.
Explained explain_grown(const Facts& facts, int64_t least);
// Tells of three or more models of one class, if they take a third of the peak.
Explained explain_models(const Facts& facts, int64_t peak);
// Tells where arrays of float64 and complex128 come from, if they are most of what there is.
Explained explain_doubles(const Facts& facts, int64_t peak);
// Tells which variable still holds at least so many bytes while its next value is made.
Explained explain_replaced(const Facts& facts, int64_t least);
// Tells which variable still holds at least so many bytes that a call such as torch.load returned.
Explained explain_loaded(const Facts& facts, int64_t least);
// Tells what objects hold that refer to each other alone.
Explained explain_cycles(const Facts& facts);

// Adds what the program itself keeps, by name and line, to what the snapshot shows, or to what the log says;
// or tells it alone, if it is a quarter of the run's peak: short lists of arrays are in many programs.
void name_kept(const Facts& facts, int64_t peak, Explained& found);
// Says which variable takes most, if that is `least` bytes or more.
void name_largest(const Facts& facts, int64_t least, Explained& found);
// Says where arrays of float64 come from, if nearly all in the functions under way are of it.
void name_doubles(const Facts& facts, Explained& found);
// Says which function is a hook of one module again and again, as the cause of what is kept.
void name_hooks(const Facts& facts, Explained& found);
// Says which models take most, if their weights and gradients are `least` bytes or more.
void name_weights(const Facts& facts, int64_t least, Explained& found);
// Adds the weights that are most of what optimizers train.
void name_trained(const Facts& facts, Explained& found);
// Corrects a snapshot that sees an evaluation in the forward pass of a long step, whose backward comes later.
void name_backward(const Facts& facts, Explained& found);
// Returns where the request that failed is in one of several ranks, "train.py:22 in read, called at
// train.py:47 in main": the log has a traceback of each. Empty for a single process.
std::string moment_of(const Facts& facts);
// How many processes a launcher started beside each other; 1 for any other.
int64_t ranks_of(const Facts& facts);
// Adds where batches are padded, or made larger.
void name_growth(const Facts& facts, Explained& found);
// Adds which part of a model is trained in evaluation mode, as one that was to stay as it is.
void name_evaluating(const Facts& facts, int64_t peak, Explained& found);
// Adds where the program starts processes, or puts ranks on a card.
void name_start(const Facts& facts, Explained& found);
// Adds which arrays the request is as large as; a scan of JAX, or a vmap of gradients, whose arrays no
// function has; and where CUDA graphs are recorded, if the log says that they hold memory.
void name_request(const Facts& facts, Explained& found);

}  // namespace headroom
