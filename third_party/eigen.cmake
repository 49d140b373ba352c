# Eigen 3.4 or 5 (MPL-2.0): matrix multiplication and vectorised maths on the CPU.
foreach(version 3.4 5)  # one that is installed is found by its own major version alone
  if(NOT Eigen3_FOUND)
    find_package(Eigen3 ${version} QUIET NO_MODULE)
  endif()
endforeach()
if(NOT Eigen3_FOUND)
  # Headers only: a SOURCE_SUBDIR without CMakeLists.txt keeps Eigen's own tests, BLAS and Fortran checks out.
  FetchContent_Declare(eigen GIT_REPOSITORY https://gitlab.com/libeigen/eigen.git
                       GIT_TAG 3147391d946bb4b6c68edd901f2add6ac1f31f8c  # 3.4.0
                       GIT_SHALLOW ON SOURCE_SUBDIR cmake)
  FetchContent_MakeAvailable(eigen)
  add_library(Eigen3::Eigen INTERFACE IMPORTED GLOBAL)
  target_include_directories(Eigen3::Eigen INTERFACE ${eigen_SOURCE_DIR})
endif()
