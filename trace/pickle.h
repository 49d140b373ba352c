// Reads Python 3 pickles of plain data: numbers, text, lists, tuples, dictionaries. Refuses objects, and with
// them all code. Does not know the meaning of the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/trace_input.h"

namespace headroom {

class Pickle {
 public:
  // A tuple is a list. False and true are 0 and 1. Large integers are those beyond 60 bits.
  enum class Kind : uint8_t { kNone, kInteger, kLargeInteger, kReal, kText, kList, kDictionary };

  // Cheap to copy; valid as long as its pickle. A history has some hundred for each event.
  class Value {
   public:
    Value() = default;
    Kind kind() const { return static_cast<Kind>(bits_ & ((1 << kKindBits) - 1)); }
    // Equal for copies of one value, and for no other list or dictionary.
    int64_t identity() const { return bits_; }

   private:
    friend class Pickle;
    static constexpr int kKindBits = 3;
    Value(Kind kind, int64_t payload)
        : bits_(static_cast<int64_t>(static_cast<uint64_t>(payload) << kKindBits |
                                     static_cast<uint64_t>(kind))) {}
    // An integer, or the position of a larger one, a text, list or dictionary.
    int64_t payload() const { return bits_ >> kKindBits; }
    size_t position() const { return static_cast<size_t>(payload()); }

    int64_t bits_ = 0;
  };

  // Reads the whole pickle. Throws InvalidArgument with the byte for one that is incomplete, malformed, not
  // plain data, or takes far more memory than a snapshot of the file's size.
  explicit Pickle(TraceInput& input);

  Value root() const { return root_; }
  // The elements; none if the value is no list.
  std::span<const Value> list(Value value) const;
  // Returns the last value under `key`; kNone if there is none, or the value is not a dictionary.
  Value get(Value dictionary, std::string_view key) const;
  // Empty, or `otherwise`, if the value is no text or integer.
  std::string_view text(Value value) const;
  int64_t integer(Value value, int64_t otherwise = 0) const;

 private:
  struct Text {
    size_t begin = 0, length = 0;
  };

  // A dictionary: key, value, key, value, ...
  struct Container {
    Value* values = nullptr;
    uint32_t count = 0, room = 0;

    std::span<const Value> all() const { return {values, count}; }
  };

  bool step(uint8_t opcode);  // false: the end
  void push(Kind kind, int64_t payload);
  void push_integer(int64_t integer);
  void push_text(uint64_t length);
  void push_long(uint64_t length);
  void push_container(Kind kind, size_t from);
  Value pop();
  size_t pop_mark();
  void append(size_t from);
  // Moves the values on the stack from `from` on to the end of a container.
  void add_to(Container& container, size_t from);
  void set_items(size_t from);
  void put(uint64_t position);
  void get_memo(uint64_t position);
  void count_bytes(size_t more);
  uint64_t little_endian(int bytes);

  TraceInput& input_;
  std::vector<Value> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::vector<Value> memo_;
  std::vector<Container> containers_;
  std::pmr::monotonic_buffer_resource values_;  // all containers; a snapshot has millions of small ones
  std::vector<Text> texts_;
  std::vector<int64_t> large_integers_;
  std::string characters_;  // characters of all texts
  size_t bytes_ = 0;        // memory used by all of these
  Value root_;
};

}  // namespace headroom
