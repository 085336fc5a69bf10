// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/gpu_facts.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "mdev/stuck_gpus.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/pci_function.h"

namespace ferry::agent {
namespace {

namespace fs = std::filesystem;

// The PCIe specification has room for 16 correctable and 32 other errors; kernels give them short names.
constexpr std::size_t kMostKinds = 32;
constexpr std::size_t kLongestKind = 32;

bool is_plain(std::string_view name) {
  return !name.empty() && name.size() <= kLongestKind &&
         std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; });
}

class Reader {
 public:
  Reader(const HostFs& host, fs::path folder) : host_(host), folder_(std::move(folder)) {}

  std::optional<std::string> text(const std::string& name) const {
    auto content = host_.read_attribute(folder_ / name);
    if (!content) return std::nullopt;
    return std::move(*content);
  }
  std::optional<unsigned> lanes(const char* name) const {
    constexpr unsigned kUnknown = 0xff;  // PCIE_LNK_WIDTH_UNKNOWN; 0 is a link that is down or missing
    const auto content = text(name);
    auto lanes = content ? whole_number<unsigned>(*content) : std::nullopt;
    if (lanes && (*lanes == 0 || *lanes == kUnknown)) lanes.reset();
    return lanes;
  }
  std::optional<double> speed(const char* name) const {
    const auto content = text(name);
    return content ? parse_link_speed(*content) : std::nullopt;
  }

 private:
  const HostFs& host_;
  const fs::path folder_;
};

void read_errors(const HostFs& host, const vfio::PciAddress& function, std::string_view port,
                 std::vector<ReportedErrors>& out) {
  const Reader reader(host, vfio::sysfs_path(function));
  for (const std::string_view severity : {"correctable", "nonfatal", "fatal"}) {
    const auto content = reader.text(fmt::format("aer_dev_{}", severity));
    if (content) out.push_back({.port = port, .severity = severity, .counts = parse_error_counts(*content)});
  }
}

/// Limit of both ends of a link: a card may support more than its slot. An unknown limit of the upper end
/// does not count.
template <typename Number>
std::optional<Number> of_both(const std::optional<Number>& gpu, const std::optional<Number>& above) {
  return gpu && above ? std::min(gpu, above) : gpu;
}

// Decided by the drivers alone, as in the kernel and in `ferry status`: a group member that cannot be read,
// or is off the bus, does not make the group unviable.
std::optional<bool> group_viable(const HostFs& host, const vfio::PciAddress& gpu) {
  const auto name = host.link_name(vfio::sysfs_path(gpu) / "iommu_group");
  const auto group = name ? whole_number<std::uint32_t>(*name) : std::nullopt;
  if (!group) return std::nullopt;
  const auto members = vfio::scan_members(host, {*group}, {});
  if (!members || members->functions.empty()) return std::nullopt;
  return members->has_iommu() && vfio::viability_blockers(*members, *group).empty();
}

GpuFacts facts_of(const HostFs& host, const vfio::PciAddress& gpu) {
  GpuFacts out{.address = gpu};
  const Reader reader(host, vfio::sysfs_path(gpu));
  if (const auto node = reader.text("numa_node")) {
    out.numa_node = whole_number<int>(*node);
    if (out.numa_node && *out.numa_node < 0) out.numa_node.reset();
  }
  out.power_state = reader.text("power_state");
  if (out.power_state && !is_plain(*out.power_state)) out.power_state.reset();

  // The PCI function above it, from ".../0000:3a:00.0/0000:3b:00.0". Absent: the GPU is on its root's own
  // bus.
  std::optional<vfio::PciAddress> above;
  if (const auto place = host.link_target(vfio::sysfs_path(gpu)))
    if (auto found = vfio::PciAddress::parse(fs::path(*place).parent_path().filename().string()))
      above = *found;

  // A read of the link would wake a GPU that sleeps. The port above an awake GPU is awake, too.
  const bool is_off = out.power_state && out.power_state->starts_with("D3");
  const auto status = is_off ? std::nullopt : reader.text("power/runtime_status");
  if (!is_off && !(status && status->starts_with("suspend"))) {
    out.link = {.current_speed = reader.speed("current_link_speed"),
                .max_speed = reader.speed("max_link_speed"),
                .current_lanes = reader.lanes("current_link_width"),
                .max_lanes = reader.lanes("max_link_width")};
    if (above) {
      const Reader port(host, vfio::sysfs_path(*above));
      out.link.max_speed = of_both(out.link.max_speed, port.speed("max_link_speed"));
      out.link.max_lanes = of_both(out.link.max_lanes, port.lanes("max_link_width"));
    }
  }

  read_errors(host, gpu, "device", out.errors);
  if (above) read_errors(host, *above, "upstream", out.errors);
  out.group_viable = group_viable(host, gpu);
  return out;
}

}  // namespace

ErrorCounts parse_error_counts(std::string_view text) {
  ErrorCounts out;
  while (!text.empty()) {
    const std::string_view line = cut(text, '\n');
    // The kernel's names may contain spaces.
    const auto space = line.rfind(' ');
    if (space == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, space);
    const auto count = whole_number<std::uint64_t>(line.substr(space + 1));
    if (!count || !is_plain(name)) continue;
    if (name.starts_with("TOTAL_ERR_"))
      out.total = count;
    else if (out.counts.size() < kMostKinds)
      out.counts[std::string(name)] = *count;
  }
  return out;
}

std::optional<double> parse_link_speed(std::string_view text) {
  constexpr double kGiga = 1e9;
  const auto end = text.find(" GT/s");
  if (end == std::string_view::npos) return std::nullopt;
  const auto speed = whole_number<double>(text.substr(0, end));
  // The bounds also exclude infinity and NaN.
  constexpr double kAnyToCome = 1e6;
  if (speed && *speed > 0 && *speed < kAnyToCome) return *speed * kGiga;
  return std::nullopt;
}

std::vector<GpuFacts> read_gpu_facts(const HostFs& host, std::span<const vfio::PciAddress> gpus) {
  const auto held = mdev::StuckGpus::read(host);
  std::vector<GpuFacts> out;
  out.reserve(gpus.size());
  for (const vfio::PciAddress& gpu : gpus) {
    if (!held || held->contains(host, gpu))
      out.push_back({.address = gpu, .held = true});
    else
      out.push_back(facts_of(host, gpu));
  }
  return out;
}

}  // namespace ferry::agent
