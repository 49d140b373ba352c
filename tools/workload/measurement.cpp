#include "tools/workload/measurement.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/core/errors.h"

namespace headroom {

std::string to_json(const Measurement& m) {
  nlohmann::ordered_json json;
  json["outcome"] = m.outcome;
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
  if (!m.replicas.empty()) json["replicas"] = nlohmann::ordered_json::parse(to_json(m.replicas));
  return json.dump();
}

Measurement parse_measurement(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    return {json.at("outcome"),
            json.at("error"),
            json.at("steps"),
            json.at("seconds_per_step"),
            json.at("driver_seconds"),
            json.at("peak_device_bytes"),
            json.at("peak_process_bytes"),
            json.at("peak_reserved_bytes"),
            json.at("peak_allocated_bytes"),
            json.at("fragmentation"),
            json.at("overhead_bytes")};
  } catch (const nlohmann::json::exception& error) {
    throw InvalidArgument(fmt::format("a measurement that is none: {}", error.what()));
  }
}

}  // namespace headroom
