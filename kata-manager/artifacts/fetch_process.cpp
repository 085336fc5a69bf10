// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/fetch_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "common/process/spawn.h"

namespace ferry::kata {
namespace {

// A memory file: with a pipe, a program that does not read would block the caller.
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

}  // namespace

Result<FetchProcess> FetchProcess::start(const HostFs& host, const FetchRequest& request,
                                         const std::filesystem::path& program) {
  const auto input = as_input(job_text({.host_root = host.root(), .request = request}));
  if (!input) return fail(input.error());
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(error_from_errno(errno, "make a pipe"));
  UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  // Only the reading end gets the flag: the ends are two open files.
  if (::fcntl(reader.get(), F_SETFL, O_NONBLOCK) != 0) return fail(error_from_errno(errno, "make a pipe"));
  const auto pid =
      spawn(program, {"ferry-fetch"}, {.in = input->get(), .out = writer.get(), .err = STDERR_FILENO});
  if (!pid && is_gone(pid.error()))
    return fail(Errc::unreachable, pid.error().message, "install ferry-fetch in the folder of ferry");
  if (!pid) return fail(pid.error());
  return FetchProcess(*pid, std::move(reader));
}

FetchProcess::FetchProcess(FetchProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      answers_(std::move(other.answers_)),
      line_(std::move(other.line_)),
      last_(std::move(other.last_)) {}

FetchProcess::~FetchProcess() {
  if (pid_ == 0) return;
  kill();
  reap(pid_);
}

void FetchProcess::kill() const {
  if (pid_ != 0) ::kill(pid_, SIGKILL);
}

Result<bool> FetchProcess::hear(const OnProgress& on_progress) {
  std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  for (;;) {
    const ssize_t n = ::read(answers_.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return false;
    if (n < 0) return fail(error_from_errno(errno, "read ferry-fetch's answer"));
    if (n == 0) return true;
    if (auto taken = take({buffer.data(), static_cast<std::size_t>(n)}, on_progress); !taken)
      return fail(std::move(taken).error());
  }
}

Result<> FetchProcess::take(std::string_view bytes, const OnProgress& on_progress) {
  line_ += bytes;
  for (auto end = line_.find('\n'); end != std::string::npos; end = line_.find('\n')) {
    auto heard = read_message(std::string_view(line_).substr(0, end));
    if (!heard) return fail(std::move(heard).error());
    line_.erase(0, end + 1);
    const std::optional<FetchProgress> progress = heard->progress;
    last_ = std::move(*heard);
    if (progress && on_progress) on_progress(*progress);
  }
  return {};
}

Result<Artifact> FetchProcess::answer() {
  const int status = reap(std::exchange(pid_, 0));
  if (last_.error) return fail(std::move(*last_.error));
  if (last_.artifact) return std::move(*last_.artifact);
  return fail(Errc::unreachable, fmt::format("ferry-fetch ended without an answer (status {})", status));
}

std::filesystem::path fetch_program() {
  std::error_code failure;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", failure);
  const auto beside = own.parent_path() / "ferry-fetch";
  return !failure && std::filesystem::exists(beside, failure) ? beside : "ferry-fetch";
}

Result<Artifact> fetch(const HostFs& host, const FetchRequest& request,
                       const std::function<void(const FetchProgress&)>& on_progress,
                       const std::filesystem::path& program) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + request.deadline;
  auto process = FetchProcess::start(host, request, program);
  if (!process) return fail(std::move(process).error());
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) return fail(Errc::unreachable, "ferry-fetch: it was not done by the deadline");
    pollfd watched{.fd = process->fd(), .events = POLLIN, .revents = 0};
    if (::poll(&watched, 1, static_cast<int>(left.count())) <= 0) continue;
    const auto ended = process->hear(on_progress);
    if (!ended) return fail(ended.error());
    if (*ended) return process->answer();
  }
}

}  // namespace ferry::kata
