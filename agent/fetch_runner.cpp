// SPDX-License-Identifier: Apache-2.0
#include "agent/fetch_runner.h"

#include <utility>

namespace ferry {

FetchRunner::FetchRunner(EventLoop& loop, const HostFs& host, std::filesystem::path program)
    : loop_(loop), host_(host), program_(std::move(program)) {}

FetchRunner::~FetchRunner() {
  stop();
}

Result<> FetchRunner::begin(const FetchRequest& request, Told told, Done done) {
  auto process = FetchProcess::start(host_, request, program_);
  if (!process) return fail(std::move(process).error());
  process_.emplace(std::move(*process));
  told_ = std::move(told);
  done_ = std::move(done);
  loop_.watch(process_->fd(), [this] { heard(); });
  return {};
}

void FetchRunner::stop() {
  if (!process_) return;
  loop_.forget(process_->fd());
  process_.reset();
}

void FetchRunner::heard() {
  const auto ended = process_->hear(told_);
  if (ended && !*ended) return;
  auto artifact = ended ? process_->answer() : Result<Artifact>(fail(Error(ended.error())));
  stop();
  // `done` may begin the next fetch.
  const Done done = std::exchange(done_, {});
  done(std::move(artifact));
}

}  // namespace ferry
