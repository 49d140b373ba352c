// Readers of foreign files do work in proportion to the file: counted in basic blocks of their code at n and
// at 4 n, not by the clock.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/mapped_file.h"
#include "base/safetensors.h"
#include "base/toml.h"
#include "runtime/onnx/read_model.h"
#include "tests/fuzz/memory_file.h"
#include "tools/explain/explanation.h"
#include "tools/explain/log_reader.h"
#include "tools/explain/rules.h"
#include "trace/read_trace.h"

namespace {
int64_t executed_blocks = 0;
}

// -fsanitize-coverage=trace-pc calls this at the beginning of each basic block.
extern "C" void __sanitizer_cov_trace_pc() {
  ++executed_blocks;
}

namespace headroom {
namespace {

constexpr int kSmall = 2000;
// 4 for work in proportion; n log n gives 4.8 at this size, a square 16.
constexpr double kMaxGrowth = 4.8;

int64_t work_of(const std::function<void()>& read) {
  const int64_t before = executed_blocks;
  read();
  return executed_blocks - before;
}

void expect_proportional(const std::string& what, const std::function<std::string(int)>& file,
                         const std::function<void(const std::string&)>& read) {
  const std::string small = file(kSmall), large = file(4 * kSmall);
  read(small);  // makes the tables that readers make once
  const int64_t first = work_of([&] { read(small); }), second = work_of([&] { read(large); });
  EXPECT_GT(first, kSmall) << what;
  EXPECT_LT(static_cast<double>(second) / static_cast<double>(first), kMaxGrowth)
      << what << ": " << first << " blocks, then " << second;
}

void read_trace(const std::string& text) {
  const MemoryFile file(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  EXPECT_EQ(read_traces(file.path()).size(), 1u);
}

// n live blocks, then all of them freed.
std::string events(int n, const std::string& header, const std::function<std::string(int)>& allocate,
                   const std::function<std::string(int)>& release) {
  std::string text = header;
  for (int i = 0; i < n; ++i) text += allocate(i);
  for (int i = 0; i < n; ++i) text += release(i);
  return text;
}

TEST(ReadersWork, TextTraces) {
  expect_proportional(
      "CSV",
      [](int n) {
        return events(
            n, "op,id,bytes\n", [](int i) { return fmt::format("a,{},{}\n", i, 512 * (1 + i % 97)); },
            [](int i) { return fmt::format("f,{},{}\n", i, 512 * (1 + i % 97)); });
      },
      read_trace);
  const auto rmm = [](const char* action) {
    return [action](int i) {
      return fmt::format("1,00:00:00.{:06},{},{:#x},{},0x0\n", i % 1000000, action, 0x7f0000000000 + 4096 * i,
                         512 * (1 + i % 7));
    };
  };
  expect_proportional(
      "RMM",
      [&](int n) {
        return events(n, "Thread,Time,Action,Pointer,Size,Stream\n", rmm("allocate"), rmm("free"));
      },
      read_trace);
  // Each block with a name of its own.
  expect_proportional(
      "our own",
      [](int n) {
        return events(
            n, "headroom-trace 3\n",
            [](int i) {
              return fmt::format("n,layer{}\na,{:x},1000,1024,0,{},{},0,0,0\n", i, 0x7f0000000000 + 4096 * i,
                                 i, i);
            },
            [](int i) { return fmt::format("f,{:x},0,{}\n", 0x7f0000000000 + 4096 * i, i); });
      },
      read_trace);
}

// Pickles as Python writes them, of the types that a snapshot has.
std::string pickled(std::string_view text) {
  std::string result = "X";
  for (int byte = 0; byte < 4; ++byte) result += static_cast<char>(text.size() >> (8 * byte) & 0xff);
  return result.append(text);
}

std::string pickled(int64_t number) {
  std::string result = "\x8a\x08";  // a number of 8 bytes
  for (int byte = 0; byte < 8; ++byte) result += static_cast<char>(number >> (8 * byte) & 0xff);
  return result;
}

std::string snapshot(int n) {
  const auto event = [](const char* action, int i, const std::string& frames) {
    const int64_t time = 1'700'000'000'000'000 + i;
    return "}(" + pickled("action") + pickled(action) + pickled("addr") + pickled(0x7f0000000000 + 4096 * i) +
           pickled("size") + pickled(4096) + pickled("stream") + pickled(int64_t{0}) + pickled("time_us") +
           pickled(time) + frames + "u";
  };
  std::string text = "\x80\x02}(" + pickled("segments") + "]" + pickled("device_traces") + "](](";
  text += event("segment_alloc", 0, "");
  for (int i = 0; i < n; ++i) {
    const std::string frame = "}(" + pickled("filename") + pickled(fmt::format("/src/layer{}.py", i % 50)) +
                              pickled("line") + pickled(int64_t{i % 1000}) + pickled("name") +
                              pickled("forward") + "u";
    text += event("alloc", i, pickled("frames") + "](" + frame + frame + "e");
  }
  for (int i = 0; i < n; ++i) text += event("free_completed", i, "");
  return text + "eeu.";
}

TEST(ReadersWork, Snapshots) {
  expect_proportional("PyTorch's snapshot", snapshot, read_trace);
}

void read_log_file(const std::string& text) {
  EXPECT_FALSE(explain::explain(explain::read_log(text)).judgment.reason.empty());
}

constexpr std::string_view kFailure =
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.93 GiB total capacity; 5.00 GiB "
    "already allocated; 1.00 GiB free; 6.00 GiB reserved in total by PyTorch)\n";

TEST(ReadersWork, Logs) {
  const auto progress = [](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += fmt::format("step {}: loss 0.{:04}, {} images/s\n", i, i % 9999, i);
    return text + std::string(kFailure);
  };
  const auto failures = [](int n) {
    std::string text;
    for (int i = 0; i < n / 10; ++i) text += fmt::format("step {}\n{}", i, kFailure);
    return text;
  };
  const auto one_line = [](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += "CUDA out of memory (error). ";
    return text;
  };
  expect_proportional("progress, then a failure", progress, read_log_file);
  expect_proportional("failures", failures, read_log_file);
  expect_proportional("one line", one_line, read_log_file);
}

TEST(ReadersWork, SettingsFiles) {
  const auto keys = [](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += fmt::format("key_{} = {}\n", i, i);
    return text;
  };
  expect_proportional("TOML", keys, [](const std::string& text) {
    EXPECT_GE(parse_toml(text, "many.toml").size(), static_cast<size_t>(kSmall));
  });
}

TEST(ReadersWork, TensorFiles) {
  const auto tensors = [](int n) {
    std::string header = "{";
    for (int i = 0; i < n; ++i) {
      header += fmt::format(R"({}"t{}":{{"dtype":"F32","shape":[1],"data_offsets":[{},{}]}})",
                            i == 0 ? "" : ",", i, 4 * i, 4 * i + 4);
    }
    header += "}";
    std::string text(8, '\0');
    for (size_t byte = 0; byte < 8; ++byte)
      text[byte] = static_cast<char>(header.size() >> (8 * byte) & 0xff);
    return text + header + std::string(4 * static_cast<size_t>(n), 'x');
  };
  expect_proportional("safetensors", tensors, [](const std::string& text) {
    const MemoryFile file(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    EXPECT_GE(load_safetensors(file.path()).tensors.size(), static_cast<size_t>(kSmall));
    EXPECT_GE(view_safetensors(MappedFile(file.path())).size(), static_cast<size_t>(kSmall));
  });
}

TEST(ReadersWork, Rules) {
  const auto rows = [](int n) {
    std::string text;
    for (int i = 0; i < n; ++i)
      text += fmt::format("setting s{0}: on\nadvice exhausted unless s{0} unless s0: do {0}\n  why: so\n", i);
    return text;
  };
  const auto read = [](const std::string& text) {
    const explain::Rules rules(explain::RulesFile{"own.txt", text});
    EXPECT_GT(rules.advice().size(), static_cast<size_t>(kSmall));
  };
  expect_proportional("rules", rows, read);
}

// Protocol buffers: a field of bytes, and one of a number below 128.
std::string field(int number, std::string_view bytes) {
  std::string result(1, static_cast<char>(number << 3 | 2));
  for (size_t left = bytes.size();; left >>= 7) {
    result += static_cast<char>((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
    if (left <= 0x7f) break;
  }
  return result.append(bytes);
}

std::string field(int number, int value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}

TEST(ReadersWork, OnnxModels) {
  const auto model = [](int n) {
    const std::string type = field(1, field(1, 1) + field(2, field(1, field(1, 8))));  // f32 of 8
    const auto value = [&](const std::string& name) { return field(1, name) + field(2, type); };
    std::string graph;
    for (int i = 0; i < n; ++i) {
      graph += field(
          5, field(1, 8) + field(2, 1) + field(8, fmt::format("w{}", i)) + field(9, std::string(32, 'x')));
      graph += field(1, field(1, fmt::format("v{}", i)) + field(1, fmt::format("w{}", i)) +
                            field(2, fmt::format("v{}", i + 1)) + field(3, fmt::format("n{}", i)) +
                            field(4, "Add"));
    }
    graph += field(2, "chain") + field(11, value("v0")) + field(12, value(fmt::format("v{}", n)));
    return field(1, 8) + field(8, field(2, 17)) + field(7, graph);
  };
  expect_proportional("ONNX", model, [](const std::string& bytes) {
    EXPECT_GT(onnx::parse_model(std::as_bytes(std::span(bytes)), "chain.onnx").nodes.size(), 100u);
  });
}

}  // namespace
}  // namespace headroom
