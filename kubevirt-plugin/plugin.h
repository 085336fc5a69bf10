// SPDX-License-Identifier: Apache-2.0
// The device plugin as one call: reads what the host has to offer, offers it to the kubelet, answers for it.
#pragma once

#include <chrono>
#include <filesystem>
#include <stop_token>

#include "common/host_fs.h"
#include "common/plugin_files.h"
#include "common/result.h"
#include "kubevirt-plugin/holder_watch.h"
#include "kubevirt-plugin/offer_rules.h"
#include "kubevirt-plugin/pod_resources.h"
#include "kubevirt-plugin/scanner.h"

namespace ferry {

struct PluginOptions {
  /// The kubelet's device plugin directory, relative to the host's root; it must exist. The kubelet itself
  /// knows one place only, whatever its --root-dir.
  std::filesystem::path kubelet_directory = "var/lib/kubelet/device-plugins";
  /// `kubelet_directory` is that of its plugin watcher, var/lib/kubelet/plugins_registry: the kubelet finds
  /// our sockets there and asks. Otherwise it is told of them on the socket that it has in the directory.
  bool plugin_watcher = false;
  /// Which functions become resources, and under which names.
  OfferRules rules;
  /// What knows the host's vGPUs and the names of their types.
  ReadVgpus read_vgpus = scan_vgpus;
  /// What the kubelet has been offered and what is allocated, relative to the host's root; replaced
  /// atomically at each change, and left behind (offered_file.h). Of several plugins with one such file the
  /// first offers and writes, by a flock on its name with .lock in place of .json; the next takes over when
  /// that ends.
  std::filesystem::path offered_file = kOfferedFile;
  /// What `ferry hostd` says of its node, likewise: what shall not be offered now, and whether anything shall
  /// (common/withdrawals.h). That it is not there is nothing special.
  std::filesystem::path state_file = "run/ferry/state.json";
  /// Held while this runs, likewise: so hostd knows that somebody has to make way (common/presence.h).
  std::filesystem::path presence_file = kPluginPresence;
  /// Where CDI specifications for Kata go, relative to the host's root.
  std::filesystem::path cdi_directory = "var/run/cdi";
  /// Answer for Kata with CDI names in place of device nodes (Kubernetes 1.31 and newer).
  bool cdi_names = false;
  VgpuPlacement vgpu_placement = VgpuPlacement::pack;
  /// Between two scans without news: of what raises no event, counters of errors and types of functions.
  std::chrono::milliseconds rescan = std::chrono::minutes(1);
  /// Until the next try of a scan, a socket or a file that failed, when no news brings it sooner.
  std::chrono::milliseconds after_failure = std::chrono::seconds(10);
  /// Until a registration that the kubelet does not answer is tried again. It may take 10 s to dial back.
  std::chrono::milliseconds unanswered = std::chrono::seconds(20);
  /// Until a kubelet that has taken a registration and does not read the list is told once more.
  std::chrono::milliseconds unread = std::chrono::seconds(30);
  /// How releases are learnt, and who held what before this process.
  HolderWatch::Settings holders = {.socket = kPodResourcesSocket};
};

/// Serves the kubelet until `stop` is requested; then ends every stream, removes its sockets and returns.
///
/// While hostd says that it shall stand back, since another's device plugin serves the node, it does the same
/// and goes on: nothing is registered, what was known of who holds what is kept, and when it is told to serve
/// again nothing is given out before the kubelet has said who does.
///
/// Blocks the calling thread; starts two more (rpc_queue.h, group_errands.h), and one for each scan
/// (background_scan.h) and each group whose release is looked for. A kubelet that is absent, restarts or
/// drops us is waited for, for ever; a host that cannot be read only once it could be, and some tries before.
/// Errors: Errc::not_found when the kubelet's directory does not exist, or goes away while running; what the
/// operating system said when no socket can be made in it, or where the host has no PCI bus. Nothing on the
/// host is changed but our sockets, the offered file, the one that shows that this runs and, for Kata, our
/// CDI files.
Result<> run_plugin(HostFs& host, const PluginOptions& options, const std::stop_token& stop);

}  // namespace ferry
