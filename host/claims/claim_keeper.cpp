// SPDX-License-Identifier: Apache-2.0
#include "host/claims/claim_keeper.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "host/claims/claim_state.h"
#include "host/desired_state.h"
#include "host/node_observation.h"
#include "hostfs/locks.h"
#include "hostfs/stuck_writes.h"

namespace ferry::host {
namespace {

using vfio::PciAddress;

/// The context in which these GPUs are accelerators, whatever their vendor is, and may change for a claim.
/// `others` are accelerators, too: a whole device has each GPU of its IOMMU group, and a request names one.
NodeContext with_gpus(NodeContext context, std::set<PciAddress> gpus,
                      const std::vector<api::ClaimableGpu>& others = {}) {
  for (const PciAddress& gpu : gpus) context.dra.erase(gpu);
  for (const api::ClaimableGpu& gpu : others) gpus.insert(gpu.address);
  context.rebind_context.rules.named.insert(gpus.begin(), gpus.end());
  context.vgpu_host.rules.named.insert(gpus.begin(), gpus.end());
  return context;
}

std::set<PciAddress> gpus_of(const api::ClaimRequest& request, const Claim* known) {
  std::set<PciAddress> out;
  for (const api::DeviceOfPod& asked : request.devices) out.insert(asked.device.gpu);
  if (known == nullptr) return out;
  for (const ClaimedDevice& device : known->devices)
    for (const ClaimedGpu& gpu : device.gpus) out.insert(gpu.address);
  return out;
}

/// True if an earlier write to a GPU of the claim has not returned: it may still have its effect, and the
/// record knows what the GPU had before. True also if that cannot be read.
bool may_still_change(const HostFs& host, const Claim& claim) {
  const auto stuck = stuck_writes(host);
  const auto is_of = [&](const StuckWrite& write) {
    return !is_read(write) && std::ranges::any_of(claim.devices, [&](const ClaimedDevice& device) {
      return std::ranges::any_of(device.gpus,
                                 [&](const ClaimedGpu& gpu) { return concerns(write, gpu.address.text()); });
    });
  };
  return !stuck || std::ranges::any_of(*stuck, is_of);
}

std::vector<api::PreparedDevice> results_of(const Claim& claim) {
  std::vector<api::PreparedDevice> out;
  out.reserve(claim.devices.size());
  for (const ClaimedDevice& device : claim.devices) out.push_back(device.result);
  return out;
}

/// The request with the resource names of the record.
api::ClaimRequest with_names_of(const Claim& claim, api::ClaimRequest request) {
  for (std::size_t i = 0; i < claim.devices.size(); ++i)
    request.devices.at(i).resources = claim.devices[i].resources;
  return request;
}

std::string described(const Claim& claim) {
  std::string out;
  for (const ClaimedDevice& device : claim.devices) {
    const auto& [mdev_uuid, function, nodes] = device.result;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", device.is_whole() ? "GPU" : "vGPU",
                       function ? function->text() : mdev_uuid);
  }
  return out;
}

/// Sanitizes the GPUs of a claim that ends, unless no pod can have had them, or it was done. Errc::refused:
/// a program has one open; the message names it.
Result<> sanitize_used(HostFs& host, const Sanitizer& sanitize, const NodeContext& context,
                       const Claim& claim) {
  if (claim.phase == ClaimPhase::intent) return {};
  auto clean = sanitize_after(host, *context.rebind_context.writer, sanitize, claim);
  if (clean) return clean;
  const auto node = scan_node(context);
  auto unused = node ? check_unused(context, *node, claim) : Result<>();
  return unused ? clean : unused;
}

}  // namespace

ClaimKeeper::ClaimKeeper(HostFs& host, const NodeProbes& uses, MakeContext make_context,
                         ClaimSettings settings)
    : host_(host),
      uses_(uses),
      make_context_(std::move(make_context)),
      settings_(std::move(settings)),
      files_(host_, settings_.metadata_folder) {}

Result<> ClaimKeeper::tidy() {
  const auto record = load_claim_record(host_);
  if (!record) return fail(record.error());
  return files_.remove([&](const std::string& uid) { return record->find(uid) == nullptr; });
}

ClaimKeeper::Answer ClaimKeeper::serve(const api::ClaimRequest& request) {
  const bool undoes = request.action == api::ClaimAction::unprepare;
  if (undoes) {
    // The pod of a claim that was never prepared can end, however long another ferry has the lock.
    const auto record = load_claim_record(host_);
    if (record && record->find(request.claim) == nullptr) return Answer();
  }
  Answer answer;
  if (const auto lock = NodeLock::take(host_, settings_.lock_patience); !lock) {
    answer = fail(lock.error());
    // The lock itself is busy.
    if (answer.error().code == Errc::failed) answer.error().code = make_error_code(Errc::unreachable);
  } else {
    if (!undoes) {
      answer = prepare(request);
    } else if (auto undone = unprepare(request.claim); !undone) {
      answer = fail(std::move(undone).error());
    }
    // The code would tell `ferry dra` that nothing was done.
    if (!answer && answer.error().code == Errc::unreachable)
      answer.error().code = make_error_code(Errc::failed);
  }
  if (answer) return answer;
  answer = fail(std::move(answer).error().during(
      Claim{.uid = {}, .space = request.space, .name = request.name}.label()));
  spdlog::warn("{}", answer.error().text());
  return answer;
}

Result<std::optional<Claim>> ClaimKeeper::find_unused(const std::string& uid) const {
  const auto record = load_claim_record(host_);
  if (!record) return fail(record.error());
  const Claim* const known = record->find(uid);
  if (known == nullptr) return std::optional<Claim>();
  auto plain = make_context_(uses_);
  if (!plain) return fail(std::move(plain).error());
  const NodeContext context = with_gpus(std::move(*plain), gpus_of(api::ClaimRequest(), known));
  const auto node = scan_node(context);
  if (!node) return fail(node.error());
  if (auto unused = check_unused(context, *node, *known); !unused)
    return fail(std::move(unused).error().during(known->label()));
  return std::optional<Claim>(*known);
}

ClaimKeeper::Answer ClaimKeeper::prepare(const api::ClaimRequest& request) {
  auto record = load_claim_record(host_);
  if (!record) return fail(std::move(record).error());
  const Claim* const known = record->find(request.claim);
  if (known != nullptr && !std::ranges::equal(known->devices, request.devices, {}, &ClaimedDevice::request,
                                              &api::DeviceOfPod::device)) {
    return fail(Errc::refused, "it was prepared with other devices, or its preparation with them has begun",
                "delete the pods that have the claim: the kubelet then has it undone");
  }
  // A device that the plugin lists may go to a pod at any time, also if the policy has just changed.
  GuardedProbes guarded(host_, uses_, {});
  auto plain = make_context_(guarded.probes());
  if (!plain) return fail(std::move(plain).error());
  const auto allowed = read_policy();
  const NodeContext context = with_gpus(std::move(*plain), gpus_of(request, known),
                                        allowed ? allowed->gpus : std::vector<api::ClaimableGpu>());
  auto node = scan_node(context);
  if (!node) return fail(std::move(node).error());
  std::erase_if(record->missing_functions, [&](const MissingFunctions& missing) {
    const vfio::PciFunction* const gpu = node->inventory.find(missing.gpu);
    return gpu != nullptr && gpu->sriov_numvfs >= missing.functions;
  });
  if (known != nullptr && known->phase == ClaimPhase::done && is_intact(*known, *node)) {
    auto results = results_of(*known);
    if (auto written = files_.write(with_names_of(*known, request), results); !written)
      return fail(std::move(written).error());
    return results;
  }

  if (!allowed) return fail(allowed.error());
  if (known == nullptr) {
    auto planned = plan_claim(request, context, *node, *allowed, *record);
    if (!planned) return fail(std::move(planned).error());
    if (auto clean = check_sanitized(host_, *planned); !clean) return fail(std::move(clean).error());
    return make_ready(request, context, std::move(*node), *allowed, *record, std::move(*planned), true);
  }
  if (auto still = check_still_for_dra(*known, *allowed); !still) return fail(std::move(still).error());
  Claim claim = *known;
  return make_ready(request, context, std::move(*node), *allowed, *record, std::move(claim), false);
}

Result<ClaimPolicy> ClaimKeeper::read_policy() const {
  const auto file = host_.read_file(api::kClaimableGpusFile, HostFs::Links::refused);
  if (!file && file.error().code == std::errc::no_such_file_or_directory) return ClaimPolicy();
  if (!file) return fail(file.error());
  auto gpus = api::read_claimable_gpus(*file);
  if (!gpus) return fail(std::move(gpus).error());
  ClaimPolicy out{.gpus = std::move(*gpus)};
  const auto read = read_desired(host_, settings_.desired_file, settings_.profiles);
  if (const auto desired = read ? *read : std::nullopt) out.release = desired->policy.release;
  return out;
}

ClaimKeeper::Answer ClaimKeeper::make_ready(const api::ClaimRequest& request, const NodeContext& context,
                                            ScannedNode node, const ClaimPolicy& policy, ClaimRecord& record,
                                            Claim claim, bool is_new) {
  if (claim.phase == ClaimPhase::done) claim.phase = ClaimPhase::again;
  const Claim* const known = record.find(claim.uid);
  if (known == nullptr || *known != claim) {
    record.put(claim);
    if (auto stored = store_claim_record(host_, record); !stored) return fail(std::move(stored).error());
  }
  const auto failed = [&](std::size_t begun, Error why) {
    // An earlier run may have made any device of a claim that is not new.
    return fail(give_up(context, record, claim, is_new ? begun : claim.devices.size(), std::move(why)));
  };
  for (std::size_t i = 0; i < claim.devices.size(); ++i) {
    if (i > 0) {
      auto now = scan_node(context);
      if (!now) return failed(i, std::move(now).error());
      node = std::move(*now);
    }
    if (auto failure = make_device_ready(context, node, claim, i, policy))
      return failed(failure->is_clean ? i : i + 1, std::move(failure->error));
    if (auto clean = sanitize_before(host_, *context.rebind_context.writer, settings_.sanitize, claim,
                                     claim.devices[i]);
        !clean)
      return failed(i + 1, std::move(clean).error());
    auto result = read_prepared(context, claim.devices[i]);
    if (!result) return failed(i + 1, std::move(result).error());
    claim.devices[i].result = std::move(*result);
  }
  auto results = results_of(claim);
  if (auto written = files_.write(with_names_of(claim, request), results); !written)
    return failed(claim.devices.size(), std::move(written).error());
  claim.phase = ClaimPhase::done;
  record.put(claim);
  // Without the record the claim is as before, and the next request finishes it.
  if (auto stored = store_claim_record(host_, record); !stored) return fail(std::move(stored).error());
  spdlog::info("{} is prepared: {}", claim.label(), described(claim));
  return results;
}

Result<> ClaimKeeper::remove_files(const std::string& uid) {
  return files_.remove([&](const std::string& of) { return of == uid; });
}

Error ClaimKeeper::give_up(const NodeContext& context, ClaimRecord& record, const Claim& claim,
                           std::size_t devices, Error why) {
  auto undone = sanitize_used(host_, settings_.sanitize, context, claim);
  if (undone) undone = undo(context, record, claim, devices);
  if (undone) undone = remove_files(claim.uid);
  if (!undone) {
    why.message += "; it could not be undone: " + undone.error().message;
    return why;
  }
  if (why.code == Errc::stuck || may_still_change(host_, claim)) return why;
  record.remove(claim.uid);
  if (const auto stored = store_claim_record(host_, record); !stored)
    why.message += "; " + stored.error().message;
  return why;
}

Result<> ClaimKeeper::undo(const NodeContext& context, ClaimRecord& record, const Claim& claim,
                           std::size_t devices) {
  Result<> first;
  for (std::size_t i = devices; i-- > 0;) {
    auto undone = undo_device(context, claim, i, record);
    if (!undone && first) first = std::move(undone);
  }
  return first;
}

Result<> ClaimKeeper::unprepare(const std::string& uid) {
  auto record = load_claim_record(host_);
  if (!record) return fail(std::move(record).error());
  const Claim* const known = record->find(uid);
  if (known == nullptr) return {};
  Claim claim = *known;
  auto plain = make_context_(uses_);
  if (!plain) return fail(std::move(plain).error());
  const NodeContext context = with_gpus(std::move(*plain), gpus_of(api::ClaimRequest(), &claim));
  if (auto clean = sanitize_used(host_, settings_.sanitize, context, claim); !clean) return clean;
  if (claim.phase != ClaimPhase::intent) {
    claim.phase = ClaimPhase::intent;
    record->put(claim);
    if (auto stored = store_claim_record(host_, *record); !stored) return stored;
  }
  if (auto undone = undo(context, *record, claim, claim.devices.size()); !undone) return undone;
  if (may_still_change(host_, claim))
    return fail(Errc::stuck, "an earlier write to a GPU of it has not returned from the kernel",
                "see /run/ferry/stuck-writes; if it never returns, only a reboot helps");
  if (auto removed = remove_files(uid); !removed) return removed;
  record->remove(uid);
  if (auto stored = store_claim_record(host_, *record); !stored) return stored;
  spdlog::info("{} is undone: {}", claim.label(), described(claim));
  return {};
}

}  // namespace ferry::host
