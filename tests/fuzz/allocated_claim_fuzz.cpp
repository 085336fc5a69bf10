// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "dra/claim.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (object.is_discarded()) return;
  const dra::ClaimKey key = {
      .uid = "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711", .space = "studio", .name = "render-a"};
  const auto claim = dra::read_allocated_claim(object, key, "node7/gpu-ferry");
  if (!claim) {
    require(claim.error().message.starts_with("claim studio/render-a: "), "a refusal names the claim");
    return require(!claim.error().hint.empty(), "a refusal says what helps");
  }
  require(claim->key == key, "a claim is the one that was asked for");
  require(!claim->devices.empty(), "a claim has a device");
  require(claim->pod_claim.find('/') == std::string::npos, "a name in a pod is no path");
  std::set<std::string> devices;
  for (const dra::AllocatedDevice& device : claim->devices) {
    require(devices.insert(device.device).second, "a claim has each device once");
    require(device.device.find('/') == std::string::npos, "a device's name is no path");
    const std::string request(dra::main_request(device.request));
    require(!request.empty() && request.find('.') == std::string::npos, "a request's name is no path");
  }
}
