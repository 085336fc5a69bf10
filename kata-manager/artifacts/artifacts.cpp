// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/artifacts.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "kata-manager/artifacts/fetch_protocol.h"

namespace ferry::kata {
namespace {

// A hundred thousand files with long names.
constexpr std::size_t kMostOfAnswer = std::size_t{64} << 20U;

Error explained(Error error) {
  if (!is_gone(error)) return error;
  return {.code = make_error_code(Errc::unreachable),
          .message = std::move(error.message),
          .hint = "install ferry-fetch in the folder of ferry"};
}

Result<Artifact> answer_of(const std::string& text, int status) {
  if (!text.empty()) return read_answer(text);
  return fail(Errc::unreachable, fmt::format("ferry-fetch ended without an answer (status {})", status));
}

}  // namespace

Result<FetchProcess> FetchProcess::start(const HostFs& host, const FetchRequest& request,
                                         const std::filesystem::path& program) {
  const auto input = memory_file(job_text({.host_root = host.root(), .request = request}));
  if (!input) return fail(input.error());
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(error_from_errno(errno, "make a pipe"));
  UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  // Only the reading end gets the flag: the ends are two open files.
  if (::fcntl(reader.get(), F_SETFL, O_NONBLOCK) != 0) return fail(error_from_errno(errno, "make a pipe"));
  const auto pid =
      spawn(program, {kFetchProgram}, {.in = input->get(), .out = writer.get(), .err = STDERR_FILENO});
  if (!pid) return fail(explained(pid.error()));
  return FetchProcess(*pid, std::move(reader));
}

FetchProcess::FetchProcess(FetchProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), output_(std::move(other.output_)), text_(std::move(other.text_)) {}

FetchProcess::~FetchProcess() {
  if (pid_ == 0) return;
  kill();
  reap(pid_);
}

void FetchProcess::kill() const {
  if (pid_ != 0) ::kill(pid_, SIGKILL);
}

Result<bool> FetchProcess::hear() {
  std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  for (;;) {
    const ssize_t n = ::read(output_.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return false;
    if (n < 0) return fail(error_from_errno(errno, "read ferry-fetch's answer"));
    if (n == 0) return true;
    text_.append(buffer.data(), static_cast<std::size_t>(n));
    if (text_.size() > kMostOfAnswer) return fail(Errc::malformed_host, "ferry-fetch's answer has no end");
  }
}

Result<Artifact> FetchProcess::answer() {
  return answer_of(text_, reap(std::exchange(pid_, 0)));
}

Result<Artifact> fetch(const HostFs& host, const FetchRequest& request,
                       const std::filesystem::path& program) {
  const auto input = memory_file(job_text({.host_root = host.root(), .request = request}));
  if (!input) return fail(input.error());
  const auto output = run_for_output(program, {kFetchProgram}, {.in = input->get(), .err = STDERR_FILENO},
                                     {.bytes = kMostOfAnswer, .time = request.deadline});
  if (!output) return fail(explained(output.error()));
  return answer_of(output->text, output->status);
}

}  // namespace ferry::kata
