// SPDX-License-Identifier: Apache-2.0
// The agent's data as Prometheus metric families (docs/metrics.md lists them). Only read_gpu_facts() reads
// the host.
//
// An unknown value has no sample: no family reports a zero that was not measured.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <prometheus/metric_family.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/kata/artifact_pulls.h"
#include "agent/rollout/change_history.h"
#include "api/advertised_resources.h"
#include "api/host_status.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kube/api_client.h"
#include "vfio/pci/pci_address.h"

namespace ferry::agent {

// Facts from sysfs about GPUs that no driver of their vendor monitors: link, errors, power state, IOMMU
// group.
// ABI: Documentation/ABI/testing/sysfs-bus-pci, sysfs-bus-pci-devices-aer_stats (Linux 4.19),
// sysfs-devices-power.

/// Counts of an aer_dev_* attribute since the kernel found the device.
struct ErrorCounts {
  std::optional<std::uint64_t> total = {};           ///< the kernel's own, which may differ from the sum
  std::map<std::string, std::uint64_t> counts = {};  ///< by the kernel's name of the error: "BadTLP"
};

/// Parses lines "NAME COUNT", the last being "TOTAL_ERR_COR 0". Other lines are ignored, and so are more
/// names than any kernel has.
ErrorCounts parse_error_counts(std::string_view text);

/// Transfers per second, from "16.0 GT/s PCIe" or "8 GT/s"; absent: the kernel does not know the speed.
std::optional<double> parse_link_speed(std::string_view text);

enum class Severity { correctable, nonfatal, fatal };
std::string_view text(Severity severity);

/// The end of the link that counted: some errors of a link appear only at its upper end.
enum class LinkEnd { device, upstream };
std::string_view text(LinkEnd end);

struct ReportedErrors {
  LinkEnd end = LinkEnd::device;
  Severity severity = Severity::correctable;
  ErrorCounts counts;
};

struct LinkNumbers {
  std::optional<double> current_speed = {};  ///< transfers per second
  /// Limit of both ends, as max_lanes: the slot may support less than the card.
  std::optional<double> max_speed = {};
  std::optional<unsigned> current_lanes = {};
  std::optional<unsigned> max_lanes = {};
};

/// A field is absent if the host does not show it, or it was not read; no field has a default value.
struct GpuFacts {
  vfio::PciAddress address;
  bool held = false;  ///< a write to the GPU is stuck: none of its facts was read
  std::optional<int> numa_node = {};
  std::optional<std::string> power_state = {};  ///< in the kernel's words: "D0", "D3hot", "unknown" ...
  LinkNumbers link = {};                        ///< only of an awake GPU: a read would wake the GPU
  std::vector<ReportedErrors> errors = {};
  std::optional<bool> group_viable = {};  ///< its IOMMU group can be given to a VM as it is
};

/// Reads each GPU. Never fails: a GPU that is gone has only absent facts. The caller must tolerate a read
/// that hangs. If the records of in-flight writes cannot be read, every GPU counts as held.
std::vector<GpuFacts> read_gpu_facts(const HostFs& host, std::span<const vfio::PciAddress> gpus);

/// A file by which Ferry's processes communicate.
template <typename Content>
struct MeetingFile {
  std::optional<Content> content;  ///< absent: missing, or not parsable
  bool broken = false;             ///< it exists and cannot be parsed
};

struct MetricsSnapshot {
  MeetingFile<api::HostStatus> host;
  MeetingFile<api::AdvertisedResources> advertised;
  std::map<std::string, bool> runs;  ///< "hostd", "plugin"; absent: unknown
  std::vector<GpuFacts> facts;
  /// Time at which `facts` were read; absent: not yet.
  std::optional<std::chrono::system_clock::time_point> looked_at;
  ChangeHistory::Counts changes;
  kube::RequestCounts requests;
  std::optional<PullCounts> pulls;          ///< of Kata's artifacts; absent: this agent pulls none
  std::map<std::string, std::string> vmis;  ///< by "namespace/pod": KubeVirt's VirtualMachineInstance
  /// Number of the node's ResourceClaims by phase; absent: there is no `ferry dra`, or its file cannot be
  /// read.
  std::optional<std::map<std::string, std::size_t>> claims = {};
};

/// Sorted by name. The samples of a family have a fixed order, and no two have the same labels, whatever the
/// files contain.
std::vector<prometheus::MetricFamily> metric_families(const MetricsSnapshot& snapshot);

/// The text exposition format, version 0.0.4.
std::string metrics_text(const std::vector<prometheus::MetricFamily>& families);
inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace ferry::agent
