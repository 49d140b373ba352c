#include "examples/models/mnist/train_result.h"

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

void add_figures(Json& json, const DeviceFigures& figures) {
  json["peak_device_bytes"] = figures.peak_device_bytes;
  json["peak_process_bytes"] = figures.peak_process_bytes;
  json["peak_reserved_bytes"] = figures.peak_reserved_bytes;
  json["peak_allocated_bytes"] = figures.peak_allocated_bytes;
  json["predicted_peak_bytes"] = figures.predicted_peak_bytes ? Json(*figures.predicted_peak_bytes) : Json();
}

void add_figures(Json& json, const ReplicaFigures& figures) {
  add_figures(json, static_cast<const DeviceFigures&>(figures));
  json["optimizer_bytes"] = figures.optimizer_bytes;
  json["weights_checksum"] = figures.weights_checksum;
}

template <typename Row>
std::string rows_of(const std::vector<Row>& all) {
  Json rows = Json::array();
  for (const Row& one : all) {
    Json row;
    row["device"] = one.device;
    if (!one.host.empty()) row["host"] = one.host;
    add_figures(row, one);
    rows.push_back(std::move(row));
  }
  return json_text(rows);
}

}  // namespace

std::string to_json(const std::vector<DeviceResult>& devices) {
  return rows_of(devices);
}

std::string to_json(const std::vector<ReplicaResult>& replicas) {
  return rows_of(replicas);
}

std::string to_json(const TrainResult& result) {
  Json json;
  json["outcome"] = to_string(result.outcome);
  json["error"] = result.error;
  json["device"] = result.device;
  json["strategy"] = result.strategy;
  json["data_on"] = result.data_on;
  json["kernels"] = result.kernels;
  json["math"] = result.math;
  json["epochs"] = result.epochs;
  json["batch"] = result.batch;
  json["test_accuracy"] = result.test_accuracy;
  json["final_loss"] = result.final_loss;
  json["steps"] = result.steps;
  json["training_seconds"] = result.training_seconds;
  json["seconds_to_target"] = result.seconds_to_target ? Json(*result.seconds_to_target) : Json();
  json["seconds_per_step"] = result.seconds_per_step;
  json["images_per_second"] = result.images_per_second;
  add_figures(json, result);
  json["devices"] = Json::parse(to_json(result.devices));
  json["replicas"] = Json::parse(to_json(result.replicas));
  json["sums"] = result.sums.empty() ? Json() : Json(result.sums);
  json["failed_rank"] = result.failed_rank ? Json(*result.failed_rank) : Json();
  json["out_of_memory"] = result.report ? Json::parse(to_json(*result.report)) : Json();
  return json_text(json);
}

}  // namespace headroom
