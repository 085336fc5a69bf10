// SPDX-License-Identifier: Apache-2.0
// What `ferry hostd` does, as far as its files show it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/desired_state/written_policy.h"
#include "api/files.h"
#include "hostfs/host_fs.h"
#include "hostfs/locks.h"
#include "kube/timers.h"

namespace ferry::test {

/// Takes up what is wanted, and needs its time.
class HostdStandin {
 public:
  HostdStandin(kube::Timers& clock, HostFs& host, std::function<void()> wrote)
      : clock_(clock), host_(host), wrote_(std::move(wrote)) {
    show();
  }

  void desired_changed() {
    using namespace std::chrono_literals;
    if (!runs) return;
    clock_.cancel(next_);
    const auto desired = agent::read_written(host_.read_file(api::kDesiredFile).value_or(""));
    if (!desired) return end(std::nullopt, "idle");
    const auto generation = desired->generation;
    if (user) return end(generation, "blocked");
    if (fails) {
      if (ended_ == generation && phase_ == "blocked") ++tries_unasked;
      return end(generation, "failed");
    }
    if (desired->policy == is && (!by_text || config_.empty() || config_ == desired->config.text)) {
      config_ = desired->config.text;
      return end(generation, "ready");
    }
    if (!held_by().empty()) return end(generation, "blocked");
    // What was refused or has failed is tried again without being asked.
    under_way = ended_ != generation;
    if (!under_way) ++tries_unasked;
    say(generation, "applying");
    next_ = clock_.at(clock_.now() + 2s, [this, generation, desired_state = *desired] {
      say(generation, "applying");
      next_ = clock_.at(clock_.now() + takes, [this, generation, desired_state] {
        if (dies) return die();
        if (fails_late) {
          end(generation, "failed");
          next_ = clock_.at(clock_.now() + 10s, [this] { desired_changed(); });
          return;
        }
        is = desired_state.policy;
        config_ = desired_state.config.text;
        end(generation, "ready");
      });
    });
  }
  /// As by a SIGTERM: of a change that was about to begin it says that it does not go on.
  void stop() {
    if (runs) stopped = clock_.now();
    clock_.cancel(next_);
    if (runs && phase_ == "applying") {
      error_ = "hostd ended before the node reached its desired state";
      say(generation_, "applying");
      error_.clear();
    }
    runs = false;
    if (!liveness_) return;
    wrote_();  // the close of its file is reported before its lock is released
    liveness_.reset();
  }
  /// It runs, and has not said anything yet.
  void come() {
    runs = true;
    show();
    wrote_();
  }
  void start() {
    come();
    desired_changed();
  }

  bool runs = true;
  kube::Timers::Clock::time_point stopped;  ///< when it last ceased to run
  bool by_text = false;                     ///< a policy of the same name with another text is another one
  bool user = false;                        ///< a VM has the GPU
  std::function<nlohmann::json()> users;    ///< others, as status.json has them; empty: none
  bool fails = false;
  bool fails_late = false;        ///< once it has changed something; it tries that again
  bool dies = false;              ///< likewise, and somebody starts it anew
  bool has_failed = false;        ///< ever
  bool under_way = false;         ///< a change that desired.json has begun is on its way
  std::size_t tries_unasked = 0;  ///< changes that were refused or had failed, and were tried again
  bool matches = true;            ///< what is wanted says something of the GPU
  std::chrono::seconds takes{5};
  std::string is = "kept";

 private:
  nlohmann::json held_by() const { return users ? users() : nlohmann::json::array(); }
  std::string mode() const {
    return is == "given" || is == "same" ? "passthrough" : is == "divided" ? "vgpu" : "host";
  }
  void show() {
    auto shown = LivenessLock::announce(host_, api::kHostdLiveness);
    if (!shown) std::abort();
    liveness_.emplace(std::move(*shown));
  }
  /// As by a SIGKILL, started anew ten seconds later.
  void die() {
    runs = false;
    stopped = clock_.now();
    wrote_();
    liveness_.reset();
    next_ = clock_.at(clock_.now() + std::chrono::seconds(10), [this] { start(); });
  }
  void end(std::optional<std::uint64_t> generation, const std::string& phase) {
    under_way = false;
    has_failed = has_failed || phase == "failed";
    ended_ = phase == "ready" ? std::nullopt : generation;
    say(generation, phase);
  }
  void say(std::optional<std::uint64_t> generation, const std::string& phase) {
    using nlohmann::json;
    generation_ = generation;
    phase_ = phase;
    json gpu = {{"address", "0000:02:00.0"},
                {"id", "10de:26b9"},
                {"class", "0302"},
                {"model", "AD102GL [L40S]"},
                {"iommu_group", 12},
                {"driver", "nvidia"},
                {"mode", mode()},
                {"desired", generation && matches ? json(mode()) : json()},
                {"state", "ready"},
                {"reason", ""},
                {"hint", ""},
                {"users", json::array()},
                {"vgpus", json::array()}};
    if (phase == "blocked") {
      gpu["state"] = "blocked";
      gpu["reason"] = "0000:02:00.0 is in use: VM guest-7 (pid 4711) holds /dev/vfio/12";
      gpu["users"] = {{{"kind", "vm"}, {"name", "guest-7"}, {"pid", 4711}}};
      if (const json held = held_by(); !held.empty()) gpu["users"] = held;
      gpu["only_in_use"] = true;
    }
    if (phase == "failed") gpu["state"] = "failed";
    const json state = {
        {"version", 2},
        {"generation", ++said_},
        {"pid", 7},
        {"boot_id", "b"},
        {"desired", generation ? json{{"generation", *generation}} : json()},
        {"phase", phase},
        {"accelerators", {gpu}},
        {"unavailable", json::array()},
        {"error", error_.empty() ? json() : json{{"message", error_}, {"hint", ""}}},
        {"features", {{"iommu", "on"}, {"largest_group", 1}, {"vgpu_types", {{"L40S-12Q", 4}}}}}};
    if (!host_.write_file(api::kStatusFile, state.dump())) std::abort();
    wrote_();
  }

  kube::Timers& clock_;
  HostFs& host_;
  std::function<void()> wrote_;
  std::optional<LivenessLock> liveness_;
  std::uint64_t said_ = 0;
  std::string config_;                       ///< of `is`, once it has been reported
  std::optional<std::uint64_t> generation_;  ///< that was spoken of last
  std::string phase_;                        ///< likewise
  std::string error_;                        ///< to be said of the whole
  std::optional<std::uint64_t> ended_;       ///< the generation that was refused or has failed
  kube::Timers::Timer next_;
};

}  // namespace ferry::test
