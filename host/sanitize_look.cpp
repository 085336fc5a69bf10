// SPDX-License-Identifier: Apache-2.0
#include "host/sanitize_look.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/text/text.h"
#include "host/node_keeper.h"
#include "host/register_look.h"
#include "host/sanitize/gpu_history.h"
#include "host/sanitize/sanitize_step.h"
#include "hostfs/check_reading.h"
#include "hostfs/kernel_facts.h"
#include "vfio/judgement/unit_facts.h"
#include "vfio/registers/reading_record.h"

namespace ferry::host {
namespace {

constexpr auto kUnknownUserPause = std::chrono::seconds(10);
constexpr auto kNewsPause = std::chrono::milliseconds(10);
// A namespace and a name; the plugin's file is that of a less trusted process.
constexpr std::size_t kLongestName = 507;

constexpr std::string_view kAgain = "again";
constexpr std::string_view kAccept = "accept";

void log_change(const GpuHistory& now, const GpuHistory* before) {
  if (before != nullptr && before->status == now.status) return;
  if (now.events.empty()) return;
  const bool bad = now.status.state == api::SanitizeState::failed ||
                   (before != nullptr && before->status.count != now.status.count &&
                    now.status.result == api::SanitizeResult::failed);
  spdlog::log(bad ? spdlog::level::warn : spdlog::level::info, "{}: {}: {}", now.address.text(),
              text(now.status.state), now.events.back().text);
}

}  // namespace

std::optional<SanitizeRequest> read_sanitize_request(const HostFs& host) {
  const auto text = host.read_file(kSanitizeRequestFile, HostFs::Links::refused);
  if (!text) return std::nullopt;
  std::string_view line = *text;
  line = cut(line, '\n');
  const auto words = ferry::words_of(line);
  if (words.size() != 2 || (words[1] != kAgain && words[1] != kAccept)) return std::nullopt;
  const auto gpu = vfio::PciAddress::parse(words[0]);
  if (!gpu) return std::nullopt;
  return SanitizeRequest{.gpu = *gpu, .accepts = words[1] == kAccept};
}

Result<> write_sanitize_request(HostFs& host, const SanitizeRequest& request) {
  if (host.exists(kSanitizeRequestFile))
    return fail(Errc::refused, "hostd has not read an earlier request yet",
                "its log says why: `journalctl -u ferry-hostd`, or `kubectl logs` of the container hostd");
  return host.write_file(kSanitizeRequestFile,
                         fmt::format("{} {}\n", request.gpu.text(), request.accepts ? kAccept : kAgain));
}

bool is_sanitized(const api::AcceleratorStatus& gpu) {
  return gpu.counts_as_gpu() && gpu.mode == api::Mode::passthrough;
}

ListedGpu listed_as(const api::AcceleratorStatus& gpu, const api::AdvertisedResources& listed,
                    std::span<const api::AcceleratorStatus> gpus) {
  ListedGpu out;
  if (gpu.allocation == api::Allocation::dra) return out;  // the plugin has no say about it
  const std::string id = gpu.address.text();
  for (const api::AdvertisedDevice& device : listed.devices) {
    // A pod with one device of a group has the whole group.
    if (device.id != id && device.iommu_group != gpu.iommu_group) continue;
    if (device.allocated && out.user.empty())
      out.user = device.pod.empty() ? "a pod" : "pod " + device.pod.substr(0, kLongestName);
    if (device.id == id && device.used_since) out.used_since = device.used_since;
    // Kata has a number as an ID, of the group or of the device's node. It marks the group by the count of
    // one GPU, which is in use or available until a round has seen the mark.
    const auto is_marked = [&](const api::AcceleratorStatus& one) {
      return one.iommu_group == gpu.iommu_group && one.sanitize && one.sanitize->count == device.used_since &&
             one.sanitize->state != api::SanitizeState::sanitizing;
    };
    if (gpu.sanitize && whole_number(device.id) && std::ranges::any_of(gpus, is_marked))
      out.used_since = gpu.sanitize->count;
    out.may_be_allocated = out.may_be_allocated || device.healthy;
  }
  return out;
}

std::string claimed_by(const vfio::PciAddress& gpu, const GpusWithClaims& claims) {
  if (!claims.gpus.contains(gpu)) return {};
  for (const Claim& claim : claims.prepared)
    for (const ClaimedDevice& device : claim.devices)
      if (std::ranges::find(device.gpus, gpu, &ClaimedGpu::address) != device.gpus.end())
        return claim.label();
  return "a claim";
}

Result<GpuHistories> NodeKeeper::begin_histories(const Error& why) {
  if (auto kept = keep_bad_gpu_histories(host_); !kept) return fail(std::move(kept).error());
  spdlog::error("{}; it is kept as /{}, and a new record begins without the uses so far", why.message,
                kBadGpuHistoryFile);
  return GpuHistories();
}

void NodeKeeper::take_up_policy(GpuHistories& histories) {
  histories.policy = *memory_.sanitize.policy;
  // A use under another policy was not followed, or its end was judged otherwise.
  for (GpuHistory& gpu : histories.gpus) {
    gpu.boot_id.clear();
    gpu.binding = 0;
    if (gpu.status.state == api::SanitizeState::failed) gpu.status.state = api::SanitizeState::in_use;
    if (gpu.status.result == api::SanitizeResult::accepted) gpu.status.result = api::SanitizeResult::none;
  }
}

void NodeKeeper::remember_desired(const DesiredState& desired) {
  policy_ = desired.policy;
  auto& memory = memory_.sanitize;
  memory.policy = desired.policy.sanitize;
  const auto mode = settings_.sets_cc_mode ? desired.file.cc_mode : std::nullopt;
  if (mode && memory.policy == policy::Sanitize::off) memory.policy = policy::Sanitize::best_effort;
  if (std::exchange(memory.mode, mode) != mode) memory.mode_tried.clear();
}

std::string NodeKeeper::wrong_mode_of(const api::AcceleratorStatus& gpu) const {
  const auto& memory = memory_.sanitize;
  if (!memory.mode) return {};
  const auto tried = memory.mode_tried.find(gpu.address);
  if (tried != memory.mode_tried.end() && tried->second.binding == vfio::binding_of(host_, gpu.address) &&
      settings_.now() < tried->second.again)
    return {};
  return wrong_mode(gpu, *memory.mode);
}

std::string NodeKeeper::user_of(const api::AcceleratorStatus& gpu, const ListedGpu& listed,
                                const GpusWithClaims& claims) {
  auto& memory = memory_.sanitize;
  if (!listed.user.empty()) return listed.user;
  if (std::string claim = claimed_by(gpu.address, claims); !claim.empty()) return claim;
  const auto& gpus = memory_.status.published->accelerators;
  const auto any_of_its_group = [&](const auto& is_so) {
    return std::ranges::any_of(gpus, [&](const api::AcceleratorStatus& one) {
      return one.iommu_group == gpu.iommu_group && is_so(one.address);
    });
  };
  if (any_of_its_group([&](const vfio::PciAddress& one) { return sanitize_runs_->has(one); }))
    return {};  // Ferry itself has one open, and keeps the group from others
  const auto waits = memory.not_before.find(gpu.address);
  const bool is_early = waits != memory.not_before.end() && settings_.now() < waits->second;
  if (!is_early) memory.not_before.erase(gpu.address);
  const auto is_open = [&](const vfio::PciAddress& one) { return vfio::is_opened(host_, one); };
  if (!is_early && !any_of_its_group(is_open)) return {};
  memory.again = settings_.now() + kUnknownUserPause;  // no event reports the end of such a user
  return kUnknownUser;
}

void NodeKeeper::look_at_sanitizing() {
  auto& memory = memory_.sanitize;
  memory.again.reset();
  const auto& published = memory_.status.published;
  if (!published) return;
  const bool is_on = memory.policy.value_or(policy::Sanitize::off) != policy::Sanitize::off;
  auto before = load_gpu_histories(host_);
  // A claim reads the record also with the policy off. Without a policy nothing says what a new one is for.
  const bool is_bad = !before && before.error().code == Errc::malformed_host && memory.policy;
  if (is_bad) before = begin_histories(before.error());
  const auto claims = before ? settings_.gpus_with_claims() : Result<GpusWithClaims>(fail(before.error()));
  const std::string fault = claims ? std::string() : claims.error().message;
  if (std::exchange(memory.fault, fault) != fault && is_on) {
    if (!fault.empty()) spdlog::error("GPUs are not sanitized: {}", fault);
    if (auto written = status_.publish_again(*published); !written)
      spdlog::error("{}", written.error().message);
  }
  if (!claims) return;

  GpuHistories next = *before;
  if (memory.policy && next.policy != *memory.policy) take_up_policy(next);
  const std::uint64_t now = seconds_now();
  take_ended_runs(next, now);
  const auto request = read_sanitize_request(host_);
  GpuHistory* const asked = request ? next.find(request->gpu) : nullptr;
  if (asked != nullptr && request->accepts) accept(*asked, now);
  const DueGpus due = follow_gpus(next, *claims, request, now);

  if (is_bad || next != *before) {
    if (const auto stored = store_gpu_histories(host_, next); !stored) {
      spdlog::error("{}", stored.error().message);
      memory.again = settings_.now() + kUnknownUserPause;
      return;
    }
    for (const GpuHistory& gpu : next.gpus) log_change(gpu, before->find(gpu.address));
    memory.again = settings_.now() + kNewsPause;  // the next scan judges with the new state
  }
  if (request || host_.exists(kSanitizeRequestFile)) (void)host_.remove_file(kSanitizeRequestFile);
  remember(next, memory);
  if (auto written = status_.publish_again(*published); !written)
    spdlog::error("{}", written.error().message);
  start_runs(due);
  if (sanitize_runs_->any_ended()) look_at_sanitizing();
}

void NodeKeeper::take_ended_runs(GpuHistories& histories, std::uint64_t now) {
  auto& memory = memory_.sanitize;
  for (const auto& [address, run] : sanitize_runs_->take()) {
    if (GpuHistory* const gpu = histories.find(address)) finish(*gpu, run, histories.policy, now);
    if (run.mode) memory.changes_mode = false;
    if (run.result.in_use) {
      memory.not_before[address] = settings_.now() + kUnknownUserPause;
      continue;
    }
    const std::uint64_t binding = vfio::binding_of(host_, address);
    if (run.mode && run.mode == memory.mode)
      memory.mode_tried[address] = {
          .binding = binding, .again = run.mode_refused ? settings_.now() + kBetweenReadings : Moment::max()};
    const auto read = memory_.registers.entries.find(address);
    if (run.result.registers && run.result.registers->problem.empty() &&
        read != memory_.registers.entries.end())
      read->second = {.read = settings_.now(),
                      .registers = {.facts = *run.result.registers, .read_at = now, .binding = binding}};
  }
}

void NodeKeeper::forget_ended_pods(std::map<vfio::PciAddress, ListedGpu>& lists) {
  std::vector<vfio::UseQuestion> questions;
  for (const auto& [gpu, listed] : lists)
    if (!listed.user.empty()) questions.push_back({.device = gpu.text(), .nodes = {}});
  if (questions.empty()) return;
  memory_.sanitize.again = settings_.now() + kUnknownUserPause;  // no event reports the end of such a pod
  const auto uses = uses_.for_rebinds.look(questions);
  if (!uses) return;
  for (auto& [gpu, listed] : lists)
    if (uses->of(gpu.text()).empty() && uses->blind_to(gpu.text()).empty()) listed.user.clear();
}

NodeKeeper::DueGpus NodeKeeper::follow_gpus(GpuHistories& histories, const GpusWithClaims& claims,
                                            const std::optional<SanitizeRequest>& request,
                                            std::uint64_t now) {
  const auto& gpus = memory_.status.published->accelerators;
  const auto is_followed = [&](const api::AcceleratorStatus& gpu) {
    return histories.policy != policy::Sanitize::off && is_sanitized(gpu);
  };
  const auto listing = advertised();
  const bool plugin_serves = plugin_runs(host_);
  const std::string boot = boot_id(host_).value_or("");
  std::map<vfio::PciAddress, ListedGpu> lists;
  for (const api::AcceleratorStatus& gpu : gpus)
    if (is_followed(gpu))
      lists.emplace(gpu.address, listed_as(gpu, listing.value_or(api::AdvertisedResources()), gpus));
  if (!plugin_serves) forget_ended_pods(lists);
  DueGpus due;
  for (const api::AcceleratorStatus& gpu : gpus) {
    if (!is_followed(gpu)) continue;
    const ListedGpu& listed = lists.at(gpu.address);
    GpuHistory& history = histories.of(gpu.address, gpu.id);
    const std::string wrong = wrong_mode_of(gpu);
    if (!wrong.empty()) due.wrong_modes.insert(gpu.address);
    follow(history,
           {.user = user_of(gpu, listed, claims),
            .used_since = listed.used_since,
            .boot_id = boot,
            .binding = vfio::binding_of(host_, gpu.address),
            .is_asked = request && request->gpu == gpu.address && !request->accepts,
            .wrong_mode = wrong},
           now);
    // The kubelet may allocate a device for as long as it has read that it is Healthy.
    const bool may_be_allocated = plugin_serves && (!listing || listed.may_be_allocated);
    if (history.status.state == api::SanitizeState::sanitizing && !may_be_allocated)
      due.by_group[gpu.iommu_group].push_back(gpu.address);
  }

  // A failure of a GPU for claims counts on, since only a claim binds it.
  for (GpuHistory& gpu : histories.gpus) {
    const auto there = std::ranges::find(gpus, gpu.address, &api::AcceleratorStatus::address);
    const bool is_there = there != gpus.end();
    const bool is_for_claims =
        is_there && (there->allocation == api::Allocation::dra || !memory_.allocation.is_known ||
                     memory_.allocation.last.conditions.contains(gpu.address));
    const bool waits = gpu.status.state == api::SanitizeState::sanitizing ||
                       (gpu.status.state == api::SanitizeState::failed && is_there && !is_for_claims);
    if (waits && !(is_there && is_followed(*there)))
      gpu.enter(api::SanitizeState::in_use,
                "hostd does not follow it: it has left vfio-pci, or the policy is off", now);
  }
  return due;
}

void NodeKeeper::start_runs(const DueGpus& due) {
  if (due.by_group.empty() || memory_.sanitize.changes_mode) return;
  const auto context = make_context_(uses_);
  if (!context || context->rebind_context.writer == nullptr) return;
  const auto start = [&](const std::vector<vfio::PciAddress>& gpus, std::optional<vfio::WantedMode> mode) {
    std::vector<vfio::PciAddress> begun;
    for (const vfio::PciAddress& gpu : gpus)
      if (due.wrong_modes.contains(gpu) == mode.has_value() && sanitize_runs_->begin(gpu))
        begun.push_back(gpu);
    if (begun.empty()) return;
    settings_.beside([runs = sanitize_runs_, &host = host_, sanitize = settings_.sanitize,
                      set_mode = settings_.set_mode, writer = context->rebind_context.writer, mode,
                      begun = std::move(begun)] {
      for (const vfio::PciAddress& gpu : begun)
        runs->end(gpu, mode ? run_with_mode(set_mode, sanitize, *writer, host, gpu, *mode)
                            : run_sanitizer(sanitize, *writer, host, gpu));
    });
  };
  for (const auto& [group, gpus] : due.by_group) start(gpus, std::nullopt);

  // A change of a mode has the registers and the node's lock to itself, so it runs alone.
  for (const auto& [group, gpus] : due.by_group) {
    for (const vfio::PciAddress& gpu : gpus) {
      if (sanitize_runs_->any()) return;
      if (!due.wrong_modes.contains(gpu)) continue;
      memory_.sanitize.changes_mode = true;
      start({gpu}, memory_.sanitize.mode);
    }
  }
}

}  // namespace ferry::host
