// SPDX-License-Identifier: Apache-2.0
// What `ferry hostd --kata` and ferry-fetch do, as far as files show it.
#pragma once

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "agent/kata/artifact_pulls.h"
#include "api/files.h"
#include "hostfs/host_fs.h"
#include "kata-manager/classes/desired_classes.h"
#include "kata-manager/controller/ready_handlers.h"
#include "tests/support/virtual_clock.h"

namespace ferry::test {

/// Obeys kata-classes.json, and needs its time. To be called every second, as inotify would.
class KataHostdStandin {
 public:
  KataHostdStandin(VirtualClock& clock, HostFs& host, std::function<void()> wrote)
      : clock_(clock), host_(host), wrote_(std::move(wrote)) {}
  KataHostdStandin(const KataHostdStandin&) = delete;
  KataHostdStandin& operator=(const KataHostdStandin&) = delete;
  KataHostdStandin(KataHostdStandin&&) = delete;
  KataHostdStandin& operator=(KataHostdStandin&&) = delete;
  ~KataHostdStandin() { clock_.cancel(end_); }

  void look() {
    if (!runs || changing_) return;
    const auto desired = kata::read_desired_classes(host_).value_or(std::optional<kata::DesiredClasses>());
    if (!desired) return;
    const auto file = kata::desired_class_file(*desired);
    if (!file) return say({.ready = {}, .generation = desired->generation, .error = file.error().message});
    std::map<std::string, std::string> shall;
    for (const kata::KataClass& kata : file->classes)
      for (const std::string& handler : kata.handlers()) shall[handler] = kata.artifacts.url;
    kata::HandlersFile out{.ready = {}, .generation = desired->generation};
    bool would_change = false;
    for (const auto& [name, url] : shall) {
      const auto now = installed.find(name);
      const bool ready = now != installed.end();
      if (ready) out.ready.insert(name);
      if (ready && now->second == url) continue;
      if (!artifacts.contains(url)) {
        out.others.push_back({name, kata::HandlerState::missing_artifact});
      } else if (used.contains(name)) {
        out.others.push_back({name, kata::HandlerState::blocked, "a pod runs with it"});
      } else if (rests_until_ && clock_.now() < *rests_until_) {
        out.others.push_back({name, kata::HandlerState::failed, "it did not start"});
      } else {
        out.others.push_back({name, kata::HandlerState::pending});
        would_change = true;
      }
    }
    for (const auto& [name, url] : installed) {
      if (shall.contains(name)) continue;
      if (!desired->unlabelled.contains(name)) {
        out.others.push_back({name, kata::HandlerState::leaving});
      } else if (used.contains(name)) {
        out.others.push_back({name, kata::HandlerState::blocked, "a pod runs with it"});
      } else {
        out.others.push_back({name, kata::HandlerState::pending});
        would_change = true;
      }
    }
    if (would_change && desired->permitted) begin(*desired, shall, out);
    say(out);
  }

  bool runs = true;
  bool fails = false;
  std::chrono::seconds takes{10};
  std::set<std::string> artifacts;               ///< URLs of what is here
  std::set<std::string> used;                    ///< handlers that pods run with
  std::map<std::string, std::string> installed;  ///< handler to URL
  /// Called as a change begins, and with each handler that goes.
  std::function<void()> began = [] {};
  std::function<void(const std::string&)> went = [](const std::string&) {};
  unsigned changes = 0;  ///< that have begun
  bool changing() const { return changing_; }

 private:
  void begin(const kata::DesiredClasses& desired, const std::map<std::string, std::string>& shall,
             kata::HandlersFile& out) {
    changing_ = true;
    out.applying = true;
    ++changes;
    began();
    end_ = clock_.at(clock_.now() + takes, [this, desired, shall] {
      changing_ = false;
      if (fails) {
        rests_until_ = clock_.now() + std::chrono::minutes(1);
      } else {
        for (const auto& [name, url] : shall)
          if (artifacts.contains(url) && !used.contains(name)) installed[name] = url;
        const auto before = installed;
        for (const auto& [name, url] : before) {
          if (shall.contains(name) || used.contains(name) || !desired.unlabelled.contains(name)) continue;
          went(name);
          installed.erase(name);
        }
      }
      look();
    });
  }
  void say(const kata::HandlersFile& file) {
    const std::string text = kata::handlers_file_text(file);
    if (host_.read_file(api::kReadyHandlersFile).value_or("") == text) return;
    if (!host_.write_file(api::kReadyHandlersFile, text)) std::abort();
    wrote_();
  }

  VirtualClock& clock_;
  HostFs& host_;
  std::function<void()> wrote_;
  bool changing_ = false;
  std::optional<kube::Timers::Clock::time_point> rests_until_;
  kube::Timers::Timer end_;
};

/// Fetches in some seconds, or does not.
class FetcherStandin final : public agent::Fetcher {
 public:
  explicit FetcherStandin(VirtualClock& clock) : clock_(clock) {}
  FetcherStandin(const FetcherStandin&) = delete;
  FetcherStandin& operator=(const FetcherStandin&) = delete;
  FetcherStandin(FetcherStandin&&) = delete;
  FetcherStandin& operator=(FetcherStandin&&) = delete;
  ~FetcherStandin() override { stop(); }

  Result<> begin(const kata::FetchRequest& request, Done done) override {
    asked.push_back(request);
    under_way = true;
    end_ = clock_.at(clock_.now() + takes, [this, request, done = std::move(done)] {
      under_way = false;
      if (failures > 0) {
        --failures;
        return done(fail(Errc::unreachable, request.url + ": nobody answers"));
      }
      got(request.url);
      kata::Artifact artifact;
      artifact.name = request.name;
      artifact.url = request.url;
      artifact.digest = "sha256:1";
      done(std::move(artifact));
    });
    return {};
  }
  void stop() override {
    if (under_way) ++stopped;
    under_way = false;
    clock_.cancel(end_);
  }

  std::chrono::seconds takes{5};
  unsigned failures = 0;  ///< the next so many fail
  std::function<void(const std::string& url)> got = [](const std::string&) {};
  std::vector<kata::FetchRequest> asked;
  bool under_way = false;
  unsigned stopped = 0;

 private:
  VirtualClock& clock_;
  kube::Timers::Timer end_;
};

}  // namespace ferry::test
