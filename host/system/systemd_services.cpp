// SPDX-License-Identifier: Apache-2.0
#include "host/system/systemd_services.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <optional>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/lazy_library.h"
#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "host/usage/process_facts.h"

namespace ferry::host {
namespace {

// The needed functions of sd-bus(3), from libsystemd.so.0. The library is loaded at the first use, so that a
// process that never talks to systemd does not carry it (docs/adr/0008). ABI: sd-bus.h, libsystemd 252. A
// function that the library lacks is an error, never a null pointer.

/// Members are named as in sd-bus, without the prefix.
struct SdBus {
  decltype(&::sd_bus_new) make = nullptr;
  decltype(&::sd_bus_set_fd) set_fd = nullptr;
  decltype(&::sd_bus_set_bus_client) set_bus_client = nullptr;
  decltype(&::sd_bus_set_method_call_timeout) set_method_call_timeout = nullptr;
  decltype(&::sd_bus_start) start = nullptr;
  decltype(&::sd_bus_match_signal_async) match_signal_async = nullptr;
  decltype(&::sd_bus_call_method_async) call_method_async = nullptr;
  decltype(&::sd_bus_process) process = nullptr;
  decltype(&::sd_bus_wait) wait = nullptr;
  decltype(&::sd_bus_close_unref) close_unref = nullptr;
  decltype(&::sd_bus_message_read) message_read = nullptr;
  decltype(&::sd_bus_message_get_error) message_get_error = nullptr;
  decltype(&::sd_bus_message_get_sender) message_get_sender = nullptr;

  /// Loads the library once per process and never unloads it. Errc::unsupported: it is not installed.
  static Result<const SdBus*> get();
};

Result<SdBus> load() {
  auto library = LazyLibrary::load("libsystemd.so.0", "install libsystemd0");
  if (!library) return fail(std::move(library).error().during("talk to systemd"));
  SdBus bus;
  library->find("sd_bus_new", bus.make);
  library->find("sd_bus_set_fd", bus.set_fd);
  library->find("sd_bus_set_bus_client", bus.set_bus_client);
  library->find("sd_bus_set_method_call_timeout", bus.set_method_call_timeout);
  library->find("sd_bus_start", bus.start);
  library->find("sd_bus_match_signal_async", bus.match_signal_async);
  library->find("sd_bus_call_method_async", bus.call_method_async);
  library->find("sd_bus_process", bus.process);
  library->find("sd_bus_wait", bus.wait);
  library->find("sd_bus_close_unref", bus.close_unref);
  library->find("sd_bus_message_read", bus.message_read);
  library->find("sd_bus_message_get_error", bus.message_get_error);
  library->find("sd_bus_message_get_sender", bus.message_get_sender);
  if (auto r = library->has_all("systemd 252 or newer"); !r) return fail(std::move(r).error());
  return bus;
}

Result<const SdBus*> SdBus::get() {
  static const Result<SdBus> loaded = load();
  if (!loaded) return fail(loaded.error());
  return &*loaded;
}

using Clock = std::chrono::steady_clock;

constexpr const char* kSystemd = "org.freedesktop.systemd1";
constexpr const char* kPath = "/org/freedesktop/systemd1";
constexpr const char* kManager = "org.freedesktop.systemd1.Manager";

struct Door {
  const char* socket;
  bool bus;  ///< a bus with other peers; false: only systemd
};
constexpr std::array kDoors = {Door{.socket = "run/systemd/private", .bus = false},
                               Door{.socket = "run/dbus/system_bus_socket", .bus = true}};

struct Connection {
  UniqueFd fd;
  bool bus = false;
};

// The address is a descriptor of the socket's file, so that links stay below the host's root and no path is
// too long.
Result<UniqueFd> connect_to(const HostFs& host, const char* socket) {
  auto file = host.open(socket, O_PATH);
  if (!file) return file;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = fmt::format("/proc/self/fd/{}", file->get());
  std::memcpy(address.sun_path, path.c_str(), path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return fail(error_from_errno(errno, fmt::format("connect to /{}", socket)));
  return fd;
}

Result<Connection> connect_to_systemd(const HostFs& host) {
  std::string why;
  for (const Door& door : kDoors) {
    auto fd = connect_to(host, door.socket);
    if (fd) return Connection{.fd = std::move(*fd), .bus = door.bus};
    why += (why.empty() ? "" : "; ") + fd.error().message;
  }
  return fail(Errc::unreachable, "systemd: " + why);
}

}  // namespace

/// An order and its job. All questions are sent at once, and answers may come in any order.
class SystemdServices::Order : ferry::Pinned {
 public:
  Order(const SdBus& api, Clock::time_point deadline) : api_(api), deadline_(deadline) {}
  ~Order() {
    if (bus_ != nullptr) api_.close_unref(bus_);
  }

  Result<> open(Connection connection) {
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline_ - Clock::now());
    const auto patience = static_cast<std::uint64_t>(std::max<std::int64_t>(left.count(), 1));
    int done = api_.make(&bus_);
    if (done >= 0) done = api_.set_fd(bus_, connection.fd.get(), connection.fd.get());
    if (done >= 0) connection.fd.release();  // the bus closes it
    if (done >= 0) done = api_.set_bus_client(bus_, connection.bus ? 1 : 0);
    // The deadline of the order must expire first.
    if (done >= 0) done = api_.set_method_call_timeout(bus_, patience * 2);
    if (done >= 0) done = api_.start(bus_);
    // A job may end before its number is known, so the signal is subscribed to first.
    if (done >= 0) {
      done = api_.match_signal_async(bus_, nullptr, nullptr, kPath, kManager, "JobRemoved", on_job_removed,
                                     nullptr, this);
    }
    // On a bus systemd sends job signals only to subscribers.
    if (done >= 0 && connection.bus) {
      done =
          api_.call_method_async(bus_, nullptr, kSystemd, kPath, kManager, "Subscribe", on_ignored, this, "");
    }
    if (done < 0) return fail(error_from_errno(-done, "talk to systemd"));
    return {};
  }

  Result<> ask(const char* method, const std::string& unit) {
    return answered(api_.call_method_async(bus_, nullptr, kSystemd, kPath, kManager, method, on_answer, this,
                                           "ss", unit.c_str(), "replace"));
  }

  Result<> ask_for_scope(const std::string& unit, pid_t process) {
    constexpr unsigned kProperties = 4;
    constexpr std::uint64_t kMostMemory = std::uint64_t{512} << 20U;  // as ferry-hostd.service has it
    constexpr unsigned kProcesses = 1;
    constexpr unsigned kOtherUnits = 0;
    return answered(api_.call_method_async(
        bus_, nullptr, kSystemd, kPath, kManager, "StartTransientUnit", on_answer, this, "ssa(sv)a(sa(sv))",
        unit.c_str(), "fail", kProperties, "Description", "s", "GPUs by policy, of a container",
        "CollectMode", "s", "inactive-or-failed", "MemoryMax", "t", kMostMemory, "PIDs", "au", kProcesses,
        static_cast<std::uint32_t>(process), kOtherUnits));
  }

  Result<> wait_for_the_end(const std::string& unit) {
    auto ended = process_until([&] { return removed_.contains({job_, systemd_}); });
    if (!ended) return fail(std::move(ended).error().during("its job was taken on"));
    const std::string& result = removed_.at({job_, systemd_});
    if (result == "done") return {};
    return fail(Errc::failed, fmt::format("systemd: the job's result is \"{}\"", result),
                "see `systemctl status " + unit + "`");
  }

 private:
  Result<> answered(int sent) {
    if (sent < 0) return fail(error_from_errno(-sent, "talk to systemd"));
    if (auto answered = process_until([&] { return answered_; }); !answered) return answered;
    if (refusal_) return fail(Errc::failed, "systemd: " + *refusal_);
    return {};
  }

  Result<> process_until(const std::function<bool()>& reached) {
    while (!reached()) {
      const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline_ - Clock::now());
      if (left.count() <= 0) return fail(Errc::unreachable, "systemd has not answered by the deadline");
      const int processed = api_.process(bus_, nullptr);
      if (processed < 0) return fail(error_from_errno(-processed, "talk to systemd"));
      if (processed > 0) continue;
      const int waited = api_.wait(bus_, static_cast<std::uint64_t>(left.count()));
      if (waited < 0 && waited != -EINTR) return fail(error_from_errno(-waited, "talk to systemd"));
    }
    return {};
  }

  static std::string text(const char* value) { return value == nullptr ? "" : value; }

  static int on_ignored(sd_bus_message* /*message*/, void* /*order*/, sd_bus_error* /*error*/) { return 0; }
  static int on_answer(sd_bus_message* message, void* order, sd_bus_error* /*error*/) {
    Order& self = *static_cast<Order*>(order);
    self.answered_ = true;
    const char* job = nullptr;
    if (const sd_bus_error* refusal = self.api_.message_get_error(message); refusal != nullptr) {
      self.refusal_ = text(refusal->message != nullptr ? refusal->message : refusal->name);
    } else if (self.api_.message_read(message, "o", &job) < 0) {
      self.refusal_ = "it answers without a job";
    } else {
      self.job_ = text(job);
      self.systemd_ = text(self.api_.message_get_sender(message));
    }
    return 0;
  }
  static int on_job_removed(sd_bus_message* message, void* order, sd_bus_error* /*error*/) {
    Order& self = *static_cast<Order*>(order);
    std::uint32_t number = 0;
    const char* job = nullptr;
    const char* unit = nullptr;
    const char* result = nullptr;
    // The sender is compared too, because any peer on a bus may send this signal.
    if (self.api_.message_read(message, "uoss", &number, &job, &unit, &result) >= 0)
      self.removed_[{text(job), text(self.api_.message_get_sender(message))}] = text(result);
    return 0;
  }

  const SdBus& api_;
  Clock::time_point deadline_;
  sd_bus* bus_ = nullptr;
  bool answered_ = false;
  std::optional<std::string> refusal_;
  std::string job_;
  std::string systemd_;
  std::map<std::pair<std::string, std::string>, std::string> removed_;  // result by job and sender
};

Result<> SystemdServices::stop(const std::string& unit) {
  // systemd runs stop jobs before start jobs, so the job does not wait for this process.
  return order("StopUnit", unit, true);
}

Result<> SystemdServices::start(const std::string& unit) {
  const bool from_a_service = !service_of(host_->read_file("proc/self/cgroup").value_or("")).empty();
  return order("StartUnit", unit, !from_a_service);
}

Result<> SystemdServices::restart(const std::string& unit) {
  return order("RestartUnit", unit, true);
}

Result<> SystemdServices::reload(const std::string& unit) {
  return order("ReloadUnit", unit, true);
}

Result<> SystemdServices::start_scope(const std::string& unit, pid_t process) {
  return order(unit, true, [&](Order& order) { return order.ask_for_scope(unit, process); });
}

Result<> SystemdServices::order(const char* method, const std::string& unit, bool to_the_end) {
  return order(unit, to_the_end, [&](Order& order) { return order.ask(method, unit); });
}

Result<> SystemdServices::order(const std::string& unit, bool to_the_end,
                                const std::function<Result<>(Order&)>& ask) {
  const auto api = SdBus::get();
  if (!api) return fail(api.error());
  Order order(**api, Clock::now() + deadline_);
  auto connection = connect_to_systemd(*host_);
  if (!connection) return fail(std::move(connection).error());
  if (auto opened = order.open(std::move(*connection)); !opened) return opened;
  auto asked = ask(order);
  if (!asked || !to_the_end) return asked;
  return order.wait_for_the_end(unit);
}

std::unique_ptr<vfio::ServiceManager> systemd_services(const HostFs& host) {
  for (const Door& door : kDoors)
    if (host.exists(door.socket)) return std::make_unique<SystemdServices>(host);
  return nullptr;
}

namespace {

constexpr int kKilled = 128;  // as in a shell

// Moves a process into a scope. `process` is its number in the PID namespace of the host's systemd and /proc.
Result<> enclose(const HostFs& host, pid_t process) {
  if (process == 0)
    return fail(Errc::failed, "the number of this process in the host's PID namespace is not known");
  const std::string unit = fmt::format("ferry-hostd-{}.scope", process);
  if (auto started = SystemdServices(host).start_scope(unit, process); !started) return started;
  const auto group = host.read_file(fmt::format("proc/{}/cgroup", process));
  if (!group) return fail(group.error());
  if (group->find(unit) != std::string::npos) return {};
  return fail(Errc::failed, "systemd says that it is done, and /proc has another control group");
}

// `signals` must be blocked before the child is forked, so that none is missed.
int outlive(pid_t child, const sigset_t& signals) {
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : kKilled + WTERMSIG(status);
    int signal = 0;
    if (::sigwait(&signals, &signal) == 0 && signal != SIGCHLD) ::kill(child, signal);
  }
}

int do_as_child(const HostFs& host, pid_t parent, const sigset_t& before, UniqueFd talk,
                const std::function<int()>& work) {
  // The parent may have died before prctl() took effect.
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || ::getppid() != parent) return kKilled + SIGTERM;
  const pid_t self = pid_of(host.link_name("proc/self").value_or("")).value_or(0);
  char gone_on = 0;
  if (::write(talk.get(), &self, sizeof(self)) != sizeof(self)) return kKilled + SIGTERM;
  while (::read(talk.get(), &gone_on, 1) < 0 && errno == EINTR) {
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return work();
}

}  // namespace

int in_own_scope(const HostFs& host, const std::function<int()>& work) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return -1;
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  sigset_t signals{};
  sigset_t before{};
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ours = UniqueFd();
    return do_as_child(host, parent, before, std::move(theirs), work);
  }
  theirs = UniqueFd();
  int status = -1;
  if (child > 0) {
    pid_t number = 0;
    if (::read(ours.get(), &number, sizeof(number)) == sizeof(number)) {
      if (auto enclosed = enclose(host, number); !enclosed) {
        spdlog::warn(
            "the container's device rules stay: {}; groups on vfio are not taken back, nor disks looked into",
            enclosed.error().message);
      }
    }
    ours = UniqueFd();  // the child continues at the end of this socket
    status = outlive(child, signals);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace ferry::host
