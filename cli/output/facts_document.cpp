// SPDX-License-Identifier: Apache-2.0
#include "cli/output/facts_document.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ferry::cli {
namespace {

using nlohmann::json;

template <typename T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

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
