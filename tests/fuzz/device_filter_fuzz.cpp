// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "vgpu-dm/profile/profile.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto filter = vgpu::DeviceFilter::parse(text);
  if (!filter) {
    require(filter.error().code == Errc::invalid_config, "a refusal is an invalid configuration");
    return require(!filter.error().hint.empty(), "a refusal says what to write");
  }
  const auto again = vgpu::DeviceFilter::parse(filter->text());
  require(again && *again == *filter, "a filter reads back as itself");

  vfio::PciFunction function;
  function.vendor = filter->vendor;
  function.device = filter->device;
  function.subsystem_vendor = filter->subsystem_vendor;
  function.subsystem_device = filter->subsystem_device;
  require(filter->matches(function), "a filter matches what it names");
  function.device = static_cast<std::uint16_t>(filter->device + 1);
  require(!filter->matches(function), "a filter matches nothing else");
}
