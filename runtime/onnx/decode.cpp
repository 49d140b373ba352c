#include "runtime/onnx/decode.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <utility>

#include "base/errors.h"
#include "runtime/onnx/protobuf_fields.h"

// Numbers of fields are those of onnx.proto.
namespace headroom::onnx {
namespace {

class Decoder {
 public:
  explicit Decoder(Model& model) : model_(model) {}

  void decode(std::span<const std::byte> bytes) {
    const Reader message(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    bool has_graph = false;
    for_each_field(message, [&](Reader& field) {
      switch (field.tag()) {
        case 1:
          return model_.ir_version = integer_of(field), true;
        case 2:
          return model_.producer = text_of(field), true;
        case 3:
          return model_.producer_version = text_of(field), true;
        case 7:
          if (has_graph) throw InvalidArgument("has two graphs");
          has_graph = true;
          return graph(message_of(field)), true;
        case 8:
          return opset(message_of(field)), true;
        case 14:
          return model_.metadata.insert(entry_of(message_of(field))), true;
        case 25:
          return function(message_of(field)), true;
        default:
          return false;
      }
    });
    if (!has_graph) throw InvalidArgument("not an ONNX file: it has no graph");
    if (model_.opsets.empty()) throw InvalidArgument("not an ONNX file: it does not say which opset it uses");
  }

 private:
  void opset(Reader message) {
    const auto [domain, version] = opset_of(message);
    model_.opsets[domain] = version;
  }

  static std::pair<std::string, int64_t> opset_of(Reader message) {
    std::string domain;
    int64_t version = 0;
    for_each_field(message, [&](Reader& field) {
      if (field.tag() == 1) return domain = text_of(field), true;
      if (field.tag() == 2) return version = integer_of(field), true;
      return false;
    });
    return {domain == "ai.onnx" ? "" : domain, version};
  }

  void function(Reader message) {
    Function function;
    int64_t opset = 0;
    for_each_field(message, [&](Reader& field) {
      switch (field.tag()) {
        case 1:
          return function.name = text_of(field), true;
        case 4:
          return function.inputs.push_back(text_of(field)), true;
        case 5:
          return function.outputs.push_back(text_of(field)), true;
        case 7:
          return function.nodes.push_back(node(message_of(field))), true;
        case 9: {
          const auto [domain, version] = opset_of(message_of(field));
          if (domain.empty()) opset = version;
          return true;
        }
        case 10:
          return function.domain = text_of(field), true;
        case 11:
          return function.defaults.push_back(attribute(message_of(field))), true;
        default:
          return false;
      }
    });
    for (OnnxNode& node : function.nodes) node.opset = opset;
    model_.functions.push_back(std::move(function));
  }

  // The graph of an attribute.
  std::shared_ptr<const Body> body(Reader message) {
    constexpr int kMostBodies = 16;
    if (++bodies_ > kMostBodies)
      throw InvalidArgument(fmt::format("has graphs inside each other, more than {} deep", kMostBodies));
    auto body = std::make_shared<Body>();
    for_each_field(message, [&](Reader& field) {
      switch (field.tag()) {
        case 1:
          return body->nodes.push_back(node(message_of(field))), true;
        case 5:
          return body->initializers.push_back(decode_tensor(bytes_of(field), model_)), true;
        case 11:
          return body->inputs.push_back(value(message_of(field)).name), true;
        case 12:
          return body->outputs.push_back(value(message_of(field)).name), true;
        case 15:
          throw InvalidArgument("has a sparse initializer, which is not supported");
        default:
          return false;
      }
    });
    --bodies_;
    return body;
  }

  void graph(Reader message) {
    for_each_field(message, [&](Reader& field) {
      switch (field.tag()) {
        case 1:
          return model_.nodes.push_back(node(message_of(field))), true;
        case 2:
          return model_.graph_name = text_of(field), true;
        case 5:
          return model_.initializers.push_back(decode_tensor(bytes_of(field), model_)), true;
        case 11:
          return model_.inputs.push_back(value(message_of(field))), true;
        case 12:
          return model_.outputs.push_back(value(message_of(field))), true;
        case 15:
          throw InvalidArgument("has a sparse initializer, which is not supported");
        case 16:
          return model_.metadata.insert(entry_of(message_of(field))), true;
        default:
          return false;
      }
    });
  }

  OnnxNode node(Reader message) {
    OnnxNode node;
    for_each_field(message, [&](Reader& field) {
      switch (field.tag()) {
        case 1:
          return node.inputs.push_back(text_of(field)), true;
        case 2:
          return node.outputs.push_back(text_of(field)), true;
        case 3:
          return node.name = text_of(field), true;
        case 4:
          return node.op = text_of(field), true;
        case 5:
          return node.attributes.push_back(attribute(message_of(field))), true;
        case 7:
          return node.domain = text_of(field), true;
        case 9:
          return note(node, entry_of(message_of(field))), true;
        default:
          return false;
      }
    });
    if (node.domain == "ai.onnx") node.domain.clear();
    if (node.name.empty() && !node.outputs.empty()) node.name = node.outputs.front();
    // The older exporter of PyTorch puts the modules into the name: "/layers/0/conv/Conv".
    if (node.module.empty() && node.name.starts_with('/')) {
      const size_t end = node.name.rfind('/');
      if (end > 1) node.module = node.name.substr(1, end - 1);
      for (char& c : node.module) c = c == '/' ? '.' : c;
    }
    return node;
  }

  // Reads the facts that PyTorch's exporter records about the user's program.
  static void note(OnnxNode& node, const std::pair<std::string, std::string>& entry) {
    if (entry.first == "pkg.torch.onnx.name_scopes") {
      // ['', 'encoder', 'encoder.layer.0', 'linear_3']: the last one is the call, not a module.
      std::vector<std::string> scopes;
      size_t at = 0;
      while ((at = entry.second.find('\'', at)) != std::string::npos) {
        const size_t end = entry.second.find('\'', at + 1);
        if (end == std::string::npos) break;
        scopes.push_back(entry.second.substr(at + 1, end - at - 1));
        at = end + 1;
      }
      if (scopes.size() > 1) node.module = scopes[scopes.size() - 2];
    } else if (entry.first == "pkg.torch.onnx.stack_trace") {
      node.source = user_line(entry.second);
    } else if (entry.first == "pkg.torch.onnx.fx_node") {
      node.padding_row = padding_row_of(entry.second);
    }
  }

  // "... torch.ops.aten.embedding.default](args = (%table, %indices, 0), kwargs = {})": padding_idx is the
  // third argument, and -1 without one.
  static std::optional<int64_t> padding_row_of(std::string_view call) {
    constexpr std::string_view kCall = "aten.embedding.default](args = (";
    const size_t at = call.find(kCall);
    if (at == std::string_view::npos) return std::nullopt;
    std::string_view arguments = call.substr(at + kCall.size());
    arguments = arguments.substr(0, arguments.find(')'));
    for (int i = 0; i < 2; ++i) {
      const size_t comma = arguments.find(", ");
      if (comma == std::string_view::npos)
        return call.find("padding_idx") == std::string_view::npos ? std::optional<int64_t>(-1) : std::nullopt;
      arguments.remove_prefix(comma + 2);
    }
    int64_t row = -1;
    const bool is_number =
        std::from_chars(arguments.data(), arguments.data() + arguments.size(), row).ec == std::errc();
    return is_number ? std::optional(row) : std::nullopt;
  }

  // Returns the last line of code outside installed packages, otherwise the last one: "net.py:31".
  static std::string user_line(std::string_view trace) {
    constexpr std::string_view kFile = "File \"", kLine = "\", line ";
    std::string own, any;
    size_t at = 0;
    while ((at = trace.find(kFile, at)) != std::string_view::npos) {
      at += kFile.size();
      const size_t end = trace.find(kLine, at);
      if (end == std::string_view::npos) break;
      const std::string_view path = trace.substr(at, end - at);
      const size_t digits = end + kLine.size();
      const size_t stop = trace.find_first_not_of("0123456789", digits);
      const std::string_view number =
          trace.substr(digits, stop == std::string_view::npos ? stop : stop - digits);
      any = fmt::format("{}:{}", path.substr(path.rfind('/') + 1), number);
      if (path.find("-packages/") == std::string_view::npos) own = any;
      at = digits;
    }
    return own.empty() ? any : own;
  }

  Attribute attribute(Reader message) {
    Attribute attribute;
    for_each_field(message, [&](Reader& field) {
      switch (field.tag()) {
        case 1:
          return attribute.name = text_of(field), true;
        case 2:
          return attribute.number = float_of(field), true;
        case 3:
          return attribute.integer = integer_of(field), true;
        case 4:
          return attribute.text = text_of(field), true;
        case 5:
          return attribute.tensor = std::make_shared<Tensor>(decode_tensor(bytes_of(field), model_)), true;
        case 6:
          return attribute.body = body(message_of(field)), true;
        case 7:
          if (field.has_wire_type(protozero::pbf_wire_type::fixed32)) {
            attribute.numbers.push_back(float_of(field));
          } else {
            require(field, protozero::pbf_wire_type::length_delimited);
            for (float number : field.get_packed_float()) attribute.numbers.push_back(number);
          }
          return true;
        case 8:
          return for_each_integer(field, [&](int64_t value) { attribute.integers.push_back(value); }), true;
        case 9:
          return attribute.texts.push_back(text_of(field)), true;
        case 21:
          return attribute.of_call = text_of(field), true;
        case 20: {
          const int64_t type = integer_of(field);
          if (type >= 0 && type <= static_cast<int64_t>(Attribute::Type::kStrings))
            attribute.type = static_cast<Attribute::Type>(type);
          return true;
        }
        default:
          return false;
      }
    });
    return attribute;
  }

  ValueType value(Reader message) {
    ValueType value;
    for_each_field(message, [&](Reader& field) {
      if (field.tag() == 1) return value.name = text_of(field), true;
      if (field.tag() != 2) return false;
      for_each_field(message_of(field), [&](Reader& type) {
        if (type.tag() != 1) return false;  // a sequence, a map or an optional
        tensor_type(message_of(type), value);
        return true;
      });
      return true;
    });
    return value;
  }

  static void tensor_type(Reader message, ValueType& value) {
    for_each_field(message, [&](Reader& field) {
      if (field.tag() == 1) return value.type = static_cast<ElementType>(integer_of(field)), true;
      if (field.tag() != 2) return false;
      value.shape.emplace();
      for_each_field(message_of(field), [&](Reader& axes) {
        if (axes.tag() != 1) return false;
        Dimension dimension;
        for_each_field(message_of(axes), [&](Reader& axis) {
          if (axis.tag() == 1) return dimension.extent = integer_of(axis), true;
          if (axis.tag() == 2) return dimension.parameter = text_of(axis), true;
          return false;
        });
        if (dimension.extent < -1) {
          throw InvalidArgument(fmt::format("value '{}': an extent of {}", value.name, dimension.extent));
        }
        // Some exporters write 0 or -1 next to a name, or for an unknown axis.
        if (dimension.extent == 0 || !dimension.parameter.empty()) dimension.extent = -1;
        value.shape->push_back(std::move(dimension));
        return true;
      });
      return true;
    });
  }

  Model& model_;
  int bodies_ = 0;  // around what is read
};

}  // namespace

void decode_model(std::span<const std::byte> bytes, Model& model) {
  with_our_errors([&] { Decoder(model).decode(bytes); });
}

}  // namespace headroom::onnx
