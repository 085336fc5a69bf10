// SPDX-License-Identifier: Apache-2.0
#include "host/claims/claim_record.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/claimable_gpus.h"
#include "api/files.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "common/text/words.h"
#include "hostfs/kernel_facts.h"

namespace ferry::host {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHint =
    "hostd writes it: is it of the same version? If no VM of this node has a GPU by a claim, remove it";

constexpr Words<ClaimPhase, 2> kPhases = {{{"intent", ClaimPhase::intent}, {"done", ClaimPhase::done}}};

Json json_of(const ClaimedDevice& device) {
  Json gpus = Json::array();
  for (const ClaimedGpu& gpu : device.gpus)
    gpus.push_back({{"address", gpu.address.text()}, {"functions", gpu.functions}});
  Json nodes = Json::array();
  for (const api::DeviceNode& node : device.result.nodes)
    nodes.push_back({{"path", node.path}, {"mode", or_null(node.mode)}});
  const auto& function = device.result.function;
  return {{"gpu", device.request.gpu.text()},
          {"type", or_null(device.request.type)},
          {"placement", or_null(device.request.placement)},
          {"was_on_vfio", device.was_on_vfio},
          {"gpus", std::move(gpus)},
          {"mdev_uuid", or_null(device.result.mdev_uuid)},
          {"function", function ? Json(function->text()) : Json()},
          {"nodes", std::move(nodes)}};
}

Json json_of(const MissingFunctions& missing) {
  return {{"gpu", missing.gpu.text()}, {"functions", missing.functions}, {"reason", or_null(missing.reason)}};
}

Json json_of(const Claim& claim);

template <typename T>
Json list_of(const std::vector<T>& items) {
  Json out = Json::array();
  for (const T& item : items) out.push_back(json_of(item));
  return out;
}

Json json_of(const Claim& claim) {
  return {{"uid", claim.uid},
          {"namespace", claim.space},
          {"name", claim.name},
          {"phase", text(claim.phase)},
          {"devices", list_of(claim.devices)}};
}

vfio::PciAddress parse_address(const JsonObject& object, const char* key) {
  const std::string word = object.text(key);
  const auto address = vfio::PciAddress::parse(word);
  if (!address) object.blame(key, "'" + word + "' is not a PCI address");
  return address.value_or(vfio::PciAddress());
}

ClaimedGpu read_gpu(const JsonObject& gpu) {
  return {.address = parse_address(gpu, "address"), .functions = gpu.number<std::uint32_t>("functions")};
}

MissingFunctions read_missing(const JsonObject& missing) {
  return {.gpu = parse_address(missing, "gpu"),
          .functions = missing.number<std::uint32_t>("functions"),
          .reason = missing.text_or_none("reason")};
}

ClaimedDevice read_device(const JsonObject& device) {
  ClaimedDevice out{.request = {.gpu = parse_address(device, "gpu"),
                                .type = device.text_or_none("type"),
                                .placement = device.number_or_none<std::uint32_t>("placement")},
                    .gpus = device.list("gpus", read_gpu),
                    .was_on_vfio = device.flag("was_on_vfio")};
  out.result.mdev_uuid = device.text_or_none("mdev_uuid");
  if (!device.text_or_none("function").empty()) out.result.function = parse_address(device, "function");
  out.result.nodes = device.list("nodes", [](const JsonObject& node) {
    return api::DeviceNode{.path = node.text("path"), .mode = node.number_or_none<std::uint32_t>("mode")};
  });
  return out;
}

ClaimRecord read_whole(const JsonObject& file) {
  file.expect_version(kClaimRecordVersion);
  ClaimRecord out{.boot_id = file.text("boot_id")};
  std::set<std::string> uids;
  out.claims = file.list("claims", [&uids](const JsonObject& claim) {
    Claim read{.uid = claim.text("uid"),
               .space = claim.text("namespace"),
               .name = claim.text("name"),
               .phase = claim.word("phase", parse_claim_phase, ClaimPhase::intent),
               .devices = claim.list("devices", read_device)};
    if (!uids.insert(read.uid).second) claim.blame("uid", "another claim has it");
    return read;
  });
  std::ranges::sort(out.claims, {}, &Claim::uid);
  for (const MissingFunctions& one : file.list("missing_functions", read_missing)) out.put(one);
  return out;
}

}  // namespace

std::string_view text(ClaimPhase phase) {
  return word_for(kPhases, phase, "intent");
}

std::optional<ClaimPhase> parse_claim_phase(std::string_view word) {
  return value_for(kPhases, word);
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
  return json_text({{"version", kClaimRecordVersion},
                    {"boot_id", record.boot_id},
                    {"claims", list_of(record.claims)},
                    {"missing_functions", list_of(record.missing_functions)}});
}

Result<ClaimRecord> read_claim_record(std::string_view text) {
  return read_json(text, kClaimRecordFile, kHint, read_whole);
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
    GpusWithClaims out{.gpus = record->gpus(), .missing_functions = std::move(record->missing_functions)};
    for (Claim& claim : record->claims)
      if (claim.phase == ClaimPhase::done) out.prepared.push_back(std::move(claim));
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
