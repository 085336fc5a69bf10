// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kubevirt-plugin/offered_device.h"
#include "kubevirt-plugin/resource_name.h"

namespace ferry {

struct Offer {
  /// In order of name. No two share a name or an env name.
  std::vector<Resource> resources;
  /// Set up for virtual machines, or nearly, and not offered all the same.
  std::vector<NotOffered> not_offered;
  /// Functions that could be offered and are on a driver of the host's: its business.
  std::vector<NotOffered> left_to_host;
  /// Those that are on none: nobody's business, unless they were offered before.
  std::vector<NotOffered> driverless;
  /// Mediated devices that the scan before had, with what may have taken them away.
  std::vector<NotOffered> vanished;
  /// Names that could not be used as they are. For the log, once each.
  std::vector<std::string> warnings;
};

/// Collects devices under names, and what is to be said of them.
class OfferAssembly {
 public:
  explicit OfferAssembly(std::string domain) : domain_(std::move(domain)) {}

  void refuse(std::string id, std::string reason);
  /// A function that no driver of vfio's has. `driver`: who has it; absent: nobody.
  void leave(std::string id, const std::optional<std::string>& driver);

  /// `part` follows the domain. `fallback` is taken where it makes no legal name; none: the device is not
  /// offered then.
  void add(OfferedDevice device, const std::string& part, const std::string& fallback, EnvPrefix prefix);

  Offer finish() &&;

 private:
  void warn(std::string text);

  std::string domain_;
  std::map<ResourceName, Resource> resources_;
  Offer offer_;
};

}  // namespace ferry
