// SPDX-License-Identifier: Apache-2.0
// ferry-fetch, the only program that loads libarchive and that runs skopeo. It brings one artifact onto the
// host: the request comes on stdin, the result goes to stdout (fetch_protocol.h).
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string_view>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/exit_status.h"
#include "common/process/this_process.h"
#include "common/version.h"
#include "kata-manager/artifacts/fetch.h"
#include "kata-manager/artifacts/fetch_protocol.h"

// AddressSanitizer reserves terabytes of address space, so RLIMIT_AS stays off.
#if defined(__SANITIZE_ADDRESS__)
#define FERRY_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FERRY_SANITIZED
#endif
#endif

namespace ferry::kata {
namespace {

// Runs before foreign data is read. False: errno has the reason.
bool confine_ourselves() {
  // Without its parent, ferry-fetch would hold the lock and work for no caller.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  // Root runs skopeo as another user, which has to pass the folders that this process makes. An agent of
  // another user leaves them to its group: hostd removes them as a member of it.
  ::umask(::geteuid() == 0 ? S_IWGRP | S_IWOTH : S_IWOTH);
  // Credentials are in this process's memory.
  constexpr rlimit kNoCore{.rlim_cur = 0, .rlim_max = 0};
  if (::setrlimit(RLIMIT_CORE, &kNoCore) != 0) return false;
#ifndef FERRY_SANITIZED
  // Archives pass through in pieces, but libarchive's copy of an archive's headers has no limit of its own.
  // The hard limit stays, for skopeo.
  constexpr rlim_t kMostMemory = 1ULL << 30;
  rlimit memory{};
  if (::getrlimit(RLIMIT_AS, &memory) != 0) return false;
  memory.rlim_cur = std::min(kMostMemory, memory.rlim_max);
  return ::setrlimit(RLIMIT_AS, &memory) == 0;
#else
  return true;
#endif
}

ExitStatus answer(const Result<Artifact>& artifact) {
  const std::string text = answer_text(artifact);
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return ExitStatus::failed;
  return artifact ? ExitStatus::done : exit_status_of(artifact.error());
}

}  // namespace
}  // namespace ferry::kata

int main(int argc, char** argv) {
  ferry::hide_process();  // memory holds pull secrets
  using namespace ferry;
  using namespace ferry::kata;
  if (argc > 1) {
    if (std::string_view(argv[1]) == "--version") {
      (void)std::printf("ferry-fetch %s\n", kVersion);
      return 0;
    }
    (void)std::fputs("ferry-fetch is started by ferry, with a request on its standard input.\n", stderr);
    return std::string_view(argv[1]) == "--help" ? 0 : static_cast<int>(ExitStatus::usage);
  }
  if (!confine_ourselves()) {
    (void)answer(fail(error_from_errno(errno, "limit ferry-fetch")));
    return static_cast<int>(ExitStatus::failed);
  }
  // If the reader is gone, a write fails and the fetch ends in order.
  (void)std::signal(SIGPIPE, SIG_IGN);
  try {
    // The text with its secrets is gone before the fetch, which takes minutes.
    const auto job = [] {
      std::string text;
      for (int c = std::fgetc(stdin); c != EOF; c = std::fgetc(stdin)) text.push_back(static_cast<char>(c));
      return read_job(text);
    }();
    if (!job) return static_cast<int>(answer(fail(job.error())));
    HostFs host(job->host_root);
    return static_cast<int>(answer(fetch_here(host, job->request)));
  } catch (const std::exception& failure) {
    (void)answer(fail(Errc::failed, failure.what()));
    return static_cast<int>(ExitStatus::failed);
  }
}
