// SPDX-License-Identifier: Apache-2.0
#include "agent/kata/artifact_pulls.h"

#include <algorithm>

#include <spdlog/spdlog.h>

namespace ferry::agent {

ArtifactPulls::ArtifactPulls(const HostFs& host, Fetcher& fetcher, kube::Timers& timers, kube::Random random,
                             kata::PullCredentials credentials, std::function<void()> changed)
    : host_(host),
      fetcher_(fetcher),
      timers_(timers),
      random_(std::move(random)),
      credentials_(std::move(credentials)),
      changed_(std::move(changed)),
      deadline_(timers),
      timer_(timers) {}

ArtifactPulls::~ArtifactPulls() {
  stop();
}

void ArtifactPulls::act(const std::vector<PullOrder>& orders) {
  const bool goes_on = running_ && std::ranges::any_of(orders, [this](const PullOrder& order) {
                         return !order.waits && order.kata.name == running_->kata.name &&
                                order.configuration == running_->configuration;
                       });
  if (running_ && !goes_on) {
    spdlog::info("{}: its files are not asked for any more", running_->kata.name);
    stop();
  }
  std::erase_if(tried_, [&](const auto& one) {
    return std::ranges::none_of(orders, [&](const PullOrder& order) {
      return order.kata.name == one.first && order.configuration == one.second.configuration;
    });
  });
  for (const PullOrder& order : orders) {
    if (running_) break;
    if (order.waits) continue;
    const auto tried = tried_.find(order.kata.name);
    if (tried == tried_.end() || timers_.now() >= tried->second.again) begin(order);
  }

  timer_.cancel();
  if (running_) return;
  std::optional<Moment> first;
  // A class whose pause is over and that has no pull yet waits for the rollout lease.
  for (const auto& [name, tried] : tried_)
    if (tried.again > timers_.now()) first = std::min(first.value_or(tried.again), tried.again);
  if (first) timer_.set(*first, changed_);
}

std::map<std::string, PullState> ArtifactPulls::states() const {
  std::map<std::string, PullState> out;
  for (const auto& [name, tried] : tried_)
    out[name] = {.error = tried.error, .rests = tried.rests(timers_.now())};
  return out;
}

void ArtifactPulls::begin(const PullOrder& order) {
  auto request = kata::fetch_request(host_, credentials_, order.file, order.kata);
  if (!request) return failed(order, request.error());
  request->makes_link = false;
  auto begun = fetcher_.begin(*request, [this, order, request = *request](Result<kata::Artifact> artifact) {
    ended(order, request, std::move(artifact));
    changed_();
  });
  if (!begun) return failed(order, begun.error());
  spdlog::info("{}: pulling {}", order.kata.name, order.kata.artifacts.url);
  running_ = order;
  counts_.under_way = order.kata.name;
  deadline_.set(timers_.now() + request->deadline, [this, order] {
    stop();
    failed(order,
           {.code = Errc::unreachable,
            .message = order.kata.place + ": " + order.kata.name + ": it was not done by the deadline"});
    changed_();
  });
}

void ArtifactPulls::ended(const PullOrder& order, const kata::FetchRequest& request,
                          Result<kata::Artifact> artifact) {
  running_.reset();
  deadline_.cancel();
  counts_.under_way.clear();
  if (!artifact) return failed(order, kata::explained(std::move(artifact).error(), order.kata, request));
  for (const std::string& note : artifact->notes) spdlog::info("{}: {}", order.kata.name, note);
  spdlog::info("{}: {} is here ({})", order.kata.name, order.kata.artifacts.url, artifact->digest);
  ++counts_.done;
  news_ = true;
  tried_[order.kata.name] = {.configuration = order.configuration,
                             .again = timers_.now() + kSeenWithin,
                             .pause = kFirstPause,
                             .error = {}};
}

void ArtifactPulls::failed(const PullOrder& order, const Error& error) {
  ++counts_.failed;
  Tried& tried = tried_[order.kata.name];
  tried.configuration = order.configuration;
  tried.error = error.text();
  tried.again = timers_.now() + kube::part_of(tried.pause, random_);
  tried.pause = std::min(2 * tried.pause, kLongestPause);
  spdlog::warn("{}", tried.error);
}

void ArtifactPulls::stop() {
  if (!running_) return;
  running_.reset();
  deadline_.cancel();
  counts_.under_way.clear();
  fetcher_.stop();
}

FetchRunner::FetchRunner(EventLoop& loop, const HostFs& host, std::filesystem::path program)
    : loop_(loop), host_(host), program_(std::move(program)) {}

FetchRunner::~FetchRunner() {
  if (process_) forget_process();
}

Result<> FetchRunner::begin(const kata::FetchRequest& request, Done done) {
  fetch_.emplace(Fetch{.request = request, .done = std::move(done)});
  if (is_killed_) return {};
  auto started = start();
  if (!started) fetch_.reset();
  return started;
}

Result<> FetchRunner::start() {
  auto process = kata::FetchProcess::start(host_, fetch_->request, program_);
  if (!process) return fail(std::move(process).error());
  process_.emplace(std::move(*process));
  loop_.watch(process_->fd(), [this] { is_killed_ ? await_end() : heard(); });
  return {};
}

void FetchRunner::stop() {
  fetch_.reset();
  if (process_) process_->kill();
  is_killed_ = process_.has_value();
}

void FetchRunner::heard() {
  const auto ended = process_->hear();
  if (ended && !*ended) return;
  auto artifact = ended ? process_->answer() : Result<kata::Artifact>(fail(ended.error()));
  // `done` may begin the next fetch.
  const Done done = std::move(fetch_->done);
  stop();
  if (ended) forget_process();
  done(std::move(artifact));
}

void FetchRunner::await_end() {
  const auto ended = process_->hear();
  if (!ended || !*ended) return;
  forget_process();
  if (!fetch_) return;
  auto started = start();
  if (started) return;
  const Done done = std::move(fetch_->done);
  fetch_.reset();
  done(fail(std::move(started).error()));
}

void FetchRunner::forget_process() {
  loop_.forget(process_->fd());
  process_.reset();
  is_killed_ = false;
}

}  // namespace ferry::agent
