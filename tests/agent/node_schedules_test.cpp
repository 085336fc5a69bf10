// SPDX-License-Identifier: Apache-2.0
// Everything that may happen to a node and to its API server, in any order and at once: in memory, and with
// sockets and TLS between.
#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <stop_token>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "api/files.h"
#include "api/labels.h"
#include "kube/curl_transport.h"
#include "tests/agent/one_node.h"
#include "tests/agent/overlaps.h"
#include "tests/agent/schedules.h"
#include "tests/kube/certificates.h"
#include "tests/support/must.h"
#include "tests/support/tls_front.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::AgentLoop;
using test::forbids;
using test::kValidator;
using test::kVfioManager;
using test::schedules;

/// Everything that may happen to a node, in any order and at once.
class Schedule : public AgentLoop {
 protected:
  using Draw = std::function<int(int)>;  ///< a number below that one

  void run(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const Draw draw = [&](int most) { return std::uniform_int_distribution<int>(0, most - 1)(random); };
    cluster.put_validator();
    cluster.label(kVfioManager, "true");
    cluster.put_daemon_set("nvidia-operator-validator");
    cluster.start_agent();
    auto& chances = cluster.server.chances;
    if (draw(2) == 0) {
      chances.lost_before = chances.lost_after = chances.server_fault = chances.other_writer = 0.1;
      chances.late = chances.cut = chances.ended = chances.again = chances.compacted = 0.1;
      chances.too_many_requests = chances.unauthorized = 0.05;
    }
    static constexpr std::array kNames = {"given", "kept", "divided", "typo"};
    for (int event = 0; event < 12; ++event) {
      happen(draw, kNames[static_cast<std::size_t>(draw(kNames.size()))]);
      pass(std::chrono::seconds(draw(3) == 0 ? draw(40) : draw(4)));
    }
    settle(kNames[static_cast<std::size_t>(draw(3))]);
    if (draw(4) == 0) lose_hostd(kNames[static_cast<std::size_t>(draw(kNames.size()))], draw(10));
  }

  enum Event {
    label_set,
    label_gone,
    agent_killed,
    hostd_restarted,
    user,
    streams_cut,
    compacted,
    outage,
    owner,
    forbidden,
    disk_full,
    configuration_edited,
    clock_set
  };
  static constexpr std::array<const char*, 13> kEventNames = {
      "label set",          "label removed",    "agent killed",      "hostd restarted",
      "user came or went",  "streams cut",      "history compacted", "API server down or up",
      "owner came or went", "forbidden or not", "disk full or not",  "configuration edited",
      "clock set"};

  void happen(const Draw& draw, const char* name) {
    static constexpr std::array kEvents = {
        label_set,   label_set, label_set, label_gone, agent_killed, hostd_restarted, user,
        streams_cut, compacted, outage,    owner,      forbidden,    disk_full,       configuration_edited,
        clock_set};
    const Event event = kEvents.at(static_cast<std::size_t>(draw(static_cast<int>(kEvents.size()))));
    count(event);
    switch (event) {
      case label_set:
        return cluster.label(api::kPolicyLabel, name);
      case label_gone:
        return cluster.label(api::kPolicyLabel, nullptr);
      case agent_killed:
        cluster.kill_agent();
        return cluster.start_agent();
      case hostd_restarted:
        cluster.hostd.stop();
        return cluster.hostd.start();
      case user:
        cluster.hostd.user = !cluster.hostd.user;
        return cluster.hostd.desired_changed();
      case streams_cut:
        return cluster.server.cut_streams();
      case compacted:
        return cluster.server.compact();
      case outage:
        down_ = !down_;
        return cluster.server.set_down(down_);
      case owner:
        return own(!owned_);
      case forbidden:
        cluster.server.script = cluster.server.script ? nullptr : forbids("/daemonsets");
        return;
      case disk_full:
        return fill_disk(!full_);
      case configuration_edited:
        return cluster.configure(draw(4) == 0 ? "version: v2\npolicies: [typo]\n" : edition(draw(4)));
      case clock_set:
        cluster.clock.skew = std::chrono::minutes(20 * (draw(13) - 2));
        return;
    }
  }

  /// What `divided` comes to is another with each.
  static std::string edition(int number) {
    std::string out = test::kPolicies;
    return out.replace(out.find("4}}]"), 1, std::to_string(1 + number));
  }
  /// NVIDIA's vfio-manager is switched on or off.
  void own(bool owned) {
    owned_ = owned;
    if (owned)
      cluster.put_daemon_set("nvidia-vfio-manager");
    else
      cluster.server.erase("/apis/apps/v1/namespaces/gpu-operator/daemonsets/nvidia-vfio-manager");
  }
  /// desired.json cannot be written: a folder is in its place.
  void fill_disk(bool full) {
    full_ = full;
    const auto place = cluster.scratch.path() / api::kDesiredFile;
    std::filesystem::remove_all(place);
    if (full) std::filesystem::create_directories(place / "in the way");
    notify_hostd();
    if (cluster.agent) cluster.agent->host_changed();
  }

  void count(Event event) { overlaps().count(recent_, event, cluster.clock.now()); }
  using Overlaps = test::Overlaps<kEventNames.size()>;
  static Overlaps& overlaps() {
    static Overlaps all;
    return all;
  }

  static void TearDownTestSuite() { overlaps().show(kEventNames, test::share_of(schedules()) >= 1'000); }

  /// All goes well again, and everything becomes as it shall be.
  void settle(const char* name) {
    cluster.server.chances = {};
    cluster.server.set_down(false);
    cluster.server.script = nullptr;
    own(false);
    fill_disk(false);
    cluster.configure(edition(9));
    cluster.hostd.user = false;
    cluster.label(api::kPolicyLabel, name);
    cluster.hostd.desired_changed();
    pass(10min);
    EXPECT_EQ(cluster.desired(), name);
    EXPECT_EQ(cluster.hostd.is, name);
    EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
    EXPECT_EQ(cluster.label(kValidator), "true") << "an operand was left paused";
    EXPECT_EQ(cluster.annotation(api::kErrorAnnotation), "");
  }

  /// hostd ends for good, in the middle of what is asked next or before it.
  void lose_hostd(const char* name, int seconds) {
    cluster.label(api::kPolicyLabel, name);
    pass(std::chrono::seconds(seconds));
    cluster.hostd.stop();
    cluster.label(api::kPolicyLabel, seconds % 2 == 0 ? json("typo") : json());
    pass(20min);
    EXPECT_EQ(cluster.label(kValidator), "true") << "an operand was left paused";
    EXPECT_EQ(cluster.label(api::kStateLabel), seconds % 2 == 0 ? "failed" : "idle");
  }

 private:
  bool down_ = false;
  bool owned_ = false;
  bool full_ = false;
  Overlaps::Recent recent_;
};

/// How long others had the machine does not count.
double seconds_of_processor() {
  std::timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

class RandomSchedules : public Schedule, public testing::WithParamInterface<int> {
 protected:
  static void SetUpTestSuite() { begun_ = seconds_of_processor(); }
  static void TearDownTestSuite() {
    Schedule::TearDownTestSuite();
    fmt::print("{} schedules took {:.1f} s of processor\n", ended_, seconds_of_processor() - begun_);
  }

  inline static double begun_ = 0;
  inline static int ended_ = 0;  ///< those of this process, which may have a part of them
};

TEST_P(RandomSchedules, EndInTheDesiredStateWithNothingPaused) {
  run(static_cast<std::uint64_t>(GetParam()));
  ++ended_;
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomSchedules, testing::Range(0, schedules()));

/// Knows how many calls the client waits for.
class AwaitedCalls final : public kube::ApiTransport {
 public:
  explicit AwaitedCalls(kube::ApiTransport& under) : under_(under) {}

  Call send(kube::ApiRequest request, kube::ApiListener listener) override {
    const auto mark = std::make_shared<Call>();
    listener.ended = [this, mark, ended = std::move(listener.ended)](Result<kube::ApiReply> reply) {
      awaited_.erase(*mark);
      ended(std::move(reply));
    };
    *mark = under_.send(std::move(request), std::move(listener));
    awaited_.insert(*mark);
    return *mark;
  }
  void cancel(Call call) override {
    awaited_.erase(call);
    under_.cancel(call);
  }
  std::size_t count() const { return awaited_.size(); }

 private:
  kube::ApiTransport& under_;
  std::set<Call> awaited_;
};

/// The same with all that lies between: requests and answers go by libcurl, over TLS, to a socket of the
/// loopback. Where the server in memory loses something the connection is cut.
class SchedulesOverTls : public Schedule, public testing::WithParamInterface<int> {
 protected:
  static void SetUpTestSuite() {
    certificates() = std::make_unique<test::ScratchDirectory>();
    test::make_authority(*certificates(), "ca");
    test::make_certificate(*certificates(), "server", "ca", "IP:127.0.0.1");
  }
  static void TearDownTestSuite() { certificates().reset(); }
  SchedulesOverTls() {
    cluster.transport = &client_;
    cluster.clock.outside = [this] { let_it_flow(); };
  }
  ~SchedulesOverTls() override { cluster.kill_agent(); }
  SchedulesOverTls(const SchedulesOverTls&) = delete;
  SchedulesOverTls& operator=(const SchedulesOverTls&) = delete;
  SchedulesOverTls(SchedulesOverTls&&) = delete;
  SchedulesOverTls& operator=(SchedulesOverTls&&) = delete;

  std::size_t connections() const { return front_.connections(); }

 private:
  static std::unique_ptr<test::ScratchDirectory>& certificates() {
    static std::unique_ptr<test::ScratchDirectory> folder;
    return folder;
  }
  static std::string file(const char* name) { return (certificates()->path() / name).string(); }

  /// Until nothing moves any more and each call that the client waits for is one that the server has: none is
  /// on its way, and no answer.
  void let_it_flow() {
    constexpr int kStill = 3;
    const auto too_late = EventLoop::Clock::now() + 10s;
    std::stop_source stop;
    int still = 0;
    std::size_t before = front_.moved();
    std::function<void()> look = [&] {
      const bool moves = std::exchange(before, front_.moved()) != front_.moved();
      still = moves || front_.calls() != client_.count() ? 0 : still + 1;
      const bool late = EventLoop::Clock::now() > too_late;
      EXPECT_FALSE(late) << client_.count() << " calls are waited for, " << front_.calls() << " have arrived";
      if (still == kStill || late) return void(stop.request_stop());
      loop_->post(look);
    };
    loop_->post(look);
    loop_->run(stop.get_token());
  }

  std::unique_ptr<EventLoop> loop_ = test::must(EventLoop::create());
  test::TlsFront front_{*loop_, cluster.server, file("server.pem"), file("server.key")};
  kube::CurlTransport transport_{
      *loop_,
      {.server = {.tls = true, .host = "127.0.0.1", .port = front_.port(), .path = {}},
       .authorities = {.text = {}, .file = file("ca.pem")}}};
  AwaitedCalls client_{transport_};
};

TEST_P(SchedulesOverTls, EndInTheDesiredStateWithNothingPaused) {
  run(static_cast<std::uint64_t>(GetParam()));
  EXPECT_GT(connections(), 0U);
}

// They take a hundred times as long.
INSTANTIATE_TEST_SUITE_P(Seeds, SchedulesOverTls, testing::Range(0, std::min(schedules() / 50, 100)));

}  // namespace
}  // namespace ferry::agent
