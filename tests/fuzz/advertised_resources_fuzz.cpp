// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "api/advertised_resources.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto allocations = api::read_allocations(text);
  const auto read = api::read_advertised_resources(text);
  if (!read) {
    require(read.error().code == Errc::malformed_host, "a refusal is of the host");
    return require(read.error().message.starts_with("/run/ferry/plugin/advertised.json: "),
                   "a refusal says where");
  }
  for (const api::AdvertisedDevice& device : read->devices) {
    require(read->find({device.id}, {}) != nullptr, "what is listed is found");
    require(read->resource(device.resource) != nullptr, "and is of a resource");
  }
  require(allocations && std::ranges::count(read->devices, true, &api::AdvertisedDevice::allocated) ==
                             std::ssize(allocations->devices),
          "no allocation is lost");
  const auto again = api::read_advertised_resources(api::advertised_resources_text(*read));
  require(again && again->fatal_errors == read->fatal_errors, "what is handed on stays");
}
