// Fields of protobuf messages, checked as they are read. Knows no message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <protozero/pbf_reader.hpp>
#include <span>
#include <string>
#include <utility>

#include "base/errors.h"

namespace headroom::onnx {

using Reader = protozero::pbf_reader;
using protozero::data_view;

// The decoder trusts its caller to know how a field is stored; a damaged file may have it otherwise.
inline void require(Reader& field, protozero::pbf_wire_type type) {
  if (!field.has_wire_type(type)) {
    throw InvalidArgument("damaged or not an ONNX file: field " + std::to_string(field.tag()) +
                          " is stored as another type");
  }
}
inline data_view view_of(Reader& field) {
  require(field, protozero::pbf_wire_type::length_delimited);
  return field.get_view();
}
// A message that somebody else decodes.
inline std::span<const std::byte> bytes_of(Reader& field) {
  const data_view view = view_of(field);
  return {reinterpret_cast<const std::byte*>(view.data()), view.size()};
}
inline std::string text_of(Reader& field) {
  const data_view view = view_of(field);
  return {view.data(), view.size()};
}
inline Reader message_of(Reader& field) {
  return Reader(view_of(field));
}
inline int64_t integer_of(Reader& field) {
  require(field, protozero::pbf_wire_type::varint);
  return field.get_int64();
}
inline float float_of(Reader& field) {
  require(field, protozero::pbf_wire_type::fixed32);
  return field.get_float();
}

template <typename F>
void for_each_field(Reader reader, F f) {
  while (reader.next()) {
    if (!f(reader)) reader.skip();
  }
}

inline std::pair<std::string, std::string> entry_of(Reader message) {
  std::pair<std::string, std::string> entry;
  for_each_field(message, [&](Reader& field) {
    if (field.tag() == 1) return entry.first = text_of(field), true;
    if (field.tag() == 2) return entry.second = text_of(field), true;
    return false;
  });
  return entry;
}

// A repeated integer, packed or not.
template <typename F>
void for_each_integer(Reader& field, F f) {
  if (field.has_wire_type(protozero::pbf_wire_type::varint)) {
    f(integer_of(field));
    return;
  }
  require(field, protozero::pbf_wire_type::length_delimited);
  for (int64_t value : field.get_packed_int64()) f(value);
}

// Calls f, and rewrites the decoder's errors in our words.
template <typename F>
auto with_our_errors(F f) {
  try {
    return f();
  } catch (const protozero::end_of_buffer_exception&) {
    throw InvalidArgument("truncated or not an ONNX file: a message ends before its data");
  } catch (const protozero::exception& error) {
    throw InvalidArgument(std::string("damaged or not an ONNX file: ") + error.what());
  }
}

}  // namespace headroom::onnx
