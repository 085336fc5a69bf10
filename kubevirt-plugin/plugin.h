// SPDX-License-Identifier: Apache-2.0
// The device plugin as one function: scans the host, advertises devices to the kubelet and answers it.
#pragma once

#include <chrono>
#include <filesystem>
#include <stop_token>

#include "api/files.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kubevirt-plugin/allocation/pod_resources.h"
#include "kubevirt-plugin/allocation/pod_resources_monitor.h"
#include "kubevirt-plugin/discovery/resource_rules.h"
#include "kubevirt-plugin/discovery/scanner.h"

namespace ferry::plugin {

struct PluginOptions {
  /// The kubelet's device plugin directory, relative to the host's root; it must exist. The kubelet always
  /// uses this path, whatever its --root-dir.
  std::filesystem::path kubelet_directory = "var/lib/kubelet/device-plugins";
  /// `kubelet_directory` is the plugin watcher's, var/lib/kubelet/plugins_registry, where the kubelet finds
  /// sockets itself. Otherwise the plugin registers them at the kubelet's socket in the directory.
  bool plugin_watcher = false;
  /// The rules that decide which functions become resources, and their names.
  ResourceRules rules;
  /// Reads the host's vGPUs and the names of their types.
  ReadVgpus read_vgpus = mdev::scan_vgpus;
  /// The lists and allocations, relative to the host's root. The file is replaced atomically at each change
  /// and survives the plugin (api/advertised_resources.h). If several plugins use one such file, the first
  /// serves and writes. It holds a flock on the file's name with .lock in place of .json, and the next takes
  /// over when it ends.
  std::filesystem::path advertised_file = api::kAdvertisedFile;
  /// Answer for Kata with CDI names in place of device nodes (Kubernetes 1.31 and newer).
  bool cdi_names = false;
  VgpuPlacement vgpu_placement = VgpuPlacement::pack;
  /// How long an Allocate waits, at most, until hostd has sanitized a device after its last use.
  std::chrono::milliseconds sanitize_patience = std::chrono::seconds(10);
  /// The time between two scans without events, since error counters and types of functions raise none.
  std::chrono::milliseconds rescan = std::chrono::minutes(1);
  /// The time until a failed scan, socket or file is tried again without an event.
  std::chrono::milliseconds after_failure = std::chrono::seconds(10);
  /// The time until an unanswered registration is repeated. The kubelet may need 10 s to dial back.
  std::chrono::milliseconds unanswered = std::chrono::seconds(20);
  /// The time until a registration is repeated if the kubelet accepted it and does not read the list.
  std::chrono::milliseconds unread = std::chrono::seconds(30);
  /// The time until a registration is repeated after the kubelet has ended the reading of a list. A kubelet
  /// marks the resource as ended a moment after it has closed the stream. A registration in between would be
  /// marked, too, and the resource would stay without allocatable devices.
  std::chrono::milliseconds dropped = std::chrono::seconds(1);
  /// The kubelet's pod resources, which show releases, and allocations before this process.
  PodResourcesMonitor::Settings pod_resources = {.socket = kPodResourcesSocket};
};

/// Serves the kubelet until `stop` is requested, then ends every stream, removes its sockets and returns.
///
/// During standby, which hostd orders because another device plugin serves the node, no resource is
/// registered and the known allocations are kept. After standby nothing is allocated before the kubelet has
/// listed the present allocations.
///
/// Blocks the calling thread. Starts two more (rpc_queue.h, GroupErrands), and one for each scan
/// (background_scan.h) and for each group whose release is awaited. Waits without limit for a kubelet that is
/// absent, restarts or drops the plugin. A host that never could be read ends the plugin after some tries.
/// Errors: Errc::not_found: the kubelet's directory does not exist, or goes away while running; an errno: no
/// socket can be made in it, or the host has no PCI bus. The plugin changes nothing on the host except its
/// sockets, advertised.json, the locks and, for Kata, its CDI files.
Result<> run_plugin(HostFs& host, const PluginOptions& options, const std::stop_token& stop);

}  // namespace ferry::plugin
