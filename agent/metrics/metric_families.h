// SPDX-License-Identifier: Apache-2.0
// The agent's data as Prometheus metric families (docs/metrics.md lists them).
//
// An unknown value has no sample: no family reports a zero that was not measured.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <prometheus/metric_family.h>
#include <string>
#include <vector>

#include "agent/kata/artifact_pulls.h"
#include "agent/metrics/change_history.h"
#include "agent/metrics/gpu_facts.h"
#include "api/advertised_resources.h"
#include "api/host_status.h"
#include "kube/api_client.h"

namespace ferry::agent {

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
  std::map<std::string, std::string> node_labels = {};  ///< empty: the Node is not known
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
