// SPDX-License-Identifier: Apache-2.0
#include "hostfs/stuck_writes.h"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using test::must;
using testing::ElementsAre;
using testing::IsEmpty;

class StuckWritesTest : public testing::Test {
 protected:
  StuckWritesTest() {
    boot("11111111-0000-4000-8000-000000000000");
    start_in("pid:[4026531836]");
    proc_of("pid:[4026531836]");
  }
  /// The PID namespace that we and our children are in, and the one that /proc shows.
  void start_in(const std::string& space) {
    tree_.remove("proc/self");
    tree_.link("proc/self/ns/pid", space);
  }
  void proc_of(const std::string& space) {
    tree_.remove("proc/1");
    tree_.link("proc/1/ns/pid", space);
  }
  void boot(const std::string& id) { tree_.file("proc/sys/kernel/random/boot_id", id + "\n"); }
  // Field 2 is the name, which may hold spaces and brackets; 22 is the start time.
  void process(int pid, char state, const std::string& start_time, const std::string& name = "ferry") {
    tree_.file("proc/" + std::to_string(pid) + "/stat", std::to_string(pid) + " (" + name + ") " + state +
                                                            " 1 1 1 0 -1 4194560 89 0 0 0 0 0 0 0 20 0 1 0 " +
                                                            start_time +
                                                            " 2334720 220 18446744073709551615\n");
  }
  void record(int pid) { must(record_stuck_write(host_, pid, kAct, "0000:65:00.0")); }
  std::vector<int> pids() const {
    std::vector<int> out;
    for (const StuckWrite& write : must(stuck_writes(host_))) out.push_back(write.pid);
    return out;
  }

  static constexpr const char* kAct = "write /sys/bus/pci/drivers/nvidia/unbind";
  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
};

TEST_F(StuckWritesTest, ReportsWhatIsStuckAndWhereInTheKernel) {
  process(700, 'D', "4242");
  tree_.file("proc/700/wchan", "nv_pci_remove");
  const StuckWrite write = must(record_stuck_write(host_, 700, kAct, "0000:65:00.0"));
  EXPECT_EQ(write.kernel_state, "state D in nv_pci_remove");
  const auto found = must(stuck_writes(host_));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].pid, 700);
  EXPECT_EQ(found[0].act, kAct);
  EXPECT_EQ(found[0].value, "0000:65:00.0");
  EXPECT_EQ(found[0].kernel_state, "state D in nv_pci_remove");
}

TEST_F(StuckWritesTest, ReadsAProcessWhoseNameLooksLikeMore) {
  process(700, 'D', "4242", "x) R 1 (y");
  record(700);
  EXPECT_THAT(pids(), ElementsAre(700));
  EXPECT_EQ(must(stuck_writes(host_))[0].kernel_state, "state D");
}

TEST_F(StuckWritesTest, IsEmptyOnAHostThatNeverHadOne) {
  EXPECT_THAT(pids(), IsEmpty());
}

TEST_F(StuckWritesTest, IsOverWhenTheProcessHasEnded) {
  process(700, 'D', "4242");
  record(700);
  process(700, 'Z', "4242");
  EXPECT_THAT(pids(), IsEmpty()) << "nobody has waited for it yet";
  tree_.remove("proc/700");
  EXPECT_THAT(pids(), IsEmpty());
}

TEST_F(StuckWritesTest, IsOverWhenAnotherProcessHasItsNumber) {
  process(700, 'D', "4242");
  record(700);
  process(700, 'D', "4243");
  EXPECT_THAT(pids(), IsEmpty());
}

TEST_F(StuckWritesTest, IsOverAfterAReboot) {
  process(700, 'D', "4242");
  record(700);
  boot("22222222-0000-4000-8000-000000000000");
  EXPECT_THAT(pids(), IsEmpty());
}

TEST_F(StuckWritesTest, IsLateOnceItsDeadlineHasPassedWhoeverLives) {
  process(700, 'D', "4242");
  EXPECT_FALSE(must(record_stuck_write(host_, 700, kAct, "x", std::chrono::hours(1))).late);
  EXPECT_FALSE(must(stuck_writes(host_)).at(0).late);
  must(record_stuck_write(host_, 700, kAct, "x", std::chrono::milliseconds(1)));
  while (!must(stuck_writes(host_)).at(0).late) std::this_thread::yield();
  record(700);
  EXPECT_TRUE(must(stuck_writes(host_)).at(0).late);
}

// As in a container without the host's /proc.
TEST_F(StuckWritesTest, IsNotOverWhereNobodyKnowsTheBoot) {
  process(700, 'D', "4242");
  record(700);
  tree_.remove("proc");
  EXPECT_THAT(pids(), ElementsAre(700));
}

TEST_F(StuckWritesTest, IsNotOverWhereItsRecordHasNoBoot) {
  process(700, 'D', "4242");
  tree_.remove("proc/sys");
  record(700);
  boot("11111111-0000-4000-8000-000000000000");
  must(clear_ended_records(host_));
  EXPECT_THAT(pids(), ElementsAre(700));
  tree_.remove("proc/700");
  EXPECT_THAT(pids(), IsEmpty());
}

TEST_F(StuckWritesTest, OfAnotherPidNamespaceIsOverOnlyAfterAReboot) {
  start_in("pid:[4026532188]");
  record(27);
  EXPECT_THAT(pids(), ElementsAre(27)) << "the host's /proc shows it under a number that nobody knows";
  process(27, 'S', "99", "kworker/3:1");
  EXPECT_THAT(pids(), ElementsAre(27)) << "this is another process";
  proc_of("pid:[4026532200]");
  EXPECT_THAT(pids(), ElementsAre(27)) << "and so it is in another container's /proc";
  boot("22222222-0000-4000-8000-000000000000");
  EXPECT_THAT(pids(), IsEmpty());
}

TEST_F(StuckWritesTest, OfTheHostIsNotOverForAContainer) {
  process(700, 'D', "4242");
  record(700);
  tree_.remove("proc/700");
  start_in("pid:[4026532188]");
  proc_of("pid:[4026532188]");
  EXPECT_THAT(pids(), ElementsAre(700));
  proc_of("pid:[4026531836]");
  EXPECT_THAT(pids(), IsEmpty()) << "the host's /proc, mounted there, knows better";
}

TEST_F(StuckWritesTest, IsOverWhenAContainersOwnProcessHasEnded) {
  start_in("pid:[4026532188]");
  proc_of("pid:[4026532188]");
  process(27, 'D', "4242");
  record(27);
  EXPECT_THAT(pids(), ElementsAre(27));
  tree_.remove("proc/27");
  EXPECT_THAT(pids(), IsEmpty());
}

TEST_F(StuckWritesTest, IsNotOverWhereNobodyMaySeeWhoseProcItIs) {
  process(700, 'D', "4242");
  record(700);
  tree_.remove("proc/700");
  tree_.remove("proc/1");
  EXPECT_THAT(pids(), ElementsAre(700));
}

TEST_F(StuckWritesTest, OfTwoPidNamespacesMayHaveOneNumber) {
  for (const char* space : {"pid:[4026531836]", "pid:[4026532188]", "pid:[4026532200]"}) {
    start_in(space);
    process(27, 'D', "4242");
    record(27);
  }
  EXPECT_THAT(host_.list("run/ferry/stuck-writes").value(),
              ElementsAre("27-4026532188.json", "27-4026532200.json", "27.json"));
  must(forget_stuck_write(host_, 27));
  EXPECT_THAT(host_.list("run/ferry/stuck-writes").value(), ElementsAre("27-4026532188.json", "27.json"));
}

TEST_F(StuckWritesTest, ClearsAwayOnlyThoseThatAreOver) {
  process(700, 'D', "4242");
  process(701, 'D', "4250");
  record(700);
  record(701);
  tree_.remove("proc/700");
  process(702, 'D', "4260");
  record(702);
  EXPECT_THAT(host_.list("run/ferry/stuck-writes").value(), ElementsAre("701.json", "702.json"));
  EXPECT_THAT(pids(), ElementsAre(701, 702));
}

TEST_F(StuckWritesTest, AreKeptWhileTheirProcessCannotBeRead) {
  process(700, 'D', "4242");
  record(700);
  tree_.remove("proc/700");
  tree_.file("proc/700/stat/in-its-place", "");
  must(clear_ended_records(host_));
  EXPECT_THAT(pids(), ElementsAre(700));
}

TEST_F(StuckWritesTest, AreKeptIfTheirWriterCouldNotReadTheStartTime) {
  record(700);
  process(700, 'D', "4242");
  must(clear_ended_records(host_));
  EXPECT_THAT(pids(), ElementsAre(700));
  process(700, 'Z', "4242");
  EXPECT_THAT(pids(), IsEmpty());
}

TEST_F(StuckWritesTest, AreNotKnownWhileOneCannotBeRead) {
  tree_.file("run/ferry/stuck-writes/700.json/in-its-place", "");
  const auto writes = stuck_writes(host_);
  ASSERT_FALSE(writes);
  EXPECT_EQ(writes.error().hint,
            "remove it once no process of Ferry is in state D (ps), or restart the host");
  EXPECT_FALSE(clear_ended_records(host_));
}

TEST_F(StuckWritesTest, AreRecordedWhileAnotherCannotBeRead) {
  tree_.file("run/ferry/stuck-writes/700.json/in-its-place", "");
  process(701, 'D', "4250");
  record(701);
  EXPECT_TRUE(host_.exists("run/ferry/stuck-writes/701.json"));
}

class StrangeRecord : public StuckWritesTest, public testing::WithParamInterface<const char*> {};

TEST_P(StrangeRecord, IsPassedOver) {
  process(700, 'D', "4242");
  tree_.file("run/ferry/stuck-writes/700.json", GetParam());
  EXPECT_THAT(pids(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Table, StrangeRecord,
    testing::Values(
        "", "{", "null", "[]", "{}", R"({"version":1,"pid":700})",
        R"({"version":1,"pid":"700","act":"a","value":"v","boot_id":"b","start_time":"4242"})",
        R"({"version":1,"pid":700,"act":7,"value":"v","boot_id":"b","start_time":"4242"})",
        R"({"version":1,"pid":700,"act":"a","value":"v","boot_id":7,"start_time":"4242"})",
        R"({"version":1,"pid":700,"act":"a","value":"v","boot_id":"11111111-0000-4000-8000-000000000000",
            "start_time":"4242","pid_namespace":7})",
        R"({"version":1,"pid":700.5,"act":"a","value":"v","boot_id":"11111111-0000-4000-8000-000000000000",
            "start_time":"4242","pid_namespace":"pid:[4026531836]"})",
        R"({"version":1,"pid":700000000000000000000,"act":"a","value":"v",
            "boot_id":"11111111-0000-4000-8000-000000000000","start_time":"4242",
            "pid_namespace":"pid:[4026531836]"})"));

TEST(StuckWrite, ConcernsTheDeviceThatItsPathOrValueNames) {
  const StuckWrite by_value{.pid = 1,
                            .act = "write /sys/bus/pci/drivers/nvidia/unbind",
                            .value = "0000:65:00.0",
                            .kernel_state = {}};
  EXPECT_TRUE(concerns(by_value, "0000:65:00.0"));
  EXPECT_FALSE(concerns(by_value, "0000:65:00.1"));
  const StuckWrite by_path{.pid = 1,
                           .act = "write /sys/bus/pci/devices/0000:65:00.0/sriov_numvfs",
                           .value = "0",
                           .kernel_state = {}};
  EXPECT_TRUE(concerns(by_path, "0000:65:00.0"));
  EXPECT_FALSE(concerns(by_path, "0000:65:00"));
  const StuckWrite module{.pid = 1, .act = "load module vfio_pci", .value = {}, .kernel_state = {}};
  EXPECT_FALSE(concerns(module, "0000:65:00.0"));
}

}  // namespace
}  // namespace ferry
