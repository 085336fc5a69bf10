// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kubevirt-plugin/discovery/resource_name.h"
#include "tests/fuzz/fuzz.h"

namespace {

bool is_word(std::string_view text) {
  return text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == std::string_view::npos;
}

}  // namespace

// A resource's name, and at once a device's name that one is made from.
void ferry::fuzz::one_input(std::string_view text) {
  require(is_word(plugin::pci_resource_part(text)) &&
              plugin::pci_resource_part(text).find('-') == std::string::npos,
          "a part made from a device's name has only A-Z, 0-9, _ and .");
  for (const char c : plugin::mdev_resource_part(text))
    require(c != ' ' && c != '\t' && c != '\n', "no white space");
  const auto name = plugin::ResourceName::parse(text);
  if (!name)
    return require(name.error().code == Errc::invalid_config, "a refusal is an invalid configuration");
  require(name->text() == text, "a name is kept as it was written");
  require(text.ends_with(name->name()) && name->name().size() <= 63, "its part is at most 63 long");
  constexpr std::size_t kSocketPath = 107;  // sun_path, less its NUL
  require(std::string("/var/lib/kubelet/device-plugins/").size() + plugin::endpoint_name(*name).size() <=
              kSocketPath,
          "its socket has a path that fits");
  require(plugin::env_name(plugin::EnvPrefix::pci_resource, *name).find_first_of("/.") == std::string::npos,
          "its variable has no / and no .");
}
