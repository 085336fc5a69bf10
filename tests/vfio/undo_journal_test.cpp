// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/undo_journal.h"

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vfio/machines.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::FakeKernel;
using testing::HasSubstr;

const PriorState kNouveau{
    .ids = "10de:2684", .driver = "nouveau", .driver_override = {}, .role = "accelerator"};
const PriorState kStub{
    .ids = "10de:2684", .driver = "pci-stub", .driver_override = "pci-stub", .role = "accelerator"};

// Brought back by other means meanwhile, it shows no trace of Ferry: what it has now is what it shall have
// again.
TEST(UndoJournal, OfAFunctionThatIsAtHomeAgainIsTheNewLook) {
  test::FakeKernel kernel;
  const PciAddress gpu = test::at("0000:65:00.0");
  const auto had = [](const char* driver) {
    return PriorState{.ids = "10de:2684", .driver = driver, .driver_override = {}, .role = "accelerator"};
  };
  ASSERT_TRUE(write_undo_journal(kernel, 41, {{gpu, had("nvidia")}}));
  ASSERT_TRUE(write_undo_journal(kernel, 41, {{gpu, had("nouveau")}}));
  EXPECT_EQ(read_undo_journal(kernel)->members.at(gpu).driver, "nvidia");
  ASSERT_TRUE(write_undo_journal(kernel, 41, {{gpu, had("nouveau")}}, {gpu}));
  EXPECT_EQ(read_undo_journal(kernel)->members.at(gpu).driver, "nouveau");
}

TEST(UndoJournal, KeepsTheFirstRecordOfAFunction) {
  FakeKernel kernel;
  ASSERT_TRUE(write_undo_journal(kernel, 5, {{at("0000:01:00.0"), kNouveau}}));
  ASSERT_TRUE(write_undo_journal(kernel, 5, {{at("0000:01:00.0"), kStub}, {at("0000:01:00.1"), kStub}}));
  const auto record = read_undo_journal(kernel).value();
  EXPECT_EQ(record.members.at(at("0000:01:00.0")), kNouveau);
  EXPECT_EQ(record.members.at(at("0000:01:00.1")), kStub);
}

TEST(UndoJournal, IsAboutTheCardNotTheAddress) {
  FakeKernel kernel;
  ASSERT_TRUE(write_undo_journal(kernel, 5, {{at("0000:01:00.0"), kNouveau}}));
  PriorState other = kStub;
  other.ids = "10de:1db6";
  ASSERT_TRUE(write_undo_journal(kernel, 5, {{at("0000:01:00.0"), other}}));
  EXPECT_EQ(read_undo_journal(kernel)->members.at(at("0000:01:00.0")), other);
}

TEST(UndoJournal, TellsFunctionsThatFerryBoundFromOthers) {
  FakeKernel kernel;
  PriorState of_another = kStub;
  of_another.driver.reset();
  of_another.kernels_choice = true;
  ASSERT_TRUE(
      write_undo_journal(kernel, 5, {{at("0000:01:00.0"), kNouveau}, {at("0000:01:00.1"), of_another}}));
  UndoJournal record = read_undo_journal(kernel).value();
  EXPECT_TRUE(record.has_bound(at("0000:01:00.0"), "10de:2684"));
  EXPECT_FALSE(record.has_bound(at("0000:01:00.0"), "10de:1db6")) << "another card";
  EXPECT_FALSE(record.has_bound(at("0000:01:00.1"), "10de:2684")) << "it was on vfio before Ferry";
  EXPECT_FALSE(record.has_bound(at("0000:01:00.2"), "10de:2684"));
}

TEST(UndoJournal, GoesWithItsLastMember) {
  FakeKernel kernel;
  ASSERT_TRUE(write_undo_journal(kernel, 5, {{at("0000:01:00.0"), kNouveau}, {at("0000:01:00.1"), kStub}}));
  ASSERT_TRUE(erase_from_undo_journal(kernel, {at("0000:01:00.0")}));
  EXPECT_EQ(read_undo_journal(kernel)->members.size(), 1U);
  ASSERT_TRUE(erase_from_undo_journal(kernel, {at("0000:01:00.1")}));
  EXPECT_FALSE(kernel.exists("run/ferry/hostd/moves/5.json"));
}

TEST(UndoJournal, RefusesAnOverrideThatItCouldNotGiveBack) {
  FakeKernel kernel;
  PriorState odd = kStub;
  odd.driver_override = "\xff";
  const auto written = write_undo_journal(kernel, 5, {{at("0000:01:00.0"), odd}});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Errc::malformed_host);
  EXPECT_THAT(written.error().message, HasSubstr("group 5"));
  EXPECT_FALSE(kernel.exists("run/ferry/hostd/moves/5.json"));
}

TEST(UndoJournal, KnowsTheModuleThatBroughtTheDriver) {
  FakeKernel kernel;
  PriorState with_module = kNouveau;
  with_module.module = "nouveau";
  ASSERT_TRUE(
      write_undo_journal(kernel, 5, {{at("0000:01:00.0"), with_module}, {at("0000:01:00.1"), kStub}}));
  EXPECT_EQ(read_undo_journal(kernel)->members.at(at("0000:01:00.0")).module, "nouveau");
  EXPECT_EQ(read_undo_journal(kernel)->members.at(at("0000:01:00.1")).module, std::nullopt);
}

// Plugged again in another slot of the bridge, say: the record that was written first is of the old place.
TEST(UndoJournal, OfTheGroupThatTheFunctionIsInNowCounts) {
  for (const unsigned group : {5U, 7U}) {
    FakeKernel kernel;
    kernel.add_function({.address = "0000:01:00.0", .group = group});
    ASSERT_TRUE(write_undo_journal(kernel, group, {{at("0000:01:00.0"), kNouveau}}));
    ASSERT_TRUE(write_undo_journal(kernel, 6, {{at("0000:01:00.0"), kStub}}));
    EXPECT_EQ(read_undo_journal(kernel)->members.at(at("0000:01:00.0")), kNouveau) << group;
    ASSERT_TRUE(erase_from_undo_journal(kernel, {at("0000:01:00.0")}));
    EXPECT_THAT(kernel.list("run/ferry/hostd/moves").value(), testing::IsEmpty());
  }
}

TEST(UndoJournal, IsNotVoidWhereTheRunningBootIsUnknown) {
  FakeKernel kernel;
  const std::string file = "run/ferry/hostd/moves/5.json";
  ASSERT_TRUE(write_undo_journal(kernel, 5, {{at("0000:01:00.0"), kNouveau}}));
  const auto before = kernel.read_file(file).value();
  kernel.remove("proc/sys/kernel/random/boot_id");
  const auto record = test::must(read_undo_journal(kernel));
  ASSERT_TRUE(record.unreadable.contains(5));
  EXPECT_THAT(record.unreadable.at(5).message, HasSubstr("boot_id"));
  EXPECT_FALSE(write_undo_journal(kernel, 5, {{at("0000:01:00.1"), kStub}}));
  EXPECT_TRUE(erase_from_undo_journal(kernel, {at("0000:01:00.0")}));
  EXPECT_EQ(kernel.read_file(file).value(), before);
}

PciFunction function_in(const char* address, std::uint32_t group) {
  PciFunction function;
  function.address = at(address);
  function.iommu_group = group;
  return function;
}

class MalformedRecord : public testing::TestWithParam<const char*> {};

TEST_P(MalformedRecord, IsKnownByItsGroupAndLosesNothing) {
  FakeKernel kernel;
  ASSERT_TRUE(write_undo_journal(kernel, 6, {{at("0000:02:00.0"), kStub}, {at("0000:03:00.0"), kStub}}));
  kernel.file("run/ferry/hostd/moves/5.json", GetParam());
  const auto record = test::must(read_undo_journal(kernel));
  EXPECT_EQ(record.members.size(), 2U);
  ASSERT_TRUE(record.unreadable.contains(5));
  for (const auto& error :
       {record.unreadable.at(5), write_undo_journal(kernel, 5, {{at("0000:01:00.0"), kStub}}).error()}) {
    EXPECT_EQ(error.code, Errc::malformed_host);
    EXPECT_THAT(error.message, HasSubstr("/run/ferry/hostd/moves/5.json"));
  }
  EXPECT_THAT(record.notes,
              testing::ElementsAre(HasSubstr("group 5 keeps its drivers: /run/ferry/hostd/moves")));
  EXPECT_TRUE(record.speaks_of(function_in("0000:04:00.0", 5)));
  EXPECT_TRUE(record.speaks_of(function_in("0000:02:00.0", 6)));
  EXPECT_FALSE(record.speaks_of(function_in("0000:04:00.0", 6)));
  ASSERT_TRUE(erase_from_undo_journal(kernel, {at("0000:02:00.0")}));
  EXPECT_EQ(read_undo_journal(kernel)->members.size(), 1U);
  EXPECT_EQ(kernel.read_file("run/ferry/hostd/moves/5.json").value(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Table, MalformedRecord,
    testing::Values("", "{", "[]", "null", "{}", R"({"version":2,"boot_id":"x","devices":{}})",
                    R"({"version":"1","boot_id":"x","devices":{}})", R"({"version":1,"devices":{}})",
                    R"({"version":1,"boot_id":7,"devices":{}})", R"({"version":1,"boot_id":"x","devices":7})",
                    R"({"version":1,"boot_id":"x","devices":{"nonsense":{"id":"10de:1","driver":null}}})",
                    R"({"version":1,"boot_id":"x","devices":{"0000:01:00.0":{}}})",
                    R"({"version":1,"boot_id":"x","devices":{"0000:01:00.0":{"id":"10de:1","driver":7}}})",
                    R"({"version":1,"boot_id":"x",
                        "devices":{"0000:01:00.0":{"id":"10de:1","kernels_choice":"yes"}}})"));

}  // namespace
}  // namespace ferry::vfio
