// SPDX-License-Identifier: Apache-2.0
#include "host/systemd_services.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <map>
#include <optional>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>

#include <fmt/format.h>

#include "common/unique_fd.h"
#include "host/process_facts.h"
#include "host/sd_bus.h"

namespace ferry {
namespace {

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
class SystemdServices::Order {
 public:
  Order(const SdBus& api, Clock::time_point deadline) : api_(api), deadline_(deadline) {}
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;
  Order(Order&&) = delete;
  Order& operator=(Order&&) = delete;
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
    constexpr unsigned kProperties = 3;
    constexpr unsigned kProcesses = 1;
    constexpr unsigned kOtherUnits = 0;
    return answered(api_.call_method_async(bus_, nullptr, kSystemd, kPath, kManager, "StartTransientUnit",
                                           on_answer, this, "ssa(sv)a(sa(sv))", unit.c_str(), "fail",
                                           kProperties, "Description", "s", "GPUs by policy, of a container",
                                           "CollectMode", "s", "inactive-or-failed", "PIDs", "au", kProcesses,
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
  if (!api) return fail(Error(api.error()));
  Order order(**api, Clock::now() + deadline_);
  auto connection = connect_to_systemd(*host_);
  if (!connection) return fail(std::move(connection).error());
  if (auto opened = order.open(std::move(*connection)); !opened) return opened;
  auto asked = ask(order);
  if (!asked || !to_the_end) return asked;
  return order.wait_for_the_end(unit);
}

std::unique_ptr<Releaser> systemd_services(const HostFs& host) {
  for (const Door& door : kDoors) {
    if (host.exists(door.socket)) return std::make_unique<SystemdServices>(host);
  }
  return nullptr;
}

}  // namespace ferry
