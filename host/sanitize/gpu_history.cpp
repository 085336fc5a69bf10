// SPDX-License-Identifier: Apache-2.0
#include "host/sanitize/gpu_history.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "api/sanitize_fields.h"
#include "common/text/json.h"
#include "common/text/json_fields.h"
#include "vfio/pci/pci_function.h"

namespace ferry::host {
namespace {

constexpr const char* kHint =
    "hostd writes it: is it of the same version? Remove it, and hostd sanitizes each free GPU again";
constexpr std::uint64_t kLastTime = 253'402'300'799;  // the end of the year 9999
constexpr const char* kNoTime = "no time in seconds since 1970";

}  // namespace

template <typename Io, SameAs<GpuEvent> Value>
void fields(Io& io, Value& event) {
  io("at", event.at);
  io.check("at", event.at <= kLastTime, kNoTime);
  io("state", event.state);
  io.or_default("text", event.text);
}

template <typename Io, SameAs<GpuHistory> Value>
void fields(Io& io, Value& gpu) {
  io("address", gpu.address);
  io("id", gpu.id);
  io.or_default("boot_id", gpu.boot_id);
  io.or_default("binding", gpu.binding);
  io("status", gpu.status);
  io.check("status", gpu.status.since <= kLastTime, fmt::format("since: {}", kNoTime));
  io("events", gpu.events);
}

template <typename Io, SameAs<GpuHistories> Value>
void fields(Io& io, Value& histories) {
  io.version(kGpuHistoryVersion);
  io("policy", histories.policy);
  io("gpus", histories.gpus);
  if constexpr (Io::kReads) {
    std::ranges::stable_sort(histories.gpus, {}, &GpuHistory::address);
    const auto twice = std::ranges::adjacent_find(histories.gpus, {}, &GpuHistory::address);
    if (twice != histories.gpus.end()) io.check("gpus", false, twice->address.text() + " stands twice");
  }
}

void GpuHistory::enter(api::SanitizeState state, std::string text, std::uint64_t now) {
  status.state = state;
  status.since = now;
  events.push_back({.at = now, .state = state, .text = std::move(text)});
  if (events.size() > kMostEvents) events.erase(events.begin());
}

std::string why_not_available(const vfio::PciAddress& gpu, const api::SanitizeStatus& status) {
  switch (status.state) {
    case api::SanitizeState::sanitizing:
      return fmt::format("{} is being sanitized after its last use", gpu.text());
    case api::SanitizeState::failed:
      return fmt::format("{} could not be sanitized after its last use: {}", gpu.text(), status.detail);
    case api::SanitizeState::in_use:
    case api::SanitizeState::available:
      break;
  }
  return {};
}

const GpuHistory* GpuHistories::find(const vfio::PciAddress& gpu) const {
  const auto found = std::ranges::find(gpus, gpu, &GpuHistory::address);
  return found == gpus.end() ? nullptr : &*found;
}

GpuHistory* GpuHistories::find(const vfio::PciAddress& gpu) {
  const auto found = std::ranges::find(gpus, gpu, &GpuHistory::address);
  return found == gpus.end() ? nullptr : &*found;
}

GpuHistory& GpuHistories::of(const vfio::PciAddress& gpu, const std::string& id) {
  auto at = std::ranges::lower_bound(gpus, gpu, {}, &GpuHistory::address);
  if (at == gpus.end() || at->address != gpu) at = gpus.insert(at, GpuHistory{.address = gpu, .id = id});
  if (at->id != id) {
    // The count goes on, so that the device plugin takes no old one for a new one.
    const std::uint64_t count = at->status.count;
    *at = GpuHistory{.address = gpu, .id = id, .status = {.count = count}};
  }
  return *at;
}

std::string gpu_histories_text(const GpuHistories& histories) {
  return json_text(written_fields(histories));
}

Result<GpuHistories> read_gpu_histories(std::string_view text) {
  return read_json(text, kGpuHistoryFile, kHint, read_fields<GpuHistories>);
}

Result<GpuHistories> load_gpu_histories(const HostFs& host) {
  const auto text = host.read_file(kGpuHistoryFile, HostFs::Links::refused);
  if (!text && is_gone(text.error())) return GpuHistories();
  if (!text) return fail(text.error());
  return read_gpu_histories(*text);
}

Result<> store_gpu_histories(HostFs& host, const GpuHistories& histories) {
  const auto folder = std::filesystem::path(kGpuHistoryFile).parent_path();
  if (auto made = host.make_directory(folder); !made) return made;
  return host.write_file(kGpuHistoryFile, gpu_histories_text(histories));
}

Result<> keep_bad_gpu_histories(HostFs& host) {
  const auto text = host.read_file(kGpuHistoryFile, HostFs::Links::refused);
  if (!text) return fail(text.error());
  return host.write_file(kBadGpuHistoryFile, *text);
}

Result<> change_gpu_histories(HostFs& host, const std::function<void(GpuHistories& histories)>& change) {
  auto histories = load_gpu_histories(host);
  if (!histories) return fail(std::move(histories).error());
  change(*histories);
  return store_gpu_histories(host, *histories);
}

Result<std::map<vfio::PciAddress, std::string>> unsanitized_gpus(const HostFs& host) {
  std::map<vfio::PciAddress, std::string> out;
  const auto histories = load_gpu_histories(host);
  if (!histories) return fail(histories.error());
  if (histories->policy == policy::Sanitize::off) return out;
  for (const GpuHistory& gpu : histories->gpus) {
    std::string why = why_not_available(gpu.address, gpu.status);
    if (why.empty()) continue;
    const auto there = vfio::read_function(host, gpu.address);
    const bool is_another = there && !there->problem && there->ids() != gpu.id;
    if (!is_another) out.emplace(gpu.address, std::move(why));
  }
  return out;
}

}  // namespace ferry::host
