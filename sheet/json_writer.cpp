#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "sheet/writers.h"

namespace headroom {
namespace {

List records(const SheetTable& table) {
  List list;
  for (const SheetTable::Row& row : table.rows) {
    if (row.mark == Mark::kTotal) continue;
    Record record;
    for (size_t i = 0; i < table.columns.size(); ++i) {
      if (!table.columns[i].key.empty()) record.push_back({table.columns[i].key, row.cells[i].value});
    }
    list.emplace_back(std::move(record));
  }
  return list;
}

// Adds to the list of that key.
void append(Record& record, const std::string& key, const List& list) {
  const auto found = std::ranges::find_if(record, [&](const Field& field) { return field.key == key; });
  if (found == record.end()) return record.push_back({key, list});
  List joined = std::get<List>(found->value.data());
  joined.insert(joined.end(), list.begin(), list.end());
  found->value = std::move(joined);
}

std::string csv_field(const Datum& value) {
  const auto* text = std::get_if<std::string>(&value.data());
  if (text == nullptr) return to_json(value, -1);
  if (text->find_first_of(",\"\r\n") == std::string::npos) return *text;
  std::string quoted = "\"";
  for (const char c : *text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

Record to_record(const Sheet& sheet) {
  Record record;
  for (const Sheet::Part& part : sheet.parts) {
    if (const auto* field = std::get_if<Field>(&part)) record.push_back(*field);
    if (const auto* table = std::get_if<SheetTable>(&part); table != nullptr && !table->key.empty())
      append(record, table->key, records(*table));
    if (const auto* code = std::get_if<CodeBlock>(&part); code != nullptr && !code->key.empty())
      record.push_back({code->key, code->lines});
  }
  return record;
}

std::string to_json(const Sheet& sheet, int indent) {
  return to_json(Datum(to_record(sheet)), indent);
}

std::string to_csv(const SheetTable& table) {
  std::vector<std::string> keys;
  for (const Column& column : table.columns) {
    if (!column.key.empty()) keys.push_back(column.key);
  }
  std::string text = fmt::format("{}\r\n", fmt::join(keys, ","));
  for (const Datum& record : records(table)) {
    std::vector<std::string> fields;
    for (const Field& field : std::get<Record>(record.data())) fields.push_back(csv_field(field.value));
    text += fmt::format("{}\r\n", fmt::join(fields, ","));
  }
  return text;
}

}  // namespace headroom
