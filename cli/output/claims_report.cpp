// SPDX-License-Identifier: Apache-2.0
#include "cli/output/claims_report.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/files.h"
#include "cli/output/table.h"
#include "common/text/json.h"
#include "common/text/visible_text.h"
#include "dra/slices/resource_slice.h"
#include "hostfs/kernel_facts.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

/// A vGPU's profile; "whole" of an IOMMU group.
std::string kind_of(const dra::ClaimDevice& device) {
  if (dra::is_whole(device.device)) return dra::kWhole;
  const dra::Attribute profile = dra::attribute_of(device.device, "profile");
  const auto* const name = std::get_if<std::string>(&profile);
  return visible_line(name == nullptr ? device.device.name : *name);
}

}  // namespace

NodeClaims read_claims(const HostFs& host) {
  if (!host.exists(api::kCheckpointFile)) return {};
  const auto text = host.read_file(api::kCheckpointFile, HostFs::Links::refused);
  if (!text) {
    Error error = text.error();
    // Only a file that cannot be a checkpoint has a hint already.
    if (!error.hint.empty()) error.hint = dra::kCheckpointHint;
    return {.problem = error.text()};
  }
  auto checkpoint = dra::read_checkpoint(*text);
  if (!checkpoint) return {.problem = checkpoint.error().text()};
  if (const auto boot = boot_id(host)) *checkpoint = dra::for_boot(std::move(*checkpoint), *boot);
  return {.claims = std::move(checkpoint->claims)};
}

json claims_document(const NodeClaims& node) {
  auto out = json::array();
  for (const dra::CheckpointClaim& claim : node.claims) {
    auto devices = json::array();
    for (const dra::ClaimDevice& device : claim.devices) {
      devices.push_back({{"request", device.request},
                         {"gpu", device.gpu.text()},
                         {"device", device.device.name},
                         {"kind", kind_of(device)},
                         {"id", or_null(visible_line(device.id))}});
    }
    out.push_back({{"uid", claim.uid},
                   {"namespace", claim.space},
                   {"name", claim.name},
                   {"phase", text(claim.phase)},
                   {"devices", std::move(devices)}});
  }
  return out;
}

std::string claims_text(const NodeClaims& node, const TextOutput& output) {
  if (!node.problem.empty()) return fmt::format("note: claims: {}\n", visible_line(node.problem));
  if (node.claims.empty()) return {};
  Table table({"CLAIM", "PHASE", "GPU", "DEVICE", "ID"});
  for (const dra::CheckpointClaim& claim : node.claims)
    for (const dra::ClaimDevice& device : claim.devices)
      table.add({visible_line(fmt::format("{}/{}", claim.space, claim.name)), std::string(text(claim.phase)),
                 device.gpu.text(), kind_of(device), visible_line(device.id)});
  return table.text(output.columns);
}

}  // namespace ferry::cli
