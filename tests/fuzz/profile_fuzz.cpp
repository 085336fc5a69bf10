// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "tests/fuzz/fuzz.h"
#include "vgpu-dm/profile/profile_yaml.h"

namespace {

using ferry::fuzz::require;

void check(const ferry::vgpu::ProfileItem& item) {
  for (const ferry::vgpu::DeviceFilter& filter : item.filters) {
    const auto again = ferry::vgpu::DeviceFilter::parse(filter.text());
    require(again && *again == filter, "a filter reads back as itself");
  }
  std::set<std::string> types;
  for (const ferry::vgpu::VgpuCount& count : item.vgpus) {
    const auto again = ferry::vgpu::VgpuTypeName::parse(count.type.text());
    require(again && *again == count.type, "a type's name reads back as itself");
    require(count.count > 0, "a count is above 0");
    require(types.insert(count.type.text()).second, "a type stands once in a map");
  }
}

void check(const ferry::vgpu::ProfileFile& file) {
  std::set<std::string> names;
  for (const ferry::vgpu::Profile& profile : file.profiles) {
    require(names.insert(profile.name).second, "a name stands once in a file");
    require(ferry::vgpu::select_profile(file, profile.name).has_value(), "each profile can be chosen");
    require(!profile.items.empty(), "a profile has an item");
    for (const ferry::vgpu::ProfileItem& item : profile.items) check(item);
  }
}

}  // namespace

void ferry::fuzz::one_input(std::string_view text) {
  const ConfigText source{.file = "profiles.yaml", .text = std::string(text)};
  const auto lenient = vgpu::read_profiles(source, Reading::lenient);
  if (lenient) check(*lenient);
  const auto file = vgpu::read_profiles(source);
  if (file) {
    check(*file);
    return require(lenient && lenient->warnings.empty(), "what is right is no matter of leniency");
  }
  require(file.error().code == Errc::invalid_config, "a refusal is an invalid configuration");
  require(file.error().message.starts_with("profiles.yaml"), "a refusal says where");
  require(!lenient || !lenient->warnings.empty(), "what is let pass is said");
}
