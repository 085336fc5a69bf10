// SPDX-License-Identifier: Apache-2.0
#include "agent/status_files.h"

#include <algorithm>

#include <fmt/format.h>

namespace ferry {
namespace {

constexpr std::string_view kWorkloadType = "workload-type";
constexpr std::string_view kVfioReady = "vfio-pci-ready";
constexpr std::string_view kVgpuReady = "vgpu-devices-ready";
constexpr std::string_view kOurs = "gpu-ferry\n";

// On a node with several modes the consumers wait for vGPUs, which are created last.
Workload workload_of(const Policy& policy) {
  if (policy.asks_for(Mode::vgpu)) return Workload::vm_vgpu;
  return policy.asks_for(Mode::passthrough) ? Workload::vm_passthrough : Workload::container;
}

std::string content_of(Workload workload) {
  return std::string(text(workload)) + "\n";
}

StatusFile file(std::string_view name, std::optional<std::string> content, std::string why) {
  return {.name = name, .content = std::move(content), .why = std::move(why)};
}
StatusFile ready_file(std::string_view name, bool ready, std::string why) {
  return file(name, ready ? std::optional<std::string>(kOurs) : std::nullopt, std::move(why));
}

StatusFile workload_file(const NodeWish& wish) {
  const Workload workload = workload_of(wish.wished.policy);
  std::string why = fmt::format("policy {} is of {}", wish.wished.name, text(workload));
  // No consumer waits for this file on a node for containers.
  if (workload == Workload::container) return file(kWorkloadType, std::nullopt, std::move(why));
  return file(kWorkloadType, content_of(workload), std::move(why));
}

StatusFile vfio_file(const NodeWish& wish, const SeenHost* host) {
  if (!wish.wished.policy.asks_for(Mode::passthrough))
    return ready_file(kVfioReady, false, "no GPU is to be given away");
  if (host == nullptr) return ready_file(kVfioReady, false, "the host is not as it shall be");
  const bool ready = std::ranges::all_of(host->accelerators, [](const SeenAccelerator& gpu) {
    return gpu.wanted != Mode::passthrough || gpu.mode == Mode::passthrough;
  });
  return ready_file(kVfioReady, ready, ready ? "every such GPU is on vfio" : "not every such GPU is on vfio");
}

StatusFile vgpu_file(const NodeWish& wish, const SeenHost* host) {
  if (!wish.wished.policy.asks_for(Mode::vgpu))
    return ready_file(kVgpuReady, false, "no GPU is to be divided");
  if (host == nullptr) return ready_file(kVgpuReady, false, "the host is not as it shall be");
  const bool ready = std::ranges::any_of(host->accelerators, [](const SeenAccelerator& gpu) {
    return gpu.wanted == Mode::vgpu && !gpu.vgpus.empty();
  });
  return ready_file(kVgpuReady, ready, ready ? "there are vGPUs" : "there are no vGPUs");
}

bool is_ours(std::string_view name, const std::string& content) {
  if (name != kWorkloadType) return content == kOurs;
  return content == content_of(Workload::vm_passthrough) || content == content_of(Workload::vm_vgpu);
}

/// Absent: the file is right already.
std::optional<StatusFileChange> change_of(const StatusFile& file, const std::optional<std::string>& now) {
  StatusFileChange change{
      .path = fmt::format("{}/{}", kStatusFolder, file.name), .removed = !file.content, .why = file.why};
  if (!file.content) {
    if (!now || !is_ours(file.name, *now)) return std::nullopt;
    return change;
  }
  const bool there = now && (file.name == kWorkloadType ? now == file.content : true);
  if (there) return std::nullopt;
  return change;
}

}  // namespace

std::vector<StatusFile> status_files(const NodeWish& wish, const HostSide& host) {
  switch (wish.kind) {
    case NodeWish::Kind::invalid:  // the host stays as it was
      return {};
    case NodeWish::Kind::stand_back:  // the files are the other program's now
    case NodeWish::Kind::nothing:
      return {ready_file(kVfioReady, false, wish.reason), ready_file(kVgpuReady, false, wish.reason)};
    case NodeWish::Kind::policy:
      break;
  }
  // The end of hostd does not undo its work, and without these files the operator's pods could not start
  // again.
  HostSide as_said = host;
  as_said.hostd_down = std::chrono::seconds(0);
  const bool good = node_report(wish, as_said).condition == NodeCondition::as_wanted;
  const SeenHost* const seen = good && host.seen ? &*host.seen : nullptr;
  // An outdated file is removed first: a consumer that has seen workload-type must find the right ready file.
  return {vfio_file(wish, seen), vgpu_file(wish, seen), workload_file(wish)};
}

Result<std::vector<StatusFileChange>> write_status_files(HostFs& host, const std::vector<StatusFile>& files,
                                                         bool dry_run) {
  std::vector<StatusFileChange> out;
  for (const StatusFile& file : files) {
    const std::string path = fmt::format("{}/{}", kStatusFolder, file.name);
    auto now = host.read_file(path);
    if (!now && !is_gone(now.error())) return fail(std::move(now).error());
    const auto change = change_of(file, now ? std::optional<std::string>(*now) : std::nullopt);
    if (!change) continue;
    if (!dry_run) {
      auto made = file.content ? host.write_file(path, *file.content) : host.remove_file(path);
      if (!made) return fail(std::move(made).error());
    }
    out.push_back(*change);
  }
  return out;
}

}  // namespace ferry
