#include "trace/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>

#include "base/bytes.h"

namespace headroom {
namespace {

// Limits on a pickle's memory: a fixed amount, and above that a multiple of its size. Snapshots of PyTorch
// use up to 5 bytes per byte, and 80 to 120 per byte of a gzipped file.
constexpr size_t kFreeBytes = size_t{1} << 27, kMaxBytes = size_t{3} << 30;
constexpr size_t kBytesPerByte = 12, kBytesPerStoredByte = 256;

// Opcodes of Python's pickletools, by the names they have there.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kMemoize = 0x94,
  kFrame = 0x95,
};

}  // namespace

Pickle::Pickle(TraceInput& input) : input_(input) {
  while (step(input_.read_byte())) {
  }
  root_ = pop();
  // Only the values are needed from here on.
  memo_ = {};
  stack_ = {};
}

bool Pickle::step(uint8_t opcode) {
  switch (opcode) {
    case kProto:
      if (input_.read_byte() > 5) input_.fail_at_byte("pickle protocol above 5");
      break;
    case kFrame:
      little_endian(8);
      break;
    case kStop:
      return false;
    case kMark:
      count_bytes(sizeof(size_t));
      marks_.push_back(stack_.size());
      break;
    case kPop:
      pop();
      break;
    case kPopMark:
      stack_.resize(pop_mark());
      break;
    case kDup:
      stack_.push_back(pop());
      count_bytes(sizeof(Value));
      stack_.push_back(stack_.back());
      break;
    case kNone:
      push(Kind::kNone, 0);
      break;
    case kNewTrue:
    case kNewFalse:
      push_integer(opcode == kNewTrue);
      break;
    case kBinInt:
      push_integer(static_cast<int32_t>(little_endian(4)));
      break;
    case kBinInt1:
      push_integer(static_cast<int64_t>(little_endian(1)));
      break;
    case kBinInt2:
      push_integer(static_cast<int64_t>(little_endian(2)));
      break;
    case kLong1:
    case kLong4:
      push_long(little_endian(opcode == kLong1 ? 1 : 4));
      break;
    case kBinFloat:
      little_endian(8);  // its value is not used
      push(Kind::kReal, 0);
      break;
    case kShortBinUnicode:
    case kShortBinString:
    case kShortBinBytes:
      push_text(little_endian(1));
      break;
    case kBinUnicode:
    case kBinString:
    case kBinBytes:
      push_text(little_endian(4));
      break;
    case kBinUnicode8:
      push_text(little_endian(8));
      break;
    case kEmptyList:
    case kEmptyTuple:
      push_container(Kind::kList, stack_.size());
      break;
    case kEmptyDict:
      push_container(Kind::kDictionary, stack_.size());
      break;
    case kTuple1:
    case kTuple2:
    case kTuple3: {
      const size_t length = opcode - kTuple1 + size_t{1};
      if (stack_.size() < length) input_.fail_at_byte("the pickle pops from an empty stack");
      push_container(Kind::kList, stack_.size() - length);
      break;
    }
    case kTuple:
      push_container(Kind::kList, pop_mark());
      break;
    case kAppend:
      append(std::max<size_t>(stack_.size(), 1) - 1);
      break;
    case kAppends:
      append(pop_mark());
      break;
    case kSetItem:
      set_items(std::max<size_t>(stack_.size(), 2) - 2);
      break;
    case kSetItems:
      set_items(pop_mark());
      break;
    case kMemoize:
      put(memo_.size());
      break;
    case kBinPut:
    case kLongBinPut:
      put(little_endian(opcode == kBinPut ? 1 : 4));
      break;
    case kBinGet:
    case kLongBinGet:
      get_memo(little_endian(opcode == kBinGet ? 1 : 4));
      break;
    default:
      input_.fail_at_byte(
          fmt::format("pickle opcode 0x{:02x}: only plain data can be read, no objects or code", opcode));
  }
  return true;
}

void Pickle::push(Kind kind, int64_t payload) {
  count_bytes(sizeof(Value));
  stack_.push_back({kind, payload});
}

void Pickle::push_integer(int64_t integer) {
  constexpr int64_t kLarge = int64_t{1} << (63 - Value::kKindBits);
  if (-kLarge <= integer && integer < kLarge) return push(Kind::kInteger, integer);
  count_bytes(sizeof(int64_t));
  push(Kind::kLargeInteger, std::ssize(large_integers_));
  large_integers_.push_back(integer);
}

void Pickle::push_text(uint64_t length) {
  const size_t begin = characters_.size();
  // Reads in pieces, so that a length alone allocates no memory.
  for (uint64_t left = length; left > 0;) {
    const auto piece = static_cast<size_t>(std::min<uint64_t>(left, 1 << 16));
    count_bytes(piece);
    characters_.resize(characters_.size() + piece);
    input_.read(characters_.data() + characters_.size() - piece, static_cast<int64_t>(piece));
    left -= piece;
  }
  count_bytes(sizeof(Text));
  push(Kind::kText, std::ssize(texts_));
  texts_.push_back({begin, static_cast<size_t>(length)});
}

// Two's complement of minimal length. Values beyond 64 bits (hashes, not sizes) become real numbers, which
// are not used.
void Pickle::push_long(uint64_t length) {
  if (length > 1 << 16) input_.fail_at_byte("an integer of more than 65536 bytes");
  uint64_t low = 0;
  uint8_t last = 0;
  for (uint64_t i = 0; i < length; ++i) {
    last = input_.read_byte();
    if (i < 8) low |= static_cast<uint64_t>(last) << (8 * i);
  }
  if (length > 8) {
    return push(Kind::kReal, 0);
  }
  if (length > 0 && length < 8 && last >= 0x80) low |= ~uint64_t{0} << (8 * length);
  push_integer(static_cast<int64_t>(low));
}

// Replaces the values on the stack from `from` on by a container of them.
void Pickle::push_container(Kind kind, size_t from) {
  count_bytes(sizeof(Container));
  add_to(containers_.emplace_back(), from);
  push(kind, std::ssize(containers_) - 1);
}

Pickle::Value Pickle::pop() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) {
    input_.fail_at_byte("the pickle pops from an empty stack");
  }
  const Value value = stack_.back();
  stack_.pop_back();
  return value;
}

size_t Pickle::pop_mark() {
  if (marks_.empty() || marks_.back() > stack_.size()) input_.fail_at_byte("the pickle lacks a mark");
  const size_t from = marks_.back();
  marks_.pop_back();
  return from;
}

void Pickle::append(size_t from) {
  if (from == 0 || from > stack_.size() || stack_[from - 1].kind() != Kind::kList) {
    input_.fail_at_byte("the pickle appends to a value that is not a list");
  }
  add_to(containers_[stack_[from - 1].position()], from);
}

void Pickle::add_to(Container& container, size_t from) {
  const size_t added = stack_.size() - from, count = container.count + added;
  if (count > container.room) {
    // Reserves exactly the room for items added at once, and doubles it for items added one by one.
    const size_t room = std::max(count, size_t{2} * container.room);
    if (room > std::numeric_limits<uint32_t>::max()) input_.fail_at_byte("the pickle has too long a list");
    count_bytes(room * sizeof(Value));
    auto* const values = static_cast<Value*>(values_.allocate(room * sizeof(Value), alignof(Value)));
    std::uninitialized_copy_n(container.values, container.count, values);
    container.values = values;
    container.room = static_cast<uint32_t>(room);
  }
  std::uninitialized_copy_n(stack_.data() + from, added, container.values + container.count);
  container.count = static_cast<uint32_t>(count);
  stack_.resize(from);
}

void Pickle::set_items(size_t from) {
  if (from == 0 || from > stack_.size() || (stack_.size() - from) % 2 != 0 ||
      stack_[from - 1].kind() != Kind::kDictionary) {
    input_.fail_at_byte("the pickle sets items of a value that is not a dictionary");
  }
  add_to(containers_[stack_[from - 1].position()], from);
}

void Pickle::put(uint64_t position) {
  if (stack_.empty()) input_.fail_at_byte("the pickle pops from an empty stack");
  // Writers count up from 0, so there are at most as many positions as bytes.
  if (position > static_cast<uint64_t>(input_.at_bytes())) input_.fail_at_byte("a wrong memo position");
  if (position >= memo_.size()) {
    count_bytes((position + 1 - memo_.size()) * sizeof(Value));
    memo_.resize(position + 1);
  }
  memo_[position] = stack_.back();
}

void Pickle::get_memo(uint64_t position) {
  if (position >= memo_.size()) input_.fail_at_byte("a wrong memo position");
  count_bytes(sizeof(Value));
  stack_.push_back(memo_[position]);
}

// Before they are taken.
void Pickle::count_bytes(size_t more) {
  bytes_ += more;
  if (bytes_ <= kFreeBytes) return;
  const size_t above = bytes_ - kFreeBytes;
  const auto read = static_cast<size_t>(input_.at_bytes());
  const auto stored = static_cast<size_t>(input_.stored_bytes());
  if (bytes_ <= kMaxBytes && above / kBytesPerByte <= read && above / kBytesPerStoredByte <= stored) return;
  input_.fail_at_byte(fmt::format("the pickle takes {} of memory{}{}",
                                  format_bytes(static_cast<int64_t>(bytes_)),
                                  bytes_ <= kMaxBytes ? ", far more than a snapshot of its size" : "",
                                  stored < read ? "; if it is one, gunzip it first" : ""));
}

uint64_t Pickle::little_endian(int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= static_cast<uint64_t>(input_.read_byte()) << (8 * i);
  return value;
}

std::span<const Pickle::Value> Pickle::list(Value value) const {
  if (value.kind() != Kind::kList) return {};
  return containers_[value.position()].all();
}

Pickle::Value Pickle::get(Value dictionary, std::string_view key) const {
  Value found;
  if (dictionary.kind() != Kind::kDictionary) return found;
  const std::span<const Value> items = containers_[dictionary.position()].all();
  for (size_t i = 0; i < items.size(); i += 2) {
    if (items[i].kind() == Kind::kText && text(items[i]) == key) found = items[i + 1];
  }
  return found;
}

std::string_view Pickle::text(Value value) const {
  if (value.kind() != Kind::kText) return {};
  const Text& text = texts_[value.position()];
  return std::string_view(characters_).substr(text.begin, text.length);
}

int64_t Pickle::integer(Value value, int64_t otherwise) const {
  if (value.kind() == Kind::kLargeInteger) return large_integers_[value.position()];
  return value.kind() == Kind::kInteger ? value.payload() : otherwise;
}

}  // namespace headroom
