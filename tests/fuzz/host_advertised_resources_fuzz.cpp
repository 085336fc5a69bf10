// SPDX-License-Identifier: Apache-2.0
#include "host/usage/advertised_resources.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto read = host::read_advertised_resources(text);
  if (!read) return require(read.error().code == Errc::malformed_host, "what cannot be read is said to be");
  for (const host::AdvertisedDevice& device : read->devices)
    require(read->find({device.id}, {}) != nullptr, "what is listed is found");
}
