// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "common/text/visible_text.h"
#include "host/usage/process_facts.h"
#include "host/usage/use_probes.h"
#include "hostfs/bounded_caller.h"
#include "hostfs/check_reading.h"
#include "hostfs/kernel_facts.h"
#include "hostfs/processes.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

struct Asked {
  std::string device;
  std::string node;
  auto operator<=>(const Asked&) const = default;
};
using AskedNodes =
    std::multimap<std::pair<DeviceNumber, bool>, Asked>;  // by number, with true for a block device's

// The names in map_files of shared file mappings, as device memory is mapped. proc/PID/maps has lines such as
// "00400000-00401000 rw-s 00000000 00:06 409 /dev/nvidia0". map_files writes the same range without leading
// zeros.
std::vector<std::string> shared_mappings(std::string_view maps) {
  std::vector<std::string> names;
  const auto without_zeros = [](std::string_view number) {
    return number.substr(std::min(number.find_first_not_of('0'), number.size() - 1));
  };
  while (!maps.empty()) {
    const std::string_view line = cut(maps, '\n');
    const auto dash = line.find('-');
    const auto blank = line.find(' ');
    constexpr std::size_t kShared = 4;  // "rw-s" after the blank
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

class ProcessScan {
 public:
  ProcessScan(const HostFs& host, int pid, const AskedNodes& asked, ScanDeadline until)
      : host_(&host), pid_(pid), asked_(&asked), until_(until) {}

  void at_descriptors() {
    const bool all = each_table(*host_, pid_, until_, [this](const OpenFiles& files) {
      if (!files.names) note(files.names.error());
      if (files.names) at_entries(files.directory, *files.names);
      return !late_;
    });
    late_ = late_ || !all;
  }
  void at_mappings() {
    const auto directory = fs::path("proc") / std::to_string(pid_);
    auto maps = host_->read_attribute(directory / "maps");
    if (!maps) return note(maps.error());
    if (!maps->empty()) return at_mappings(*maps, directory);
    // A kernel thread has no mappings, and so has a process whose first thread has ended. Its threads share
    // one memory; map_files exists only below proc/THREAD, where the thread is looked up as a process.
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
  bool late() const { return late_; }

 private:
  void at_mappings(std::string_view maps, const fs::path& directory) {
    at_entries(directory / "map_files", shared_mappings(maps));
  }
  void at_entries(const fs::path& directory, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      late_ = late_ || std::chrono::steady_clock::now() >= until_;
      if (late_) return;
      const auto opened = host_->opened_device(directory / name);
      if (!opened) note(opened.error());
      if (!opened || !*opened) continue;
      const OpenedDevice device = **opened;
      const auto [first, last] = asked_->equal_range({device.number, device.block});
      for (auto match = first; match != last; ++match) found_.insert(match->second);
    }
  }
  // Other errors are harmless: the file was closed, the process ended, or the file lies on a broken file
  // system, where no device node lies.
  void note(const Error& error) {
    blocked_ = blocked_ || error.code == std::errc::permission_denied ||
               error.code == std::errc::operation_not_permitted;
    late_ = late_ || error.code == std::errc::file_too_large;  // the list of mappings is too long
  }

  const HostFs* host_;
  int pid_;
  const AskedNodes* asked_;
  ScanDeadline until_;
  std::set<Asked> found_;
  bool blocked_ = false;
  bool late_ = false;
};

struct ProcessUse {
  std::map<std::string, std::vector<vfio::DeviceUser>> users;  ///< by device
  bool blocked = false;                                        ///< a part could not be looked at
  bool late = false;                                           ///< the scan took too long
};

ProcessUse scan_process(const HostFs& host, int pid, const AskedNodes& asked, ScanDeadline until) {
  ProcessScan process(host, pid, asked, until);
  process.at_descriptors();
  process.at_mappings();
  ProcessUse use{.users = {}, .blocked = process.blocked(), .late = process.late()};
  for (const auto& [device, node] : process.found())
    use.users[device].push_back(describe_process(host, pid, node, until));
  return use;
}

// True if a process of this service is a VM or in a pod, so that stopping the service would end it.
bool is_vm_or_pod(const HostFs& host, int pid, const std::string& service, ScanDeadline until) {
  const auto directory = fs::path("proc") / std::to_string(pid);
  const auto cgroup = host.read_file(directory / "cgroup");
  // A process that ended meanwhile is no VM; a process that cannot be looked at may be one.
  if (!cgroup) return !is_gone(cgroup.error()) && cgroup.error().code != std::errc::no_such_process;
  if (cgroup->find(service) == std::string::npos) return false;
  return !pod_uid(*cgroup).empty() || runs_a_vm(host, pid, until);
}

/// Looks at all processes, one by one. Reading mappings and command lines takes the lock of the process's
/// memory, which a hanging process may keep. A signal ends that wait (fs/proc/task_mmu.c, since 5.3).
class Walk {
  // A scan ends by itself at its deadline. The caller waits this much longer, which tells a process with too
  // many files from a process whose look the kernel blocks.
  static constexpr std::chrono::milliseconds kToStop{1000};
  // A limit for many processes that each take a little less than `patience`.
  static constexpr int kMostPatiences = 30;
  static constexpr int kOfAPod = 2;  // for all processes of a pod together
  using Clock = std::chrono::steady_clock;

 public:
  using LateLooks = std::map<int, std::weak_ptr<void>>;

  /// `late_looks` are those of earlier walks that have not ended; this one adds its own.
  Walk(const fs::path& root, AskedNodes asked, std::chrono::milliseconds patience, LateLooks& late_looks)
      : host_(std::make_shared<const HostFs>(root)),
        asked_(std::make_shared<const AskedNodes>(std::move(asked))),
        patience_(patience),
        caller_(patience + kToStop),
        late_looks_(&late_looks) {}

  Result<vfio::UseReport> look() {
    if (auto listed = list(); !listed) return fail(std::move(listed).error());
    // hostd opens groups itself during a bind. In another PID namespace the number is absent.
    const auto ourselves = pid_of(host_->link_name("proc/self").value_or(""));
    for (const int pid : pids_) {
      const std::string pod =
          pod_uid(host_->read_file(fs::path("proc") / std::to_string(pid) / "cgroup").value_or(""));
      if (pid == ourselves || late_pods_.contains(pod)) continue;
      const auto begun = Clock::now();
      const auto until = begun + std::min<Clock::duration>(patience_, kOfAPod * patience_ - spent_[pod]);
      auto use = ask<ProcessUse>(pid, [host = host_, asked = asked_, pid, until] {
        return scan_process(*host, pid, *asked, until);
      });
      if (!pod.empty()) spent_[pod] += Clock::now() - begun;
      if (use) take(*use, pid, pod);
      if (!use && !pod.empty() && is_silent(pid)) {
        of_pods_.insert(pid);
        counts_for_all(pid, pod, "open files that the kernel did not show in time");
      }
    }

    std::map<std::string, bool> harmless;  // services that no VM and no pod needs
    for (auto& [device, users] : report_.users) {
      for (vfio::DeviceUser& device_user : users) {
        if (device_user.service.empty()) continue;
        const auto [known, added] = harmless.try_emplace(device_user.service, false);
        if (added) known->second = !runs_a_vm_or_pod(device_user.service);
        if (!known->second) device_user.service.clear();
      }
    }
    report_blind_spots();
    return std::move(report_);
  }

 private:
  Result<> list() {
    const auto names = host_->list("proc");
    if (!names) return fail(Error(names.error()).during("look who uses the devices"));
    for (const std::string& name : *names)
      if (const auto pid = pid_of(name)) pids_.push_back(*pid);
    if (!pids_.empty()) return {};
    return fail(Errc::unsupported, "look who uses the devices: /proc shows no process",
                "the host's /proc must be mounted at the host's root");
  }

  void take(ProcessUse& use, int pid, const std::string& pod) {
    if (use.blocked) blocked_.push_back(pid);
    for (auto& [device, users] : use.users)
      std::ranges::move(users, std::back_inserter(report_.users[device]));
    const auto whole = kOfAPod * patience_;
    const bool late = use.late || spent_[pod] >= whole;
    if (late && pod.empty()) late_.push_back(pid);
    if (!late || pod.empty()) return;
    counts_for_all(pid, pod,
                   fmt::format("more open files than can be looked through within {} ms",
                               (use.late ? patience_ : whole).count()));
    report_.unknown.push_back(too_many_files({pid}));
  }

  bool is_silent(int pid) const { return std::ranges::find(silent_, pid) != silent_.end(); }

  /// A pod chooses how many files its processes open, and may make them hang. If that made the report blind,
  /// no drain could end it. The process therefore counts as a user of every device, so that a drain evicts
  /// its pod.
  void counts_for_all(int pid, const std::string& pod, std::string what) {
    late_pods_.insert(pod);
    const auto name = host_->read_attribute(fs::path("proc") / std::to_string(pid) / "comm");
    const vfio::DeviceUser user{.kind = vfio::DeviceUser::Kind::process,
                                .name = name.value_or("?"),
                                .pid = pid,
                                .what = std::move(what),
                                .pod_uid = pod};
    for (const auto& [number, asked] : *asked_) {
      auto& users = report_.users[asked.device];
      const auto is_known = [pid](const vfio::DeviceUser& device_user) { return device_user.pid == pid; };
      if (std::ranges::none_of(users, is_known)) users.push_back(user);
    }
  }
  std::string too_many_files(const std::vector<int>& pids) const {
    return fmt::format("{} could not be looked through within {} ms: too many open files", named(pids),
                       patience_.count());
  }

  // Each process that takes too long costs the whole patience, so three of them end the scan. Pods may have
  // more, since the time of each pod is bounded.
  template <typename T>
  std::optional<T> ask(int pid, std::function<T()> question) {
    constexpr std::size_t kEnough = 3;
    if (is_silent(pid) || silent_.size() - of_pods_.size() + late_.size() >= kEnough) return std::nullopt;
    if (late_looks_->contains(pid)) {
      silent_.push_back(pid);
      return std::nullopt;
    }
    const auto asked = Clock::now();
    if (asked - begun_ > patience_ * kMostPatiences) {
      ++unasked_;
      return std::nullopt;
    }
    // The job owns `running`: the weak pointer in `late_looks_` expires when a late job ends.
    const auto running = std::make_shared<bool>();
    auto answer = caller_.call<T>([running, question = std::move(question)] { return question(); });
    if (!answer) {
      silent_.push_back(pid);
      late_looks_->emplace(pid, running);
    }
    const auto took = Clock::now() - asked;
    if (took > longest_) {
      longest_ = took;
      slowest_ = pid;
    }
    return answer;
  }

  bool runs_a_vm_or_pod(const std::string& service) {
    return std::ranges::any_of(pids_, [&](int pid) {
      return ask<bool>(pid,
                       [host = host_, pid, service, patience = patience_] {
                         return is_vm_or_pod(*host, pid, service,
                                             std::chrono::steady_clock::now() + patience);
                       })
          .value_or(true);
    });
  }

  void report_blind_spots() {
    // A /proc of another namespace misses most of the host.
    const auto space = pid_namespace_of_proc(*host_);
    if (space && *space != kHostsPidNamespace) blind("/proc shows the processes of a container alone");
    std::erase_if(silent_, [this](int pid) { return of_pods_.contains(pid); });
    if (!silent_.empty())
      blind(named(silent_) + " could not be looked into: the kernel did not answer in time");
    if (!late_.empty()) blind(too_many_files(late_));
    if (unasked_ > 0) {
      blind(fmt::format("{} could not be looked into within {} ms in all, and {} took the longest",
                        counted(unasked_, "process", "processes"), (patience_ * kMostPatiences).count(),
                        named({slowest_})));
    }
    if (!blocked_.empty()) blind(named(blocked_) + " could not be looked into: not permitted");
  }
  // Returns for example "process 1 (systemd)" or "processes 1 (systemd), 7 (a) in pod UID, 9 (b) and 12
  // others".
  std::string named(const std::vector<int>& pids) const {
    constexpr std::size_t kMostNamed = 3;
    std::vector<std::string> names;
    names.reserve(kMostNamed);
    for (const int pid : std::span(pids).first(std::min(pids.size(), kMostNamed))) {
      const auto directory = fs::path("proc") / std::to_string(pid);
      const auto name = host_->read_attribute(directory / "comm");
      const auto pod = pod_uid(host_->read_file(directory / "cgroup").value_or(""));
      names.push_back(fmt::format("{} ({}){}", pid, visible_line(name.value_or("ended")),
                                  pod.empty() ? "" : " in pod " + pod));
    }
    const std::size_t others = pids.size() - names.size();
    return fmt::format("{} {}{}", pids.size() == 1 ? "process" : "processes", fmt::join(names, ", "),
                       others == 0 ? "" : " and " + counted(others, "other"));
  }
  void blind(std::string why) {
    report_.unknown.push_back(why);
    if (report_.blind.empty()) report_.blind = std::move(why);
  }

  // Shared with a read in another thread that continues after its caller has given up.
  std::shared_ptr<const HostFs> host_;
  std::shared_ptr<const AskedNodes> asked_;
  std::chrono::milliseconds patience_;
  BoundedCaller caller_;
  LateLooks* late_looks_;
  std::vector<int> pids_;
  std::vector<int> silent_;  // the kernel blocked the scan of these
  std::set<int> of_pods_;    // those of them that count for their pods
  Clock::time_point begun_ = Clock::now();
  Clock::duration longest_{};        // the longest time for one process
  int slowest_ = 0;                  // the number of that process
  std::size_t unasked_ = 0;          // processes left when the time was over
  std::vector<int> late_;            // the scan ended at its own deadline, and the process is in no pod
  std::set<std::string> late_pods_;  // the UIDs of pods that count as users of every device
  std::map<std::string, Clock::duration> spent_;  // on the processes of a pod, by its UID
  std::vector<int> blocked_;
  vfio::UseReport report_;
};

}  // namespace

Result<vfio::UseReport> ProcUseProbe::look(std::span<const vfio::UseQuestion> questions) {
  AskedNodes asked;
  for (const vfio::UseQuestion& question : questions) {
    for (const vfio::DeviceNode& node : question.nodes)
      asked.emplace(std::pair(node.number, node.block), Asked{.device = question.device, .node = node.name});
  }
  if (asked.empty()) return vfio::UseReport{};
  std::erase_if(late_looks_, [](const auto& late) { return late.second.expired(); });
  return Walk(host_->root(), std::move(asked), patience_, late_looks_).look();
}

}  // namespace ferry::host
