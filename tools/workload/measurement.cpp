#include "tools/workload/measurement.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "examples/models/mnist/train_result.h"
#include "runtime/base/errors.h"

namespace headroom {

std::string to_json(const Measurement& m) {
  nlohmann::ordered_json json;
  json["outcome"] = to_string(m.outcome);
  json["error"] = m.error;
  json["steps"] = m.steps;
  json["seconds_per_step"] = m.seconds_per_step;
  json["driver_seconds"] = m.driver_seconds;
  json["peak_device_bytes"] = m.peak_device_bytes;
  json["peak_process_bytes"] = m.peak_process_bytes;
  json["peak_reserved_bytes"] = m.peak_reserved_bytes;
  json["peak_allocated_bytes"] = m.peak_allocated_bytes;
  json["fragmentation"] = m.fragmentation;
  json["overhead_bytes"] = m.overhead_bytes;
  if (m.devices.size() > 1) json["devices"] = nlohmann::ordered_json::parse(to_json(m.devices));
  if (m.replicas.size() > 1) json["replicas"] = nlohmann::ordered_json::parse(to_json(m.replicas));
  return json.dump();
}

Measurement parse_measurement(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    Measurement m;
    m.outcome = parse_enum<RunOutcome>(json.at("outcome").get<std::string>(), "outcome");
    m.error = json.at("error");
    m.steps = json.at("steps");
    m.seconds_per_step = json.at("seconds_per_step");
    m.driver_seconds = json.at("driver_seconds");
    m.peak_device_bytes = json.at("peak_device_bytes");
    m.peak_process_bytes = json.at("peak_process_bytes");
    m.peak_reserved_bytes = json.at("peak_reserved_bytes");
    m.peak_allocated_bytes = json.at("peak_allocated_bytes");
    m.fragmentation = json.at("fragmentation");
    m.overhead_bytes = json.at("overhead_bytes");
    return m;
  } catch (const nlohmann::json::exception& error) {
    throw InvalidArgument(fmt::format("a measurement that is none: {}", error.what()));
  }
}

}  // namespace headroom
