// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "host/usage/process_facts.h"
#include "host/usage/use_probes.h"
#include "hostfs/host_writer.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

const std::error_code kNoMedium(ENOMEDIUM, std::generic_category());

/// The mounts of one mount namespace.
struct MountTable {
  std::optional<int> pid;  ///< a process in that namespace; absent: the host's own
  std::vector<Mount> mounts;
};

bool has_number(const Mount& mount, const vfio::DeviceNode& node) {
  return mount.number == fmt::format("{}:{}", node.number.major, node.number.minor);
}

// A host has thousands of processes and some tens of mount namespaces; each namespace is read once.
std::vector<MountTable> tables_of_others(const HostFs& host, const std::string& own) {
  const auto space_of = [&](const std::string& pid) {
    return host.link_target(fs::path("proc") / pid / "ns/mnt").value_or("");
  };
  std::set<std::string> spaces = {space_of("1")};
  std::set<std::string> tables = {own};
  std::vector<MountTable> tables_of;
  for (const std::string& name : host.list("proc").value_or(std::vector<std::string>{})) {
    const auto pid = pid_of(name);
    if (!pid || *pid == 1) continue;
    const std::string space = space_of(name);
    if (!space.empty() && !spaces.insert(space).second) continue;
    auto table = host.read_file(fs::path("proc") / name / "mountinfo");
    if (!table || !tables.insert(*table).second) continue;
    tables_of.push_back({.pid = pid, .mounts = parse_mountinfo(*table)});
  }
  return tables_of;
}

bool asks_about_disks(std::span<const vfio::UseQuestion> questions) {
  return std::ranges::any_of(questions, [](const vfio::UseQuestion& q) {
    return std::ranges::any_of(q.nodes, &vfio::DeviceNode::block);
  });
}

// "dm-0, md127": the claims on a disk that sysfs names; other claims have no name.
std::string users_of(const HostFs& host, const vfio::DeviceNode& node) {
  const std::string name = fs::path(node.name).filename();
  const auto users = host.list(fs::path("sys/class/block") / name / "holders");
  return fmt::format("{}", fmt::join(users.value_or(std::vector<std::string>{}), ", "));
}

/// A device that a loop device or an NVMe target exports, given by its path.
struct Lent {
  std::string path;
  std::string by;
};

// Loop devices and NVMe targets open their backing device without a claim.
std::vector<Lent> lent_on(const HostFs& host) {
  const auto names = [&](const fs::path& directory) {
    return host.list(directory).value_or(std::vector<std::string>{});
  };
  std::vector<Lent> lent;
  const fs::path disks = "sys/class/block";
  for (const std::string& name : names(disks)) {
    if (!name.starts_with("loop")) continue;
    if (auto file = host.read_attribute(disks / name / "loop/backing_file"))
      lent.push_back({.path = std::move(*file), .by = name});
  }
  const fs::path targets = "sys/kernel/config/nvmet/subsystems";
  for (const std::string& target : names(targets)) {
    for (const std::string& number : names(targets / target / "namespaces")) {
      const fs::path space = targets / target / "namespaces" / number;
      if (host.read_attribute(space / "enable").value_or("") != "1") continue;
      if (auto device = host.read_attribute(space / "device_path"))
        lent.push_back({.path = std::move(*device), .by = "NVMe target " + target});
    }
  }
  return lent;
}

bool leads_to(const HostFs& host, const Lent& lent, const vfio::DeviceNode& node) {
  if (lent.path == node.name) return true;
  const auto number = host.device_number(fs::path(lent.path).relative_path());
  return number && *number == node.number;
}

void be_blind(vfio::UseReport& report, std::string why) {
  report.unknown.push_back(why);
  if (report.blind.empty()) report.blind = std::move(why);
}

void find_mounts(const HostFs& host, std::span<const vfio::UseQuestion> questions, vfio::UseReport& report) {
  const auto own = host.read_file("proc/1/mountinfo");
  if (!own) return be_blind(report, "mounted file systems: " + own.error().message);
  const auto mounts = parse_mountinfo(*own);
  const auto others = tables_of_others(host, *own);
  for (const vfio::UseQuestion& question : questions) {
    for (const vfio::DeviceNode& node : question.nodes) {
      if (!node.block) continue;
      auto& users = report.users[question.device];
      const std::size_t before = users.size();
      const auto add = [&](const Mount& mount, std::optional<int> pid, std::string pod) {
        users.push_back({.kind = vfio::DeviceUser::Kind::mount,
                         .name = mount.point,
                         .pid = pid,
                         .what = node.name,
                         .pod_uid = std::move(pod)});
      };
      for (const Mount& mount : mounts)
        if (has_number(mount, node) || mount.source == node.name) add(mount, {}, "");
      if (users.size() != before) continue;  // the mounts in other namespaces are copies of the host's
      for (const MountTable& copy : others) {
        for (const Mount& mount : copy.mounts) {
          // The source is not compared, since a user who mounts a tmpfs in a namespace of his own chooses its
          // source freely.
          if (!has_number(mount, node)) continue;
          const auto cgroup = host.read_file(fs::path("proc") / std::to_string(*copy.pid) / "cgroup");
          add(mount, copy.pid, pod_uid(cgroup.value_or("")));
        }
      }
    }
  }
}

void find_swap(const HostFs& host, std::span<const vfio::UseQuestion> questions, vfio::UseReport& report) {
  const auto text = host.read_file("proc/swaps");
  if (!text) {
    // A kernel without swap has no such file. If it is unreadable, find_claims() still notices the swap.
    if (!is_gone(text.error())) report.unknown.push_back("swap: " + text.error().message);
    return;
  }
  const auto paths = parse_swaps(*text);
  for (const vfio::UseQuestion& question : questions) {
    for (const vfio::DeviceNode& node : question.nodes) {
      if (!node.block || std::ranges::find(paths, node.name) == paths.end()) continue;
      report.users[question.device].push_back({.kind = vfio::DeviceUser::Kind::swap, .what = node.name});
    }
  }
}

void find_lent(const HostFs& host, std::span<const vfio::UseQuestion> questions, vfio::UseReport& report) {
  const auto lent = lent_on(host);
  for (const vfio::UseQuestion& question : questions) {
    for (const vfio::DeviceNode& node : question.nodes) {
      for (const Lent& one : lent) {
        if (!node.block || !leads_to(host, one, node)) continue;
        report.users[question.device].push_back(
            {.kind = vfio::DeviceUser::Kind::claim, .name = one.by, .what = node.name});
      }
    }
  }
}

void find_claims(const HostFs& host, const TryClaim& claim, std::span<const vfio::UseQuestion> questions,
                 vfio::UseReport& report) {
  for (const vfio::UseQuestion& question : questions) {
    if (!report.of(question.device).empty()) continue;
    for (const vfio::DeviceNode& node : question.nodes) {
      if (!node.block) continue;
      const auto claimed = claim(node);
      if (claimed) continue;
      const std::error_code code = claimed.error().code;
      if (code == std::errc::no_such_device_or_address || code == kNoMedium) continue;
      // After a hang or another error no further disk is tried, because each try may cost the whole deadline.
      if (code != std::errc::device_or_resource_busy)
        return be_blind(report,
                        fmt::format("what the kernel has on {}: {}", node.name, claimed.error().message));
      report.users[question.device].push_back(
          {.kind = vfio::DeviceUser::Kind::claim, .name = users_of(host, node), .what = node.name});
    }
  }
}

}  // namespace

TryClaim claim_by_another_process(const HostFs& host) {
  struct Asker {
    explicit Asker(const fs::path& root) : host(root), writer(host) {}
    HostFs host;
    SpawningWriter writer;
  };
  return [asker = std::make_shared<Asker>(host.root())](const vfio::DeviceNode& node) {
    return asker->writer.try_claim(fs::path(node.name).relative_path(), node.number, kReadDeadline);
  };
}

Result<vfio::UseReport> disk_users(const HostFs& host, const TryClaim& claim,
                                   std::span<const vfio::UseQuestion> questions) {
  vfio::UseReport report;
  if (!asks_about_disks(questions)) return report;
  find_mounts(host, questions, report);
  find_swap(host, questions, report);
  find_lent(host, questions, report);
  find_claims(host, claim, questions, report);
  return report;
}

}  // namespace ferry::host
