// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/spawn.h"
#include "kata-manager/fetch_protocol.h"

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;

// The request as a file without a name: credentials are in no argument, no environment and on no disk, and a
// program that does not read cannot make us wait.
Result<UniqueFd> as_input(const std::string& text) {
  UniqueFd fd(::memfd_create("ferry-fetch request", MFD_CLOEXEC));
  if (!fd.valid()) return fail(error_from_errno(errno, "make the request"));
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd.get(), text.data() + at, text.size() - at);
    if (n < 0 && errno != EINTR) return fail(error_from_errno(errno, "make the request"));
    if (n > 0) at += static_cast<std::size_t>(n);
  }
  if (::lseek(fd.get(), 0, SEEK_SET) != 0) return fail(error_from_errno(errno, "make the request"));
  return fd;
}

// Reads what ferry-fetch tells, line by line, until it ends or the deadline comes.
class Listener {
 public:
  Listener(const std::function<void(const FetchProgress&)>& told) : told_(&told) {}

  Result<> listen(int fd, Clock::time_point until) {
    std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      if (left.count() <= 0) return fail(Errc::unreachable, "ferry-fetch: it was not done by the deadline");
      pollfd watched{.fd = fd, .events = POLLIN, .revents = 0};
      if (::poll(&watched, 1, static_cast<int>(left.count())) <= 0) continue;
      const ssize_t n = ::read(fd, buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail(error_from_errno(errno, "read ferry-fetch's answer"));
      if (n == 0) return {};
      if (auto taken = take({buffer.data(), static_cast<std::size_t>(n)}); !taken) return taken;
    }
  }

  Result<Artifact> answer(int status) {
    if (last_.error) return fail(std::move(*last_.error));
    if (last_.artifact) return std::move(*last_.artifact);
    return fail(Errc::unreachable, fmt::format("ferry-fetch ended without an answer (status {})", status));
  }

 private:
  Result<> take(std::string_view bytes) {
    line_ += bytes;
    for (auto end = line_.find('\n'); end != std::string::npos; end = line_.find('\n')) {
      auto told = read_told(std::string_view(line_).substr(0, end));
      if (!told) return fail(std::move(told).error());
      line_.erase(0, end + 1);
      const std::optional<FetchProgress> progress = told->progress;
      if (progress && *told_) (*told_)(*progress);
      last_ = std::move(*told);
    }
    return {};
  }

  const std::function<void(const FetchProgress&)>* told_;
  std::string line_;
  FetchTold last_;
};

}  // namespace

std::filesystem::path fetch_program() {
  std::error_code failure;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", failure);
  const auto beside = own.parent_path() / "ferry-fetch";
  return !failure && std::filesystem::exists(beside, failure) ? beside : "ferry-fetch";
}

Result<Artifact> fetch(const HostFs& host, const FetchRequest& request,
                       const std::function<void(const FetchProgress&)>& told,
                       const std::filesystem::path& program) {
  const auto until = Clock::now() + request.deadline;
  const auto input = as_input(job_text({.host_root = host.root(), .request = request}));
  if (!input) return fail(input.error());
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(error_from_errno(errno, "make a pipe"));
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const auto pid =
      spawn(program, {"ferry-fetch"}, {.in = input->get(), .out = writer.get(), .err = STDERR_FILENO});
  if (!pid && is_gone(pid.error()))
    return fail(Errc::unreachable, pid.error().message, "install ferry-fetch beside ferry");
  if (!pid) return fail(pid.error());
  writer.reset();
  Listener listener(told);
  auto listened = listener.listen(reader.get(), until);
  // Wherever it is, the next one goes on from there.
  if (!listened) ::kill(*pid, SIGKILL);
  const int status = reap(*pid);
  if (!listened) return fail(std::move(listened).error());
  return listener.answer(status);
}

}  // namespace ferry
