// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>

#include "mdev/gpu_management.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::mdev {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A host with the library of tests/support/nvml_standin.cpp, in which it keeps what a driver would.
class NvmlTest : public testing::Test {
 protected:
  void SetUp() override {
    install("usr/lib/x86_64-linux-gnu");
    ::setenv("FERRY_NVML_STATE", state_path().c_str(), 1);
  }
  void TearDown() override { ::unsetenv("FERRY_NVML_STATE"); }

  void install(const std::string& directory) {
    const std::ifstream library(FERRY_NVML_STANDIN, std::ios::binary);
    std::stringstream content;
    content << library.rdbuf();
    tree_.file(directory + "/libnvidia-ml.so.580.1", content.str());
    tree_.link(directory + "/libnvidia-ml.so.1", "libnvidia-ml.so.580.1");
  }
  std::string state_path() const { return (tree_.path() / "state").string(); }
  void state(const std::string& text) { tree_.file("state", text); }
  std::string state() const { return must(HostFs(tree_.path()).read_file("state")); }
  bool is_open() const { return state().find("open 0\n") == std::string::npos; }

  const vfio::PciAddress gpu_ = must(vfio::PciAddress::parse("0000:17:00.0"));
  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
  Nvml nvml_{host_};
};

TEST_F(NvmlTest, ReadsWhatItKnowsOfAGpu) {
  const ManagedGpu gpu = must(nvml_.read(gpu_));
  EXPECT_TRUE(gpu.vgpu_host);
  EXPECT_EQ(gpu.mig, GpuSwitch::off);
  EXPECT_EQ(gpu.mig_pending, GpuSwitch::off);
  EXPECT_EQ(gpu.mixed_sizes, GpuSwitch::off);
  ASSERT_EQ(gpu.profiles.size(), 7U);
  EXPECT_EQ(gpu.profiles[0],
            (GpuInstanceProfile{
                .id = 0, .name = "7g.141gb", .most = 1, .left = 1, .slices = 7, .size = 8, .starts = {0}}));
  EXPECT_EQ(
      gpu.profiles[3],
      (GpuInstanceProfile{
          .id = 14, .name = "2g.35gb", .most = 3, .left = 3, .slices = 2, .size = 2, .starts = {0, 2, 4}}));
  EXPECT_EQ(gpu.profiles[6], (GpuInstanceProfile{.id = 20,
                                                 .name = "1g.18gb+me",
                                                 .most = 1,
                                                 .left = 1,
                                                 .slices = 1,
                                                 .size = 1,
                                                 .starts = {0, 1, 2, 3, 4, 5, 6}}));
  EXPECT_THAT(gpu.instances, IsEmpty());
  ASSERT_EQ(gpu.types.size(), 4U);
  EXPECT_EQ(gpu.types[0], (ManagedType{.id = 1500,
                                       .name = "NVIDIA H200-1-18C",
                                       .framebuffer = 18ULL << 30U,
                                       .instance_profile = 19,
                                       .most_per_gpu = 7,
                                       .most_per_instance = 1}));
  EXPECT_EQ(gpu.types[3], (ManagedType{.id = 1511,
                                       .name = "NVIDIA H200-70C",
                                       .framebuffer = 70ULL << 30U,
                                       .instance_profile = {},
                                       .most_per_gpu = 2,
                                       .most_per_instance = {},
                                       .size = 2,
                                       .placements = {1}}));
  EXPECT_THAT(gpu.types[2].placements, testing::ElementsAre(0U, 3U)) << "in order, while mixed sizes are off";
  EXPECT_FALSE(is_open()) << "the driver would keep its unbind lock";
}

TEST_F(NvmlTest, ReadsPlacementsFromAnOlderLibrary) {
  state("old 1\n");
  const ManagedGpu gpu = must(nvml_.read(gpu_));
  ASSERT_EQ(gpu.types.size(), 4U);
  EXPECT_EQ(gpu.types[2].size, 1U);
  EXPECT_THAT(gpu.types[2].placements, testing::ElementsAre(0U, 3U));
  EXPECT_THAT(gpu.types[0].placements, IsEmpty()) << "it is MIG-backed";
}

TEST_F(NvmlTest, AnOrdinaryDriverHasNoTypes) {
  state("host 0\n");
  const ManagedGpu gpu = must(nvml_.read(gpu_));
  EXPECT_FALSE(gpu.vgpu_host);
  EXPECT_THAT(gpu.types, IsEmpty());
  EXPECT_EQ(gpu.mixed_sizes, GpuSwitch::unsupported);
  EXPECT_EQ(gpu.profiles.size(), 7U) << "those are the GPU's";
}

TEST_F(NvmlTest, MakesAndRemovesGpuInstances) {
  must(nvml_.set_mig(gpu_, true));
  must(nvml_.make_instance(gpu_, 14));
  must(nvml_.make_instance(gpu_, 9));
  const ManagedGpu gpu = must(nvml_.read(gpu_));
  EXPECT_EQ(gpu.mig, GpuSwitch::on);
  EXPECT_EQ(gpu.mixed_sizes, GpuSwitch::unsupported);
  EXPECT_THAT(gpu.instances, ElementsAre(GpuInstance{.id = 1, .profile = 14, .start = 1},
                                         GpuInstance{.id = 2, .profile = 9, .start = 2}));
  EXPECT_EQ(gpu.profiles[0].left, 0U);
  EXPECT_THAT(state(), HasSubstr("instance 2 9 1\n")) << "with its compute instance";

  must(nvml_.remove_instance(gpu_, 1));
  EXPECT_THAT(must(nvml_.read(gpu_)).instances, ElementsAre(GpuInstance{.id = 2, .profile = 9, .start = 2}));
  EXPECT_EQ(nvml_.remove_instance(gpu_, 1).error().code, Errc::not_found);
  const auto full = nvml_.make_instance(gpu_, 0);
  EXPECT_EQ(full.error().code, Errc::failed);
  EXPECT_THAT(full.error().message, HasSubstr("make a GPU instance of profile 0: NVML says"));
}

TEST_F(NvmlTest, LeavesNoHalfOfAGpuInstance) {
  state("mig 1\npending 1\nno_compute 1\n");
  EXPECT_EQ(nvml_.make_instance(gpu_, 14).error().code, Errc::failed);
  EXPECT_THAT(must(nvml_.read(gpu_)).instances, IsEmpty());
}

// Whoever divided it wants what is in it.
TEST_F(NvmlTest, LeavesAGpuInstanceThatIsDivided) {
  state("mig 1\npending 1\ninstance 3 14 2\ninstance 4 14 1\ninstance 5 14 0\n");
  EXPECT_THAT(must(nvml_.read(gpu_)).instances,
              ElementsAre(GpuInstance{.id = 3, .profile = 14, .start = 3, .divided = true},
                          GpuInstance{.id = 4, .profile = 14, .start = 4},
                          GpuInstance{.id = 5, .profile = 14, .start = 5}));
  const auto refused = nvml_.remove_instance(gpu_, 3);
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_THAT(refused.error().message, HasSubstr("divided into compute instances"));
  EXPECT_THAT(state(), HasSubstr("instance 3 14 2\n"));
  must(nvml_.remove_instance(gpu_, 5));
}

TEST_F(NvmlTest, FillsAGpuInstanceAgainThatDidNotGo) {
  state("mig 1\npending 1\nheld 1\ninstance 3 14 1\n");
  EXPECT_EQ(nvml_.remove_instance(gpu_, 3).error().code, Errc::refused);
  EXPECT_THAT(state(), HasSubstr("instance 3 14 1\n"));
}

TEST_F(NvmlTest, SaysWhatIsInUse) {
  state("mig 1\npending 1\nbusy 1\ninstance 3 14 1\n");
  const auto refused = nvml_.remove_instance(gpu_, 3);
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_THAT(refused.error().message, HasSubstr("In use by another client"));
  EXPECT_EQ(nvml_.set_mig(gpu_, false).error().code, Errc::refused);
  state("busy 1\n");
  EXPECT_EQ(nvml_.set_mixed_sizes(gpu_, true).error().code, Errc::refused);
  EXPECT_FALSE(is_open());
}

TEST_F(NvmlTest, SwitchesMixedSizes) {
  must(nvml_.set_mixed_sizes(gpu_, true));
  EXPECT_EQ(must(nvml_.read(gpu_)).mixed_sizes, GpuSwitch::on);
  must(nvml_.set_mixed_sizes(gpu_, false));
  EXPECT_EQ(must(nvml_.read(gpu_)).mixed_sizes, GpuSwitch::off);
}

TEST_F(NvmlTest, MigModeMayWaitForAReset) {
  state("needs_reset 1\n");
  must(nvml_.set_mig(gpu_, true));
  const ManagedGpu gpu = must(nvml_.read(gpu_));
  EXPECT_EQ(gpu.mig, GpuSwitch::off);
  EXPECT_EQ(gpu.mig_pending, GpuSwitch::on);
}

TEST_F(NvmlTest, LeavesNoMigModePendingThatAProcessHoldsUp) {
  for (const bool on : {true, false}) {
    const GpuSwitch before = on ? GpuSwitch::off : GpuSwitch::on;
    const std::string modes = on ? "" : "mig 1\npending 1\n";
    state(modes + "opened 1\n");
    const auto refused = nvml_.set_mig(gpu_, on);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::refused);
    EXPECT_EQ(must(nvml_.read(gpu_)).mig, before);
    EXPECT_EQ(must(nvml_.read(gpu_)).mig_pending, before);
    state(modes);
    must(nvml_.set_mig(gpu_, on));
    EXPECT_NE(must(nvml_.read(gpu_)).mig, before);
  }
  state("opened 1\nstubborn 1\n");
  EXPECT_EQ(nvml_.set_mig(gpu_, true).error().code, Errc::failed) << "the GPU is not as before";
  state("opened 1\nmig_unread 1\n");
  EXPECT_EQ(nvml_.set_mig(gpu_, true).error().code, Errc::failed) << "the mode may be pending";
}

TEST_F(NvmlTest, SaysThatThereIsNoLibraryNoDriverNoSuchGpu) {
  EXPECT_EQ(nvml_.read(must(vfio::PciAddress::parse("0000:18:00.0"))).error().code, Errc::not_found);
  state("no_driver 1\n");
  EXPECT_EQ(nvml_.read(gpu_).error().code, Errc::unsupported);
  tree_.remove("usr");
  const auto none = nvml_.read(gpu_);
  EXPECT_EQ(none.error().code, Errc::unsupported);
  EXPECT_EQ(none.error().message, "this host has no libnvidia-ml.so.1");
}

TEST_F(NvmlTest, IsFoundInADriverContainersRoot) {
  tree_.remove("usr");
  install("run/nvidia/driver/usr/lib64");
  EXPECT_TRUE(must(nvml_.read(gpu_)).vgpu_host);
}

TEST_F(NvmlTest, DoesNotLoadWhatIsNoLibrary) {
  tree_.remove("usr");
  tree_.file("usr/lib64/libnvidia-ml.so.1", "no library\n");
  const auto bad = nvml_.read(gpu_);
  EXPECT_EQ(bad.error().code, Errc::unsupported);
  EXPECT_THAT(bad.error().message, HasSubstr("load /usr/lib64/libnvidia-ml.so.1: "));
}

TEST_F(NvmlTest, PassesOverALibraryThatCannotBeUsed) {
  tree_.remove("usr");
  tree_.file("usr/lib64/libnvidia-ml.so.1", "left from an old package\n");
  install("run/nvidia/driver/usr/lib64");
  EXPECT_TRUE(must(nvml_.read(gpu_)).vgpu_host);
}

TEST_F(NvmlTest, PassesOverALibraryWithoutItsDriver) {
  install("run/nvidia/driver/usr/lib64");
  state("failing 1\n");
  EXPECT_TRUE(must(nvml_.read(gpu_)).vgpu_host);
  EXPECT_FALSE(is_open());
  state("failing 2\n");
  const auto neither = nvml_.read(gpu_);
  ASSERT_FALSE(neither);
  EXPECT_EQ(neither.error().code, Errc::unsupported);
}

TEST_F(NvmlTest, SaysWhyALibraryCannotBeOpened) {
  tree_.remove("usr");
  tree_.link("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.1");
  const auto looped = nvml_.read(gpu_);
  ASSERT_FALSE(looped);
  EXPECT_EQ(looped.error().code, std::errc::too_many_symbolic_link_levels);
}

// Whoever may write a link in the host's root must not choose what is loaded from ours.
TEST_F(NvmlTest, DoesNotFollowALinkOutOfTheRoot) {
  tree_.remove("usr");
  tree_.link("usr/lib64/libnvidia-ml.so.1", FERRY_NVML_STANDIN);
  EXPECT_FALSE(nvml_.read(gpu_));
}

}  // namespace
}  // namespace ferry::mdev
