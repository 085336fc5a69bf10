// SPDX-License-Identifier: Apache-2.0
// The files of Kata's runtimes, fetched one after the other while the agent goes on
// (kata-manager/artifacts/artifacts.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/kata/kata_step.h"
#include "agent/node_refusals.h"
#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/fetch_request.h"
#include "kube/backoff.h"
#include "kube/timers.h"

namespace ferry::agent {

/// Counts of pulls, for Prometheus.
struct PullCounts {
  std::uint64_t done = 0;    ///< since the agent started
  std::uint64_t failed = 0;  ///< since the agent started; a stopped pull does not count
  std::string under_way;     ///< class of the running pull; empty: none
};

/// Fetches a single artifact at a time: ferry-fetch (FetchRunner), or a test's substitute.
class Fetcher : Pinned {
 public:
  using Done = std::function<void(Result<kata::Artifact>)>;

  virtual ~Fetcher() = default;

  /// Call this only while no fetch runs. `done` is called once, never from within this call, and not at
  /// all after stop(). Errors: the fetch was not started.
  virtual Result<> begin(const kata::FetchRequest& request, Done done) = 0;
  /// Ends the running fetch, if any.
  virtual void stop() = 0;
};

/// Only one thread may use it. While no artifact is missing there is neither a child process nor a timer.
class ArtifactPulls : Pinned {
 public:
  /// Pause before a failed pull is tried again: kFirstPause at first, then twice as long each time.
  static constexpr kube::Backoff::Pause kFirstPause{30'000};
  static constexpr kube::Backoff::Pause kLongestPause{900'000};
  /// Time that hostd has to notice the files of a successful pull; the pull is repeated only after it.
  static constexpr std::chrono::seconds kSeenWithin{60};

  /// `changed` is called, never from within a call, when states() may differ or act() is due. The references
  /// must outlive this object.
  ArtifactPulls(const HostFs& host, Fetcher& fetcher, kube::Timers& timers, kube::Random random,
                kata::PullCredentials credentials, std::function<void()> changed);
  /// Stops the running pull.
  ~ArtifactPulls();

  /// Begins the next pull that is due. Stops a running pull that waits or is not in `orders`. Forgets the
  /// failures of classes that are not in `orders`.
  void act(const std::vector<PullOrder>& orders);

  /// State of each class in the last orders whose pull has been tried, by class name.
  std::map<std::string, PullState> states() const;
  const PullCounts& counts() const { return counts_; }
  /// True if a pull has succeeded since the last call.
  bool take_news() { return std::exchange(news_, false); }

 private:
  struct Tried {
    std::string configuration;
    Moment again;
    kube::Backoff::Pause pause = kFirstPause;
    std::string error;
    bool rests(Moment now) const { return !error.empty() && now < again; }
  };

  void begin(const PullOrder& order);
  void ended(const PullOrder& order, const kata::FetchRequest& request, Result<kata::Artifact> artifact);
  void failed(const PullOrder& order, const Error& error);
  void stop();

  const HostFs& host_;
  Fetcher& fetcher_;
  kube::Timers& timers_;
  const kube::Random random_;
  const kata::PullCredentials credentials_;
  const std::function<void()> changed_;
  std::map<std::string, Tried> tried_;  ///< by class name
  std::optional<PullOrder> running_;
  PullCounts counts_;
  bool news_ = false;
  kube::OwnedTimer deadline_;
  kube::OwnedTimer timer_;
};

// Runs ferry-fetch as a child process of the agent, and takes its answer in the agent's event loop.

class FetchRunner final : public Fetcher {
 public:
  /// The loop and the host must outlive this object.
  FetchRunner(EventLoop& loop, const HostFs& host,
              std::filesystem::path program = program_beside(kata::kFetchProgram));
  ~FetchRunner() override;

  Result<> begin(const kata::FetchRequest& request, Done done) override;
  /// Does not wait for the child's end. The next fetch does, because the child has the artifacts' lock.
  void stop() override;

 private:
  struct Fetch {
    kata::FetchRequest request;
    Done done;
  };
  Result<> start();
  void heard();
  void await_end();
  void forget_process();

  EventLoop& loop_;
  const HostFs& host_;
  const std::filesystem::path program_;
  std::optional<Fetch> fetch_;  ///< the running one, or one that waits for the end of a killed process
  std::optional<kata::FetchProcess> process_;
  bool is_killed_ = false;
};

}  // namespace ferry::agent
