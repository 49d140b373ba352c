# CUDA toolkit 11.4 (NVIDIA's licence; never fetched): what a real GPU needs.
find_package(CUDAToolkit 11.4 REQUIRED)
