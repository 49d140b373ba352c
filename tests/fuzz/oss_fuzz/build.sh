#!/bin/bash -eu
# Builds the fuzz targets for OSS-Fuzz, which sets CC, CXX, CFLAGS, CXXFLAGS, LIB_FUZZING_ENGINE, SRC, OUT and WORK.
# Libraries that the base image lacks are downloaded at pinned commits and linked statically: targets run on a system without installed libraries.
cmake -S "$SRC/headroom" -B "$WORK/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_UNITY_BUILD=ON \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO='-O1 -g1' -DHEADROOM_CUDA=OFF -DHEADROOM_MPI=OFF -DHEADROOM_BENCHMARKS=OFF \
  -DHEADROOM_INSTALL=OFF -DHEADROOM_ARCH= -DHEADROOM_PORTABLE=ON -DHEADROOM_PRECOMPILE=OFF \
  -DHEADROOM_FUZZ_ENGINE="$LIB_FUZZING_ENGINE" -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON -DHEADROOM_ISAL=OFF
cmake --build "$WORK/build" --target headroom_fuzz_targets
while read -r target; do
  cp "$WORK/build/tests/fuzz/$target" "$OUT/"
  (cd "$WORK/build/tests/fuzz/${target}_seeds" && zip -q -r "$OUT/${target}_seed_corpus.zip" .)
done <"$WORK/build/tests/fuzz/targets.txt"
