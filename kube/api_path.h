// SPDX-License-Identifier: Apache-2.0
// Where an API server keeps what: typed, so that a name from outside stays one part of a path and a missing
// one never turns "delete this" into "delete all".
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry {

/// A kind of object that Ferry speaks of.
struct ApiKind {
  std::string_view api_version;  ///< as objects say it: "v1", "coordination.k8s.io/v1"
  std::string_view kind;         ///< "Node"
  std::string_view plural;       ///< "nodes": in paths and in roles
  bool operator==(const ApiKind&) const = default;
};

inline constexpr ApiKind kNodes{.api_version = "v1", .kind = "Node", .plural = "nodes"};
inline constexpr ApiKind kConfigMaps{.api_version = "v1", .kind = "ConfigMap", .plural = "configmaps"};
inline constexpr ApiKind kPods{.api_version = "v1", .kind = "Pod", .plural = "pods"};
inline constexpr ApiKind kDaemonSets{.api_version = "apps/v1", .kind = "DaemonSet", .plural = "daemonsets"};
inline constexpr ApiKind kEvents{.api_version = "v1", .kind = "Event", .plural = "events"};
inline constexpr ApiKind kLeases{
    .api_version = "coordination.k8s.io/v1", .kind = "Lease", .plural = "leases"};

inline constexpr ApiKind kKubeVirts{
    .api_version = "kubevirt.io/v1", .kind = "KubeVirt", .plural = "kubevirts"};
inline constexpr ApiKind kVmis{
    .api_version = "kubevirt.io/v1", .kind = "VirtualMachineInstance", .plural = "virtualmachineinstances"};

inline constexpr ApiKind kNodeFeatures{
    .api_version = "nfd.k8s-sigs.io/v1alpha1", .kind = "NodeFeature", .plural = "nodefeatures"};

/// One object.
struct ObjectRef {
  ApiKind kind;
  std::string space = {};  ///< its namespace; empty where the kind has none
  std::string name = {};
  /// "Node n1", "ConfigMap gpu-operator/profiles"
  std::string text() const;
  bool operator==(const ObjectRef&) const = default;
};

/// Objects of one kind.
struct Selection {
  ApiKind kind;
  std::string space = {};   ///< empty: of all namespaces
  std::string fields = {};  ///< a field selector; empty: any
  std::string labels = {};  ///< a label selector; empty: any
  /// "Node metadata.name=n1", "Pod in gpu-operator app=x"
  std::string text() const;
};

/// A part of a list.
struct ListRange {
  unsigned most = 0;       ///< objects in one answer; 0: all of them
  std::string after = {};  ///< metadata.continue of the answer before; empty: from the first one on
};

/// The end of a container's log.
struct LogEnd {
  std::string container;
  bool previous = false;  ///< of the container before its last restart
  unsigned lines = 0;     ///< at most; each with its time in front
};

ObjectRef node_ref(std::string name);
ObjectRef config_map_ref(std::string space, std::string name);
ObjectRef pod_ref(std::string space, std::string name);

/// The one object, whether it exists or not: what a role that names it permits to list and watch.
Selection only(const ObjectRef& object);
/// The field selector of pods that have not ended.
inline constexpr std::string_view kNotEndedPods = "status.phase!=Succeeded,status.phase!=Failed";
/// The pods that run on a node, or are about to.
Selection pods_of_node(std::string_view node);

/// "/api/v1/nodes/n1", with `/subresource` behind where there is one. Errc::usage: it is no name that an
/// object can have (empty, "..", with a slash), so that nothing else is meant.
Result<std::string> path_of(const ObjectRef& object, std::string_view subresource = {});
/// "/api/v1/namespaces/default/events": where objects of a kind are made. Errc::usage as above.
Result<std::string> collection_of(ApiKind kind, std::string_view space);
/// The collection with its selectors as a query, "?" included; more goes behind "&". Errc::usage as above.
Result<std::string> path_of(const Selection& selection, const ListRange& range = {});
/// The log of a pod's container. Errc::usage as above.
Result<std::string> log_path(const ObjectRef& pod, const LogEnd& end);

}  // namespace ferry
