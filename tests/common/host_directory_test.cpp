// SPDX-License-Identifier: Apache-2.0
#include "common/host_directory.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using test::ScratchDirectory;
using testing::ElementsAre;

class HostDirectoryTest : public testing::Test {
 protected:
  HostDirectoryTest() {
    tree_.file("sys/devices/gpu/vendor", "0x10de\n");
    tree_.file("sys/devices/gpu/vfio-dev/vfio3/dev", "511:3\n");
    tree_.link("sys/devices/gpu/driver", "../../bus/pci/drivers/vfio-pci");
    tree_.link("sys/bus/gpu", "../devices/gpu");
  }
  Result<HostDirectory> gpu() const { return HostDirectory::open(host_, "sys/bus/gpu"); }
  template <typename T>
  static std::string error_of(const Result<T>& result) {
    return result ? "none" : result.error().message;
  }

  ScratchDirectory tree_;
  HostFs host_{tree_.path()};
};

TEST_F(HostDirectoryTest, ReadsWhatIsInIt) {
  const auto directory = gpu();
  ASSERT_TRUE(directory);
  EXPECT_EQ(directory->read_attribute("vendor").value(), "0x10de");
  EXPECT_EQ(directory->read_file("vendor").value(), "0x10de\n");
  EXPECT_EQ(directory->link_name("driver").value(), "vfio-pci");
  EXPECT_TRUE(directory->link_target("driver").value().ends_with("drivers/vfio-pci"));
  EXPECT_THAT(directory->list("vfio-dev").value(), ElementsAre("vfio3"));
  EXPECT_THAT(directory->list(".").value(), ElementsAre("driver", "vendor", "vfio-dev"));
}

TEST_F(HostDirectoryTest, OpensWithTheNamesInIt) {
  std::vector<std::string> names;
  const auto directory = HostDirectory::open(host_, "sys/bus/gpu", names);
  ASSERT_TRUE(directory);
  EXPECT_THAT(names, ElementsAre("driver", "vendor", "vfio-dev"));
  EXPECT_EQ(directory->read_attribute("vendor").value(), "0x10de");
  EXPECT_THAT(directory->list(".").value(), ElementsAre("driver", "vendor", "vfio-dev")) << "from its start";
  EXPECT_EQ(error_of(HostDirectory::open(host_, "sys/bus/none", names)),
            "open /sys/bus/none: No such file or directory");
}

TEST_F(HostDirectoryTest, NamesThePathAndTheReasonOfAFailure) {
  EXPECT_EQ(error_of(HostDirectory::open(host_, "sys/bus/none")),
            "open /sys/bus/none: No such file or directory");
  const auto directory = gpu();
  ASSERT_TRUE(directory);
  EXPECT_EQ(error_of(directory->read_attribute("numa_node")),
            "open /sys/bus/gpu/numa_node: No such file or directory");
  EXPECT_EQ(error_of(directory->read_file("vfio-dev")), "read /sys/bus/gpu/vfio-dev: Is a directory");
  EXPECT_EQ(error_of(directory->link_name("vendor")), "read link /sys/bus/gpu/vendor: Invalid argument");
  EXPECT_EQ(error_of(directory->link_name("physfn")),
            "read link /sys/bus/gpu/physfn: No such file or directory");
  EXPECT_EQ(error_of(directory->list("vendor")), "open /sys/bus/gpu/vendor: Not a directory");
}

TEST_F(HostDirectoryTest, FollowsNoLink) {
  tree_.file("etc/secret", "out of bounds\n");
  tree_.link("sys/devices/gpu/modalias", tree_.path() / "etc/secret");
  const auto directory = gpu();
  ASSERT_TRUE(directory);
  EXPECT_FALSE(directory->read_attribute("modalias"));
  EXPECT_FALSE(directory->list("driver"));
}

TEST_F(HostDirectoryTest, StaysWithTheDirectoryThatWasOpened) {
  const auto directory = gpu();
  ASSERT_TRUE(directory);
  std::filesystem::rename(tree_.path() / "sys/devices/gpu", tree_.path() / "sys/devices/former");
  tree_.file("sys/devices/gpu/vendor", "0x1002\n");
  EXPECT_EQ(directory->read_attribute("vendor").value(), "0x10de");
  std::filesystem::remove_all(tree_.path() / "sys/devices/former");
  const auto gone = directory->read_attribute("vendor");
  ASSERT_FALSE(gone);
  EXPECT_TRUE(is_gone(gone.error()));
}

}  // namespace
}  // namespace ferry
