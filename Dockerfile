# Headroom in a container. CPU and simulated GPUs:
#   docker build -t headroom . && docker run --rm headroom predict --device rtx-3090
# With CUDA, for real GPUs:
#   docker build -t headroom:cuda --build-arg CUDA=ON \
#     --build-arg BUILD_IMAGE=nvidia/cuda:13.0.1-cudnn-devel-ubuntu24.04 \
#     --build-arg RUN_IMAGE=nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04 .
#   docker run --rm --gpus all headroom:cuda who
ARG BUILD_IMAGE=debian:13-slim
ARG RUN_IMAGE=debian:13-slim

FROM ${BUILD_IMAGE} AS build
ARG CUDA=OFF
WORKDIR /headroom
COPY . .
RUN tools/setup.sh dpkg-dev file \
    && cmake --preset package -DHEADROOM_CUDA=${CUDA} \
    && cmake --build --preset package \
    && cpack --config build/package/CPackConfig.cmake -B /package

FROM ${RUN_IMAGE}
COPY --from=build /package/*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/*.deb \
    && rm -rf /tmp/*.deb /var/lib/apt/lists/*
# Commands write reports and recordings to the current folder: mount yours here.
WORKDIR /work
ENTRYPOINT ["headroom"]
CMD ["help"]
