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
  /// Sorted by name. No two share a name or an env name.
  std::vector<Resource> resources;
  /// Devices that are set up for VMs, or nearly, and are not advertised.
  std::vector<NotOffered> not_offered;
  /// Functions that could be advertised and are on a driver of the host, so that they belong to the host.
  std::vector<NotOffered> left_to_host;
  /// Functions without a driver, or unreadable now. They are not reported unless they were advertised before.
  std::vector<NotOffered> driverless;
  /// Mediated devices of the previous scan that are gone, each with the probable cause.
  std::vector<NotOffered> vanished;
  /// The scan is incomplete, because a GPU is being written to or the host lacks resources. A later scan may
  /// see more.
  bool unsettled = false;
  /// Functions with fatal errors, including the GPUs of vGPUs, for the next plugin process.
  std::vector<FatalErrorsOf> fatal_errors;
  /// Names that could not be used unchanged, once each, for the log.
  std::vector<std::string> warnings;
};

/// Collects devices by resource name, and the remarks about them.
class OfferAssembly {
 public:
  explicit OfferAssembly(std::string domain) : domain_(std::move(domain)) {}

  void refuse(std::string id, std::string reason);
  /// A device that is fit for use, and of a kind that is not advertised.
  void leave_out(std::string id, std::string reason);
  /// A function that is not on a vfio driver. `driver`: its driver; absent: none.
  void leave(std::string id, const std::optional<std::string>& driver);
  /// A function that could not be read and may be readable soon.
  void miss(std::string id, std::string why);

  /// `part` is the name after the domain. If it makes no legal name, `fallback` is used; if that is empty,
  /// the device is not advertised. `domain`: empty for the assembly's own.
  void add(OfferedDevice device, const std::string& part, const std::string& fallback, EnvPrefix prefix,
           const std::string& domain = {});

  /// Adds a place for a companion of the function `gpu`, if the function is advertised and no other device
  /// has the name. The other parameters are as in add(); `companion` gets its resource and variable here.
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
  std::vector<Waiting> companions_;  // wait until all devices have their names
  Offer offer_;
};

}  // namespace ferry
