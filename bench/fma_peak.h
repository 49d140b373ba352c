// Measures the multiply-add peak of one core. Knows no kernel.
#pragma once

namespace headroom::bench {

// Float32 GFLOP/s of one core with vectors of the build's width; a multiply-add counts as two. The best of
// several short runs.
double fma_peak_gflops();

}  // namespace headroom::bench
