// SPDX-License-Identifier: Apache-2.0
// Between Allocate and the VM's start no process holds a device; the executable asks the kubelet.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kubevirt-plugin/allocation/pod_resources.h"
#include "tests/cli/run_program.h"
#include "tests/support/kubelet_standin/standin.h"
#include "tests/vfio/machines.h"

namespace ferry::cli {
namespace {

using test::run_ferry;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kGpu = "0000:65:00.0";
constexpr const char* kUse =
    "pod default/vm-1 holds nvidia.com/AD102_GEFORCE_RTX_4090 (allocated by the kubelet)";

class PodUse : public testing::Test {
 protected:
  PodUse() {
    test::add_host_drivers(kernel_);
    test::add_four_function_card(kernel_);
    kernel_.directory("proc/1/fd");
    kernel_.directory("plugins");
  }
  test::ProgramResult ferry(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--host-root", kernel_.root().string()});
    return run_ferry(arguments);
  }
  void allocate(const std::string& id) {
    EXPECT_TRUE(kubelet_.start());
    kubelet_.remember({.name = "vm-1", .resource = "nvidia.com/AD102_GEFORCE_RTX_4090", .ids = {id}});
  }

  test::FakeKernel kernel_;
  standin::Kubelet kubelet_{kernel_.root() / "plugins",
                            {.pod_resources = (kernel_.root() / plugin::kPodResourcesSocket).parent_path()}};
};

TEST_F(PodUse, RefusesToRebindAGroupThatAPodWasGiven) {
  allocate(kGpu);
  for (const char* verb : {"bind", "plan"}) {
    const auto result = ferry({"vfio", verb, "--device", kGpu});
    EXPECT_EQ(result.status, 4) << verb << result.err;
    EXPECT_THAT(result.out, HasSubstr(std::string(kGpu) + " is in use: " + kUse));
    EXPECT_THAT(result.out, HasSubstr("0000:65:00.1 is in use: ")) << "its audio goes with it";
    EXPECT_THAT(result.out, HasSubstr("hint: delete the pod first"));
  }
  EXPECT_EQ(kernel_.driver_of(kGpu), "nouveau");
  EXPECT_FALSE(kernel_.exists("run/ferry/hostd/moves"));
}

TEST_F(PodUse, NoFlagTakesADeviceFromAPod) {
  allocate(kGpu);
  EXPECT_EQ(ferry({"vfio", "bind", "--device", kGpu, "--force"}).status, 4);
  EXPECT_EQ(kernel_.driver_of(kGpu), "nouveau");
}

TEST_F(PodUse, StatusNamesThePod) {
  allocate("0000:65:00.1");
  EXPECT_THAT(ferry({"status"}).out, HasSubstr("pod default/vm-1"));
  const auto gpu = nlohmann::json::parse(ferry({"status", "-o", "json"}).out)["accelerators"][0];
  ASSERT_EQ(gpu["users"].size(), 1U) << "once, whatever number of functions its group has";
  EXPECT_EQ(gpu["users"][0]["text"], kUse);
}

TEST_F(PodUse, ADeviceThatWasGivenBackIsFree) {
  allocate(kGpu);
  kubelet_.release({kGpu});
  EXPECT_EQ(ferry({"vfio", "plan", "--device", kGpu}).status, 0);
}

TEST_F(PodUse, SaysThatAKubeletCouldNotBeAsked) {
  kernel_.directory("var/lib/kubelet/pod-resources");
  kernel_.file(plugin::kPodResourcesSocket, "");  // no socket: nobody listens
  const auto result = ferry({"vfio", "plan", "--device", kGpu});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("pod resources: "));
  EXPECT_THAT(result.out, Not(HasSubstr("in use")));
}

}  // namespace
}  // namespace ferry::cli
