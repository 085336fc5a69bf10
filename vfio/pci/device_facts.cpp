// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/device_facts.h"

#include <algorithm>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "vfio/pci/pci_function.h"

namespace ferry::vfio {
namespace {

bool has_file(const HostFs& host, const std::filesystem::path& directory, const std::string& name) {
  const auto entries = host.entries(directory);
  return entries &&
         std::ranges::find(*entries, DirectoryEntry{.name = name, .is_directory = false}) != entries->end();
}

/// Reads attributes of one function. A malformed attribute goes to the notes, with its name.
class FactReader {
 public:
  FactReader(const HostFs& host, const PciAddress& address, std::vector<std::string>& notes)
      : host_(host), path_(sysfs_path(address)), notes_(notes) {}

  void note(const std::string& name, std::string_view trouble) {
    notes_.push_back(fmt::format("{}: {}", name, trouble));
  }

  // Absent if the attribute does not exist or is unfit to show: every attribute here is at most a page of
  // printable ASCII.
  std::optional<std::string> text(const std::string& name) {
    constexpr std::size_t kPage = 4096;
    auto content = host_.read_attribute(path_ / name);
    if (!content) {
      if (!is_gone(content.error())) notes_.push_back(content.error().message);
      return std::nullopt;
    }
    if (content->size() > kPage) {
      note(name, fmt::format("{} bytes", content->size()));
      return std::nullopt;
    }
    if (!std::ranges::all_of(*content, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); })) {
      note(name, "not text");
      return std::nullopt;
    }
    return std::move(*content);
  }

  // Reads a single line that is not empty.
  std::optional<std::string> line(const std::string& name) {
    auto content = text(name);
    if (content && (content->empty() || content->find('\n') != std::string::npos)) {
      note(name, content->empty() ? "empty" : "more than one line");
      content.reset();
    }
    return content;
  }

  template <typename Number>
  std::optional<Number> number(const std::string& name) {
    const auto content = line(name);
    if (!content) return std::nullopt;
    const auto value = whole_number<Number>(*content);
    if (!value) note(name, fmt::format("'{:.40}' is not a number", *content));
    return value;
  }

 private:
  const HostFs& host_;
  std::filesystem::path path_;
  std::vector<std::string>& notes_;
};

PowerFacts read_power(FactReader& reader) {
  PowerFacts power;
  power.state = reader.line("power_state");
  power.runtime_status = reader.line("power/runtime_status");
  power.control = reader.line("power/control");
  if (const auto allowed = reader.number<unsigned>("d3cold_allowed")) {
    if (*allowed <= 1) {
      power.d3cold_allowed = *allowed == 1;
    } else {
      reader.note("d3cold_allowed", fmt::format("{} is neither 0 nor 1", *allowed));
    }
  }
  return power;
}

LinkFacts read_link(FactReader& reader) {
  const auto speed = [&](const char* name) {
    auto text = reader.line(name);
    if (text && text->starts_with("Unknown")) text.reset();
    return text;
  };
  const auto width = [&](const char* name) {
    constexpr unsigned kUnknown = 0xff;  // PCIE_LNK_WIDTH_UNKNOWN; 0 is a link that is down or not there
    auto lanes = reader.number<unsigned>(name);
    if (lanes && (*lanes == 0 || *lanes == kUnknown)) lanes.reset();
    return lanes;
  };
  LinkFacts link;
  link.current_speed = speed("current_link_speed");
  link.max_speed = speed("max_link_speed");
  link.current_width = width("current_link_width");
  link.max_width = width("max_link_width");
  return link;
}

// The BAR of a file name: 1 for "resource1_resize".
std::optional<unsigned> resizable_index(const std::string& name) {
  constexpr std::string_view kBefore = "resource";
  constexpr std::string_view kAfter = "_resize";
  if (name.size() != kBefore.size() + 1 + kAfter.size() || !name.starts_with(kBefore) ||
      !name.ends_with(kAfter)) {
    return std::nullopt;
  }
  const char digit = name[kBefore.size()];
  if (digit < '0' || digit > '5') return std::nullopt;
  return static_cast<unsigned>(digit - '0');
}

VfioFacts read_vfio(const HostFs& host, const std::filesystem::path& path, bool has_devices,
                    FactReader& reader) {
  VfioFacts vfio;
  if (const auto group = host.link_name(path / "iommu_group")) {
    // In the kernel's no-IOMMU mode the node has another name.
    for (const std::string& name : {*group, "noiommu-" + *group}) {
      if (has_file(host, "dev/vfio", name)) {
        vfio.group_node = "/dev/vfio/" + name;
        break;
      }
    }
  } else if (!is_gone(group.error())) {
    reader.note("iommu_group", "not a link");
  }
  if (!has_devices) return vfio;
  auto devices = host.list(path / "vfio-dev");
  if (!devices) {
    if (!is_gone(devices.error())) reader.note("vfio-dev", devices.error().message);
    return vfio;
  }
  // The first vfio-dev entry with a node is the one to open; a function normally has one entry.
  for (const std::string& name : *devices) {
    if (has_file(host, "dev/vfio/devices", name)) {
      vfio.cdev_node = "/dev/vfio/devices/" + name;
      break;
    }
  }
  vfio.devices = std::move(*devices);
  return vfio;
}

}  // namespace

DeviceFacts read_device_facts(const HostFs& host, const PciAddress& address) {
  DeviceFacts facts;
  FactReader reader(host, address, facts.notes);
  const auto path = sysfs_path(address);
  auto entries = host.entries(path);
  if (!entries) {
    facts.notes.push_back(entries.error().message);
    return facts;
  }
  // Each name is true for a directory: a careless bind mount makes a directory in place of a node.
  std::map<std::string, bool> names;
  for (DirectoryEntry& entry : *entries) names.emplace(std::move(entry.name), entry.is_directory);
  const auto is_file = [&](const char* name) {
    const auto found = names.find(name);
    return found != names.end() && !found->second;
  };

  if (const auto methods = reader.text("reset_method")) {
    const auto words = words_of(*methods);
    facts.reset.methods.emplace(words.begin(), words.end());
  }
  facts.reset.offered = is_file("reset");
  facts.power = read_power(reader);
  facts.link = read_link(reader);
  facts.numa_node = reader.number<int>("numa_node");
  if (facts.numa_node && *facts.numa_node < 0) facts.numa_node.reset();
  if (const auto text = reader.text("resource")) {
    PciResources resources = parse_pci_resources(*text);
    facts.bars = std::move(resources.bars);
    facts.rom_range = resources.rom;
    for (const std::string& note : resources.notes) reader.note("resource", note);
  }
  for (const auto& [name, is_directory] : names) {
    const auto index = resizable_index(name);
    if (!index) continue;
    const auto text = reader.line(name);
    if (!text) continue;
    if (auto sizes = parse_resizable_sizes(*text)) {
      facts.resizable_bars.push_back({.index = *index, .sizes_mib = std::move(*sizes)});
    } else {
      reader.note(name, fmt::format("'{:.40}' is no mask of sizes", *text));
    }
  }
  facts.rom = is_file("rom");
  facts.serial_number = reader.line("serial_number");
  facts.vfio = read_vfio(host, path, names.contains("vfio-dev"), reader);
  return facts;
}

bool has_iommufd(const HostFs& host) {
  return has_file(host, "dev", "iommu");
}

DevicePlace read_place(const HostFs& host, const PciAddress& address) {
  DevicePlace place;
  // A slot's address is that of a device, without the function: "0000:3b:00".
  constexpr const char* kSlots = "sys/bus/pci/slots";
  const std::string text = address.text();
  const std::string device = text.substr(0, text.find_last_of('.'));
  for (const std::string& name : host.list(kSlots).value_or(std::vector<std::string>{})) {
    if (host.read_attribute(std::filesystem::path(kSlots) / name / "address").value_or("") != device)
      continue;
    place.slot = name;
    break;
  }

  const std::filesystem::path target = host.link_target(sysfs_path(address)).value_or("");
  std::vector<std::string> parts;
  for (const auto& part : target.parent_path()) parts.push_back(part.string());
  const auto devices = std::ranges::find(parts, "devices");
  if (devices != parts.end()) place.above.assign(std::next(devices), parts.end());
  return place;
}

}  // namespace ferry::vfio
