// SPDX-License-Identifier: Apache-2.0
#include "cli/options/output_format.h"

#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "common/config/config_tree.h"
#include "common/text/visible_text.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

void emit(YAML::Emitter& out, const json& value) {
  switch (value.type()) {
    case json::value_t::object:
      out << YAML::BeginMap;
      for (const auto& [key, item] : value.items()) {
        // A profile's name may be "no" or "010". Ferry's own keys are words.
        out << YAML::Key << (is_plain_string(key) ? YAML::Auto : YAML::DoubleQuoted) << key << YAML::Value;
        emit(out, item);
      }
      out << YAML::EndMap;
      break;
    case json::value_t::array:
      out << YAML::BeginSeq;
      for (const auto& item : value) emit(out, item);
      out << YAML::EndSeq;
      break;
    case json::value_t::string:
      // The text is always quoted, since some readers take a plain "0000:01:00.0", "no" or "010" for another
      // type.
      out << YAML::DoubleQuoted << value.get<std::string>();
      break;
    case json::value_t::null:
    case json::value_t::discarded:
      out << YAML::Null;
      break;
    case json::value_t::boolean:
    case json::value_t::number_integer:
    case json::value_t::number_unsigned:
    case json::value_t::number_float:
    case json::value_t::binary:
      out << value.dump();
      break;
  }
}

}  // namespace

const std::map<std::string, OutputFormat>& output_formats() {
  static const std::map<std::string, OutputFormat> kFormats = {{"table", OutputFormat::table},
                                                               {"wide", OutputFormat::wide},
                                                               {"json", OutputFormat::json},
                                                               {"yaml", OutputFormat::yaml}};
  return kFormats;
}

std::string printed(OutputFormat format, const json& document, const std::string& text, Colours colours) {
  switch (format) {
    case OutputFormat::table:
    case OutputFormat::wide:
      break;
    case OutputFormat::json:
      // A process chooses the bytes of its name, which need not be UTF-8.
      return visible_json(document.dump(2, ' ', false, json::error_handler_t::replace)) + "\n";
    case OutputFormat::yaml: {
      YAML::Emitter emitter;
      emit(emitter, document);
      // All strings are quoted, where YAML knows the escapes of JSON.
      return visible_json(emitter.c_str()) + "\n";
    }
  }
  return visible_lines(text, colours);
}

}  // namespace ferry::cli
