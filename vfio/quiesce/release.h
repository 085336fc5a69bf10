// SPDX-License-Identifier: Apache-2.0
// Services and modules that have a GPU open even if nothing computes on it, and that Ferry may quiesce for a
// change: their names and rules, including nvidia_drm's console. The caller supplies how a service stops and
// starts, and how nvidia-persistenced is quiesced for a single GPU.
#pragma once

#include <compare>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "vfio/pci/pci_address.h"
#include "vfio/use_probe.h"

namespace ferry::vfio {

/// The unit that can be quiesced for single GPUs.
inline constexpr const char* kPersistenced = "nvidia-persistenced.service";
/// The module that has GPUs open for screens and a console of its own, without a process.
inline constexpr const char* kConsoleModule = "nvidia_drm";

/// A service or module that is quiesced for a change and resumed after it. Kinds are in the order of
/// quiescing: a module can be unloaded only once none of its nodes is open.
struct Releasable {
  enum class Kind {
    persistence,  ///< nvidia-persistenced for one GPU: `name` is the GPU's address
    service,      ///< `name` is a unit: "nvidia-dcgm.service"
    module,       ///< `name` is a kernel module: "nvidia_drm"
  };
  Kind kind = Kind::service;
  std::string name;
  /// The order that quiesces: "stop nvidia-dcgm.service", "unload module nvidia_drm".
  std::string quiesce_text() const;
  /// The order that resumes: "start nvidia-dcgm.service", "load module nvidia_drm again".
  std::string resume_text() const;
  auto operator<=>(const Releasable&) const = default;
};

class ServiceManager : Pinned {
 public:
  virtual ~ServiceManager() = default;

  /// Returns once all processes of `unit` ("nvidia-persistenced.service") have ended. On an error the unit
  /// may be stopped or not.
  virtual Result<> stop(const std::string& unit) = 0;
  /// Returns once the unit reports that it runs. Starting a running unit is a success.
  virtual Result<> start(const std::string& unit) = 0;
};

/// Asks nvidia-persistenced to close or open single GPUs.
class PersistenceSwitch : Pinned {
 public:
  virtual ~PersistenceSwitch() = default;

  /// Returns once the daemon has answered. Success proves nothing, so the caller must look for users again.
  /// Errc::failed: it may have done so; with another error it was not asked.
  virtual Result<> set(const PciAddress& gpu, bool on) = 0;
};

/// The units that are quiesced by default: "nvidia-persistenced.service", which computes nothing.
std::set<std::string> default_release();

/// The units or the module that a name on the release list means: "nvidia-dcgm" is nvidia-dcgm.service, the
/// program "nv-hostengine" means the services that run it, "nvidia_drm" is the module. Errc::usage: no such
/// name, or a unit that runs VMs or containers, which Ferry never stops.
Result<std::vector<std::string>> services_named(std::string_view name);

/// The units and the module of a whole list. "none" drops the default; other names beside it count. An empty
/// list means the default. Errors as services_named().
Result<std::set<std::string>> release_list(const std::vector<std::string>& names);

/// True if stopping `unit` would end VMs or containers, judged by its name.
bool runs_others(std::string_view unit);

/// The service, module or persistence of a GPU to quiesce for `user` of `device`: on `list`, and running no
/// VMs or containers. Absent: the user must not be quiesced.
std::optional<Releasable> may_release(const DeviceUser& user, const std::set<std::string>& list,
                                      const PciAddress& device);

/// Advice about a device user that could be on the list and is not: to put it there, or DeviceUser::remedy().
std::string remedy_by_release(const DeviceUser& user);

}  // namespace ferry::vfio
