#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "runtime/onnx/decode.h"
#include "runtime/onnx/protobuf_fields.h"

static_assert(std::endian::native == std::endian::little, "tensors are read as they are stored");

// Numbers of fields are those of onnx.proto.
namespace headroom::onnx {
namespace {

template <typename T>
void append(std::vector<std::byte>& bytes, T value) {
  std::array<std::byte, sizeof(T)> stored;
  std::memcpy(stored.data(), &value, sizeof(T));
  bytes.insert(bytes.end(), stored.begin(), stored.end());
}

void note(ExternalData& external, const std::pair<std::string, std::string>& entry) {
  const auto number = [&] {
    if (entry.second.empty() || entry.second.size() > 18 ||
        entry.second.find_first_not_of("0123456789") != std::string::npos) {
      throw InvalidArgument(fmt::format("external data: {} '{}' is not a number", entry.first, entry.second));
    }
    return int64_t{std::stoll(entry.second)};
  };
  if (entry.first == "location") external.location = entry.second;
  if (entry.first == "offset") external.offset = number();
  if (entry.first == "length") external.length = number();
}

// The numbers of fields like float_data and int64_data as elements in a row.
std::span<const std::byte> gather_typed(const Tensor& tensor, const std::vector<data_view>& packed,
                                        const std::vector<int64_t>& integers, bool has_integers,
                                        Model& model) {
  if (packed.size() == 1 && !has_integers) {
    return {reinterpret_cast<const std::byte*>(packed[0].data()), packed[0].size()};
  }
  std::vector<std::byte> bytes;
  for (const data_view& part : packed) {
    const auto* data = reinterpret_cast<const std::byte*>(part.data());
    bytes.insert(bytes.end(), data, data + part.size());
  }
  for (int64_t value : integers) {
    switch (stored_bytes(tensor.type)) {
      case 1:
        append(bytes, static_cast<uint8_t>(value));
        break;
      case 2:
        append(bytes, static_cast<uint16_t>(value));
        break;
      case 4:
        append(bytes, static_cast<uint32_t>(value));
        break;
      default:
        append(bytes, value);
    }
  }
  if (bytes.empty()) return {};
  return model.converted.emplace_back(std::move(bytes));
}

void check(const Tensor& tensor) {
  if (stored_bytes(tensor.type) == 0) {
    throw InvalidArgument(
        fmt::format("tensor '{}': elements of {} are not supported", tensor.name, to_string(tensor.type)));
  }
  constexpr int64_t kMaxBytes = int64_t{1} << 46;
  int64_t elements = 1;
  for (int64_t extent : tensor.extents) {
    if (extent < 0) throw InvalidArgument(fmt::format("tensor '{}': an extent of {}", tensor.name, extent));
    if (extent > 0 && elements > kMaxBytes / stored_bytes(tensor.type) / extent) {
      throw InvalidArgument(fmt::format("tensor '{}': its extents [{}] are too large", tensor.name,
                                        fmt::join(tensor.extents, ",")));
    }
    elements *= extent;
  }
}

Tensor read_tensor(Reader message, Model& model) {
  Tensor tensor;
  ExternalData external;
  bool is_external = false;
  std::vector<data_view> packed;  // float_data and double_data, which are stored as they are
  std::vector<int64_t> integers;
  bool has_integers = false, has_raw = false;
  for_each_field(message, [&](Reader& field) {
    switch (field.tag()) {
      case 1:
        return for_each_integer(field, [&](int64_t extent) { tensor.extents.push_back(extent); }), true;
      case 2:
        return tensor.type = static_cast<ElementType>(integer_of(field)), true;
      case 3:
        throw InvalidArgument("a tensor is stored in segments, which is not supported");
      case 4:
      case 10:
        if (!field.has_wire_type(protozero::pbf_wire_type::length_delimited)) {
          throw InvalidArgument("a tensor's numbers are stored one by one, which is not supported");
        }
        return packed.push_back(view_of(field)), true;
      case 5:
      case 7:
      case 11:
        has_integers = true;
        return for_each_integer(field, [&](int64_t value) { integers.push_back(value); }), true;
      case 8:
        return tensor.name = text_of(field), true;
      case 9: {
        const data_view view = view_of(field);
        tensor.data = {reinterpret_cast<const std::byte*>(view.data()), view.size()};
        return has_raw = true, true;
      }
      case 13:
        return note(external, entry_of(message_of(field))), true;
      case 14:
        return is_external = integer_of(field) == 1, true;
      default:
        return false;
    }
  });
  check(tensor);
  if (is_external) {
    tensor.external = external;
    tensor.data = {};
    return tensor;
  }
  if (!has_raw) tensor.data = gather_typed(tensor, packed, integers, has_integers, model);
  if (static_cast<int64_t>(tensor.data.size()) != stored_bytes(tensor.type, tensor.elements())) {
    throw InvalidArgument(fmt::format("tensor '{}': {} bytes of data do not make {} elements of {}",
                                      tensor.name, tensor.data.size(), tensor.elements(),
                                      to_string(tensor.type)));
  }
  return tensor;
}

}  // namespace

Tensor decode_tensor(std::span<const std::byte> bytes, Model& model) {
  const Reader message(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return with_our_errors([&] { return read_tensor(message, model); });
}

}  // namespace headroom::onnx
