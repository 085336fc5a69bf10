// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/vgpu_step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "mdev/framework.h"

namespace ferry::vgpu {

VgpuStep::Target VgpuStep::target() const {
  switch (kind) {
    case Kind::remove:
    case Kind::create:
    case Kind::set_params:
    case Kind::set_placement:
      return Target::vgpu;
    case Kind::enable_vfs:
    case Kind::disable_vfs:
    case Kind::set_autoprobe:
      return Target::functions;
    case Kind::set_mig:
    case Kind::make_instance:
    case Kind::remove_instance:
    case Kind::set_mixed_sizes:
      break;
  }
  return Target::library;
}

bool VgpuStep::binds_function() const {
  return framework->binds_functions() && (kind == Kind::create || kind == Kind::remove);
}

// The tool binds the GPU anew to switch functions. MIG mode and mixed sizes are refused, or wait for a reset,
// while the GPU has clients. GPU instances come and go beside clients.
bool VgpuStep::needs_gpu_free() const {
  return framework->by_nvidias_driver() &&
         (target() == Target::functions || kind == Kind::set_mig || kind == Kind::set_mixed_sizes);
}

bool VgpuStep::only_adds() const {
  return kind == Kind::create || kind == Kind::enable_vfs || kind == Kind::make_instance;
}

std::string VgpuStep::text() const {
  const std::string what = framework->has_uuids() ? short_name + " " + id.text : short_name;
  switch (kind) {
    case Kind::remove:
      return fmt::format("remove {} from {}", what, parent.text());
    case Kind::create:
      return fmt::format("create {} on {}{}", what, parent.text(),
                         placement ? fmt::format(" at placement {}", *placement) : "");
    case Kind::set_placement:
      return fmt::format("move {} on {} to placement {}", what, parent.text(), placement.value_or(0));
    case Kind::enable_vfs:
      return fmt::format("enable {} of {}", counted(number, "virtual function"), parent.text());
    case Kind::disable_vfs:
      return fmt::format("disable {} of {}", counted(number, "virtual function"), parent.text());
    case Kind::set_mig:
      return fmt::format("switch MIG mode {} on {}", number == 0 ? "off" : "on", parent.text());
    case Kind::make_instance:
      return fmt::format("make a GPU instance {} on {}", short_name, parent.text());
    case Kind::remove_instance:
      return fmt::format("remove GPU instance {} ({}) from {}", number, short_name, parent.text());
    case Kind::set_mixed_sizes:
      return fmt::format("switch mixed sizes {} on {}", number == 0 ? "off" : "on", parent.text());
    case Kind::set_autoprobe:
      return fmt::format("set sriov_drivers_autoprobe of {} to {}", parent.text(), number);
    case Kind::set_params:
      return fmt::format("set the parameters of {} on {} to '{}'", what, parent.text(),
                         params == " " ? "" : params);
  }
  return {};
}

std::string text(const std::vector<TypeCount>& counts) {
  if (counts.empty()) return "none";
  std::vector<std::string> parts;
  parts.reserve(counts.size());
  for (const TypeCount& count : counts) parts.push_back(fmt::format("{} x {}", count.count, count.type));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace ferry::vgpu
