// The subcommands of `headroom`. They know nothing of each other. A command of several files is a library
// with a namespace of its own, named after its folder.
#pragma once

namespace headroom {

// Each runs with the arguments after `headroom`, its own name first, and returns the exit code. Throws as
// run_main expects.
int run_devices(int argc, char** argv);
int run_fit(int argc, char** argv);
int run_models(int argc, char** argv);
int run_predict(int argc, char** argv);
int run_replay(int argc, char** argv);
int run_run(int argc, char** argv);
int run_show(int argc, char** argv);
int run_solve(int argc, char** argv);
int run_strategies(int argc, char** argv);
int run_trace(int argc, char** argv);
int run_train(int argc, char** argv);

namespace compare {
int run_compare(int argc, char** argv);
}
namespace doctor {
int run_doctor(int argc, char** argv);
}
namespace explain {
int run_explain(int argc, char** argv);
}
namespace report {
int run_report(int argc, char** argv);
int run_diff(int argc, char** argv);
int run_assert(int argc, char** argv);
}  // namespace report
namespace repro {
int run_repro(int argc, char** argv);
}
namespace who {
int run_who(int argc, char** argv);
}

}  // namespace headroom
