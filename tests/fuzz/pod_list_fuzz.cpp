// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "kubevirt-plugin/allocation/pod_list.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto list = plugin::read_pod_list(text);
  if (!list) return require(list.error().code == Errc::malformed_host, "what cannot be read is said to be");
  for (const vfio::PodDevice& device : list->devices) {
    require(!device.ids.empty(), "an entry has a device");
    require(std::set(device.ids.begin(), device.ids.end()).size() == device.ids.size(),
            "an ID is listed once");
  }
}
