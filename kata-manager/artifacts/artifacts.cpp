// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/artifacts.h"

#include <poll.h>

#include "kata-manager/artifacts/fetch_process.h"

namespace ferry::kata {

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
    if (!ended) return fail(Error(ended.error()));
    if (*ended) return process->answer();
  }
}

}  // namespace ferry::kata
