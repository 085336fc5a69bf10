// SPDX-License-Identifier: Apache-2.0
// The files of Kata's runtimes, fetched one after the other while the agent goes on
// (kata-manager/artifacts.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/kata_step.h"
#include "agent/pull_counts.h"
#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/artifacts.h"
#include "kata-manager/fetch_request.h"
#include "kube/backoff.h"
#include "kube/timers.h"

namespace ferry {

/// What fetches one artifact at a time: ferry-fetch (fetch_runner.h), or what stands for it in a test.
class Fetcher {
 public:
  using Told = std::function<void(const FetchProgress&)>;
  using Done = std::function<void(Result<Artifact>)>;

  Fetcher() = default;
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;
  Fetcher(Fetcher&&) = delete;
  Fetcher& operator=(Fetcher&&) = delete;
  virtual ~Fetcher() = default;

  /// `done` is called once, never from within this call, and not at all after stop(). Only when none is
  /// under way. Errors: none was begun.
  virtual Result<> begin(const FetchRequest& request, Told told, Done done) = 0;
  /// Ends the one that is under way; the next one for it goes on from there. That there is none is no error.
  virtual void stop() = 0;
};

/// One thread. While nothing is missing there is neither a process nor a timer.
class ArtifactPulls {
 public:
  /// Tried again after half a minute first, then after twice as long each time.
  static constexpr Backoff::Pause kFirstPause{30'000};
  static constexpr Backoff::Pause kLongestPause{900'000};
  /// After one that was well: for hostd to see it.
  static constexpr std::chrono::seconds kSeenWithin{60};

  /// `changed` is called, never from within a call, when states() may be another, or time has come for
  /// act(). What is named here must outlive this.
  ArtifactPulls(const HostFs& host, Fetcher& fetcher, Timers& timers, Random random,
                PullCredentials credentials, std::function<void()> changed);
  ArtifactPulls(const ArtifactPulls&) = delete;
  ArtifactPulls& operator=(const ArtifactPulls&) = delete;
  ArtifactPulls(ArtifactPulls&&) = delete;
  ArtifactPulls& operator=(ArtifactPulls&&) = delete;
  /// What is under way is stopped.
  ~ArtifactPulls();

  /// Who is not among them is no longer fetched, and forgotten.
  void act(const std::vector<PullOrder>& orders);

  /// By class: those that were ordered last.
  std::map<std::string, PullState> states() const;
  const PullCounts& counts() const { return counts_; }
  /// Whether one was well since this was asked last.
  bool take_news() { return std::exchange(news_, false); }

 private:
  using Moment = Timers::Clock::time_point;
  struct Tried {
    std::string configuration;
    Moment again;
    Backoff::Pause pause = kFirstPause;
    std::string error;
    bool rests(Moment now) const { return !error.empty() && now < again; }
  };

  void begin(const PullOrder& order);
  void ended(const PullOrder& order, const FetchRequest& request, Result<Artifact> artifact);
  void failed(const PullOrder& order, const Error& error);
  void stop();
  void told(const FetchProgress& progress);
  void wait();

  const HostFs& host_;
  Fetcher& fetcher_;
  Timers& timers_;
  const Random random_;
  const PullCredentials credentials_;
  const std::function<void()> changed_;
  std::map<std::string, Tried> tried_;  ///< by class
  std::optional<PullOrder> running_;
  PullCounts counts_;
  bool news_ = false;
  std::optional<Moment> told_at_;  ///< how far it is was logged then
  Timers::Timer deadline_;
  Timers::Timer timer_;
};

}  // namespace ferry
