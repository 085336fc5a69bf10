// SPDX-License-Identifier: Apache-2.0
// Reconciles the host with the desired Kata classes (desired_classes.h), one round at a time, and publishes
// the state of each handler (ready_handlers.h).
//
// KataKeeper fetches nothing and opens no network socket. It makes the link to an artifact that the agent has
// fetched, as a part of the class's change. A leaving handler is first taken off the ready
// handlers; its runtime is removed once it has no label and no pod. The host changes only while a change is
// permitted. If a run was killed, the next permitted round finishes it (runtime_record.h).
//
// The caller passes the clock in. A round waits only for the node lock and, during a change, for the
// container runtime. A round without a change removes the versions of artifacts that no pod can use, after
// it has published the states. The loop (KataKeeperLoop) starts a round after an event, or when the last
// round asked for one.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/directory_watch.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "kata-manager/classes/desired_classes.h"
#include "kata-manager/configuration/kata_configuration.h"
#include "kata-manager/controller/kata_install.h"
#include "kata-manager/controller/ready_handlers.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {

/// The plan of the desired classes for the host as it is: the changes that may be made now, and the handlers
/// that must wait, with the reason. A class that cannot be set up does not block the others.
struct DesiredPlan {
  /// The changes that may be made now. The rest stays as it is: a class without its files, and a leaving
  /// handler that still has a label or a pod.
  KataChange change;
  /// The links of artifacts that must be made or changed: their targets, by class (link_to_make()).
  std::map<std::string, std::filesystem::path> links = {};
  bool needed = false;               ///< a file or a link must be written, or the runtime must read its files
  std::set<std::string> changed;     ///< handlers that the change adds, alters or removes
  std::set<std::string> leaving;     ///< handlers on the host that are not desired, pending ones included
  std::vector<OtherHandler> others;  ///< handlers in a state other than `pending`, by name
};

class KataKeeper {
 public:
  using Clock = std::chrono::steady_clock;

  /// When the next round runs without an event; absent: only an event starts it.
  using NextRound = std::optional<Clock::time_point>;

  struct Uses {
    HostFs* host = nullptr;
    HostWriter* writer = nullptr;
    ContainerRuntime* asked = nullptr;  ///< queried for the ready handlers
    /// Resolves the container runtime that a class file names. Empty, as `devices` is then: no class file
    /// is followed, and only the ready handlers are published.
    std::function<Result<KataRuntime>(const ClassFile& file)> runtime_for = {};
    /// The devices that a pod here can get. A mode that no register shows comes from the desired classes.
    std::function<Result<KataDevices>()> devices = {};
  };

  struct Pauses {
    std::chrono::milliseconds first{10'000};  ///< after a failure; doubles up to `longest`
    std::chrono::milliseconds longest{300'000};
    std::chrono::milliseconds lock{5'000};    ///< longest wait for the node lock
    std::chrono::milliseconds proof{60'000};  ///< ChangeContext::patience
  };

  struct Round {
    /// The container runtime answered, and its handlers are published.
    bool answered = false;
    NextRound again = {};
  };

  /// All objects in `uses` must outlive the keeper.
  KataKeeper(Uses uses, Pauses pauses);

  /// While the container runtime does not answer, its last published handlers stay, and no new change
  /// begins. A failed change is retried when its back-off ends or the desired state changes.
  Round round(Clock::time_point now);

 private:
  struct Failure {
    std::string of;  ///< the desired state that failed
    HandlerState state = HandlerState::failed;
    std::string why;
    Clock::time_point until;
  };

  /// A host that needs no change.
  struct Settled {
    ClassFile classes;
    KataRuntime runtime;
  };

  HandlersFile published_handlers() const;
  // These set the state of each handler in `file`.
  NextRound follow_desired_classes(const RuntimeState* state, Clock::time_point now, HandlersFile& file);
  NextRound reconcile(const DesiredClasses& desired, const RuntimeState* state, Clock::time_point now,
                      HandlersFile& file);
  /// Absent: the change may begin.
  NextRound wait_before_change(const DesiredPlan& plan, bool permitted, KataRuntime& runtime,
                               Clock::time_point now, HandlersFile& file);
  Clock::time_point change_under_lock(const DesiredClasses& desired, const ClassFile& classes,
                                      KataRuntime& runtime, const DesiredPlan& plan, Clock::time_point now,
                                      HandlersFile& file);
  Result<DesiredPlan> plan_for(const DesiredClasses& desired, const ClassFile& classes, KataRuntime& runtime,
                               const RuntimeState& state) const;
  /// False: the plan is not for the present desired state, or nothing needs a change.
  Result<bool> change(const DesiredClasses& desired, const ClassFile& classes, KataRuntime& runtime,
                      HandlersFile& file);
  void remove_old_versions(const ClassFile& classes, ContainerRuntime& runtime);
  ChangeContext context_of(KataRuntime& runtime) const;
  const Failure& fails(const DesiredClasses& desired, HandlerState state, const std::string& why,
                       Clock::time_point now);
  Clock::time_point later(Clock::time_point now, const HandlersFile& file);
  Result<> publish(const HandlersFile& file);
  void log_once(const std::string& news);

  const Uses uses_;
  const Pauses pauses_;
  std::optional<Failure> failure_;
  std::optional<Settled> settled_;        ///< only in a round: its old versions go after publish()
  std::chrono::milliseconds pause_;       ///< back-off after the next failure
  std::chrono::milliseconds look_again_;  ///< until the next round while a handler is not ready
  std::vector<OtherHandler> in_the_way_;
  std::string logged_;
  std::map<std::string, std::string> uncollected_;  ///< why old versions stay, by class; logged
};

/// Runs a KataKeeper's rounds: at the start; after the container runtime's socket is made anew, which means
/// a start; after its desired file is written, if it follows one; and from time to time, because a reload
/// causes no event. Each round blocks the loop's thread.
class KataKeeperLoop : Pinned {
 public:
  struct Pauses {
    std::chrono::milliseconds settling{500};     ///< from an event to the round
    std::chrono::milliseconds first{1'000};      ///< without an answer; doubles up to `longest`
    std::chrono::milliseconds longest{300'000};  ///< also after each answer
  };

  /// All arguments must outlive this object. `socket`: a path of the host; `desired`: also watch the desired
  /// file.
  KataKeeperLoop(EventLoop& loop, const HostFs& host, KataKeeper& keeper, const std::filesystem::path& socket,
                 bool desired, Pauses pauses);
  ~KataKeeperLoop();

 private:
  void schedule(std::chrono::milliseconds pause);
  void run_round();

  EventLoop& loop_;
  const HostFs& host_;
  KataKeeper& keeper_;
  const std::filesystem::path socket_folder_;
  const bool desired_;
  const Pauses pauses_;
  std::chrono::milliseconds pause_;  ///< before the round after the next failed one
  FolderWatch files_;
  EventLoop::Timer next_;
};

}  // namespace ferry::kata
