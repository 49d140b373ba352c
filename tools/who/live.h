// The screen of `headroom who --watch`: a line for each GPU with a bar and its last minutes, redrawn until
// somebody presses q. Knows no device.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "tools/who/formats.h"

namespace headroom::who {

// The content of the screen, without a terminal: samples and keys go in, text comes out.
class LiveScreen {
 public:
  enum class Order : uint8_t { kDevice, kUsed, kFree };

  void add(View view);
  // False: the key ends the program.
  bool press(char key);
  Order order() const { return order_; }
  // Lines of at most the terminal's width. `height` 0: as many as there are; `title` stands in the first.
  std::string frame(const Terminal& terminal, size_t height, const std::string& title) const;

 private:
  View view_;
  std::map<std::string, std::deque<double>> shares_;  // the used share of each device, the newest last
  Order order_ = Order::kDevice;
};

struct LiveView {
  std::function<View()> look;
  double every_seconds = 2;
  int64_t times = 0;  // samples; 0: no end
};

// Shows it on the terminal of standard output, and leaves the last state below when it ends.
void show_live(const LiveView& live, const Terminal& terminal);

}  // namespace headroom::who
