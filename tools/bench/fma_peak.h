// The multiply-add peak of one core, so that a benchmark can say how near it comes. Knows no kernel.
#pragma once

namespace headroom::bench {

// Float32 GFLOP/s (a multiply-add counts two) of one core over vectors of the build's width: the best of
// several short runs.
double fma_peak_gflops();

}  // namespace headroom::bench
