# Google Benchmark 1.7 (Apache-2.0): tools/bench.
find_package(benchmark 1.7 QUIET)
if(NOT benchmark_FOUND)
  set(BENCHMARK_ENABLE_TESTING OFF CACHE INTERNAL "")
  FetchContent_Declare(benchmark GIT_REPOSITORY https://github.com/google/benchmark.git GIT_TAG v1.8.3 GIT_SHALLOW ON)
  FetchContent_MakeAvailable(benchmark)
endif()
