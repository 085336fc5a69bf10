// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "api/files.h"
#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/process/this_process.h"
#include "host/claims/claim_keeper.h"
#include "host/claims/claim_record.h"
#include "host/claims/claim_server.h"
#include "host/gpu_numbers.h"
#include "host/node_keeper.h"
#include "host/sanitize_look.h"
#include "host/usage/process_facts.h"
#include "hostfs/directory_watch.h"
#include "hostfs/locks.h"
#include "vfio/confidential/mode_setting.h"
#include "vfio/pci/uevents.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;
using Clock = NodeKeeper::Clock;

// The symbolic link that the kubelet switches when a ConfigMap changes.
constexpr const char* kConfigMapsData = "..data";
// A bind of one IOMMU group causes several events.
constexpr auto kDebounce = std::chrono::milliseconds(100);
// Such a round repeats a failed attempt, and a job's processes may end by the hundred.
constexpr auto kBetweenEnds = std::chrono::seconds(1);
// `ferry dra` may ask without end.
constexpr auto kBetweenClaims = std::chrono::seconds(1);
// A change by a person may take minutes, and rounds wait behind each request. The kubelet asks again.
constexpr auto kClaimLockPatience = std::chrono::milliseconds(250);

// The end of a plugin closes its lock, which is an event. hostd's own lock is watched for its removal.
// `ferry cc set` writes and removes the record of its change. `ferry claims release` writes the record of
// claims, and a person removes a record that cannot be read. `ferry apply` removes the record of numbers. An
// ending pod of the gpu-operator removes all ready files.
std::vector<fs::path> files_to_watch(const KeeperSettings& settings) {
  std::vector<fs::path> out = {settings.desired_file, settings.serving_file(), api::kAdvertisedFile,
                               api::kPluginLiveness,  api::kHostdLock,         kClaimRecordFile,
                               kGpuNumbersFile,       kSanitizeRequestFile,    vfio::kModeRecordFile};
  if (settings.validations) out.insert(out.end(), {kVfioReady, kVgpuReady, kWorkloadType});
  return out;
}

KeeperSettings keeper_settings(KeeperSettings settings, const HostFs& host, ProcessEnds& ends,
                               std::function<void(std::function<void()>)> beside) {
  if (beside) settings.beside = std::move(beside);
  settings.watch_ends = [&ends](const std::set<int>& processes) { return ends.watch(processes); };
  settings.gpus_with_claims = [&host] { return gpus_with_claims(host); };
  return settings;
}

/// Reports changes of the files that lead to a round. Belongs to the loop's thread.
class WatchedFiles : Pinned {
 public:
  /// `files` are relative to the host's root, and need not exist. `changed` is called from the loop, `failed`
  /// for each folder that cannot be watched. `loop` and `host` must outlive this object.
  WatchedFiles(EventLoop& loop, const HostFs& host, std::vector<fs::path> files,
               std::function<void()> changed, std::function<void(const Error&)> failed)
      : loop_(loop),
        host_(host),
        files_(std::move(files)),
        changed_(std::move(changed)),
        failed_(std::move(failed)) {}

  /// From the next watch() on, this policy file is watched too, and its targets if it is a link. Absent:
  /// none.
  void set_policy(std::optional<fs::path> policy) { policy_ = std::move(policy); }

  /// Watches the folders of the present files and no others. True: a folder was added.
  bool watch() {
    Names names;
    for (const fs::path& file : files_) names[file.parent_path()].insert(file.filename().string());
    if (policy_) {
      add_policy(names, policy_->relative_path());
      names[policy_->relative_path().parent_path()].insert(kConfigMapsData);
    }
    std::erase_if(folders_, [&](const auto& known) {
      if (names.contains(known.first)) return false;
      loop_.forget(known.second.watch.fd());
      return true;
    });
    bool anew = false;
    for (auto& [folder, matter] : names) {
      if (const auto known = folders_.find(folder); known != folders_.end()) {
        known->second.names = std::move(matter);
        continue;
      }
      // Changes of content count too, since a person may write into a file instead of replacing it.
      auto watch = DirectoryWatch::open(host_, folder, DirectoryWatch::Contents::written);
      if (!watch) {
        failed_(watch.error());
        continue;
      }
      const int fd = watch->fd();
      folders_.emplace(folder, Folder{.watch = std::move(*watch), .names = std::move(matter)});
      loop_.watch(fd, [this, at = folder] { read(at); });
      anew = true;
    }
    return anew;
  }

  /// The next watch() opens this folder anew.
  void forget(const fs::path& folder) {
    const auto found = folders_.find(folder);
    if (found == folders_.end()) return;
    loop_.forget(found->second.watch.fd());
    folders_.erase(found);
  }

 private:
  struct Folder {
    DirectoryWatch watch;
    std::set<std::string> names;  // the files that matter
  };
  using Names = std::map<fs::path, std::set<std::string>>;

  /// Adds a file and, if it is a link, the link's targets, all below the host's root.
  void add_policy(Names& names, fs::path file) const {
    constexpr int kMostLinks = 8;
    for (int i = 0; i < kMostLinks; ++i) {
      names[file.parent_path()].insert(file.filename().string());
      const auto target = host_.link_target(file);
      if (!target) return;
      const fs::path to = *target;
      file = (to.is_absolute() ? to.relative_path() : file.parent_path() / to).lexically_normal();
    }
  }

  void read(const fs::path& folder) {
    const auto found = folders_.find(folder);
    if (found == folders_.end()) return;
    const auto events = found->second.watch.read();
    const auto matters = [&](const DirectoryEvent& event) {
      return event.name.empty() || found->second.names.contains(event.name);
    };
    const bool news = std::ranges::any_of(events, matters);
    const auto gone = [](const DirectoryEvent& event) { return event.kind == DirectoryEvent::Kind::gone; };
    if (std::ranges::any_of(events, gone)) forget(folder);
    if (news) changed_();
  }

  EventLoop& loop_;
  const HostFs& host_;
  const std::vector<fs::path> files_;
  const std::function<void()> changed_;
  const std::function<void(const Error&)> failed_;
  std::map<fs::path, Folder> folders_;
  std::optional<fs::path> policy_;  // the file that desired.json named last
};

class NodeLoop {
 public:
  NodeLoop(HostFs& host, const NodeProbes& uses, MakeContext make_context, const NodeLoopOptions& options,
           EventLoop& loop)
      : host_(host),
        options_(options),
        loop_(loop),
        ends_(loop, host,
              [this] {
                round_soon(due_.ends_soon, due_.no_ends_before, kBetweenEnds,
                           NodeKeeper::News::process_ended);
              }),
        keeper_(host, uses, make_context,
                keeper_settings(
                    options.keeper, host, ends_,
                    options.once ? std::function<void(std::function<void()>)>()
                                 : [this](std::function<void()> job) { run_beside(std::move(job)); })),
        files_(
            loop, host, files_to_watch(options.keeper), [this] { round_soon(); },
            [this](const Error& error) { warn_once(error); }) {
    if (!options.claims || options.once) return;
    ClaimKeeper& keeper = claim_keeper_.emplace(host, uses, std::move(make_context),
                                                ClaimSettings{.desired_file = options.keeper.desired_file,
                                                              .profiles = options.keeper.profiles,
                                                              .metadata_folder = options.claim_metadata,
                                                              .lock_patience = kClaimLockPatience});
    claim_server_.emplace(loop, host, *options.claims, [this, &keeper](const api::ClaimRequest& request) {
      return serve(keeper, request);
    });
  }

  Result<ExitStatus> run(const std::stop_token& stop) {
    raise_descriptor_limit();
    if (auto made = make_folders(); !made) return fail(std::move(made).error());
    auto only = InstanceLock::claim(host_, api::kHostdLock);
    if (!only && (options_.once || only.error().code != Errc::refused))
      return fail(only.error().code == Errc::refused ? another_one() : std::move(only).error());
    if (only) {
      only_.emplace(std::move(*only));
      begin();
    } else {
      spdlog::warn("another ferry hostd keeps this node: waiting for its end");
      lock_queue_.emplace(loop_, host_, api::kHostdLock, [this](InstanceLock mine) {
        only_.emplace(std::move(mine));
        lock_queue_.reset();
        begin();
      });
    }
    loop_.run(stop);
    // If another hostd has begun, the unavailable devices belong to it.
    const bool ours = only_ && !(failure_ && failure_->code == Errc::refused);
    if (auto ended = ours ? keeper_.end() : Result<>(); !ended) spdlog::error("{}", ended.error().message);
    if (failure_) return fail(std::move(*failure_));
    return options_.once ? status_ : ExitStatus::done;
  }

 private:
  struct Due {
    bool soon = false;          // a round
    bool ends_soon = false;     // a round after the end of a process
    bool looks_at_use = false;  // a timer for look_at_use() is set
    Clock::time_point no_ends_before;
    Clock::time_point no_claims_before;
    EventLoop::Timer again;  // a round without an event
  };

  /// Makes the folders of the shared files, so that they can be watched before the files exist.
  Result<> make_folders() const {
    const KeeperSettings& keeper = options_.keeper;
    for (const fs::path& file : {keeper.desired_file, keeper.status_file, fs::path(api::kAdvertisedFile)})
      if (auto made = host_.make_directory(file.parent_path()); !made) return made;
    // A write into one of these folders reports the error. Only a policy with numbers needs the first.
    (void)host_.make_directory(fs::path(kGpuNumbersFile).parent_path());
    if (keeper.validations) (void)host_.make_directory(fs::path(kWorkloadType).parent_path());
    if (options_.keep_folders) options_.keep_folders();
    return {};
  }

  static Error another_one() {
    return {.code = Errc::refused,
            .message = std::string("/") + api::kHostdLock + ": another ferry hostd keeps this node",
            .hint = "let that one do it, or stop it first: `systemctl stop ferry-hostd`"};
  }

  /// False: the lock's file was removed or replaced. The lock counts as held until the contrary is known.
  bool holds_lock() {
    if (!only_) return false;
    const auto there = only_->is_at(host_, api::kHostdLock);
    if (!there) warn_once(there.error());
    return there.value_or(true);
  }

  /// False: another hostd keeps this node now. The lock's file may have been removed with its directory.
  bool is_alone() {
    if (holds_lock()) return true;
    auto again = InstanceLock::claim(host_, api::kHostdLock);
    if (again) {
      only_.emplace(std::move(*again));
      // The directory was replaced too, and its old watch stays silent while a process has a file of it open.
      files_.forget(fs::path(api::kHostdLock).parent_path());
      show_liveness();
      files_.watch();
      return true;
    }
    failure_ = again.error().code == Errc::refused ? another_one() : std::move(again).error();
    loop_.finish();
    return false;
  }

  /// Shows other processes that a hostd keeps this node. With `once` it ends too soon to be relied on.
  void show_liveness(std::chrono::milliseconds patience = std::chrono::seconds(1)) {
    if (options_.once) return;
    loop_.cancel(liveness_timer_);
    auto shown = LivenessLock::announce(host_, api::kHostdLiveness, patience);
    if (!shown) {
      warn_once(std::move(shown).error().during("other processes cannot see that hostd runs"));
      liveness_timer_ =
          loop_.at(Clock::now() + options_.between_announcements, [this] { show_liveness({}); });
      return;
    }
    liveness_.emplace(std::move(*shown));
    // A lock raises no event where the file was there before; closing the file does.
    if (const auto closed = host_.open(api::kHostdLiveness, O_WRONLY); !closed)
      spdlog::warn("{}", closed.error().message);
  }

  void begin() {
    show_liveness();
    files_.watch();  // before the first look, so that nothing comes between
    listen_to_the_kernel();
    if (claim_keeper_)
      if (const auto tidied = claim_keeper_->tidy(); !tidied) warn_once(tidied.error());
    loop_.post([this] { round(NodeKeeper::News::anything); });
    if (options_.beside) beside_ = options_.beside(loop_);
  }

  /// If the kernel reports no devices, they are scanned periodically, and the kernel is asked again each
  /// time.
  void listen_to_the_kernel() {
    if (!uevents_) {
      if (auto uevents = options_.open_uevents()) {
        uevents_.emplace(std::move(*uevents));
        loop_.watch(uevents_->fd(), [this] {
          if (uevents_->take()) round_soon();
        });
      } else {
        look_instead(uevents.error().message);
      }
    }
    if (uevents_ && options_.uevents_are_sent()) return;
    if (uevents_) look_instead("the kernel sends no device events to the network namespace of hostd");
    loop_.at(Clock::now() + options_.without_uevents, [this] {
      listen_to_the_kernel();
      round_soon();
    });
  }

  void look_instead(const std::string& why) {
    warn_once(
        {.code = Errc::unsupported,
         .message = fmt::format("{}; devices are looked at every {} s instead", why,
                                std::chrono::ceil<std::chrono::seconds>(options_.without_uevents).count()),
         .hint = "run hostd in the host's network namespace (`hostNetwork: true` in a pod)"});
  }

  void warn_once(const Error& error) {
    if (warned_.insert(error.message).second) spdlog::warn("{}", error.text());
  }

  void round_soon() {
    if (std::exchange(due_.soon, true)) return;
    loop_.at(Clock::now() + kDebounce, [this] { round(NodeKeeper::News::anything); });
  }

  /// Events of one kind that come together lead to one round; the next one follows after `pause`.
  void round_soon(bool& is_due, Clock::time_point& not_before, Clock::duration pause, NodeKeeper::News news) {
    if (std::exchange(is_due, true)) return;
    loop_.at(std::max(Clock::now() + kDebounce, not_before), [this, &is_due, &not_before, pause, news] {
      is_due = false;
      round(news);
      not_before = Clock::now() + pause;
    });
  }

  void round(NodeKeeper::News news) {
    due_.soon = false;
    loop_.cancel(due_.again);
    if (auto made = make_folders(); !made) spdlog::error("{}", made.error().message);
    files_.watch();
    if (!is_alone()) return;
    if (claim_server_)
      if (auto kept = claim_server_->keep(); !kept)
        warn_once(std::move(kept).error().during("requests of `ferry dra` are not served"));
    const auto done = keeper_.round(news);
    status_ = done.status;
    if (options_.once && !done.unfinished) {
      look_at_use();
      return loop_.finish();
    }
    if (!due_.looks_at_use && !options_.once) keep_looking_at_use();
    files_.set_policy(done.file);
    // The policy file may have changed between its reading and its watch.
    if (files_.watch()) round_soon();
    ends_.watch(done.processes);  // empty: the keeper waits for no process
    if (done.again) due_.again = loop_.at(*done.again, [this] { round(NodeKeeper::News::anything); });
  }

  /// A request of `ferry dra`. The round after it publishes the new state of the GPUs.
  Result<std::vector<api::PreparedDevice>> serve(ClaimKeeper& keeper, const api::ClaimRequest& request) {
    if (!holds_lock()) return fail(another_one());
    auto answer = keeper.serve(request);
    // Errc::unreachable: another ferry has the node's lock, and nothing was done.
    if (answer || answer.error().code != Errc::unreachable)
      round_soon(due_.soon, due_.no_claims_before, kBetweenClaims, NodeKeeper::News::anything);
    return answer;
  }

  /// Runs a job in a thread of its own, and starts a round after it.
  void run_beside(std::function<void()> job) {
    const auto thread = jobs_.emplace(jobs_.end());
    *thread = std::jthread([this, thread, job = std::move(job)] {
      job();
      loop_.post([this, thread] {
        jobs_.erase(thread);
        round_soon();
      });
    });
  }

  void look_at_use() {
    if (auto looked = keeper_.look_at_use(); !looked) warn_once(looked.error());
  }

  /// Without vGPUs no timer runs.
  void keep_looking_at_use() {
    due_.looks_at_use = keeper_.reports_vgpus();
    if (!due_.looks_at_use) return;
    // If another hostd has begun, the next round reports it.
    if (holds_lock()) look_at_use();
    loop_.at(Clock::now() + options_.use_poll_period, [this] { keep_looking_at_use(); });
  }

  HostFs& host_;
  const NodeLoopOptions& options_;
  EventLoop& loop_;
  ProcessEnds ends_;
  NodeKeeper keeper_;
  std::optional<InstanceLock> only_;
  std::optional<InstanceLockQueue> lock_queue_;
  std::optional<LivenessLock> liveness_;
  EventLoop::Timer liveness_timer_;  // after a failure
  std::optional<Error> failure_;
  WatchedFiles files_;
  std::set<std::string> warned_;
  std::optional<vfio::Uevents> uevents_;
  Due due_;
  ExitStatus status_ = ExitStatus::done;
  std::optional<ClaimKeeper> claim_keeper_;
  std::optional<ClaimServer> claim_server_;
  std::shared_ptr<void> beside_;
  std::list<std::jthread> jobs_;  // last: their ends are awaited before anything that they use goes
};

}  // namespace

Result<ExitStatus> run_node_loop(HostFs& host, const NodeProbes& uses, MakeContext make_context,
                                 const NodeLoopOptions& options, const std::stop_token& stop) {
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  return NodeLoop(host, uses, std::move(make_context), options, **loop).run(stop);
}

}  // namespace ferry::host
