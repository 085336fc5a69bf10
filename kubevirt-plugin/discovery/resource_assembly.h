// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "kubevirt-plugin/discovery/resource_name.h"
#include "kubevirt-plugin/discovery/scanned_device.h"
#include "vfio/judgement/fatal_errors.h"

namespace ferry::plugin {

/// Rules for resource names that differ from those of NVIDIA's plugins.
struct NameRules {
  /// Text with {name}, the usual name; for whole GPUs also {vendor} and {device}, four hex digits each.
  std::string functions = "{name}";
  std::string vgpus = "{name}";
  /// Names by model ("10de:2330") or vGPU type ("NVIDIA A40-8Q"). They have priority over the templates.
  std::map<std::string, std::string> aliases = {};

  /// The name part for a whole function. `ids`: "10de:2330". `human`: empty where it has no name for people.
  std::string function_part(const std::string& ids, const std::string& human) const;
  /// "DOMAIN/PART" for a whole function, or "DOMAIN/2330" where the part makes no legal name.
  Result<ResourceName> function_name(const std::string& domain, const std::string& ids,
                                     const std::string& human) const;
  /// The name part for a vGPU. `type`: as its driver has it, "NVIDIA A40-8Q".
  std::string vgpu_part(const std::string& type) const;
  bool operator==(const NameRules&) const = default;
};

/// `text` with each "{key}" of `values` replaced. Braces around any other word stay.
std::string fill_template(std::string text, const std::map<std::string, std::string>& values);

/// The fields that NameRules' templates may contain.
inline constexpr std::array<std::string_view, 3> kFunctionFields = {"name", "vendor", "device"};
inline constexpr std::array<std::string_view, 1> kVgpuFields = {"name"};

/// Errc::usage: the text has a field that is not in `fields`, or an unpaired brace.
Result<> check_template(std::string_view text, std::span<const std::string_view> fields);

/// A model or a vGPU type as NameRules::aliases has it: IDs ("10DE:26B9") in lower case.
std::string model_of(std::string_view text);

/// "MODEL=NAME" of the command line. Errc::usage: "=" is missing, or one side of it is empty.
Result<std::pair<std::string, std::string>> parse_alias(std::string_view text);

struct ResourceSet {
  /// Sorted by name. No two share a name or an env name.
  std::vector<Resource> resources;
  /// Devices that are set up for VMs, or nearly, and are not advertised.
  std::vector<NotAdvertised> not_advertised;
  /// Functions that could be advertised and are on a driver of the host, so that they belong to the host.
  std::vector<NotAdvertised> left_to_host;
  /// Functions without a driver, or unreadable now. They are not reported unless they were advertised before.
  std::vector<NotAdvertised> driverless;
  /// Mediated devices of the previous scan that are gone, each with the probable cause.
  std::vector<NotAdvertised> vanished;
  /// The scan is incomplete, because a GPU is being written to or the host lacks resources. A later scan may
  /// see more.
  bool unsettled = false;
  /// Functions with fatal errors, including the GPUs of vGPUs, for the next plugin process.
  std::vector<vfio::FatalErrorsOf> fatal_errors;
  /// Names that could not be used unchanged, once each, for the log.
  std::vector<std::string> warnings;
  /// How to help the devices that are not advertised or have a problem, by ID. Absent: no way is known.
  std::map<std::string, std::string> advice;
};

/// Collects devices by resource name, and the remarks about them.
class ResourceAssembly {
 public:
  explicit ResourceAssembly(std::string domain) : domain_(std::move(domain)) {}

  /// A device that is set up for VMs and cannot be advertised.
  void add_unusable(std::string id, std::string reason, std::string advice = {});
  /// See ResourceSet::advice; empty: none.
  void advise(const std::string& id, std::string advice);
  /// A device that is fit for use, and of a kind that is not advertised.
  void add_of_other_kind(std::string id, std::string reason);
  /// A function that is not on a vfio driver. `driver`: its driver; absent: none.
  void add_not_on_vfio(std::string id, const std::optional<std::string>& driver);
  /// A function that could not be read and may be readable soon.
  void add_unreadable(std::string id, std::string why);

  /// `part` is the name after the domain. If it makes no legal name, `fallback` is used; if that is empty,
  /// the device is not advertised. `domain`: empty for the assembly's own.
  void add(ScannedDevice device, const std::string& part, const std::string& fallback, EnvPrefix prefix,
           const std::string& domain = {});

  /// Adds a place for a companion of the function `gpu`, if the function is advertised and no other device
  /// has the name. The other parameters are as in add(); `companion` gets its resource and variable here.
  void add_companion(std::string gpu, Companion companion, std::string part, std::string fallback);

  ResourceSet finish() &&;

 private:
  struct Waiting {
    std::string gpu;
    Companion companion;
    std::string part;
    std::string fallback;
  };
  Result<ResourceName> name_of(const std::string& domain, const std::string& model, const std::string& part,
                               const std::string& fallback, EnvPrefix prefix);
  ScannedDevice* find_function(const std::string& address);
  void add_place(Waiting waiting);
  void warn(std::string text);

  std::string domain_;
  std::map<ResourceName, Resource> resources_;
  std::vector<Waiting> companions_;  // wait until all devices have their names
  ResourceSet found_;
};

}  // namespace ferry::plugin
