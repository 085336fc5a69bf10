// SPDX-License-Identifier: Apache-2.0
// What of the host holds a GPU whether or not anybody computes on it, and may be asked to let go for a move:
// services, and nvidia_drm's console. Which ones, by name; how a service is stopped and started, and how
// nvidia-persistenced lets go of a single GPU, is handed in from above.
#pragma once

#include <compare>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "vfio/pci_address.h"
#include "vfio/use_probe.h"

namespace ferry {

/// The unit whose hold on single GPUs can be switched.
inline constexpr const char* kPersistenced = "nvidia-persistenced.service";
/// The module that holds GPUs for a console of its own, with no process.
inline constexpr const char* kConsoleModule = "nvidia_drm";

/// What lets go for a move, and takes hold again after it. In the order in which they are asked: a module can
/// go only once nobody has its nodes open.
struct Releasable {
  enum class Kind {
    persistence,  ///< nvidia-persistenced's hold on one GPU: `name` is the GPU's address
    service,      ///< `name` is a unit: "nvidia-dcgm.service"
    module,       ///< `name` is a kernel module: "nvidia_drm"
  };
  Kind kind = Kind::service;
  std::string name;
  /// "stop nvidia-dcgm.service", "unload module nvidia_drm"
  std::string letting_go() const;
  /// "start nvidia-dcgm.service", "load module nvidia_drm again"
  std::string taking_hold() const;
  auto operator<=>(const Releasable&) const = default;
};

/// Stops and starts units of the host's service manager.
class Releaser {
 public:
  Releaser() = default;
  Releaser(const Releaser&) = delete;
  Releaser& operator=(const Releaser&) = delete;
  Releaser(Releaser&&) = delete;
  Releaser& operator=(Releaser&&) = delete;
  virtual ~Releaser() = default;

  /// Returns once all processes of `unit` ("nvidia-persistenced.service") have ended. On an error the unit
  /// may be stopped or not.
  virtual Result<> stop(const std::string& unit) = 0;
  /// Returns once the unit says that it runs. One that runs already is success.
  virtual Result<> start(const std::string& unit) = 0;
};

/// nvidia-persistenced's hold on single GPUs. Which tool of the host switches it is not this room's business.
class PersistenceSwitch {
 public:
  PersistenceSwitch() = default;
  PersistenceSwitch(const PersistenceSwitch&) = delete;
  PersistenceSwitch& operator=(const PersistenceSwitch&) = delete;
  PersistenceSwitch(PersistenceSwitch&&) = delete;
  PersistenceSwitch& operator=(PersistenceSwitch&&) = delete;
  virtual ~PersistenceSwitch() = default;

  /// Returns once the daemon has answered. Success proves nothing: whoever needs the GPU free looks again.
  /// Errc::stuck: the tool has not ended by its deadline and is left behind.
  virtual Result<> set(const PciAddress& gpu, bool on) = 0;
};

/// What may be released unasked: "nvidia-persistenced.service", which computes nothing.
std::set<std::string> default_release();

/// What a name on the release list stands for: "nvidia-dcgm" is the unit nvidia-dcgm.service; the program
/// "nv-hostengine" stands for the services that run it; "nvidia_drm" is the module. Errc::usage: no such
/// name, or one that runs VMs or containers, which is released by nobody.
Result<std::vector<std::string>> services_named(std::string_view name);

/// The units and the module of a whole list. "none" empties it of the default; what stands beside it counts.
/// An empty list is the default alone. Errors as services_named().
Result<std::set<std::string>> release_list(const std::vector<std::string>& names);

/// Whether stopping `unit` would end VMs or containers, going by its name.
bool runs_others(std::string_view unit);

/// The service or module through which `holder` may be asked to let go: it is on `list` and runs no VMs or
/// containers. Absent for all others.
std::optional<Releasable> may_release(const Holder& holder, const std::set<std::string>& list);

/// What to do about one that could be on the list and is not: Holder::remedy(), or to put it there.
std::string remedy_by_release(const Holder& holder);

}  // namespace ferry
