// SPDX-License-Identifier: Apache-2.0
#include "vfio/use_probe.h"

#include <fmt/format.h>

namespace ferry {

std::string Holder::text() const {
  std::string who;
  switch (kind) {
    case Kind::process:
      who = fmt::format("process {}", name);
      break;
    case Kind::virtual_machine:
      who = fmt::format("VM {}", name);
      break;
    case Kind::pod:
      who = fmt::format("pod {}", name);
      break;
    case Kind::mount:
      who = fmt::format("the file system mounted at {}", name);
      break;
  }
  if (pid) who += fmt::format(" (pid {})", *pid);
  if (!pod_uid.empty()) who += fmt::format(" in pod {}", pod_uid);
  return fmt::format("{} holds {}", who, what);
}

std::span<const Holder> UseReport::of(const std::string& device) const {
  const auto found = holders.find(device);
  if (found == holders.end()) return {};
  return found->second;
}

}  // namespace ferry
