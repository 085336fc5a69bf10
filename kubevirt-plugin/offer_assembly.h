// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kubevirt-plugin/fatal_errors.h"
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
  /// Those that are on none, or that cannot be read now: nobody's business, unless they were offered before.
  std::vector<NotOffered> driverless;
  /// Mediated devices that the scan before had, with what may have taken them away.
  std::vector<NotOffered> vanished;
  /// Not all could be read, since a write to a GPU is under way or the host has no means left for it: there
  /// is more to see soon.
  bool unsettled = false;
  /// Functions with such errors, the GPUs of vGPUs among them, for who scans after us.
  std::vector<FatalErrorsOf> fatal_errors;
  /// Names that could not be used as they are. For the log, once each.
  std::vector<std::string> warnings;
};

/// Collects devices under names, and what is to be said of them.
class OfferAssembly {
 public:
  explicit OfferAssembly(std::string domain) : domain_(std::move(domain)) {}

  void refuse(std::string id, std::string reason);
  /// One that is fit for use, of a kind that is not offered.
  void leave_out(std::string id, std::string reason);
  /// A function that no driver of vfio's has. `driver`: who has it; absent: nobody.
  void leave(std::string id, const std::optional<std::string>& driver);
  /// A function that could not be read, and may be soon.
  void miss(std::string id, std::string why);

  /// `part` follows the domain. `fallback` is taken where it makes no legal name; none: the device is not
  /// offered then.
  /// `domain`: empty for the assembly's own.
  void add(OfferedDevice device, const std::string& part, const std::string& fallback, EnvPrefix prefix,
           const std::string& domain = {});

  /// A place for a companion of the function `gpu`: where that is offered, and the name is not that of
  /// something else. The rest is as for add(); `companion` gets its resource and variable here.
  void add_companion(std::string gpu, Companion companion, std::string part, std::string fallback);

  Offer finish() &&;

 private:
  struct Waiting {
    std::string gpu;
    Companion companion;
    std::string part;
    std::string fallback;
  };
  Result<ResourceName> name_of(const std::string& domain, const std::string& model, const std::string& part,
                               const std::string& fallback, EnvPrefix prefix);
  OfferedDevice* find_function(const std::string& address);
  void add_place(Waiting waiting);
  void warn(std::string text);

  std::string domain_;
  std::map<ResourceName, Resource> resources_;
  std::vector<Waiting> companions_;  // until all devices have their names
  Offer offer_;
};

}  // namespace ferry
