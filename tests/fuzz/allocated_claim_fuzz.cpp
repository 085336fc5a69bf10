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
  const dra::CheckpointClaim& record = claim->record;
  require(record.uid == key.uid && record.space == key.space && record.name == key.name,
          "a claim is the one that was asked for");
  require(!record.devices.empty(), "a claim has a device");
  require(record.pod_claim.find('/') == std::string::npos, "a name in a pod is no path");
  std::set<std::string> devices;
  for (const dra::ClaimDevice& device : record.devices) {
    const std::string& name = device.device.name;
    require(devices.insert(name).second, "a claim has each device once");
    require(name.find('/') == std::string::npos, "a device's name is no path");
    const std::string request(dra::main_request(device.request));
    require(!request.empty() && request.find('.') == std::string::npos, "a request's name is no path");
  }
}
