// SPDX-License-Identifier: Apache-2.0
// Each write of the keeper fails, or is its last one.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "hostfs/locks.h"
#include "kata-manager/runtimes/runtime_record.h"
#include "tests/kata-manager/kept_node.h"

namespace ferry::kata {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using test::kMain;

/// From two classes to one that stays and one that comes, at once.
struct Moving : KeptNode {
  Moving() {
    scratch.link("opt/art/kata-c", "/srv/gpu");
    want(kTwoClasses, {"kata-a", "kata-b"});
    settle();
    want(std::string(kTwoClasses) + "- {name: kata-c, artifacts: {url: \"file:///srv/gpu\"}}\n",
         {"kata-b", "kata-c"}, {"kata-a"});
    before = text(kMain);
    host.writes = 0;
  }
  void expect_done() {
    for (int i = 0; i < 3; ++i) {
      settle();
      now += seconds(100);
    }
    EXPECT_EQ(said(), (HandlersFile{.ready = {"kata-b", "kata-c"}, .generation = 2}));
    EXPECT_THAT(text(kMain), AllOf(Not(HasSubstr("kata-a]")), HasSubstr("kata-b]"), HasSubstr("kata-c]")));
    EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a/configuration.toml"));
    EXPECT_FALSE(host.exists(kRuntimeRecord));
  }
  std::string before;
};

TEST(KataKeeperAtEachWrite, ThatFailsTheNextTriesGoOn) {
  int failures = 0;
  for (int at = 0; at < 30; ++at) {
    Moving node;
    node.host.fails_at = at;
    node.settle();
    if (node.host.writes <= at) break;
    ++failures;
    EXPECT_TRUE(node.daemon->runs);
    node.host.fails_at = -1;
    node.expect_done();
  }
  EXPECT_GE(failures, 8);
}

TEST(KataKeeperAtEachWrite, ThatIsItsLastTheNextOneGoesOn) {
  int deaths = 0;
  for (const bool before : {true, false}) {
    for (int at = 0; at < 30; ++at) {
      Moving node;
      const pid_t pid = ::fork();
      if (pid == 0) {
        (before ? node.host.dies_before : node.host.dies_after) = at;
        node.settle();
        ::_exit(EXIT_FAILURE);  // it went through
      }
      int status = 0;
      ASSERT_EQ(::waitpid(pid, &status, 0), pid);
      if (WEXITSTATUS(status) != EXIT_SUCCESS) break;
      ++deaths;
      const auto said = node.said();
      EXPECT_TRUE(!node.host.exists(kRuntimeRecord) || said.applying) << "its Lease is kept";
      node.begin();
      EXPECT_TRUE(node.daemon->runs);
      node.expect_done();
    }
  }
  EXPECT_GE(deaths, 16);
}

}  // namespace
}  // namespace ferry::kata
