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

Result<std::vector<dra::CheckpointClaim>> read_claims(const HostFs& host) {
  if (!host.exists(api::kCheckpointFile)) return std::vector<dra::CheckpointClaim>();
  const auto text = host.read_file(api::kCheckpointFile, HostFs::Links::refused);
  if (!text) {
    Error error = text.error();
    // Only a file that cannot be a checkpoint has a hint already.
    if (!error.hint.empty()) error.hint = dra::kCheckpointHint;
    return fail(std::move(error));
  }
  auto checkpoint = dra::read_checkpoint(*text);
  if (!checkpoint) return fail(std::move(checkpoint).error());
  if (const auto boot = boot_id(host)) *checkpoint = dra::for_boot(std::move(*checkpoint), *boot);
  return std::move(checkpoint->claims);
}

json claims_document(const std::vector<dra::CheckpointClaim>& claims) {
  auto out = json::array();
  for (const dra::CheckpointClaim& claim : claims) {
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

std::string claims_text(const Result<std::vector<dra::CheckpointClaim>>& claims, const TextOutput& output) {
  if (!claims) return fmt::format("note: claims: {}\n", visible_line(claims.error().text()));
  if (claims->empty()) return {};
  Table table({"CLAIM", "PHASE", "GPU", "DEVICE", "ID"});
  for (const dra::CheckpointClaim& claim : *claims)
    for (const dra::ClaimDevice& device : claim.devices)
      table.add({visible_line(fmt::format("{}/{}", claim.space, claim.name)), std::string(text(claim.phase)),
                 device.gpu.text(), kind_of(device), visible_line(device.id)});
  return table.text(output.columns);
}

}  // namespace ferry::cli
