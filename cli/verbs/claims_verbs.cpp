// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/claim_request.h"
#include "api/files.h"
#include "cli/output/claims_report.h"
#include "cli/output/document.h"
#include "cli/output/table.h"
#include "cli/output/wait_note.h"
#include "cli/session.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/exit_status.h"
#include "common/process/signals.h"
#include "common/process/standard_streams.h"
#include "common/result.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "common/text/visible_text.h"
#include "host/claims/claim_keeper.h"
#include "host/claims/claim_record.h"
#include "hostfs/locks.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kLongestUid = 128;

/// A vGPU's type; "whole" of an IOMMU group.
std::string kind_of(const host::ClaimedDevice& device) {
  return device.is_whole() ? std::string("whole") : visible_line(device.request.type);
}

/// The UUID or the function that the VM gets.
std::string id_of(const host::ClaimedDevice& device) {
  const auto& function = device.result.function;
  return function ? function->text() : visible_line(device.result.mdev_uuid);
}

/// "unfinished": the devices are being prepared or undone, and each may be in either state.
std::string phase_of(const host::Claim& claim) {
  return claim.phase == host::ClaimPhase::done ? "prepared" : "unfinished";
}

json document_of(const host::Claim& claim) {
  auto devices = json::array();
  for (const host::ClaimedDevice& device : claim.devices) {
    const std::string id = id_of(device);
    devices.push_back({{"gpu", device.request.gpu.text()}, {"kind", kind_of(device)}, {"id", or_null(id)}});
  }
  return {{"uid", claim.uid},
          {"namespace", claim.space},
          {"name", claim.name},
          {"phase", phase_of(claim)},
          {"devices", std::move(devices)}};
}

/// Errc::refused: `ferry dra` runs and has the claim, or may have it, and would go on to hand its devices to
/// pods.
Result<> check_not_served(const Session& session, const std::string& uid) {
  const auto known = read_claims(*session.host);
  const bool has_it = known && std::ranges::find(*known, uid, &dra::CheckpointClaim::uid) != known->end();
  if (known && !has_it) return {};
  const auto runs = is_present(*session.host, api::kDraLock);
  if (!runs) return fail(runs.error());
  if (*runs) {
    return fail(
        Errc::refused,
        fmt::format("claim {}: `ferry dra` runs on this node and {} it", uid, has_it ? "has" : "may have"),
        "delete the pods that use the claim: the kubelet then has `ferry dra` release it");
  }
  if (has_it)
    print_to_stderr("warning: /{} still has claim {}: delete its pods before `ferry dra` runs again here\n",
                    api::kCheckpointFile, uid);
  return {};
}

VerbOutput released(const host::Claim& claim, bool dry_run) {
  std::vector<std::string> devices;  // "whole 0000:65:00.0", "nvidia-1151 b7064fe1-..."
  for (const host::ClaimedDevice& device : claim.devices) {
    const std::string id = id_of(device);
    devices.push_back(fmt::format("{} {}", kind_of(device), id.empty() ? device.request.gpu.text() : id));
  }
  const char* const outcome = dry_run ? "would release" : "released";
  return {.document = {{"uid", claim.uid}, {"outcome", outcome}, {"claim", document_of(claim)}},
          .text = fmt::format("{}: {} {}\n", visible_line(claim.label()), outcome, join(devices, ", "))};
}

}  // namespace

ExitStatus claims_list_verb(const Session& session) {
  const auto record = host::load_claim_record(*session.host);
  if (!record) return complain(record.error());
  VerbOutput shown;
  auto claims = json::array();
  Table table({"UID", "CLAIM", "PHASE", "GPU", "DEVICE", "ID"});
  for (const host::Claim& claim : record->claims) {
    claims.push_back(document_of(claim));
    for (const host::ClaimedDevice& device : claim.devices)
      table.add({visible_line(claim.uid), visible_line(fmt::format("{}/{}", claim.space, claim.name)),
                 phase_of(claim), device.request.gpu.text(), kind_of(device), id_of(device)});
  }
  shown.document = {{"claims", std::move(claims)}};
  shown.text = record->claims.empty() ? "no ResourceClaim has a device of this host\n"
                                      : table.text(text_output(session).columns);
  return print(session, shown);
}

ExitStatus claims_release_verb(const Session& session, const std::string& uid) {
  const auto is_good = [](char c) { return is_alphanumeric(c) || c == '-' || c == '.' || c == '_'; };
  if (uid.empty() || uid.size() > kLongestUid || !std::ranges::all_of(uid, is_good))
    return complain({.code = make_error_code(Errc::usage),
                     .message = fmt::format("'{}' is not the UID of a ResourceClaim", visible_line(uid)),
                     .hint = "`ferry claims list` prints the UIDs"});
  if (auto root = require_root(session); !root) return complain(root.error());
  const FinishOnSignal finish;
  host::ClaimKeeper keeper(*session.host, hostd_probes(session),
                           [&session](const host::NodeProbes& uses) { return hostd_context(session, uses); },
                           {});
  const auto claim = keeper.find_unused(uid);
  if (!claim) return complain(claim.error());
  const auto& known = *claim;
  if (!known)
    return print(session, {.document = {{"uid", uid}, {"outcome", "unknown"}, {"claim", json()}},
                           .text = fmt::format(
                               "claim {} has no device of this host: there is nothing to release\n", uid)});
  if (auto free = check_not_served(session, uid); !free) return complain(free.error());
  if (session.dry_run) return print(session, released(*known, true));
  const auto undone = [&] {
    const WaitNote waits("releasing the devices of a claim");
    return keeper.serve({.action = api::ClaimAction::unprepare,
                         .claim = known->uid,
                         .space = known->space,
                         .name = known->name});
  }();
  if (!undone) return complain(undone.error());
  return print(session, released(*known, false));
}

}  // namespace ferry::cli
