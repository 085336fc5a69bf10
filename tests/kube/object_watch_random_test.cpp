// SPDX-License-Identifier: Apache-2.0
// Whatever others change and whatever goes wrong: in the end a watch has what the server has.
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/kube/kube_fixture.h"
#include "tests/kube/watching.h"

namespace {

using namespace ferry;
using namespace ferry::test;
using namespace std::chrono_literals;
using nlohmann::json;

constexpr std::uint64_t kSeeds = 1'000;

// Up to a fifth of all goes wrong, of a few kinds at a time.
ApiChances drawn_chances(ApiServer& server) {
  ApiChances chances;
  for (double ApiChances::*chance :
       {&ApiChances::lost_before, &ApiChances::lost_after, &ApiChances::server_fault,
        &ApiChances::too_many_requests, &ApiChances::unauthorized, &ApiChances::forbidden, &ApiChances::late,
        &ApiChances::cut, &ApiChances::ended, &ApiChances::again, &ApiChances::compacted,
        &ApiChances::nonsense})
    if (server.draw() < 0.5) chances.*chance = server.draw() * 0.2;
  return chances;
}

void change_something(ApiServer& server) {
  const auto name = "m" + std::to_string(static_cast<int>(server.draw() * 3));
  const auto what = server.draw();
  if (what < 0.25) {
    server.erase("/api/v1/namespaces/a/configmaps/" + name);
  } else if (what < 0.6) {
    server.put(config_map("a", name, std::to_string(server.draw())));
  } else if (server.object("/api/v1/nodes/n1").is_null()) {
    server.put(node("n1"));
  } else if (what < 0.63) {
    server.erase("/api/v1/nodes/n1");
  } else {
    server.edit("/api/v1/nodes/n1", labels("a", std::to_string(server.draw())));
  }
}

void run_history(std::uint64_t seed) {
  KubeFixture kube(seed);
  auto& server = kube.server;
  const std::vector<kube::Selection> selections = {
      kube::only(kube::node_ref("n1")),
      kube::only(kube::config_map_ref("a", "m1")),
      {.kind = kube::kConfigMaps, .space = "a", .fields = {}, .labels = {}}};
  std::vector<std::unique_ptr<Watching>> watches;
  for (const auto& selection : selections)
    watches.push_back(std::make_unique<Watching>(kube, selection, [&server] { return server.draw(); }));

  server.chances = drawn_chances(server);
  for (int i = 0; i < 60; ++i) {
    change_something(server);
    const auto event = server.draw();
    if (event < 0.02) server.compact();
    if (event > 0.98) server.set_down(true);
    if (event > 0.5) server.set_down(false);
    if (event > 0.3 && event < 0.32) server.silence_streams();
    kube.clock.run_for(std::chrono::milliseconds(static_cast<int>(server.draw() * server.draw() * 20'000)));
  }

  // Then nothing more goes wrong, and the longest that a watch waits for is what a server may have asked.
  server.chances = {};
  server.set_down(false);
  kube.clock.run_for(6min);
  for (std::size_t i = 0; i < selections.size(); ++i) {
    ASSERT_EQ((*watches[i])->objects(), server.objects(selections[i]))
        << "seed " << seed << ": " << selections[i].text();
    const auto& said = watches[i]->said;
    EXPECT_TRUE(said.empty() || said.back() == "well") << "seed " << seed;
  }
  EXPECT_EQ(server.watches(), selections.size()) << "seed " << seed;
  // Of three watches in about ten minutes: each try that fails makes the next come later.
  EXPECT_LE(server.seen().size(), 150U) << "seed " << seed;
}

TEST(RandomHistories, EndInWhatTheServerHas) {
  for (std::uint64_t seed = 1; seed <= kSeeds && !testing::Test::HasFailure(); ++seed) run_history(seed);
}

}  // namespace
