// SPDX-License-Identifier: Apache-2.0
#include "cli/output/document.h"

#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/output/shown.h"

namespace ferry::cli {

using nlohmann::json;

std::string printed(const Session& session, const Shown& shown) {
  return printed(session.output, shown.document, shown.text, shown.tinted ? Colours::kept : Colours::told);
}

ExitStatus print(const Session& session, const Shown& shown) {
  const std::string out = printed(session, shown);
  static_cast<void>(std::fwrite(out.data(), 1, out.size(), session.out));
  return shown.status;
}

std::string printed(const Session& session, const json& document, const std::string& text) {
  return printed(session.output, document, text);
}

void print(const Session& session, const json& document, const std::string& text) {
  const std::string out = printed(session, document, text);
  static_cast<void>(std::fwrite(out.data(), 1, out.size(), session.out));
}

json to_json(const std::vector<vfio::PciAddress>& addresses) {
  json out = json::array();
  for (const vfio::PciAddress& address : addresses) out.push_back(address.text());
  return out;
}

json to_json(const vfio::Holder& holder) {
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

json to_json(const vfio::Step& step) {
  json out = {{"text", step.text()}, {"why", step.why}};
  if (step.of_a_holder()) {
    constexpr auto kKey = [](vfio::Releasable::Kind kind) {
      switch (kind) {
        case vfio::Releasable::Kind::persistence:
          return "address";
        case vfio::Releasable::Kind::module:
          return "module";
        case vfio::Releasable::Kind::service:
          break;
      }
      return "service";
    };
    out[kKey(step.holder.kind)] = step.holder.name;
  }
  if (step.of_a_function()) out["address"] = step.address.text();
  return out;
}

json to_json(const vfio::PciFunction& function) {
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

std::string join(const std::vector<vfio::PciAddress>& addresses) {
  std::vector<std::string> parts;
  parts.reserve(addresses.size());
  for (const vfio::PciAddress& address : addresses) parts.push_back(address.text());
  return join(parts, ", ");
}

std::string join(const std::vector<std::string>& parts, const std::string& between) {
  return fmt::format("{}", fmt::join(parts, between));
}

}  // namespace ferry::cli
