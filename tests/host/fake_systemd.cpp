// SPDX-License-Identifier: Apache-2.0
#include "tests/host/fake_systemd.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>

namespace ferry::test {
namespace {

constexpr const char* kBusPath = "/org/freedesktop/DBus";
constexpr const char* kPath = "/org/freedesktop/systemd1";
constexpr const char* kManager = "org.freedesktop.systemd1.Manager";
constexpr const char* kJob = "/org/freedesktop/systemd1/job/17";
constexpr const char* kAnotherJob = "/org/freedesktop/systemd1/job/18";

UniqueFd listen_at(const std::filesystem::path& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.string().size() >= sizeof(address.sun_path)) throw std::runtime_error("too long a path");
  std::memcpy(address.sun_path, socket.c_str(), socket.string().size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), 4) != 0)
    throw std::runtime_error("cannot listen at " + socket.string());
  return fd;
}

int end_job(sd_bus* bus, const char* job, const char* result) {
  return sd_bus_emit_signal(bus, kPath, kManager, "JobRemoved", "uoss", 17U, job, "a.service", result);
}

// The units' properties: texts, and numbers of bytes and of processes, which are kept.
bool read_processes(sd_bus_message* message, std::string& into, std::uint32_t& last) {
  if (sd_bus_message_enter_container(message, 'a', "(sv)") < 0) return false;
  while (sd_bus_message_enter_container(message, 'r', "sv") > 0) {
    const char* name = nullptr;
    const char* text = nullptr;
    std::uint32_t process = 0;
    std::uint64_t bytes = 0;
    if (sd_bus_message_read(message, "s", &name) < 0) return false;
    const bool numbers = std::string_view(name) == "PIDs";
    const bool limits = std::string_view(name) == "MemoryMax";
    if ((numbers  ? sd_bus_message_read(message, "v", "au", 1, &process)
         : limits ? sd_bus_message_read(message, "v", "t", &bytes)
                  : sd_bus_message_read(message, "v", "s", &text)) < 0)
      return false;
    if (limits) into += std::string(" MemoryMax ") + std::to_string(bytes);
    if (numbers) {
      into += std::string(" PIDs ") + std::to_string(process);
      last = process;
    }
    sd_bus_message_exit_container(message);
  }
  sd_bus_message_exit_container(message);
  return sd_bus_message_skip(message, "a(sa(sv))") >= 0;
}

}  // namespace

FakeSystemd::FakeSystemd(const std::filesystem::path& socket, Manner manner, Job job)
    : manner_(manner), job_(std::move(job)), listener_(listen_at(socket)), stop_(::eventfd(0, EFD_CLOEXEC)) {
  thread_ = std::thread([this] { serve(); });
}

FakeSystemd::~FakeSystemd() {
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

std::vector<std::string> FakeSystemd::orders() const {
  const std::lock_guard lock(mutex_);
  return orders_;
}

void FakeSystemd::serve() {
  std::vector<UniqueFd> unanswered;
  for (;;) {
    std::array<pollfd, 2> desired = {pollfd{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                                     pollfd{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    ::poll(desired.data(), desired.size(), -1);
    if (desired[0].revents != 0) return;
    UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) return;
    if (manner_ == Manner::silent) {
      unanswered.push_back(std::move(connection));
    } else {
      serve_one(std::move(connection));
    }
  }
}

void FakeSystemd::serve_one(UniqueFd connection) {
  sd_bus* bus = nullptr;
  sd_id128_t id{};
  sd_id128_randomize(&id);
  sd_bus_new(&bus);
  const int fd = connection.release();
  sd_bus_set_fd(bus, fd, fd);
  sd_bus_set_server(bus, 1, id);
  sd_bus_set_sender(bus, "org.freedesktop.systemd1");
  sd_bus_start(bus);
  sd_bus_add_object(bus, nullptr, kPath, on_message, this);
  sd_bus_add_object(bus, nullptr, kBusPath, on_message, this);
  hung_up_ = false;
  while (!hung_up_) {
    const int done = sd_bus_process(bus, nullptr);
    if (done < 0) break;  // the other end has closed
    if (done > 0) continue;
    std::uint64_t until = 0;
    const int timeout = sd_bus_get_timeout(bus, &until) > 0 && until != UINT64_MAX ? 100 : -1;
    const int events = sd_bus_get_events(bus);
    std::array<pollfd, 2> desired = {pollfd{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                                     pollfd{.fd = fd, .events = static_cast<short>(events), .revents = 0}};
    ::poll(desired.data(), desired.size(), timeout);
    if (desired[0].revents != 0) break;
  }
  sd_bus_close_unref(bus);
}

int FakeSystemd::on_message(sd_bus_message* message, void* self, sd_bus_error* /*error*/) {
  return static_cast<FakeSystemd*>(self)->answer(message);
}

int FakeSystemd::answer(sd_bus_message* message) {
  const std::string member = sd_bus_message_get_member(message);
  if (member == "Hello") return sd_bus_reply_method_return(message, "s", ":1.5");
  if (member == "AddMatch" || member == "Subscribe") {
    const std::lock_guard lock(mutex_);
    orders_.push_back(member);
    return sd_bus_reply_method_return(message, "");
  }
  const char* unit = nullptr;
  const char* mode = nullptr;
  if (sd_bus_message_read(message, "ss", &unit, &mode) < 0) return -EINVAL;
  std::string more;
  std::uint32_t process = 0;
  if (member == "StartTransientUnit" && !read_processes(message, more, process)) return -EINVAL;
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(member + " " + unit + " " + mode + more);
  }
  sd_bus* const bus = sd_bus_message_get_bus(message);
  const auto reply = [&] { return sd_bus_reply_method_return(message, "o", kJob); };
  switch (manner_) {
    case Manner::prompt:
      reply();
      return end_job(bus, kJob,
                     !job_ || job_({.member = member, .unit = unit, .process = process}) ? "done" : "failed");
    case Manner::hasty:
      end_job(bus, kJob, "done");
      return reply();
    case Manner::refuses:
      return sd_bus_reply_method_errorf(message, "org.freedesktop.systemd1.NoSuchUnit", "Unit %s not loaded.",
                                        unit);
    case Manner::fails:
      reply();
      return end_job(bus, kJob, "failed");
    case Manner::others_first:
      sd_bus_emit_signal(bus, kPath, kManager, "JobRemoved", "s", "nonsense");
      end_job(bus, kAnotherJob, "failed");
      reply();
      end_job(bus, kAnotherJob, "canceled");
      return end_job(bus, kJob, "done");
    case Manner::wrong_answer:
      return sd_bus_reply_method_return(message, "u", 17U);
    case Manner::hangs_up:
      hung_up_ = true;
      return 1;
    case Manner::keeps_the_job:
    case Manner::silent:
      return reply();
  }
  return -EINVAL;
}

}  // namespace ferry::test
