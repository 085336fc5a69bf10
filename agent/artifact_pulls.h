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

/// Fetches a single artifact at a time: ferry-fetch (fetch_runner.h), or a test's substitute.
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

  /// To be called only while no fetch runs. `done` is called once, never from within this call, and not at
  /// all after stop(). Errors: the fetch was not started.
  virtual Result<> begin(const FetchRequest& request, Told told, Done done) = 0;
  /// Ends the running fetch, if any. The next fetch of the same artifact resumes where this fetch ended.
  virtual void stop() = 0;
};

/// For one thread. While no artifact is missing there is neither a child process nor a timer.
class ArtifactPulls {
 public:
  /// Pause before a failed pull is tried again: kFirstPause at first, then twice as long each time.
  static constexpr Backoff::Pause kFirstPause{30'000};
  static constexpr Backoff::Pause kLongestPause{900'000};
  /// Time that hostd has to notice the files of a successful pull; the pull is repeated only after it.
  static constexpr std::chrono::seconds kSeenWithin{60};

  /// `changed` is called, never from within a call, when states() may differ or act() is due. The references
  /// must outlive this object.
  ArtifactPulls(const HostFs& host, Fetcher& fetcher, Timers& timers, Random random,
                PullCredentials credentials, std::function<void()> changed);
  ArtifactPulls(const ArtifactPulls&) = delete;
  ArtifactPulls& operator=(const ArtifactPulls&) = delete;
  ArtifactPulls(ArtifactPulls&&) = delete;
  ArtifactPulls& operator=(ArtifactPulls&&) = delete;
  /// Stops the running pull.
  ~ArtifactPulls();

  /// Stops and forgets each pull that is not in `orders`.
  void act(const std::vector<PullOrder>& orders);

  /// State of each class in the last orders whose pull has been tried, by class name.
  std::map<std::string, PullState> states() const;
  const PullCounts& counts() const { return counts_; }
  /// True if a pull has succeeded since the last call.
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
  std::map<std::string, Tried> tried_;  ///< by class name
  std::optional<PullOrder> running_;
  PullCounts counts_;
  bool news_ = false;
  std::optional<Moment> told_at_;  ///< time of the last progress message
  Timers::Timer deadline_;
  Timers::Timer timer_;
};

}  // namespace ferry
