// SPDX-License-Identifier: Apache-2.0
// The names under which the kubelet and KubeVirt know a resource.
#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry {

/// "nvidia.com/GH100_H100_SXM5_80GB": what a pod asks for. Always one that the kubelet accepts.
class ResourceName {
 public:
  /// The kubelet's rules for extended resources: a DNS subdomain, not below kubernetes.io, a "/", then at
  /// most 63 of [A-Za-z0-9_.-] that begin and end alphanumeric. Errc::invalid_config says which one is
  /// broken.
  static Result<ResourceName> parse(std::string_view text);

  const std::string& text() const { return text_; }
  /// The part after the "/".
  std::string_view name() const;
  auto operator<=>(const ResourceName&) const = default;

 private:
  explicit ResourceName(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

/// The name part for a whole GPU, made from its human name as NVIDIA's KubeVirt plugin v1.6.0 does: upper
/// case,
/// "/" and "." to "_", each run of white space to one "_", everything outside [A-Z0-9_.] dropped. May come
/// out empty, or as one that the kubelet refuses (a trailing "_"): see ResourceName::parse().
std::string pci_resource_part(std::string_view human_name);

/// The domain of a vendor's resources, made from its name in pci.ids: the short name in brackets, as far as a
/// "/", or else the first word, in lower case: "amd.com" of "Advanced Micro Devices, Inc. [AMD/ATI]",
/// "intel.com" of "Intel Corporation". Empty: the name has no such word.
std::string vendor_domain(std::string_view vendor_name);

/// The name part for an mdev vGPU, made from its type's name: each run of white space to one "_", the rest
/// kept, letter case too: "NVIDIA A40-8Q" is "NVIDIA_A40-8Q".
std::string mdev_resource_part(std::string_view type_name);

/// The same for Kata as NVIDIA's plugin for it does: "-" is kept and "." becomes "_".
std::string kata_resource_part(std::string_view human_name);

/// What KubeVirt reads the addresses under. A resource has exactly one of them, and none if it is Kata's.
enum class EnvPrefix { pci_resource, mdev_pci_resource, none };

/// "PCI_RESOURCE_NVIDIA_COM_GH100_H100_SXM5_80GB": prefix, "_", the whole name in upper case with "/" and "."
/// as
/// "_" and nothing else changed. Distinct resources can come out alike; the scanner refuses such a pair.
std::string env_name(EnvPrefix prefix, const ResourceName& name);

/// The socket's file name, "kubevirt-NAME.sock", for Kata "sandbox-NAME.sock". The two longest lengths of a
/// legal name would make a path that no unix socket address can hold; their middle is replaced by a checksum.
std::string endpoint_name(const ResourceName& name, EnvPrefix prefix = EnvPrefix::pci_resource);

}  // namespace ferry
