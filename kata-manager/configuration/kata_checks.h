// SPDX-License-Identifier: Apache-2.0
// Checks whether this host can run GPU pods in Kata's VMs, each with a fix. Reads only. Without a class
// file, only the host is checked.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/classes/confidential_mode.h"
#include "kata-manager/configuration/kata_shim.h"
#include "kata-manager/runtimes/containerd_release.h"

namespace ferry::kata {

/// The kubelet's settings, as far as files have them: its command line, and the configuration file that it
/// names. A kubelet inside another program (k3s, rke2) has neither. ABI: kubelet.config.k8s.io/v1beta1
/// KubeletConfiguration; flags override the file.
struct KubeletSettings {
  /// The gate KubeletPodResourcesGet; absent: the default, off before Kubernetes 1.34.
  std::optional<bool> pod_resources_get = {};
  /// How long the kubelet waits for the container runtime; absent: the default, two minutes.
  std::optional<std::chrono::seconds> request_timeout = {};

  /// If no kubelet runs, reads the file that it would use by default. Errc::not_found: no kubelet and no
  /// such file; Errc::invalid_config: an unreadable file.
  static Result<KubeletSettings> read(const HostFs& host);
};

/// Parses a Go duration, "2m0s" or "1h15m", rounded down to seconds; absent: it is none.
std::optional<std::chrono::seconds> parse_go_duration(std::string_view text);

/// Checks of the host, then those of each class, with the subject "class NAME". Ids are stable, their order
/// is not. `mode` is the GPUs' mode from the node's labels; `version_of` asks Kata's shims.
std::vector<Check> kata_checks(const HostFs& host, const ClassFile& file = {},
                               const ConfidentialMode& mode = {}, const VersionOf& version_of = {});

/// Reads from the container runtime's files whether a container that is not root may open its device nodes.
/// For hosts with iommufd: KubeVirt v1.9.0 (pkg/virt-handler, prepareVFIO) gives the launcher's user the
/// nodes in /dev/vfio, but neither /dev/iommu nor those in /dev/vfio/devices.
/// ABI: device_ownership_from_security_context of containerd's CRI (1.6 and newer) and of CRI-O's
/// crio.runtime; off where it is not set.
Check device_ownership_check(const HostFs& host);

/// Reads from the container runtime's files whether it gives pods the device nodes of CDI files in
/// /var/run/cdi, by which a ResourceClaim's devices reach a pod. `running`: the release of the containerd
/// that runs; absent: unknown, and both ways of reading the files are tried.
/// ABI: enable_cdi and cdi_spec_dirs of containerd's CRI: since 1.7, where it is off unless it is set; on by
/// default since 2.0. CRI-O always reads CDI files.
Check cdi_check(const HostFs& host, const std::optional<ContainerdRelease>& running);

}  // namespace ferry::kata
