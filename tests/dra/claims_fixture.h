// SPDX-License-Identifier: Apache-2.0
// The claim driver on a fake node, with an API server and a hostd beside it.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "api/files.h"
#include "common/event_loop.h"
#include "dra/claims/claim_driver.h"
#include "dra/names.h"
#include "hostfs/host_fs.h"
#include "tests/dra/fake_hostd.h"
#include "tests/dra/some_gpus.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::test {

using namespace std::chrono_literals;

/// An API server that has these claims.
class FakeReader : public dra::ClaimReader {
 public:
  void read(const dra::ClaimKey& key, Done done) override {
    ++reads;
    if (silent) {
      waiting.push_back([this, key, done = std::move(done)] { done(answer(key)); });
      return;
    }
    done(answer(key));
  }

  void read_class(const std::string& name, Done done) override {
    ++class_reads;
    const auto found = classes.find(name);
    if (class_error) return done(fail(Error(*class_error)));
    if (found == classes.end())
      return done(fail(Errc::not_found, "get DeviceClass " + name + ": there is none"));
    done(nlohmann::json{{"spec", {{"extendedResourceName", found->second}}}});
  }

  std::map<std::string, nlohmann::json> objects;  // by "namespace/name"
  std::map<std::string, std::string> classes;     // resource names by class
  std::optional<Error> class_error;
  int class_reads = 0;
  std::optional<Error> error;
  bool silent = false;
  std::vector<std::function<void()>> waiting;  // answers that a silent server owes
  int reads = 0;

 private:
  Result<nlohmann::json> answer(const dra::ClaimKey& key) const {
    if (error) return fail(Error(*error));
    const auto found = objects.find(key.space + "/" + key.name);
    if (found == objects.end())
      return fail(Errc::not_found,
                  "claim " + key.space + "/" + key.name + ": there is no such ResourceClaim");
    return found->second;
  }
};

class FakeNode : public dra::ModelSource {
 public:
  Result<dra::NodeModel> node() const override {
    if (error) return fail(Error(*error));
    return model;
  }

  dra::NodeModel model =
      node_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 43), mixed("0000:af:00.0", 44)});
  std::optional<Error> error;
};

class RecordedEvents : public dra::ClaimEvents {
 public:
  void failed(const dra::ClaimKey& /*claim*/, api::ClaimAction /*action*/, const Error& error) override {
    failures.push_back(error.text());
  }
  void warned(const dra::ClaimKey& /*claim*/, const std::string& sentence) override {
    warnings.push_back(sentence);
  }
  void lost(const dra::ClaimKey& /*claim*/, const std::string& sentence) override {
    losses.push_back(sentence);
  }

  std::vector<std::string> failures;
  std::vector<std::string> warnings;
  std::vector<std::string> losses;
};

/// A device for a request: {"card", "whole-0000-3b-00-0"}.
using AskedDevice = std::pair<std::string, std::string>;

inline nlohmann::json claim_object(const dra::ClaimKey& key, const std::vector<AskedDevice>& devices) {
  nlohmann::json results = nlohmann::json::array();
  for (const auto& [request, device] : devices)
    results.push_back({{"request", request},
                       {"driver", std::string(dra::kDriver)},
                       {"pool", dra::pool_name("node7")},
                       {"device", device}});
  nlohmann::json out;
  out["metadata"] = {{"uid", key.uid}, {"namespace", key.space}, {"name", key.name}};
  out["status"]["allocation"]["devices"]["results"] = results;
  return out;
}

/// The answers to one request; absent until it is answered.
using Answers = std::optional<std::vector<dra::ClaimAnswer>>;

class ClaimsFixture : public testing::Test {
 protected:
  static constexpr auto kPatience = 20s;
  static constexpr const char* kWhole = "whole-0000-3b-00-0";
  static constexpr const char* kVgpu = "vgpu-0000-5e-00-0-1150-0";

  ClaimsFixture() {
    root.file("proc/sys/kernel/random/boot_id", "boot-1\n");
    start_hostd();
  }
  ~ClaimsFixture() override { gate.open(); }

  void start_hostd() { hostd = std::make_unique<FakeHostd>(root.path() / api::kClaimSocket); }

  /// A process with a loop of its own, as after a start.
  void start() { start(host); }
  void start(HostFs& on) {
    driver.reset();
    loop = must(EventLoop::create());
    driver = must(dra::ClaimDriver::open({.loop = *loop,
                                          .host = on,
                                          .reader = reader,
                                          .node = node,
                                          .events = events,
                                          .changed = [this] { ++changes; }},
                                         settings));
  }

  void run_for(std::chrono::milliseconds span) const {
    std::stop_source stop;
    loop->at(EventLoop::Clock::now() + span, [&stop] { stop.request_stop(); });
    loop->run(stop.get_token());
  }
  bool run_until(const std::function<bool()>& holds) const {
    const auto end = EventLoop::Clock::now() + kPatience;
    while (!holds()) {
      if (EventLoop::Clock::now() > end) return false;
      run_for(2ms);
    }
    return true;
  }

  static dra::ClaimKey key(const std::string& name, const std::string& uid) {
    return {.uid = uid, .space = "studio", .name = name};
  }
  /// Allocates devices to a claim.
  dra::ClaimKey allocate(const std::string& name, const std::vector<AskedDevice>& devices,
                         const std::string& uid = {}) {
    const dra::ClaimKey made = key(name, uid.empty() ? name + "-uid" : uid);
    reader.objects["studio/" + name] = claim_object(made, devices);
    return made;
  }

  /// Allocates devices to a claim that the scheduler makes for extended resources. Each request has the class
  /// of its name.
  dra::ClaimKey allocate_for_resources(const std::string& name, const std::vector<AskedDevice>& devices) {
    const dra::ClaimKey made = allocate(name, devices);
    nlohmann::json& object = reader.objects["studio/" + name];
    object["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] = "true";
    for (const auto& [request, device] : devices)
      object["spec"]["devices"]["requests"].push_back(
          {{"name", request}, {"exactly", {{"deviceClassName", request}}}});
    return made;
  }

  std::shared_ptr<Answers> ask(const std::vector<dra::ClaimKey>& claims) const {
    auto answers = std::make_shared<Answers>();
    driver->prepare(claims, [answers](std::vector<dra::ClaimAnswer> given) { *answers = std::move(given); });
    return answers;
  }
  std::shared_ptr<Answers> ask_to_undo(const std::vector<dra::ClaimKey>& claims) const {
    auto answers = std::make_shared<Answers>();
    driver->unprepare(claims,
                      [answers](std::vector<dra::ClaimAnswer> given) { *answers = std::move(given); });
    return answers;
  }
  std::vector<dra::ClaimAnswer> prepare(const std::vector<dra::ClaimKey>& claims) const {
    return wait_for(ask(claims));
  }
  std::vector<dra::ClaimAnswer> unprepare(const std::vector<dra::ClaimKey>& claims) const {
    return wait_for(ask_to_undo(claims));
  }
  std::vector<dra::ClaimAnswer> wait_for(const std::shared_ptr<Answers>& answers) const {
    EXPECT_TRUE(run_until([&] { return answers->has_value(); })) << "no answer";
    return answers->value_or(std::vector<dra::ClaimAnswer>());
  }
  /// The error of the only claim; empty: it succeeded.
  static std::string error_of(const std::vector<dra::ClaimAnswer>& answers) {
    if (answers.size() != 1) return "not one answer";
    return answers[0].devices ? "" : answers[0].devices.error().text();
  }

  dra::Checkpoint on_disk() const {
    return must(dra::read_checkpoint(must(host.read_file(api::kCheckpointFile))));
  }

  std::vector<std::string> names_in(const std::filesystem::path& folder) const {
    return host.list(folder).value_or(std::vector<std::string>());
  }

  ScratchDirectory root;
  HostFs host{root.path()};
  FakeReader reader;
  FakeNode node;
  RecordedEvents events;
  int changes = 0;
  dra::ClaimDriver::Settings settings = {.node = "node7"};
  Gate gate;  // before hostd, whose threads may wait there
  std::unique_ptr<FakeHostd> hostd;
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<dra::ClaimDriver> driver;
};

}  // namespace ferry::test
