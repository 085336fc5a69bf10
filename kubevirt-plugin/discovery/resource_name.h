// SPDX-License-Identifier: Apache-2.0
// The names of a resource for the kubelet and for KubeVirt.
#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry::plugin {

/// The name that a pod asks for, "nvidia.com/GH100_H100_SXM5_80GB". Always a name that the kubelet accepts.
class ResourceName {
 public:
  /// Checks the kubelet's rules for extended resources: a DNS subdomain outside kubernetes.io, a "/", then at
  /// most 63 of [A-Za-z0-9_.-] that begin and end alphanumeric. Errc::invalid_config names the broken rule.
  static Result<ResourceName> parse(std::string_view text);

  const std::string& text() const { return text_; }
  /// The part after the "/".
  std::string_view name() const;
  auto operator<=>(const ResourceName&) const = default;

 private:
  explicit ResourceName(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

/// The name part for a whole GPU, made from its name for people as in NVIDIA's KubeVirt plugin v1.6.0. It is
/// in upper case; "/", "." and each run of white space become "_"; other characters outside [A-Z0-9_] are
/// dropped. The result may be empty, or illegal because of a trailing "_": see ResourceName::parse().
std::string pci_resource_part(std::string_view human_name);

/// The domain of a vendor's resources, made from its name in pci.ids, in lower case: the short name in
/// brackets up to a "/", or else the first word. "Intel Corporation" gives "intel.com", "Advanced Micro
/// Devices, Inc. [AMD/ATI]" gives "amd.com". Empty: the name has no such word.
std::string vendor_domain(std::string_view vendor_name);

/// The name part for an mdev vGPU, made from its type's name: each run of white space becomes one "_", the
/// rest stays, including its case. "NVIDIA A40-8Q" gives "NVIDIA_A40-8Q".
std::string mdev_resource_part(std::string_view type_name);

/// The part for Kata as in NVIDIA's plugin: "-" is kept, an empty name gives UNKNOWN_DEVICE.
std::string kata_resource_part(std::string_view human_name);

/// The prefix of the variable from which KubeVirt reads addresses, exactly one per resource; Kata has none.
enum class EnvPrefix { pci_resource, mdev_pci_resource, none };

/// resource_variable() of the resource; empty for Kata. Distinct resources may get the same variable; the
/// scanner refuses such a pair.
std::string env_name(EnvPrefix prefix, const ResourceName& name);

/// The socket's file name: "kubevirt-NAME.sock" as that of NVIDIA's plugin, for Kata "sandbox-NAME.sock".
/// With another domain than nvidia.com, NAME is "amd.com+NAME", so that two vendors' resources share no
/// socket. The longest legal names would exceed the length of a unix socket address, so a checksum replaces
/// their end.
std::string endpoint_name(const ResourceName& name, EnvPrefix prefix = EnvPrefix::pci_resource);

}  // namespace ferry::plugin
