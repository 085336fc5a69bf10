// SPDX-License-Identifier: Apache-2.0
#include "cli/output/document.h"

#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/json.h"
#include "common/text/words.h"

namespace ferry::cli {

using nlohmann::json;

std::string printed(const Session& session, const VerbOutput& shown) {
  return printed(session.output, shown.document, shown.text, shown.tinted ? Colours::kept : Colours::escaped);
}

ExitStatus print(const Session& session, const VerbOutput& shown) {
  const std::string out = printed(session, shown);
  static_cast<void>(std::fwrite(out.data(), 1, out.size(), session.out));
  return shown.status;
}

json to_json(const std::vector<vfio::PciAddress>& addresses) {
  json out = json::array();
  for (const vfio::PciAddress& address : addresses) out.push_back(address.text());
  return out;
}

json to_json(const vfio::DeviceUser& user) {
  return {{"text", user.text()},
          {"name", user.name},
          {"pid", or_null(user.pid)},
          {"what", user.what},
          {"pod_uid", or_null(user.pod_uid)},
          {"service", or_null(user.service)}};
}

json to_json(const Error& error) {
  return {{"message", error.message}, {"hint", error.hint}};
}

json to_json(const vfio::Step& step) {
  json out = {{"text", step.text()}, {"why", step.why}};
  if (step.of_a_device_user()) {
    using Kind = vfio::Releasable::Kind;
    constexpr Words<Kind, 3> kKeys = {
        {{"address", Kind::persistence}, {"module", Kind::module}, {"service", Kind::service}}};
    out[std::string(word_for(kKeys, step.user.kind))] = step.user.name;
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
          {"driver", or_null(function.driver)},
          {"driver_override", or_null(function.driver_override)},
          {"iommu_group", or_null(function.iommu_group)},
          {"numa_node", or_null(function.numa_node)}};
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

std::string error_lines(const Error& error, const std::string& indent) {
  return indent + error.message + "\n" + (error.hint.empty() ? "" : indent + "hint: " + error.hint + "\n");
}

std::string because(const std::string& why) {
  return why.starts_with("so that ") ? "  " + why : "  because " + why;
}

namespace {

json to_json(const vfio::Bar& bar) {
  return {{"index", bar.index},
          {"kind", bar.is_io() ? "io" : "memory"},
          {"start", bar.is_assigned() ? json(fmt::format("{:#x}", bar.start)) : json(nullptr)},
          {"size", bar.size},
          {"is_64bit", bar.is_64bit()},
          {"prefetchable", bar.is_prefetchable()},
          {"flags", fmt::format("{:#x}", bar.flags)}};
}

}  // namespace

json to_json(const vfio::DeviceFacts& facts) {
  json bars = nullptr;
  if (facts.bars) {
    bars = json::array();
    for (const vfio::Bar& bar : *facts.bars) bars.push_back(to_json(bar));
  }
  json resizable = json::array();
  for (const vfio::ResizableBar& bar : facts.resizable_bars) {
    resizable.push_back({{"index", bar.index}, {"sizes_mib", bar.sizes_mib}});
  }
  return {{"reset", {{"methods", or_null(facts.reset.methods)}, {"offered", or_null(facts.reset.offered)}}},
          {"power",
           {{"state", or_null(facts.power.state)},
            {"runtime_status", or_null(facts.power.runtime_status)},
            {"d3cold_allowed", or_null(facts.power.d3cold_allowed)},
            {"control", or_null(facts.power.control)}}},
          {"link",
           {{"current_speed", or_null(facts.link.current_speed)},
            {"max_speed", or_null(facts.link.max_speed)},
            {"current_width", or_null(facts.link.current_width)},
            {"max_width", or_null(facts.link.max_width)}}},
          {"numa_node", or_null(facts.numa_node)},
          {"bars", bars},
          {"resizable_bars", resizable},
          {"rom", or_null(facts.rom)},
          {"serial_number", or_null(facts.serial_number)},
          {"vfio",
           {{"group_node", or_null(facts.vfio.group_node)},
            {"devices", or_null(facts.vfio.devices)},
            {"cdev_node", or_null(facts.vfio.cdev_node)}}},
          {"notes", facts.notes}};
}

}  // namespace ferry::cli
