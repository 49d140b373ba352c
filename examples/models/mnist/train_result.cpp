#include "examples/models/mnist/train_result.h"

#include <utility>

namespace headroom {
namespace {

void add_figures(Record& record, const DeviceFigures& figures) {
  record.push_back({"peak_device_bytes", figures.peak_device_bytes});
  record.push_back({"peak_process_bytes", figures.peak_process_bytes});
  record.push_back({"peak_reserved_bytes", figures.peak_reserved_bytes});
  record.push_back({"peak_allocated_bytes", figures.peak_allocated_bytes});
  record.push_back({"predicted_peak_bytes", figures.predicted_peak_bytes});
}

void add_figures(Record& record, const ReplicaFigures& figures) {
  add_figures(record, static_cast<const DeviceFigures&>(figures));
  record.push_back({"optimizer_bytes", figures.optimizer_bytes});
  record.push_back({"weights_checksum", figures.weights_checksum});
}

template <typename Row>
Datum rows_of(const std::vector<Row>& all) {
  List rows;
  for (const Row& one : all) {
    Record row = {{"device", one.device}};
    if (!one.host.empty()) row.push_back({"host", one.host});
    add_figures(row, one);
    rows.emplace_back(std::move(row));
  }
  return rows;
}

}  // namespace

Datum to_datum(const std::vector<DeviceResult>& devices) {
  return rows_of(devices);
}

Datum to_datum(const std::vector<ReplicaResult>& replicas) {
  return rows_of(replicas);
}

Datum to_datum(const TrainResult& result) {
  Record record = {{"outcome", to_string(result.outcome)},
                   {"error", result.error},
                   {"device", result.device},
                   {"strategy", result.strategy},
                   {"data_on", result.data_on},
                   {"kernels", result.kernels},
                   {"math", result.math},
                   {"epochs", result.epochs},
                   {"batch", result.batch},
                   {"test_accuracy", result.test_accuracy},
                   {"final_loss", result.final_loss},
                   {"steps", result.steps},
                   {"training_seconds", result.training_seconds},
                   {"seconds_to_target", result.seconds_to_target},
                   {"seconds_per_step", result.seconds_per_step},
                   {"images_per_second", result.images_per_second}};
  add_figures(record, result);
  record.push_back({"devices", to_datum(result.devices)});
  record.push_back({"replicas", to_datum(result.replicas)});
  record.push_back({"sums", result.sums.empty() ? Datum() : Datum(result.sums)});
  record.push_back({"failed_rank", result.failed_rank});
  record.push_back({"out_of_memory", result.report ? to_datum(*result.report) : Datum()});
  return record;
}

}  // namespace headroom
