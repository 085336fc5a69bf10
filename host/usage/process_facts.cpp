// SPDX-License-Identifier: Apache-2.0
#include "host/usage/process_facts.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "common/process/this_process.h"
#include "common/text/text.h"
#include "host/usage/nvidia_driver.h"
#include "hostfs/check_reading.h"
#include "hostfs/kernel_facts.h"
#include "hostfs/processes.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

// Programs that run VMs, apart from QEMU.
constexpr std::array<std::string_view, 7> kOtherMonitors = {
    "cloud-hypervisor", "crosvm", "dragonball", "firecracker", "lkvm", "openvmm", "stratovirt"};

// Bytes of a name in host status, which a tenant may choose.
constexpr std::size_t kLongestName = 253;

fs::path directory_of(int pid) {
  return fs::path("proc") / std::to_string(pid);
}

bool ended(const Error& error) {
  return is_gone(error) || error.code == std::errc::no_such_process;
}

bool has_passed(ScanDeadline until) {
  return std::chrono::steady_clock::now() >= until;
}

/// The distinct tables of open files of a process's threads; most threads share one. Asking the kernel costs
/// a hundredth of listing a table again. The tables are sorted by the kernel's order, so that thousands of
/// tables cost n log n questions instead of n squared.
class KnownTables {
 public:
  /// Begins with the first thread's table.
  KnownTables(const HostFs& host, int pid) : host_(host), known_{pid} {}

  /// True if a thread's table is known already; adds it otherwise. False also if the kernel does not say.
  bool contains(int thread) {
    // In another PID namespace the numbers are other processes', and a system call filter may forbid kcmp(2).
    if (!asks_)
      asks_ = pid_of(host_.link_name("proc/self").value_or("")) == ::getpid() &&
              compared(::getpid(), ::getpid()) == Compared::same;
    if (!*asks_) return false;
    std::size_t low = 0;
    std::size_t high = known_.size();
    while (low < high) {
      const std::size_t middle = low + ((high - low) / 2);
      switch (compared(known_[middle], thread)) {
        case Compared::same:
          return true;
        case Compared::less:
          low = middle + 1;
          break;
        case Compared::greater:
          high = middle;
          break;
        case Compared::ended:
          // ESRCH does not say which thread has ended. A thread that has ended has no files to show.
          if (compared(thread, thread) == Compared::ended) return true;
          known_.erase(known_.begin() + static_cast<std::ptrdiff_t>(middle));
          --high;
          break;
        case Compared::denied:  // EPERM concerns either thread; listing this thread's files decides
        case Compared::unknown:
          return false;
      }
    }
    known_.insert(known_.begin() + static_cast<std::ptrdiff_t>(low), thread);
    return false;
  }

 private:
  enum class Compared { same, less, greater, ended, denied, unknown };

  // kcmp(2), which glibc does not wrap. The results 1 and 2 give a stable order of the tables.
  static Compared compared(int a, int b) {
    constexpr long kLess = 1;
    constexpr long kGreater = 2;
    errno = 0;
    const long answer = ::syscall(SYS_kcmp, a, b, KCMP_FILES, 0, 0);
    if (answer == 0) return Compared::same;
    if (answer == kLess) return Compared::less;
    if (answer == kGreater) return Compared::greater;
    if (answer < 0 && errno == ESRCH) return Compared::ended;
    return answer < 0 && errno == EPERM ? Compared::denied : Compared::unknown;
  }

  const HostFs& host_;
  std::optional<bool> asks_;
  std::vector<int> known_;  // a thread for each table, in the kernel's order
};

// QEMU's option syntax: commas separate words, and a comma in a value is doubled. A first word without '=' is
// the value of `guest`.
std::string guest_of(std::string_view option) {
  std::vector<std::string> words(1);
  for (std::size_t i = 0; i < option.size(); ++i) {
    if (option[i] != ',') {
      words.back() += option[i];
    } else if (i + 1 < option.size() && option[i + 1] == ',') {
      words.back() += ',';
      ++i;
    } else {
      words.emplace_back();
    }
  }
  constexpr std::string_view kGuest = "guest=";
  for (const std::string& word : words)
    if (word.starts_with(kGuest)) return word.substr(kGuest.size());
  return words.front().find('=') == std::string::npos ? words.front() : "";
}

/// A line of proc/PID/cgroup: "ID:CONTROLLERS:/PATH" (cgroups(7)).
struct Hierarchy {
  bool of_systemd = false;  ///< cgroup v2's hierarchy, or the v1 hierarchy of systemd's units
  std::string_view path;
};

std::optional<Hierarchy> hierarchy_of(std::string_view line) {
  const auto first = line.find(':');
  if (first == std::string_view::npos) return {};
  const auto second = line.find(':', first + 1);
  if (second == std::string_view::npos) return {};
  const auto controllers = line.substr(first + 1, second - first - 1);
  return Hierarchy{.of_systemd = controllers.empty() || controllers == "name=systemd",
                   .path = line.substr(second + 1)};
}

// The service in "/system.slice/system-a.slice/a@1.service", if only the system's slices are above it.
std::string_view service_at(std::string_view path) {
  constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ:-_.\\@";
  constexpr std::string_view kService = ".service";
  constexpr std::string_view kSlice = "/system.slice/";
  if (!path.starts_with(kSlice)) return {};
  path.remove_prefix(kSlice.size());
  for (auto end = path.find('/'); end != std::string_view::npos; end = path.find('/')) {
    const auto slice = path.substr(0, end);
    if (!slice.starts_with("system-") || !slice.ends_with(".slice")) return {};
    path.remove_prefix(end + 1);
  }
  if (path.starts_with('_')) path.remove_prefix(1);
  const bool is_service = path.size() > kService.size() && path.ends_with(kService) &&
                          path.find_first_not_of(kLetters) == std::string_view::npos;
  return is_service ? path : std::string_view{};
}

}  // namespace

std::optional<int> pid_of(std::string_view name) {
  const auto pid = whole_number<int>(name);
  return pid && *pid > 0 ? pid : std::nullopt;
}

std::optional<std::string> vm_name(std::string_view cmdline) {
  const auto arguments = words_between(cmdline, '\0');
  if (arguments.empty()) return {};
  const std::string program = arguments[0].substr(arguments[0].find_last_of('/') + 1);
  if (std::ranges::find(kOtherMonitors, program) != kOtherMonitors.end()) return "";
  if (!program.starts_with("qemu-system-") && program != "qemu-kvm" && program != "kvm") return {};
  for (std::size_t i = 1; i + 1 < arguments.size(); ++i)
    if (arguments[i] == "-name" || arguments[i] == "--name") return guest_of(arguments[i + 1]);
  return "";
}

std::string_view systemd_root(std::string_view cgroup) {
  constexpr std::string_view kScope = "/init.scope";
  while (!cgroup.empty()) {
    const auto hierarchy = hierarchy_of(cut(cgroup, '\n'));
    if (hierarchy && hierarchy->of_systemd && hierarchy->path.ends_with(kScope))
      return hierarchy->path.substr(0, hierarchy->path.size() - kScope.size());
  }
  return {};
}

std::string service_of(std::string_view cgroup, std::string_view root) {
  std::vector<Hierarchy> hierarchies;
  std::string_view own;
  while (!cgroup.empty()) {
    auto hierarchy = hierarchy_of(cut(cgroup, '\n'));
    if (!hierarchy || !hierarchy->path.starts_with(root)) return "";
    hierarchy->path.remove_prefix(root.size());
    hierarchies.push_back(*hierarchy);
    if (!hierarchy->of_systemd || hierarchy->path == "/") continue;
    if (!own.empty() && own != hierarchy->path) return "";
    own = hierarchy->path;
  }
  // Container engines on cgroup v1 give processes their own groups in some hierarchies only.
  const bool agree = std::ranges::all_of(hierarchies, [&](const Hierarchy& hierarchy) {
    const std::string_view above = hierarchy.path;
    return above == "/" ||
           (own.starts_with(above) && (own.size() == above.size() || own[above.size()] == '/'));
  });
  return agree ? std::string(service_at(own)) : "";
}

bool each_table(const HostFs& host, int pid, ScanDeadline until,
                const std::function<bool(const OpenFiles&)>& visit) {
  const auto own = directory_of(pid) / "fd";
  const OpenFiles first{.directory = own, .names = host.list(own)};
  if (!visit(first) || !first.names) return true;
  const auto threads = directory_of(pid) / "task";
  KnownTables tables(host, pid);
  for (const std::string& thread : host.list(threads).value_or(std::vector<std::string>{})) {
    if (has_passed(until)) return false;
    const auto number = pid_of(thread);
    if (number == pid || (number && tables.contains(*number))) continue;
    if (host.exists(threads / thread / "task")) continue;  // a process's directory, not a thread's
    const auto directory = threads / thread / "fd";
    if (!visit({.directory = directory, .names = host.list(directory)})) return true;
  }
  return true;
}

bool runs_a_vm(const HostFs& host, int pid, ScanDeadline until) {
  if (vm_name(command_line(host, pid))) return true;
  bool vm = false;
  const bool all = each_table(host, pid, until, [&](const OpenFiles& files) {
    if (!files.names) {
      vm = !ended(files.names.error());
    } else {
      vm = std::ranges::any_of(*files.names, [&](const std::string& name) {
        if (has_passed(until)) return true;
        // ABI: virt/kvm/kvm_main.c, anon_inode_getfd("kvm-vm"): the name of an open VM.
        const auto target = host.link_target(files.directory / name);
        return target ? *target == "anon_inode:kvm-vm" : !ended(target.error());
      });
    }
    return !vm;
  });
  return vm || !all;
}

vfio::DeviceUser describe_process(const HostFs& host, int pid, std::string what, ScanDeadline until) {
  const auto directory = directory_of(pid);
  const std::string comm = host.read_attribute(directory / "comm").value_or("?");
  const auto name = vm_name(command_line(host, pid)).value_or("");
  const std::string cgroup = host.read_file(directory / "cgroup").value_or("");
  const std::string of_the_first = host.read_file(directory_of(1) / "cgroup").value_or("");
  const bool vm = runs_a_vm(host, pid, until);
  const bool stoppable = !vm && !what.starts_with("/dev/vfio/");
  std::string pod = pod_uid(cgroup);
  const bool closes = stoppable && !pod.empty() && closes_on_request(host, pid);
  return {.kind = vm ? vfio::DeviceUser::Kind::virtual_machine : vfio::DeviceUser::Kind::process,
          .name = std::string(beginning_of(name.empty() ? comm : name, kLongestName)),
          .pid = pid,
          .what = std::move(what),
          .pod_uid = std::move(pod),
          .service = stoppable ? service_of(cgroup, systemd_root(of_the_first)) : "",
          .closes_on_request = closes};
}

ProcessEnds::ProcessEnds(EventLoop& loop, const HostFs& host, std::function<void()> ended)
    : loop_(loop), host_(host), ended_(std::move(ended)) {}

ProcessEnds::~ProcessEnds() {
  forget_all();
}

void ProcessEnds::forget_all() {
  for (const auto& [pid, fd] : watched_) loop_.forget(fd.get());
  watched_.clear();
}

bool ProcessEnds::watch(const std::set<int>& processes) {
  std::erase_if(reported_, [&](int pid) { return !processes.contains(pid); });
  std::erase_if(watched_, [&](const auto& one) {
    if (processes.contains(one.first)) return false;
    loop_.forget(one.second.get());
    return true;
  });
  if (processes.empty()) return true;
  // In another PID namespace than that of the host's /proc, the numbers would name other processes.
  const auto own = own_pid_namespace(host_);
  const auto shown = pid_namespace_of_proc(host_);
  if (!own || !shown || *own != *shown) return false;
  const std::size_t most = std::min(kMost, descriptor_limit() / 4);
  bool all = true;
  for (const int pid : processes) {
    if (watched_.contains(pid) || reported_.contains(pid)) continue;
    if (watched_.size() >= most) return false;
    // glibc has no wrapper before 2.36. ABI: pidfd_open(2), Linux 5.3.
    UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!fd.valid() && errno == ESRCH) {  // it ended after the scan
      report(pid);
      continue;
    }
    if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) {
      forget_all();  // the rest of hostd needs the remaining descriptors
      return false;
    }
    if (!fd.valid()) {
      all = false;
      continue;
    }
    loop_.watch(fd.get(), [this, pid] { report(pid); });
    watched_.emplace(pid, std::move(fd));
  }
  return all;
}

/// Reports each process once. It is not watched again if a later look still lists it as a user.
void ProcessEnds::report(int pid) {
  reported_.insert(pid);
  if (const auto end = watched_.find(pid); end != watched_.end()) {
    loop_.forget(end->second.get());
    watched_.erase(end);
  }
  ended_();
}

}  // namespace ferry::host
