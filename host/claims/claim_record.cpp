// SPDX-License-Identifier: Apache-2.0
#include "host/claims/claim_record.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "api/claim_fields.h"
#include "api/claimable_gpus.h"
#include "api/files.h"
#include "common/text/json.h"
#include "common/text/json_fields.h"
#include "common/text/text.h"
#include "hostfs/kernel_facts.h"

namespace ferry::host {
namespace {

constexpr const char* kHint =
    "hostd writes it: is it of the same version? If no VM of this node has a GPU by a claim, remove it";

}  // namespace

template <typename Io, SameAs<ClaimedGpu> Value>
void fields(Io& io, Value& gpu) {
  io("address", gpu.address);
  io("functions", gpu.functions);
}

template <typename Io, SameAs<ClaimedDevice> Value>
void fields(Io& io, Value& device) {
  fields(io, device.request);
  io("was_on_vfio", device.was_on_vfio);
  io("gpus", device.gpus);
  fields(io, device.result);
  io.or_null("resources", device.resources);
}

template <typename Io, SameAs<Claim> Value>
void fields(Io& io, Value& claim) {
  io("uid", claim.uid);
  io("namespace", claim.space);
  io("name", claim.name);
  io("phase", claim.phase);
  io("devices", claim.devices);
}

template <typename Io, SameAs<MissingFunctions> Value>
void fields(Io& io, Value& missing) {
  io("gpu", missing.gpu);
  io("functions", missing.functions);
  io.or_null("reason", missing.reason);
}

template <typename Io, SameAs<ClaimRecord> Value>
void fields(Io& io, Value& record) {
  io.version(kClaimRecordVersion);
  io("boot_id", record.boot_id);
  io("claims", record.claims);
  for (auto claim = record.claims.begin(); claim != record.claims.end(); ++claim) {
    const auto same = std::find_if(record.claims.begin(), claim,
                                   [&](const Claim& other) { return other.uid == claim->uid; });
    io.check(fmt::format("claims[{}].uid", claim - record.claims.begin()).c_str(), same == claim,
             "another claim has it");
  }
  io("missing_functions", record.missing_functions);
  io.or_default("made_functions", record.made_functions);
  if constexpr (Io::kReads) {
    for (Claim& claim : std::exchange(record.claims, {})) record.put(std::move(claim));
    for (MissingFunctions& one : std::exchange(record.missing_functions, {})) record.put(std::move(one));
  }
}

std::string Claim::label() const {
  return fmt::format("claim {}/{}", space, name);
}

const Claim* ClaimRecord::find(std::string_view uid) const {
  const auto found = std::ranges::find(claims, uid, &Claim::uid);
  return found == claims.end() ? nullptr : &*found;
}

void ClaimRecord::put(Claim claim) {
  remove(claim.uid);
  claims.push_back(std::move(claim));
  std::ranges::sort(claims, {}, &Claim::uid);
}

void ClaimRecord::remove(std::string_view uid) {
  std::erase_if(claims, [&](const Claim& claim) { return claim.uid == uid; });
}

const Claim* ClaimRecord::in_the_way(const vfio::PciAddress& gpu, std::string_view uid, bool whole) const {
  const auto blocks = [&](const ClaimedDevice& device) {
    return (whole || device.is_whole()) &&
           std::ranges::find(device.gpus, gpu, &ClaimedGpu::address) != device.gpus.end();
  };
  const auto found = std::ranges::find_if(claims, [&](const Claim& claim) {
    return claim.uid != uid && std::ranges::any_of(claim.devices, blocks);
  });
  return found == claims.end() ? nullptr : &*found;
}

std::set<vfio::PciAddress> ClaimRecord::gpus() const {
  std::set<vfio::PciAddress> out;
  for (const Claim& claim : claims)
    for (const ClaimedDevice& device : claim.devices)
      for (const ClaimedGpu& gpu : device.gpus) out.insert(gpu.address);
  return out;
}

void ClaimRecord::put(MissingFunctions missing) {
  remove_missing(missing.gpu);
  missing_functions.push_back(std::move(missing));
  std::ranges::sort(missing_functions, {}, &MissingFunctions::gpu);
}

void ClaimRecord::remove_missing(const vfio::PciAddress& gpu) {
  std::erase_if(missing_functions, [&](const MissingFunctions& one) { return one.gpu == gpu; });
}

const MissingFunctions* ClaimRecord::missing_of(const vfio::PciAddress& gpu) const {
  const auto found = std::ranges::find(missing_functions, gpu, &MissingFunctions::gpu);
  return found == missing_functions.end() ? nullptr : &*found;
}

std::string claim_record_text(const ClaimRecord& record) {
  return json_text(written_fields(record));
}

Result<ClaimRecord> read_claim_record(std::string_view text) {
  return read_json(text, kClaimRecordFile, kHint, read_fields<ClaimRecord>);
}

Result<ClaimRecord> load_claim_record(const HostFs& host) {
  auto boot = boot_id(host);
  if (!boot) return fail(std::move(boot).error());
  const auto file = host.read_file(kClaimRecordFile);
  if (!file) {
    if (file.error().code == std::errc::no_such_file_or_directory)
      return ClaimRecord{.boot_id = std::move(*boot)};
    Error error = file.error();
    // Only a file that cannot be a record has a hint already; descriptors that ran out say nothing about it.
    if (!error.hint.empty()) error.hint = kHint;
    return fail(std::move(error));
  }
  auto record = read_claim_record(*file);
  if (record && record->boot_id != *boot) return ClaimRecord{.boot_id = std::move(*boot)};
  return record;
}

Result<> store_claim_record(HostFs& host, const ClaimRecord& record) {
  return host.write_file(kClaimRecordFile, claim_record_text(record));
}

Result<GpusWithClaims> gpus_with_claims(const HostFs& host) {
  auto record = load_claim_record(host);
  if (record) {
    GpusWithClaims out{.gpus = record->gpus(),
                       .missing_functions = std::move(record->missing_functions),
                       .made_functions = std::move(record->made_functions)};
    for (Claim& claim : record->claims)
      if (claim.phase != ClaimPhase::intent) out.prepared.push_back(std::move(claim));
    return out;
  }
  const auto file = host.read_file(api::kClaimableGpusFile);
  if (!file) return fail(std::move(record).error());
  const auto gpus = api::read_claimable_gpus(*file);
  if (!gpus) return fail(std::move(record).error());
  GpusWithClaims out{.fault = std::move(record).error()};
  for (const api::ClaimableGpu& gpu : *gpus) out.gpus.insert(gpu.address);
  return out;
}

std::map<vfio::PciAddress, std::string> gpus_without_functions(const std::vector<MissingFunctions>& missing,
                                                               const vfio::Inventory& inventory) {
  std::map<vfio::PciAddress, std::string> out;
  for (const MissingFunctions& one : missing) {
    const vfio::PciFunction* const gpu = inventory.find(one.gpu);
    if (gpu == nullptr || vfio::on_vfio_driver(*gpu) || gpu->sriov_numvfs >= one.functions) continue;
    std::string text = fmt::format("it has {} of the {} that it had before a claim", gpu->sriov_numvfs,
                                   counted(one.functions, "virtual function"));
    if (!one.reason.empty()) text += ": " + one.reason;
    out.emplace(one.gpu, std::move(text));
  }
  return out;
}

}  // namespace ferry::host
