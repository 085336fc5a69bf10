// SPDX-License-Identifier: Apache-2.0
#include "cli/document.h"

#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "cli/shown.h"
#include "common/config_tree.h"

namespace ferry {
namespace {

using nlohmann::json;

void emit(YAML::Emitter& out, const json& value) {
  switch (value.type()) {
    case json::value_t::object:
      out << YAML::BeginMap;
      for (const auto& [key, item] : value.items()) {
        // A profile's name may be "no" or "010"; our own keys are words.
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
      // Quoted always: "0000:01:00.0", "no" and "010" mean other things to some readers when they are not.
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

ExitStatus print(const Session& session, const Shown& shown) {
  print(session, shown.document, shown.text);
  return shown.status;
}

void print(const Session& session, const json& document, const std::string& text) {
  std::string out;
  switch (session.output) {
    case OutputFormat::table:
      out = text;
      break;
    case OutputFormat::json:
      // Names of processes are bytes of their own choosing.
      out = document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
      break;
    case OutputFormat::yaml: {
      YAML::Emitter emitter;
      emit(emitter, document);
      out = std::string(emitter.c_str()) + "\n";
      break;
    }
  }
  static_cast<void>(std::fwrite(out.data(), 1, out.size(), session.out));
}

json to_json(const std::vector<PciAddress>& addresses) {
  json out = json::array();
  for (const PciAddress& address : addresses) out.push_back(address.text());
  return out;
}

json to_json(const Holder& holder) {
  return {{"text", holder.text()},
          {"name", holder.name},
          {"pid", holder.pid ? json(*holder.pid) : json(nullptr)},
          {"what", holder.what},
          {"pod_uid", holder.pod_uid.empty() ? json(nullptr) : json(holder.pod_uid)},
          {"service", holder.service.empty() ? json(nullptr) : json(holder.service)}};
}

json to_json(const Error& error) {
  return {{"message", error.message}, {"hint", error.hint}};
}

json to_json(const Step& step) {
  json out = {{"text", step.text()}, {"why", step.why}};
  if (step.of_a_holder()) {
    constexpr auto kKey = [](Releasable::Kind kind) {
      switch (kind) {
        case Releasable::Kind::persistence:
          return "address";
        case Releasable::Kind::module:
          return "module";
        case Releasable::Kind::service:
          break;
      }
      return "service";
    };
    out[kKey(step.holder.kind)] = step.holder.name;
  }
  if (step.of_a_function()) out["address"] = step.address.text();
  return out;
}

json to_json(const PciFunction& function) {
  const auto hex = [](const auto& value, const char* format) {
    return value ? json(fmt::format(fmt::runtime(format), *value)) : json(nullptr);
  };
  return {{"address", function.address.text()},
          {"vendor", fmt::format("{:04x}", function.vendor)},
          {"device", fmt::format("{:04x}", function.device)},
          {"subsystem_vendor", hex(function.subsystem_vendor, "{:04x}")},
          {"subsystem_device", hex(function.subsystem_device, "{:04x}")},
          {"class", fmt::format("{:06x}", function.class_code)},
          {"driver", function.driver ? json(*function.driver) : json(nullptr)},
          {"driver_override", function.driver_override ? json(*function.driver_override) : json(nullptr)},
          {"iommu_group", function.iommu_group ? json(*function.iommu_group) : json(nullptr)},
          {"numa_node", function.numa_node ? json(*function.numa_node) : json(nullptr)}};
}

std::string join(const std::vector<PciAddress>& addresses) {
  std::vector<std::string> parts;
  parts.reserve(addresses.size());
  for (const PciAddress& address : addresses) parts.push_back(address.text());
  return join(parts, ", ");
}

std::string join(const std::vector<std::string>& parts, const std::string& between) {
  return fmt::format("{}", fmt::join(parts, between));
}

}  // namespace ferry
