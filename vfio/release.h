// SPDX-License-Identifier: Apache-2.0
// Services of the host that hold a GPU whether or not anybody computes on it, and may be asked to let go for
// a move: which ones, by name. How a service is stopped and started is handed in from above.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "vfio/use_probe.h"

namespace ferry {

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

/// What may be released unasked: "nvidia-persistenced.service", which computes nothing.
std::set<std::string> default_release();

/// The units that a name on the release list stands for: "nvidia-dcgm" is nvidia-dcgm.service; the program
/// "nv-hostengine" stands for the services that run it. Errc::usage: no name of a service, or one that runs
/// VMs or containers, which is released by nobody.
Result<std::vector<std::string>> services_named(std::string_view name);

/// The units of a whole list. "none" empties it of the default; what stands beside it counts. An empty list
/// is the default alone. Errors as services_named().
Result<std::set<std::string>> release_list(const std::vector<std::string>& names);

/// Whether stopping `unit` would end VMs or containers, going by its name.
bool runs_others(std::string_view unit);

/// Whether `holder` is a process of a service on `list`, and of none that runs VMs or containers.
bool may_release(const Holder& holder, const std::set<std::string>& list);

}  // namespace ferry
