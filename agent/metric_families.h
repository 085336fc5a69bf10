// SPDX-License-Identifier: Apache-2.0
// What the agent knows of its node, as Prometheus' metric families (docs/metrics.md lists them). Pure.
//
// What is not known has no sample: no family holds a zero that nobody has read.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <prometheus/metric_family.h>
#include <string>
#include <vector>

#include "agent/change_history.h"
#include "agent/gpu_facts.h"
#include "agent/pull_counts.h"
#include "agent/seen_host.h"
#include "agent/seen_offer.h"
#include "kube/counted_transport.h"

namespace ferry {

/// A file by which the processes meet.
template <typename Content>
struct MeetingFile {
  std::optional<Content> content;  ///< absent: it is not there, or cannot be understood
  bool broken = false;             ///< it is there, and cannot be understood
};

struct MetricsView {
  MeetingFile<SeenHost> host;
  MeetingFile<SeenOffer> offer;
  std::map<std::string, bool> runs;  ///< "hostd", "plugin"; those of which it could be asked
  std::vector<GpuFacts> facts;
  /// When `facts` were read; absent: they have not been yet.
  std::optional<std::chrono::system_clock::time_point> looked_at;
  ChangeHistory::Counts changes;
  RequestCounts requests;
  std::optional<PullCounts> pulls;          ///< of Kata's artifacts; absent: none are pulled here
  std::map<std::string, std::string> vmis;  ///< by "namespace/pod": KubeVirt's VirtualMachineInstance
};

/// Sorted by their names; within each, samples in a fixed order and no two with the same labels, whatever the
/// files say.
std::vector<prometheus::MetricFamily> metric_families(const MetricsView& view);

/// The text exposition format, version 0.0.4.
std::string metrics_text(const std::vector<prometheus::MetricFamily>& families);
inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace ferry
