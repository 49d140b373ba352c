# Builds the program with the tree as a part of its own build: configures, and compiles against the headers. With
# WHOLE=ON also builds the libraries and runs the program.
file(REMOVE_RECURSE ${FOLDER})
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

# CUDA is off: the search for a CUDA compiler takes longer than everything else.
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/program -B ${FOLDER} -G Ninja -DFETCH=${SOURCE}
    -DCMAKE_BUILD_TYPE=Release -DHEADROOM_CUDA=OFF -DHEADROOM_MPI=OFF -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DCMAKE_CXX_FLAGS=-Werror)
if(WHOLE)
  run(${CMAKE_COMMAND} --build ${FOLDER} --target train custom_op take_blocks)
  run(${FOLDER}/train cpu caching)
  run(${FOLDER}/custom_op cpu)
  run(${FOLDER}/take_blocks cpu)
  # Installing the program must not install anything of ours.
  run(${CMAKE_COMMAND} --install ${FOLDER} --prefix ${FOLDER}/prefix)
  file(GLOB_RECURSE installed ${FOLDER}/prefix/*)
  if(installed)
    message(FATAL_ERROR "installed: ${installed}")
  endif()
else()
  run(${CMAKE_COMMAND} --build ${FOLDER} --target CMakeFiles/train.dir/train.cpp.o
      CMakeFiles/custom_op.dir/custom_op.cpp.o CMakeFiles/take_blocks.dir/take_blocks.c.o)
  # Only the libraries are a part of the other project.
  file(READ ${FOLDER}/build.ninja rules)
  if(rules MATCHES "build [^\n]*(headroom_cli_test|train_mnist):")
    message(FATAL_ERROR "tests or programs are built in a project that only uses the libraries")
  endif()
endif()
file(REMOVE_RECURSE ${FOLDER})
