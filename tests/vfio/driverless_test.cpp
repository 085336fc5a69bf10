// SPDX-License-Identifier: Apache-2.0
// A GPU that had no driver before its bind: a driver that was loaded since gets it in the end.
#include <cerrno>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vfio/machines.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::FakeKernel;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Status = RebindResult::Status;

/// A GPU without a driver, alone in group 7, and then on vfio. Its driver is loaded meanwhile.
class WithoutADriver : public testing::Test {
 protected:
  static constexpr const char* kBare = "0000:03:00.0";
  WithoutADriver() {
    kernel_.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
    kernel_.add_function({.address = kBare, .group = 7});
  }
  RebindContext context() {
    return {
        .host = &kernel_, .writer = &kernel_, .probe = &probe_, .rules = test::gpu_rules(), .on_step = {}};
  }
  static RebindRequest request(const std::string& device = kBare) {
    return {.accelerators = {at(device)}, .with = {}, .untouchable = {}};
  }
  RebindResult result(Direction direction) {
    return must(apply_rebinds(context(), request(), direction)).results.at(0);
  }
  void load_nova() { kernel_.add_driver({.name = "nova", .ids = {"10de:2684"}}); }
  std::vector<std::string> ends_of_the_way_back() {
    kernel_.forget_changes();
    EXPECT_EQ(result(Direction::back).status, Status::done);
    const std::vector<std::string> writes = kernel_.writes();
    kernel_.forget_changes();
    EXPECT_EQ(result(Direction::back).status, Status::already);
    EXPECT_THAT(kernel_.changes(), IsEmpty()) << "a second run";
    return writes;
  }
  static std::string probed() { return std::string(kBare) + " > sys/bus/pci/drivers_probe"; }
  FakeKernel kernel_;
  test::TableProbe probe_;
};

TEST_F(WithoutADriver, GetsTheDriverThatWasLoadedSince) {
  ASSERT_EQ(result(Direction::to_vfio).status, Status::done);
  load_nova();
  EXPECT_EQ(ends_of_the_way_back().back(), probed());
  EXPECT_EQ(kernel_.driver_of(kBare), "nova");
  EXPECT_EQ(kernel_.override_of(kBare), "");
}

TEST_F(WithoutADriver, StaysSoWithANoteWhereNoneTakesIt) {
  ASSERT_EQ(result(Direction::to_vfio).status, Status::done);
  const RebindResult back = result(Direction::back);
  ASSERT_EQ(back.status, Status::done);
  EXPECT_EQ(kernel_.driver_of(kBare), "");
  EXPECT_THAT(back.rebind.notes, ElementsAre(HasSubstr("0000:03:00.0 has no driver now")));
  EXPECT_FALSE(kernel_.exists("run/ferry/hostd/moves/7.json"));
}

// A run that was killed between the unbind and the probe.
TEST_F(WithoutADriver, GetsItAfterAWayBackThatWasBrokenOff) {
  ASSERT_EQ(result(Direction::to_vfio).status, Status::done);
  load_nova();
  must(kernel_.write_attribute("sys/bus/pci/devices/0000:03:00.0/driver_override", "\n"));
  must(kernel_.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", kBare));
  EXPECT_THAT(ends_of_the_way_back(), ElementsAre(probed()));
  EXPECT_EQ(kernel_.driver_of(kBare), "nova");
}

TEST_F(WithoutADriver, IsProbedWithTheOverrideThatItHadUnlessThatIsVfios) {
  struct Row {
    const char* driver_override;
    const char* driver;
    bool is_probed;
  };
  load_nova();
  for (const Row& row : {Row{"nova", "nova", true}, Row{"(none)", "", true}, Row{"vfio-pci", "", false}}) {
    SCOPED_TRACE(row.driver_override);
    if (!kernel_.driver_of(kBare).empty())
      must(kernel_.write_attribute("sys/bus/pci/drivers/nova/unbind", kBare));
    must(kernel_.write_attribute("sys/bus/pci/devices/0000:03:00.0/driver_override", row.driver_override));
    ASSERT_EQ(result(Direction::to_vfio).status, Status::done);
    const auto writes = ends_of_the_way_back();
    EXPECT_EQ(writes.back() == probed(), row.is_probed);
    EXPECT_EQ(kernel_.driver_of(kBare), row.driver);
    EXPECT_EQ(kernel_.override_of(kBare), row.driver_override);
  }
}

// A bind that fails changes nothing, so it gives the GPU no driver either.
TEST_F(WithoutADriver, StaysSoAfterABindThatFails) {
  load_nova();
  must(kernel_.write_attribute("sys/bus/pci/drivers/nova/unbind", kBare));
  kernel_.fail_for_good({.path = "sys/bus/pci/drivers/vfio-pci/bind", .value = kBare}, EBUSY);
  ASSERT_EQ(result(Direction::to_vfio).status, Status::failed);
  EXPECT_EQ(kernel_.driver_of(kBare), "");
}

// The driver is loaded after Ferry has looked and written its record: the bind finds it on the device.
TEST_F(WithoutADriver, HasTheDriverInItsRecordThatCameDuringTheBind) {
  load_nova();
  must(kernel_.write_attribute("sys/bus/pci/drivers/nova/unbind", kBare));
  RebindContext ctx = context();
  const std::string driver_override = "sys/bus/pci/devices/0000:03:00.0/driver_override";
  ctx.on_step = [&](const Step& step) {
    if (step.kind != Step::Kind::bind) return;
    must(kernel_.write_attribute(driver_override, "\n"));
    must(kernel_.write_attribute("sys/bus/pci/drivers/nova/bind", kBare));
    must(kernel_.write_attribute(driver_override, "vfio-pci"));
  };
  const auto outcome = must(apply_rebinds(ctx, request(), Direction::to_vfio));
  ASSERT_EQ(outcome.results.at(0).status, Status::failed);
  EXPECT_EQ(kernel_.driver_of(kBare), "nova");
  EXPECT_EQ(kernel_.override_of(kBare), "") << "it was Ferry's";

  ASSERT_EQ(result(Direction::to_vfio).status, Status::done);
  EXPECT_EQ(must(read_undo_journal(kernel_)).members.at(at(kBare)).driver, "nova");
  ASSERT_EQ(result(Direction::back).status, Status::done);
  EXPECT_EQ(kernel_.driver_of(kBare), "nova");
  EXPECT_FALSE(kernel_.exists("run/ferry/hostd/moves/7.json"));
}

// The same where the run is killed before it can roll back: the override is still Ferry's.
TEST_F(WithoutADriver, HasTheDriverInItsRecordThatCameBeforeADeath) {
  load_nova();
  must(write_undo_journal(kernel_, 7,
                          {{at(kBare), {.ids = "10de:2684", .driver_override = {}, .role = "accelerator"}}}));
  must(kernel_.write_attribute("sys/bus/pci/devices/0000:03:00.0/driver_override", "vfio-pci"));
  ASSERT_EQ(result(Direction::to_vfio).status, Status::done);
  const PriorState prior = must(read_undo_journal(kernel_)).members.at(at(kBare));
  EXPECT_EQ(prior.driver, "nova");
  EXPECT_EQ(prior.driver_override, std::nullopt);
  ASSERT_EQ(result(Direction::back).status, Status::done);
  EXPECT_EQ(kernel_.driver_of(kBare), "nova");
  EXPECT_EQ(kernel_.override_of(kBare), "");
}

TEST_F(WithoutADriver, IsLeftSoAsAVirtualFunction) {
  kernel_.add_driver({.name = "nvidia", .ids = {"10de:26b9"}, .sriov = true});
  kernel_.add_function(test::kinds::kL40s, "0000:05:00.0", 31, "nvidia", 4);
  kernel_.enable_vfs("0000:05:00.0", 1);
  const std::string function = kernel_.vfs_of("0000:05:00.0").at(0);
  must(kernel_.write_attribute("sys/bus/pci/drivers/nvidia/unbind", function));
  for (const Direction direction : {Direction::to_vfio, Direction::back})
    EXPECT_EQ(must(apply_rebinds(context(), request(function), direction)).results.at(0).status,
              Status::done);
  EXPECT_EQ(kernel_.driver_of(function), "");
}

}  // namespace
}  // namespace ferry::vfio
