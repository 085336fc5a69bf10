// SPDX-License-Identifier: Apache-2.0
#include <set>

#include <gmock/gmock.h>

#include "host/usage/use_probes.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kDevices =
    "Character devices:\n  1 mem\n195 nvidia\n234 nvidia-nvswitch\n\nBlock devices:\n  7 loop\n259 blkext\n";

class NvidiaNodes : public testing::Test {
 protected:
  std::vector<vfio::DeviceNode> nodes(const std::string& device) {
    vfio::UseQuestion question{.device = device, .nodes = {}};
    const HostFs host(tree_.path());
    test::must(add_nvidia_nodes(host, read_by_another_process(host), question));
    return question.nodes;
  }
  test::ScratchDirectory tree_;
};

TEST_F(NvidiaNodes, AreAGpusByItsMinor) {
  tree_.file("proc/driver/nvidia/gpus/0000:17:00.0/information",
             "Model: \t\t NVIDIA A40\nDevice Minor: \t 3\nGPU Excluded:\t No\n");
  const vfio::DeviceNode expected{.name = "/dev/nvidia3", .number = {.major = 195, .minor = 3}};
  const auto found = nodes("0000:17:00.0");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].name, expected.name);
  EXPECT_EQ(found[0].number, expected.number);
  EXPECT_THAT(nodes("0000:18:00.0"), IsEmpty());
}

// A GPU that hangs keeps whoever reads it.
TEST_F(NvidiaNodes, AreNotKnownWhereTheDriverDoesNotAnswer) {
  tree_.file("proc/driver/nvidia/gpus/0000:17:00.0/information", "Device Minor: 3\n");
  const HostFs host(tree_.path());
  vfio::UseQuestion question{.device = "0000:17:00.0", .nodes = {}};
  const ReadElsewhere late = [](const std::filesystem::path& file) -> Result<std::string> {
    return fail(Errc::stuck, "read /" + file.string() + ": still in the kernel");
  };
  const auto asked = add_nvidia_nodes(host, late, question);
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().message,
            "read /proc/driver/nvidia/gpus/0000:17:00.0/information: still in the kernel");

  const ReadElsewhere gone = [](const std::filesystem::path& file) -> Result<std::string> {
    return fail(error_from_errno(ENOENT, "read /" + file.string()));
  };
  EXPECT_TRUE(add_nvidia_nodes(host, gone, question)) << "unplugged meanwhile";
}

TEST_F(NvidiaNodes, AreNotAskedForWhereAnEarlierActHangs) {
  test::FakeKernel kernel;
  kernel.add_function({.address = "0000:17:00.0", .group = 5});
  kernel.file("proc/driver/nvidia/gpus/0000:17:00.0/information", "Device Minor: 3\n");
  kernel.hang_read("0000:17:00.0");
  int reads = 0;
  const ReadElsewhere read = [&](const std::filesystem::path& file) {
    ++reads;
    return kernel.read(file);
  };
  vfio::UseQuestion question{.device = "0000:17:00.0", .nodes = {}};
  EXPECT_FALSE(add_nvidia_nodes(kernel, read, question));
  EXPECT_FALSE(add_nvidia_nodes(kernel, read, question));
  EXPECT_EQ(reads, 1);
}

TEST_F(NvidiaNodes, AreAllSwitchesOfASwitch) {
  tree_.file("proc/devices", kDevices);
  tree_.link("sys/bus/pci/devices/0000:05:00.0/driver", "../../../bus/pci/drivers/nvidia-nvswitch");
  tree_.link("sys/bus/pci/devices/0000:17:00.0/driver", "../../../bus/pci/drivers/nvidia");
  std::set<std::string> names;
  std::set<DeviceNumber> numbers;
  for (const vfio::DeviceNode& node : nodes("0000:05:00.0")) {
    names.insert(node.name);
    numbers.insert(node.number);
  }
  EXPECT_THAT(names, ElementsAre("/dev/nvidia-nvswitch*"));
  EXPECT_TRUE(numbers.contains({.major = 234, .minor = 0}));
  EXPECT_TRUE(numbers.contains({.major = 234, .minor = 17}));
  EXPECT_FALSE(numbers.contains({.major = 234, .minor = 255})) << "the control node holds no switch";
  EXPECT_THAT(nodes("0000:17:00.0"), IsEmpty());
  EXPECT_THAT(nodes("3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11"), IsEmpty());
}

TEST_F(NvidiaNodes, AreNoneWhereTheDriverHasNoNumber) {
  tree_.link("sys/bus/pci/devices/0000:05:00.0/driver", "../../../bus/pci/drivers/nvidia-nvswitch");
  EXPECT_THAT(nodes("0000:05:00.0"), IsEmpty());
  tree_.file("proc/devices", "Character devices:\n195 nvidia\n\nBlock devices:\n234 nvidia-nvswitch\n");
  EXPECT_THAT(nodes("0000:05:00.0"), IsEmpty()) << "block devices are numbered apart";
}

TEST_F(NvidiaNodes, AreTakenFromNothingThatIsNoNumber) {
  for (const std::string_view text : {"", "Device Minor:", "Device Minor: \t", "Device Minor: N/A\nBus: 3\n",
                                      "Device Minor:\n3\n", "Device Minor: -1", "Device Minor: 4294967296"}) {
    EXPECT_EQ(device_minor(text), std::nullopt) << text;
  }
  EXPECT_EQ(device_minor("Device Minor: 4294967295"), 4294967295U);
  for (const std::string_view text : {"", "\n\n", "234", "x a", " a", "-1 a", "99999999999 a", "234 ab",
                                      "234  a", "Block devices:\n234 a"}) {
    EXPECT_EQ(character_major(text, "a"), std::nullopt) << text;
  }
  EXPECT_EQ(character_major("  7 a", "a"), 7U);
}

}  // namespace
}  // namespace ferry::host
