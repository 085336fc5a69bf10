// SPDX-License-Identifier: Apache-2.0
#include "host/proc_use_probe.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/counted.h"
#include "common/patient_caller.h"
#include "host/process_facts.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

struct Asked {
  std::string device;
  std::string node;
  auto operator<=>(const Asked&) const = default;
};
using AskedNodes =
    std::multimap<std::pair<DeviceNumber, bool>, Asked>;  // number, and whether a block device's

bool not_permitted(const Error& error) {
  return error.code == std::errc::permission_denied || error.code == std::errc::operation_not_permitted;
}

// The names in map_files of what is mapped shared from a file, as device memory is: lines of proc/PID/maps
// such as "00400000-00401000 rw-s 00000000 00:06 409 /dev/nvidia0". map_files writes the same range without
// the leading zeros.
std::vector<std::string> shared_mappings(std::string_view maps) {
  std::vector<std::string> names;
  const auto without_zeros = [](std::string_view number) {
    return number.substr(std::min(number.find_first_not_of('0'), number.size() - 1));
  };
  while (!maps.empty()) {
    const auto end = std::min(maps.find('\n'), maps.size());
    const std::string_view line = maps.substr(0, end);
    maps.remove_prefix(std::min(end + 1, maps.size()));
    const auto dash = line.find('-');
    const auto blank = line.find(' ');
    constexpr std::size_t kShared = 4;  // letters behind the blank: "rw-s"
    if (dash == std::string_view::npos || blank == std::string_view::npos || dash == 0 || dash + 1 >= blank ||
        line.substr(blank).size() <= kShared || line[blank + kShared] != 's' ||
        line.find('/') == std::string_view::npos) {
      continue;
    }
    names.push_back(fmt::format("{}-{}", without_zeros(line.substr(0, dash)),
                                without_zeros(line.substr(dash + 1, blank - dash - 1))));
  }
  return names;
}

// One process's open and mapped files.
class Look {
 public:
  Look(const HostFs& host, int pid, const AskedNodes& asked) : host_(&host), pid_(pid), asked_(&asked) {}

  void at_descriptors() {
    for (const OpenFiles& files : open_files(*host_, pid_)) {
      if (!files.names) {
        note(files.names.error());
        continue;
      }
      for (const std::string& name : *files.names) at_entry(files.directory / name);
    }
  }
  void at_mappings() {
    const auto directory = fs::path("proc") / std::to_string(pid_);
    auto maps = host_->read_attribute(directory / "maps");
    if (!maps) return note(maps.error());
    if (!maps->empty()) return at_mappings(*maps, directory);
    // A kernel thread, or a process whose first thread has ended. The memory is one; only where a thread is
    // looked up as a process are there its map_files.
    for (const std::string& thread : host_->list(directory / "task").value_or(std::vector<std::string>{})) {
      maps = host_->read_attribute(directory / "task" / thread / "maps");
      if (!maps) {
        note(maps.error());
      } else if (!maps->empty()) {
        return at_mappings(*maps, fs::path("proc") / thread);
      }
    }
  }

  const std::set<Asked>& found() const { return found_; }
  bool blocked() const { return blocked_; }

 private:
  void at_mappings(std::string_view maps, const fs::path& directory) {
    for (const std::string& name : shared_mappings(maps)) at_entry(directory / "map_files" / name);
  }
  void at_entry(const fs::path& entry) {
    const auto opened = host_->opened_device(entry);
    if (!opened) return note(opened.error());
    const std::optional<OpenedDevice> device = *opened;
    if (!device) return;
    const auto [first, last] = asked_->equal_range({device->number, device->block});
    for (auto match = first; match != last; ++match) found_.insert(match->second);
  }
  // Whatever else goes wrong with one entry: it was closed, the process ended, or it lies on a file system
  // that is broken; a device node does not.
  void note(const Error& error) { blocked_ = blocked_ || not_permitted(error); }

  const HostFs* host_;
  int pid_;
  const AskedNodes* asked_;
  std::set<Asked> found_;
  bool blocked_ = false;
};

/// What one process has of what is asked for.
struct Seen {
  std::map<std::string, std::vector<Holder>> holders;  ///< by device
  bool blocked = false;                                ///< not all of it could be looked at
};

Seen look_into(const HostFs& host, int pid, const AskedNodes& asked) {
  Look process(host, pid, asked);
  process.at_descriptors();
  process.at_mappings();
  Seen seen{.holders = {}, .blocked = process.blocked()};
  for (const auto& [device, node] : process.found()) {
    seen.holders[device].push_back(describe_process(host, pid, node));
  }
  return seen;
}

// Whether a process of this service is a VM or in a pod: stopping the service would end it.
bool is_vm_or_pod(const HostFs& host, int pid, const std::string& service) {
  const auto directory = fs::path("proc") / std::to_string(pid);
  const auto cgroup = host.read_file(directory / "cgroup");
  // One that ended meanwhile is no VM any more; one that cannot be looked at may be.
  if (!cgroup) return !is_gone(cgroup.error()) && cgroup.error().code != std::errc::no_such_process;
  if (cgroup->find(service) == std::string::npos) return false;
  return !pod_uid(*cgroup).empty() || runs_a_vm(host, pid);
}

/// All processes, one after the other. What is mapped and the command line are read under the lock of a
/// process's memory, which one that hangs may keep; a signal ends that wait (fs/proc/task_mmu.c, since 5.3).
class Walk {
 public:
  Walk(const fs::path& root, AskedNodes asked, std::chrono::milliseconds patience)
      : host_(std::make_shared<const HostFs>(root)),
        asked_(std::make_shared<const AskedNodes>(std::move(asked))),
        caller_(patience) {}

  Result<UseReport> look() {
    if (auto listed = list(); !listed) return fail(std::move(listed).error());
    // We hold groups open ourselves while we move them. Absent in another PID namespace: there nobody is us.
    const auto ourselves = pid_of(host_->link_name("proc/self").value_or(""));
    for (const int pid : pids_) {
      if (pid == ourselves) continue;
      auto seen =
          ask<Seen>(pid, [host = host_, asked = asked_, pid] { return look_into(*host, pid, *asked); });
      if (!seen) continue;
      if (seen->blocked) blocked_.push_back(pid);
      for (auto& [device, holders] : seen->holders) {
        std::ranges::move(holders, std::back_inserter(report_.holders[device]));
      }
    }
    keep_only_harmless_services();
    tell_what_was_not_seen();
    return std::move(report_);
  }

 private:
  Result<> list() {
    const auto names = host_->list("proc");
    if (!names) return fail(Error(names.error()).during("look who uses the devices"));
    for (const std::string& name : *names) {
      if (const auto pid = pid_of(name)) pids_.push_back(*pid);
    }
    if (!pids_.empty()) return {};
    return fail(Errc::unsupported, "look who uses the devices: /proc shows no process",
                "the host's /proc must be mounted at the host's root");
  }

  // Each that does not answer costs the whole patience: behind a few of them nobody is asked any more.
  template <typename T>
  std::optional<T> ask(int pid, std::function<T()> question) {
    constexpr std::size_t kEnough = 3;
    if (silent_.contains(pid) || silent_.size() >= kEnough) return std::nullopt;
    auto answer = caller_.call(std::move(question));
    if (!answer) silent_.insert(pid);
    return answer;
  }

  void keep_only_harmless_services() {
    std::map<std::string, bool> harmless;
    for (auto& [device, holders] : report_.holders) {
      for (Holder& holder : holders) {
        if (holder.service.empty()) continue;
        const auto [known, added] = harmless.try_emplace(holder.service, false);
        if (added) known->second = !runs_a_vm_or_pod(holder.service);
        if (!known->second) holder.service.clear();
      }
    }
  }
  bool runs_a_vm_or_pod(const std::string& service) {
    return std::ranges::any_of(pids_, [&](int pid) {
      return ask<bool>(pid, [host = host_, pid, service] { return is_vm_or_pod(*host, pid, service); })
          .value_or(true);
    });
  }

  void tell_what_was_not_seen() {
    // ABI: include/linux/proc_ns.h, PROC_PID_INIT_INO. In a namespace of its own the most of the host is
    // unseen.
    constexpr std::string_view kHostsNamespace = "pid:[4026531836]";
    const auto space = host_->link_target("proc/1/ns/pid");
    if (space && *space != kHostsNamespace) blind("/proc shows the processes of a container alone");
    if (!silent_.empty()) {
      blind(fmt::format("process {} does not let itself be looked into: the kernel keeps who asks waiting",
                        fmt::join(silent_, ", ")));
    }
    if (!blocked_.empty()) blind(named(blocked_) + " could not be looked into: not permitted");
  }
  // "process 1 (systemd)", "processes 1 (systemd), 7 (a), 9 (b) and 12 others"
  std::string named(const std::vector<int>& pids) const {
    constexpr std::size_t kMostNamed = 3;
    std::vector<std::string> names;
    names.reserve(kMostNamed);
    for (const int pid : std::span(pids).first(std::min(pids.size(), kMostNamed))) {
      const auto name = host_->read_attribute(fs::path("proc") / std::to_string(pid) / "comm");
      names.push_back(fmt::format("{} ({})", pid, name.value_or("ended")));
    }
    const std::size_t others = pids.size() - names.size();
    return fmt::format("{} {}{}", pids.size() == 1 ? "process" : "processes", fmt::join(names, ", "),
                       others == 0 ? "" : " and " + counted(others, "other"));
  }
  void blind(std::string why) {
    report_.unknown.push_back(why);
    if (report_.blind.empty()) report_.blind = std::move(why);
  }

  // Shared with what is still read for us when nobody waits for it any more.
  std::shared_ptr<const HostFs> host_;
  std::shared_ptr<const AskedNodes> asked_;
  PatientCaller caller_;
  std::vector<int> pids_;
  std::set<int> silent_;
  std::vector<int> blocked_;
  UseReport report_;
};

}  // namespace

Result<UseReport> ProcUseProbe::look(std::span<const UseQuestion> questions) {
  AskedNodes asked;
  for (const UseQuestion& question : questions) {
    for (const DeviceNode& node : question.nodes) {
      asked.emplace(std::pair(node.number, node.block), Asked{.device = question.device, .node = node.name});
    }
  }
  if (asked.empty()) return UseReport{};
  return Walk(host_->root(), std::move(asked), patience_).look();
}

}  // namespace ferry
