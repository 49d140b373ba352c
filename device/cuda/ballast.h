// Holds memory of a GPU so that the card behaves as a smaller one. Knows no device and no setting.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::cuda {

class Ballast {
 public:
  Ballast() = default;
  ~Ballast();
  Ballast(const Ballast&) = delete;
  Ballast& operator=(const Ballast&) = delete;

  // Takes memory of the current device, by cudaMalloc, until at most `free_bytes` are free: to the driver's
  // page. Throws DeviceError, and then holds nothing.
  void leave(int64_t free_bytes);
  // Gives everything back.
  void release() noexcept;
  int64_t bytes() const { return bytes_; }

 private:
  struct Piece {
    void* pointer;
    int64_t bytes;
  };
  std::vector<Piece> pieces_;
  int64_t bytes_ = 0;
};

}  // namespace headroom::cuda
