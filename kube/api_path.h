// SPDX-License-Identifier: Apache-2.0
// Paths of an API server, built from types. A name from outside stays one part of a path, and a missing name
// never turns "delete this" into "delete all".
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry::kube {

/// A kind of object that Ferry uses.
struct ApiKind {
  std::string_view api_version;  ///< the apiVersion of objects: "v1", "coordination.k8s.io/v1"
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

inline constexpr ApiKind kResourceSlices{
    .api_version = "resource.k8s.io/v1", .kind = "ResourceSlice", .plural = "resourceslices"};
inline constexpr ApiKind kResourceClaims{
    .api_version = "resource.k8s.io/v1", .kind = "ResourceClaim", .plural = "resourceclaims"};
inline constexpr ApiKind kDeviceClasses{
    .api_version = "resource.k8s.io/v1", .kind = "DeviceClass", .plural = "deviceclasses"};

/// Names an object.
struct ObjectRef {
  ApiKind kind;
  std::string space = {};  ///< namespace; empty where the kind has none
  std::string name = {};
  /// "Node n1", "ConfigMap gpu-operator/profiles"
  std::string text() const;
  bool operator==(const ObjectRef&) const = default;
};

/// Selects objects of one kind.
struct Selection {
  ApiKind kind;
  std::string space = {};   ///< empty: all namespaces
  std::string fields = {};  ///< a field selector; empty: any
  std::string labels = {};  ///< a label selector; empty: any
  /// "Node metadata.name=n1", "Pod in gpu-operator app=x"
  std::string text() const;
  bool operator==(const Selection&) const = default;
};

/// Selects a part of a list.
struct ListRange {
  unsigned most = 0;       ///< objects in one answer; 0: all of them
  std::string after = {};  ///< metadata.continue of the previous answer; empty: from the start
};

/// The end of a container's log.
struct LogEnd {
  std::string container;
  bool previous = false;  ///< the container before its last restart
  unsigned lines = 0;     ///< at most; each with its time in front
};

ObjectRef node_ref(std::string name);
ObjectRef config_map_ref(std::string space, std::string name);
ObjectRef pod_ref(std::string space, std::string name);

/// Selects one object, existing or not: a role that names it permits this list and watch.
Selection only(const ObjectRef& object);
/// The field selector of pods that have not ended.
inline constexpr std::string_view kNotEndedPods = "status.phase!=Succeeded,status.phase!=Failed";
/// Selects the pods that run on a node, or are about to.
Selection pods_of_node(std::string_view node);
/// Selects the ResourceSlices that a driver has published for a node.
Selection slices_of_node(std::string_view node, std::string_view driver);

/// "/api/v1/nodes/n1", and `/subresource` if given. Errc::usage: no object can have this name (empty, "..",
/// with a slash), so that the path can mean nothing else.
Result<std::string> path_of(const ObjectRef& object, std::string_view subresource = {});
/// "/api/v1/namespaces/default/events": the collection of a kind. Errc::usage as above.
Result<std::string> collection_of(ApiKind kind, std::string_view space);
/// The collection with its selectors as a query, "?" included; more follows after "&". Errc::usage as above.
Result<std::string> path_of(const Selection& selection, const ListRange& range = {});
/// The log of a pod's container. Errc::usage as above.
Result<std::string> log_path(const ObjectRef& pod, const LogEnd& end);

}  // namespace ferry::kube
