// SPDX-License-Identifier: Apache-2.0
// A host that obeys the wanted classes (wanted_classes.h): one round from what is wanted to what is, and says
// what has become of it (ready_handlers.h).
//
// Nothing is fetched, no socket to a network is opened. What would leave is taken off the ready ones first,
// and goes once it has no label and no pod. Nothing is written to the host before it is permitted. Where
// somebody's run was killed, the next one that is permitted takes up what it has left (runtime_record.h).
//
// The clock is handed in, and a round waits for nothing but the host's lock and, while it changes something,
// the container runtime: who runs it (ready_watch.h) calls again when something has happened, or when a round
// says so.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/result.h"
#include "kata-manager/container_runtime.h"
#include "kata-manager/kata_configuration.h"
#include "kata-manager/kata_install.h"
#include "kata-manager/ready_handlers.h"
#include "kata-manager/wanted_classes.h"
#include "kata-manager/wanted_plan.h"

namespace ferry {

class KataKeeper {
 public:
  using Clock = std::chrono::steady_clock;

  struct Uses {
    HostFs* host = nullptr;
    HostWriter* writer = nullptr;
    ContainerRuntime* asked = nullptr;  ///< what is ready
    /// The container runtime as a class file says it. Empty, with `devices`: no file is obeyed, and only what
    /// is ready is said.
    std::function<Result<KataRuntime>(const ClassFile& file)> runtime_for = {};
    /// What a pod here can be given. In which mode the GPUs are the wanted classes say, and it counts alone.
    std::function<Result<KataDevices>()> devices = {};
  };

  struct Pauses {
    std::chrono::milliseconds first{10'000};  ///< after what did not come to be, doubled up to the next
    std::chrono::milliseconds longest{300'000};
    std::chrono::milliseconds lock{5'000};    ///< for another change of the host to end
    std::chrono::milliseconds proof{60'000};  ///< ChangeContext::patience
  };

  struct Round {
    /// The container runtime has answered, and what it said is written.
    bool answered = false;
    std::optional<Clock::time_point> again = {};  ///< when to come again though nothing has happened
  };

  /// All that is used must outlive this.
  KataKeeper(Uses uses, Pauses pauses);

  /// While the container runtime does not answer, what was said of it stays, and nothing is begun. A change
  /// that has failed is tried again when its pause is over, or something else is wanted.
  Round round(Clock::time_point now);

 private:
  struct Failure {
    std::string of;  ///< what was wanted then
    HandlerState state = HandlerState::failed;
    std::string why;
    Clock::time_point until;
  };

  HandlersFile as_said_before() const;
  std::optional<Clock::time_point> obey(const RuntimeState* state, Clock::time_point now, HandlersFile& file);
  std::optional<Clock::time_point> keep(const WantedClasses& wanted, const RuntimeState* state,
                                        Clock::time_point now, HandlersFile& file);
  Result<WantedPlan> look(const WantedClasses& wanted, const ClassFile& classes, KataRuntime& runtime,
                          const RuntimeState& state) const;
  enum class Changed { all, nothing_yet };
  Result<Changed> change(const WantedClasses& wanted, const ClassFile& classes, KataRuntime& runtime,
                         HandlersFile& file);
  Result<> carry_out(const ClassFile& classes, KataRuntime& runtime, WantedPlan& plan, HandlersFile& file);
  ChangeContext context_of(KataRuntime& runtime) const;
  const Failure& fails(const std::string& of, HandlerState state, const std::string& why,
                       Clock::time_point now);
  Clock::time_point later(Clock::time_point now, const HandlersFile& file);
  Result<> publish(const HandlersFile& file);
  void tell(const std::string& news);

  const Uses uses_;
  const Pauses pauses_;
  std::optional<Failure> failure_;
  std::chrono::milliseconds pause_;       ///< after the next failure
  std::chrono::milliseconds look_again_;  ///< while something is in the way
  std::vector<OtherHandler> in_the_way_;
  std::string told_;
};

}  // namespace ferry
