// The subcommands of `headroom`, each in the file of its name. They know nothing of each other.
#pragma once

namespace headroom {

// Run with the arguments after `headroom`, their own name first. Return the exit code; throw as run_program
// expects.
int run_assert(int argc, char** argv);
int run_compare(int argc, char** argv);
int run_devices(int argc, char** argv);
int run_diff(int argc, char** argv);
int run_doctor(int argc, char** argv);
int run_explain(int argc, char** argv);
int run_fit(int argc, char** argv);
int run_predict(int argc, char** argv);
int run_replay(int argc, char** argv);
int run_report(int argc, char** argv);
int run_repro(int argc, char** argv);
int run_run(int argc, char** argv);
int run_strategies(int argc, char** argv);
int run_who(int argc, char** argv);

}  // namespace headroom
