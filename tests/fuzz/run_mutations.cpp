// Stands in for libFuzzer:  run_mutations TARGET COUNT SEED_FILE...
// Runs every seed and COUNT mutations of each; the numbers depend only on the seeds, so a failure repeats.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "tests/fuzz/fuzz_target.h"

namespace {

using Bytes = std::string;

// One to four small changes: a bit, a byte of special meaning, a piece removed, doubled or put elsewhere.
Bytes mutated(Bytes input, std::mt19937& random) {
  const auto below = [&](size_t bound) { return bound == 0 ? 0 : random() % bound; };
  for (size_t change = 1 + below(4); change > 0; --change) {
    const size_t at = below(input.size() + 1), length = below(std::min<size_t>(input.size() - at, 16) + 1);
    switch (below(6)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        break;
      case 1: {
        constexpr unsigned char kSpecial[] = {0, 1, 0x7f, 0x80, 0xff, '"', '\\', '{', '[', '-', '9', '.'};
        if (at < input.size()) input[at] = static_cast<char>(kSpecial[below(std::size(kSpecial))]);
        break;
      }
      case 2:
        input.erase(at, length);
        break;
      case 3:
        input.insert(at, input.substr(at, length));
        break;
      case 4:
        input.insert(below(input.size() + 1), input.substr(at, length));
        break;
      default:
        input.resize(at);
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  const auto targets = fuzz_targets();
  const auto target = std::ranges::find(targets, argc > 1 ? argv[1] : "", &FuzzTarget::name);
  if (argc < 4 || target == targets.end()) {
    std::fprintf(stderr, "usage: %s TARGET COUNT SEED_FILE...\n", argv[0]);
    return 2;
  }
  const auto run = [&](const Bytes& input) {
    target->run(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  };
  const long count = std::strtol(argv[2], nullptr, 10);
  std::mt19937 random(1);
  for (int i = 3; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const Bytes seed{std::istreambuf_iterator<char>(file), {}};
    if (!file || seed.empty()) {
      std::fprintf(stderr, "%s: missing or empty\n", argv[i]);
      return 1;
    }
    run(seed);
    for (long n = 0; n < count; ++n) run(mutated(seed, random));
  }
  std::printf("%ld mutations of each of %d seeds\n", count, argc - 3);
}
