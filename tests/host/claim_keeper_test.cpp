// SPDX-License-Identifier: Apache-2.0
#include "host/claims/claim_keeper.h"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "hostfs/locks.h"
#include "tests/host/claim_node.h"
#include "tests/support/must.h"
#include "vfio/confidential/mode_setting.h"
#include "vfio/pci/inventory.h"

namespace ferry::host {
namespace {

using test::must;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::UnorderedElementsAre;

using Node = ClaimNode;

constexpr const char* kAnothersUuid = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";
// claim_uuid("a", 0)
constexpr const char* kFirstUuid = "74bf4c41-cf7f-5d6a-876f-2c413df39652";

class ClaimKeeperTest : public testing::Test, protected ClaimNode {
 protected:
  ClaimKeeperTest() : before_(state()) { kernel.forget_changes(); }

  /// The node is as before the test, and no claim is recorded.
  void nothing_is_left() const {
    EXPECT_EQ(state(), before_);
    EXPECT_THAT(record().claims, IsEmpty());
    EXPECT_THAT(undo_journals(), IsEmpty());
    EXPECT_THAT(files(), IsEmpty());
  }
  static std::vector<std::string> paths_of(const api::PreparedDevice& device) {
    std::vector<std::string> out;
    for (const api::DeviceNode& node : device.nodes) {
      EXPECT_TRUE(node.mode) << node.path;
      out.push_back(node.path);
    }
    return out;
  }
  void refuses(const ClaimKeeper::Answer& answer, const std::string& reason) {
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Errc::refused) << answer.error().message;
    EXPECT_THAT(answer.error().message, HasSubstr(reason));
    EXPECT_EQ(host_changes(), 0U) << "a refusal writes nothing to the host";
    kernel.forget_changes();
  }

  const std::string before_;
};

vfio::DeviceUser tenant() {
  return {.kind = vfio::DeviceUser::Kind::virtual_machine, .name = "tenant", .pid = 412, .what = "its group"};
}

TEST_F(ClaimKeeperTest, WritesTheFilesByWhichAContainerGetsTheDevices) {
  const auto devices = must(prepare("a", {whole(kWhole)}));
  const auto expected = api::claim_files(request("a", {whole(kWhole)}), devices, kClaimMetadataFolder);
  EXPECT_THAT(files(), SizeIs(expected.size()));
  for (const api::ClaimFile& file : expected) EXPECT_EQ(must(kernel.read_file(file.path)), file.text);

  kernel.forget_changes();
  must(prepare("a", {whole(kWhole)}));
  EXPECT_THAT(kernel.changes(), IsEmpty()) << "a repeat writes nothing";
  // Each file is lost in another way: it is gone, has another text, or has become a link.
  must(kernel.remove_file(expected[0].path));
  kernel.file(expected[1].path, "{}");
  kernel.file("etc/shadow", "root:*");
  must(kernel.remove_file(expected[2].path));
  std::filesystem::create_symlink("/etc/shadow", kernel.root() / expected[2].path);
  must(prepare("a", {whole(kWhole)}));
  for (const api::ClaimFile& file : expected)
    EXPECT_EQ(must(kernel.read_file(file.path, HostFs::Links::refused)), file.text);
  EXPECT_EQ(must(kernel.read_file("etc/shadow")), "root:*");

  users.held.emplace("0000:05:00.0", tenant());
  refuses(unprepare("a"), "VM tenant (pid 412)");
  EXPECT_THAT(files(), SizeIs(expected.size())) << "its container may start again";
  users.held.clear();
  must(unprepare("a"));
  nothing_is_left();
}

TEST_F(ClaimKeeperTest, KeepsTheNamesOfExtendedResourcesWhileAClaimIsHeld) {
  const std::string file = (std::filesystem::path(api::kCdiFolder) / api::metadata_cdi_file("a", "card"));
  api::ClaimRequest asked = request("a", {whole(kWhole), vgpu(kMdev, kMdevType)});
  asked.devices[1].request = "small";
  asked.devices[0].resources = {"nvidia.com/TU104GL_TESLA_T4"};
  asked.devices[1].resources = {"nvidia.com/GRID_T4-4Q"};
  const auto devices = must(keeper.serve(asked));
  const std::string text = must(kernel.read_file(file));
  EXPECT_THAT(text, HasSubstr("\"PCI_RESOURCE_NVIDIA_COM_TU104GL_TESLA_T4=0000:05:00.0\""));
  EXPECT_THAT(
      must(kernel.read_file(std::filesystem::path(api::kCdiFolder) / api::metadata_cdi_file("a", "small"))),
      HasSubstr("\"MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4-4Q=" + devices.at(1).mdev_uuid + "\""));
  EXPECT_THAT(record().claims.at(0).devices.at(0).resources, ElementsAre("nvidia.com/TU104GL_TESLA_T4"));

  // The class has another name by now, or the API server does not answer.
  for (const std::vector<std::string>& now : {std::vector<std::string>{"nvidia.com/RENAMED"}, {}}) {
    asked.devices[0].resources = now;
    kernel.forget_changes();
    must(keeper.serve(asked));
    EXPECT_THAT(kernel.changes(), IsEmpty());
    must(kernel.remove_file(file));
    must(keeper.serve(asked));
    EXPECT_EQ(must(kernel.read_file(file)), text);
  }
  must(unprepare("a"));
  nothing_is_left();
  must(keeper.serve(asked));
  EXPECT_THAT(must(kernel.read_file(file)), Not(HasSubstr("PCI_RESOURCE"))) << "the record is gone";
}

TEST_F(ClaimKeeperTest, RemovesTheFilesOfUnknownClaimsAlone) {
  must(prepare("a", {whole(kWhole)}));
  const auto present = files();
  const std::vector<std::string> theirs = {
      "run/cdi/gpu.nvidia.com-claim_gone.json", "run/cdi/nvidia.com-pgpu.yaml",
      "var/lib/kubelet/plugins/gpu-ferry.io.hostd/other", "var/lib/kubelet/plugins/gpu-ferry.io/dra.sock"};
  for (const std::string& file : theirs) kernel.file(file, "theirs");
  for (const char* file :
       {"run/cdi/gpu-ferry.io-claim_gone.json", "run/cdi/gpu-ferry.io_metadata_gone_card.json",
        "var/lib/kubelet/plugins/gpu-ferry.io.hostd/gone_card.json",
        "var/lib/kubelet/plugins/gpu-ferry.io.hostd/.gone_card.json.0badf00d"})
    kernel.file(file, "{}");
  must(keeper.tidy());
  for (const std::string& file : theirs) EXPECT_TRUE(kernel.exists(file)) << file;
  EXPECT_THAT(files(), SizeIs(present.size() + 3));
  for (const std::string& file : present) EXPECT_TRUE(kernel.exists(file)) << file;
}

TEST_F(ClaimKeeperTest, UndoesAClaimWhoseFilesCannotBeWritten) {
  kernel.file("run/cdi", "no folder");
  const auto answer = prepare("a", {whole(kWhole)});
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("/run/cdi: Not a directory"));
  EXPECT_EQ(state(), before_);
  must(kernel.remove_file("run/cdi"));
  must(prepare("a", {whole(kWhole)}));
  must(unprepare("a"));
  nothing_is_left();
}

TEST_F(ClaimKeeperTest, BindsAWholeGroupAndGivesItBack) {
  const auto devices = must(prepare("a", {whole(kWhole)}));
  ASSERT_THAT(devices, SizeIs(1));
  EXPECT_EQ(devices[0].function, at(kWhole));
  EXPECT_EQ(devices[0].mdev_uuid, "");
  EXPECT_THAT(paths_of(devices[0]), ElementsAre("/dev/vfio/vfio", "/dev/vfio/5"));
  EXPECT_EQ(kernel.driver_of(kWhole), "vfio-pci");
  EXPECT_EQ(kernel.driver_of(kAudio), "vfio-pci") << "the whole IOMMU group";
  ASSERT_THAT(record().claims, SizeIs(1));
  EXPECT_EQ(record().claims[0].phase, ClaimPhase::done);
  EXPECT_THAT(must(gpus_with_claims(kernel)).gpus, UnorderedElementsAre(at(kWhole)));
  EXPECT_THAT(must(unprepare("a")), IsEmpty());
  nothing_is_left();
}

TEST_F(ClaimKeeperTest, BindsAllGpusOfAGroup) {
  must(prepare("a", {whole(kPair)}));
  EXPECT_EQ(kernel.driver_of(kOtherOfPair), "vfio-pci");
  EXPECT_THAT(must(gpus_with_claims(kernel)).gpus, UnorderedElementsAre(at(kPair), at(kOtherOfPair)));
  kernel.forget_changes();
  refuses(prepare("b", {whole(kOtherOfPair)}), "GPU 0000:08:00.0 is in use by claim studio/render-a (UID a)");
  must(unprepare("a"));
  nothing_is_left();
}

TEST_F(ClaimKeeperTest, BindsAllGpusOfAGroupOfAnotherVendor) {
  kernel.add_driver({.name = "amdgpu", .ids = {"1002:7550"}});
  auto claimable = gpus();
  for (const char* address : {"0000:0a:00.0", "0000:0b:00.0"}) {
    kernel.add_function(
        {.address = address, .ids = "1002:7550", .class_code = 0x030000, .group = 10, .driver = "amdgpu"});
    claimable.push_back({.address = at(address), .iommu_group = 10, .vendor = 0x1002, .device = 0x7550});
  }
  publish(claimable);
  must(prepare("a", {whole("0000:0a:00.0")}));
  EXPECT_EQ(kernel.driver_of("0000:0a:00.0"), "vfio-pci");
  EXPECT_EQ(kernel.driver_of("0000:0b:00.0"), "vfio-pci") << "the request names the first GPU alone";
  EXPECT_THAT(must(gpus_with_claims(kernel)).gpus,
              UnorderedElementsAre(at("0000:0a:00.0"), at("0000:0b:00.0")));
  must(unprepare("a"));
  EXPECT_EQ(kernel.driver_of("0000:0a:00.0"), "amdgpu");
  EXPECT_EQ(kernel.driver_of("0000:0b:00.0"), "amdgpu");
  nothing_is_left();
}

TEST_F(ClaimKeeperTest, TakesVirtualFunctionsAwayAndBringsThemBack) {
  must(prepare("a", {whole(kVendor)}));
  EXPECT_EQ(kernel.driver_of(kVendor), "vfio-pci");
  EXPECT_THAT(kernel.vfs_of(kVendor), IsEmpty());
  must(unprepare("a"));
  nothing_is_left();
}

TEST_F(ClaimKeeperTest, RecordsVirtualFunctionsThatDoNotComeBack) {
  must(prepare("a", {whole(kVendor)}));
  kernel.fail_for_good(
      {.path = std::string("sys/bus/pci/devices/") + kVendor + "/sriov_numvfs", .value = "4"}, EBUSY);
  must(unprepare("a"));
  EXPECT_THAT(record().claims, IsEmpty()) << "the claim ends all the same";
  ASSERT_THAT(record().missing_functions, SizeIs(1));
  EXPECT_EQ(record().missing_functions[0].gpu, at(kVendor));
  EXPECT_EQ(record().missing_functions[0].functions, 4U);
  const auto lacks =
      gpus_without_functions(must(gpus_with_claims(kernel)).missing_functions, must(vfio::scan(kernel)));
  ASSERT_TRUE(lacks.contains(at(kVendor)));
  EXPECT_THAT(lacks.at(at(kVendor)),
              HasSubstr("it has 0 of the 4 virtual functions that it had before a claim"));
  must(prepare("b", {whole(kVendor)}));
  EXPECT_THAT(gpus_without_functions(record().missing_functions, must(vfio::scan(kernel))), IsEmpty())
      << "a GPU on vfio has none by right";
  kernel.mend();
  must(unprepare("b"));
  EXPECT_THAT(record().missing_functions, IsEmpty()) << "the end of the next claim enables them";
  nothing_is_left();
}

TEST_F(ClaimKeeperTest, KeepsTheReasonWhyVirtualFunctionsAreMissing) {
  must(prepare("a", {whole(kVendor)}));
  kernel.fail_for_good(
      {.path = std::string("sys/bus/pci/devices/") + kVendor + "/sriov_numvfs", .value = "4"}, EBUSY);
  must(unprepare("a"));
  ASSERT_THAT(record().missing_functions, SizeIs(1));
  const MissingFunctions missing = record().missing_functions[0];
  EXPECT_NE(missing.reason, "");
  kernel.enable_vfs(kVendor, 2);
  must(prepare("b", {vgpu(kVendor, kVendorType)}));
  must(unprepare("b"));
  EXPECT_THAT(record().missing_functions, testing::ElementsAre(missing));
}

TEST_F(ClaimKeeperTest, LeavesAGroupThatWasOnVfioBefore) {
  must(kernel.load_module("vfio_pci"));
  for (const char* function : {kWhole, kAudio}) {
    must(kernel.write(std::string("sys/bus/pci/devices/") + function + "/driver_override", "vfio-pci"));
    must(kernel.write("sys/bus/pci/drivers/" + kernel.driver_of(function) + "/unbind", function));
    must(kernel.write("sys/bus/pci/drivers/vfio-pci/bind", function));
  }
  const std::string on_vfio = state();
  users.held.emplace(kWhole, tenant());
  kernel.forget_changes();
  refuses(prepare("a", {whole(kWhole)}), "0000:05:00.0 is in use: VM tenant (pid 412)");
  EXPECT_THAT(record().claims, IsEmpty());
  users.held.clear();
  // Facts that only hostd's rounds know.
  for (const char* why : {"1 fatal PCIe error since it was bound", "off the bus", "a write is stuck"}) {
    auto known = gpus();
    const auto found = std::ranges::find(known, at(kWhole), &api::ClaimableGpu::address);
    found->health = api::GpuHealth::unhealthy;
    found->reason = why;
    publish(known);
    refuses(prepare("a", {whole(kWhole)}), std::string("GPU 0000:05:00.0 is unhealthy: ") + why);
    EXPECT_THAT(record().claims, IsEmpty());
  }
  publish(gpus());
  must(prepare("a", {whole(kWhole)}));
  users.held.emplace(kWhole, tenant());
  refuses(unprepare("a"), "0000:05:00.0 is in use: VM tenant (pid 412)");
  EXPECT_THAT(record().claims, SizeIs(1)) << "its VM runs still";
  users.held.clear();
  users.blind = "process 7 hides";
  refuses(unprepare("a"), "cannot find out whether it is in use: process 7 hides");
  EXPECT_THAT(record().claims, SizeIs(1)) << "its VM may run still";
  users.blind.clear();
  must(unprepare("a"));
  EXPECT_THAT(record().claims, IsEmpty());
  EXPECT_EQ(state(), on_vfio);
  EXPECT_EQ(host_changes(), 0U);
}

TEST_F(ClaimKeeperTest, MakesOneMediatedDeviceBesideOthers) {
  mdev.add_device(kMdev, kMdevType, kAnothersUuid);
  const std::string others = state();
  const auto devices = must(prepare("a", {vgpu(kMdev, kMdevType), vgpu(kMdev, kMdevType)}));
  ASSERT_THAT(devices, SizeIs(2));
  EXPECT_EQ(devices[0].mdev_uuid, kFirstUuid) << "the UUID is by the claim";
  EXPECT_NE(devices[1].mdev_uuid, devices[0].mdev_uuid);
  EXPECT_FALSE(devices[0].function) << "KubeVirt would take the GPU";
  EXPECT_THAT(paths_of(devices[0]), SizeIs(2));
  EXPECT_THAT(mdev.devices_on(kMdev), SizeIs(3));
  must(unprepare("a"));
  EXPECT_EQ(state(), others);
}

TEST_F(ClaimKeeperTest, MakesAVgpuOnAFreeVirtualFunction) {
  vendor.set("0000:07:00.4", kVendorType);
  const std::string others = state();
  const auto first = must(prepare("a", {vgpu(kVendor, kVendorType)}));
  const auto second = must(prepare("b", {vgpu(kVendor, kVendorType)}));
  EXPECT_EQ(first.at(0).function, at("0000:07:00.5"));
  EXPECT_EQ(second.at(0).function, at("0000:07:00.6"));
  EXPECT_THAT(paths_of(first.at(0)), SizeIs(2));
  EXPECT_THAT(vendor.devices_on(kVendor), SizeIs(3));
  must(unprepare("a"));
  EXPECT_THAT(vendor.devices_on(kVendor), ElementsAre("T4-4Q 0000:07:00.4", "T4-4Q 0000:07:00.6"));
  must(unprepare("b"));
  EXPECT_EQ(state(), others);
}

TEST_F(ClaimKeeperTest, AnswersARepeatedRequestWithoutAWrite) {
  const std::vector<api::RequestedDevice> devices = {whole(kWhole), vgpu(kMdev, kMdevType),
                                                     vgpu(kVendor, kVendorType)};
  const auto first = must(prepare("a", devices));
  users.held = {{kWhole, tenant()}, {first.at(1).mdev_uuid, tenant()}};
  publish({});
  kernel.forget_changes();
  EXPECT_EQ(must(prepare("a", devices)), first) << "also while its VM runs, and after a change of the policy";
  EXPECT_THAT(kernel.changes(), IsEmpty());
  refuses(prepare("a", {whole(kWhole)}), "it was prepared with other devices");
}

TEST_F(ClaimKeeperTest, MakesAVgpuAgainThatAnotherProgramHasRemoved) {
  const auto first = must(prepare("a", {vgpu(kMdev, kMdevType)}));
  mdev.remove_device(kMdev, first.at(0).mdev_uuid);
  EXPECT_EQ(must(prepare("a", {vgpu(kMdev, kMdevType)})).at(0).mdev_uuid, first.at(0).mdev_uuid);
  EXPECT_THAT(mdev.devices_on(kMdev), SizeIs(1));
  mdev.remove_device(kMdev, first.at(0).mdev_uuid);
  must(unprepare("a"));
  nothing_is_left();
}

TEST_F(ClaimKeeperTest, RefusesGpusThatThePolicyGivesToNoSuchClaim) {
  auto all = gpus();
  all[0].for_dra = false;
  all[1].whole = false;
  all[2].types[0].allowed = false;
  all.pop_back();
  publish(all);
  refuses(prepare("a", {whole(kWhole)}), "GPU 0000:05:00.0 is not for claims");
  refuses(prepare("a", {whole(kMdev)}), "no claim can have GPU 0000:06:00.0 as a whole");
  refuses(prepare("a", {vgpu(kVendor, kVendorType)}), "allows no vGPU of type 232 on GPU 0000:07:00.0");
  refuses(prepare("a", {vgpu(kMdev, "nvidia-1")}), "allows no vGPU of type nvidia-1");
  refuses(prepare("a", {whole(kPair)}), "GPU 0000:09:00.0 is not for claims");
  kernel.remove(api::kClaimableGpusFile);
  refuses(prepare("a", {whole(kWhole)}), "is not for claims");
  const auto unknown = prepare("a", {whole("0000:7f:00.0")});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Errc::not_found);
  nothing_is_left();
}

TEST_F(ClaimKeeperTest, RefusesAGpuWhoseChangeOfModeWasInterrupted) {
  const std::string why = "mode of 0000:09:00.0 is recorded in /var/lib/ferry-hostd/gpus/mode-change.json";
  kernel.file(vfio::kModeRecordFile,
              R"({"version": 1, "devices": [{"address": "0000:09:00.0", "ids": "10de:1eb8", "wanted": "on",
                  "mode": "off", "knobs": []}]})");
  refuses(prepare("a", {whole(kPair)}), why);
  EXPECT_THAT(record().claims, IsEmpty());
  // The round that has seen the record gives the whole GPU to no claim.
  auto known = gpus();
  known.back().whole = false;
  known.back().health = api::GpuHealth::unhealthy;
  known.back().reason = "a change of the " + why;
  publish(known);
  refuses(prepare("a", {whole(kPair)}), "GPU 0000:09:00.0 is unhealthy: a change of the " + why);
  publish(gpus());
  must(prepare("b", {whole(kWhole)}));
  kernel.remove(vfio::kModeRecordFile);
  must(prepare("a", {whole(kPair)}));
}

TEST_F(ClaimKeeperTest, RefusesADeviceInUseAndNamesTheUser) {
  users.held.emplace(kWhole, tenant());
  refuses(prepare("a", {whole(kWhole)}), "VM tenant (pid 412)");
  EXPECT_THAT(record().claims, IsEmpty());
  vendor.set("0000:07:00.4", kVendorType);
  refuses(prepare("a", {whole(kVendor)}), "GPU 0000:07:00.0 carries 1 vGPU");
  vendor.set("0000:07:00.4", "0");
  nothing_is_left();
}

TEST_F(ClaimKeeperTest, RefusesAGpuOfAnotherClaim) {
  must(prepare("a", {vgpu(kMdev, kMdevType)}));
  must(prepare("b", {whole(kWhole)}));
  kernel.forget_changes();
  refuses(prepare("c", {whole(kMdev)}), "is in use by claim studio/render-a (UID a)");
  refuses(prepare("c", {whole(kWhole)}), "is in use by claim studio/render-b (UID b)");
  refuses(prepare("c", {whole(kPair), whole(kOtherOfPair)}), "is asked for twice");
  must(unprepare("a"));
  must(unprepare("b"));
  nothing_is_left();
}

TEST_F(ClaimKeeperTest, RefusesAVgpuThatDoesNotFit) {
  must(prepare("a", {vgpu(kMdev, kMdevType)}));
  auto all = gpus();
  all[1].types.push_back({.id = "nvidia-233", .name = "GRID T4-8Q", .short_name = "T4-8Q"});
  publish(all);
  kernel.forget_changes();
  refuses(prepare("b", {vgpu(kMdev, "nvidia-233")}),
          "none of type nvidia-233 fits now; it carries 1 x T4-4Q");
  EXPECT_THAT(record().claims, SizeIs(1));
}

TEST_F(ClaimKeeperTest, UndoesAClaimWhoseSecondDeviceCannotBeHad) {
  users.held.emplace(kPair, tenant());
  const auto answer = prepare("a", {whole(kWhole), vgpu(kVendor, kVendorType), whole(kPair)});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Errc::refused);
  EXPECT_THAT(answer.error().message, HasSubstr("claim studio/render-a: "));
  EXPECT_THAT(answer.error().message, HasSubstr("VM tenant"));
  nothing_is_left();
}

TEST_F(ClaimKeeperTest, UndoesOnceTheVmHasEnded) {
  const auto devices =
      must(prepare("a", {whole(kWhole), vgpu(kMdev, kMdevType), vgpu(kVendor, kVendorType)}));
  const std::string in_use = state();
  users.held = {{kWhole, tenant()}, {devices.at(1).mdev_uuid, tenant()}, {"0000:07:00.4", tenant()}};
  vendor.hold("0000:07:00.4");
  const auto answer = unprepare("a");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Errc::refused);
  EXPECT_THAT(answer.error().message, HasSubstr("VM tenant"));
  EXPECT_EQ(state(), in_use);
  EXPECT_THAT(must(gpus_with_claims(kernel)).gpus, SizeIs(3));
  users.held.clear();
  vendor.hold("0000:07:00.4", false);
  must(unprepare("a"));
  nothing_is_left();
}

TEST_F(ClaimKeeperTest, FindsAClaimOnceItIsUnused) {
  EXPECT_EQ(must(keeper.find_unused("a")), std::nullopt);
  const auto devices = must(prepare("a", {whole(kWhole), vgpu(kMdev, kMdevType)}));
  kernel.forget_changes();
  const auto unused = must(keeper.find_unused("a"));
  ASSERT_TRUE(unused);
  EXPECT_EQ(unused->label(), "claim studio/render-a");
  for (const std::string& device : {std::string(kWhole), devices.at(1).mdev_uuid}) {
    users.held = {{device, tenant()}};
    const auto refused = keeper.find_unused("a");
    ASSERT_FALSE(refused) << device;
    EXPECT_EQ(refused.error().code, Errc::refused);
    EXPECT_THAT(refused.error().message, HasSubstr("VM tenant (pid 412)"));
  }
  must(prepare("b", {vgpu(kVendor, kVendorType)}));
  kernel.forget_changes();
  users.held.clear();
  users.blind = "process 7 hides";
  for (const char* uid : {"a", "b"}) {
    const auto unknown = keeper.find_unused(uid);
    ASSERT_FALSE(unknown) << uid;
    EXPECT_EQ(unknown.error().code, Errc::refused);
    EXPECT_THAT(unknown.error().message, HasSubstr("process 7 hides"));
  }
  EXPECT_EQ(host_changes(), 0U);
}

TEST_F(ClaimKeeperTest, HasNothingToUndoForAnUnknownClaim) {
  must(unprepare("a"));
  EXPECT_THAT(kernel.changes(), IsEmpty());
}

TEST_F(ClaimKeeperTest, DoesNothingWhileAnotherFerryChangesTheHost) {
  must(prepare("a", {whole(kWhole)}));
  const NodeLock other = must(NodeLock::take(kernel, std::chrono::milliseconds(0)));
  kernel.forget_changes();
  for (const auto& answer : {prepare("a", {whole(kWhole)}), unprepare("a")}) {
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Errc::unreachable) << answer.error().message;
    EXPECT_THAT(answer.error().message, HasSubstr("another ferry is changing this host"));
  }
  EXPECT_THAT(must(unprepare("b")), IsEmpty()) << "the pod of an unknown claim can end";
  EXPECT_EQ(host_changes(), 0U);
  EXPECT_EQ(record().claims.at(0).phase, ClaimPhase::done);
}

TEST_F(ClaimKeeperTest, SaysOnlyOfTheLockThatNothingWasDone) {
  ClaimKeeper other(kernel, {.for_rebinds = users, .for_vgpus = users, .open_nodes = users},
                    [](const NodeProbes& /*uses*/) -> Result<NodeContext> {
                      return fail(Errc::unreachable, "systemd does not listen");
                    },
                    {.lock_patience = std::chrono::milliseconds(1)});
  const auto answer = other.serve(request("a", {whole(kWhole)}));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Errc::failed);
  EXPECT_THAT(answer.error().message, HasSubstr("systemd does not listen"));
}

TEST_F(ClaimKeeperTest, LeavesAVgpuAloneThatIsNotTheClaimsAnyMore) {
  must(prepare("a", {vgpu(kVendor, kVendorType)}));
  vendor.set("0000:07:00.4", "0");
  vendor.set("0000:07:00.4", "230");  // another program's, of another type
  must(unprepare("a"));
  EXPECT_THAT(vendor.devices_on(kVendor), ElementsAre("T4-1Q 0000:07:00.4"));
}

TEST_F(ClaimKeeperTest, ForgetsAllClaimsAtAReboot) {
  must(prepare("a", {vgpu(kMdev, kMdevType)}));
  const auto file = must(kernel.read_file(kClaimRecordFile));
  kernel.new_boot();
  kernel.file(kClaimRecordFile, file);
  EXPECT_THAT(record().claims, IsEmpty());
  EXPECT_THAT(must(gpus_with_claims(kernel)).gpus, IsEmpty());
}

TEST_F(ClaimKeeperTest, DoesNothingWithoutItsRecord) {
  kernel.file(kClaimRecordFile, "{}");
  for (const auto& answer : {prepare("a", {whole(kWhole)}), unprepare("a")}) {
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Errc::malformed_host);
    EXPECT_THAT(answer.error().message,
                HasSubstr("/run/ferry/hostd/claims.json: version: the key is missing"));
  }
  EXPECT_EQ(host_changes(), 0U);
  const GpusWithClaims possible = must(gpus_with_claims(kernel));
  EXPECT_THAT(possible.gpus, SizeIs(5)) << "each may have a claim";
  ASSERT_TRUE(possible.fault);
  EXPECT_THAT(possible.fault->message, HasSubstr("/run/ferry/hostd/claims.json"));
  EXPECT_THAT(possible.fault->hint, HasSubstr("remove it"));
  for (const char* const gpus : {"{", ""}) {
    kernel.file(api::kClaimableGpusFile, gpus);
    const auto unknown = gpus_with_claims(kernel);
    ASSERT_FALSE(unknown) << "no claim is forgotten";
    EXPECT_THAT(unknown.error().message, HasSubstr("/run/ferry/hostd/claims.json"));
  }
  kernel.remove(api::kClaimableGpusFile);
  EXPECT_FALSE(gpus_with_claims(kernel));
  EXPECT_EQ(must(kernel.read_file(kClaimRecordFile)), "{}") << "the file is kept";
  std::filesystem::resize_file(kernel.root() / kClaimRecordFile, std::uintmax_t{1} << 40U);
  const auto large = prepare("a", {whole(kWhole)});
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().text(),
              AllOf(HasSubstr("/run/ferry/hostd/claims.json: File too large"), HasSubstr("remove it")));
}

TEST_F(ClaimKeeperTest, LeavesAGpuAloneWhileAWriteToItIsStuck) {
  kernel.hang_write({.path = "sys/bus/pci/drivers/nvidia/unbind", .value = kWhole});
  const auto stuck = prepare("a", {whole(kWhole)});
  ASSERT_FALSE(stuck);
  EXPECT_EQ(stuck.error().code, Errc::stuck);
  EXPECT_THAT(record().claims, SizeIs(1)) << "the GPU may be half bound";
  kernel.forget_changes();
  EXPECT_FALSE(prepare("a", {whole(kWhole)}));
  EXPECT_FALSE(unprepare("a"));
  EXPECT_EQ(host_changes(), 0U);
  kernel.release_stuck();
  must(unprepare("a"));
  nothing_is_left();
}

// The record.

TEST(ClaimRecordFile, ReadsBackAsItself) {
  ClaimRecord record{.boot_id = "b"};
  EXPECT_EQ(must(read_claim_record(claim_record_text(record))), record);
  Claim claim{.uid = "u", .space = "studio", .name = "render-a", .phase = ClaimPhase::done};
  claim.devices.push_back({.request = {.gpu = Node::at(Node::kWhole)},
                           .gpus = {{.address = Node::at(Node::kWhole), .functions = 16}},
                           .was_on_vfio = true});
  claim.devices[0].result.function = Node::at(Node::kWhole);
  claim.devices[0].result.nodes = {{.path = "/dev/vfio/vfio", .mode = 0666U}, {.path = "/dev/vfio/5"}};
  claim.devices.push_back(
      {.request = {.gpu = Node::at(Node::kMdev), .type = Node::kMdevType, .placement = 4U},
       .gpus = {{.address = Node::at(Node::kMdev)}}});
  claim.devices[1].result.mdev_uuid = kAnothersUuid;
  claim.devices[1].resources = {"nvidia.com/GRID_T4-4Q"};
  record.put(claim);
  record.put(MissingFunctions{.gpu = Node::at(Node::kVendor), .functions = 16, .reason = "busy"});
  record.put(MissingFunctions{.gpu = Node::at(Node::kWhole), .functions = 8});
  EXPECT_EQ(must(read_claim_record(claim_record_text(record))), record);
  EXPECT_THAT(record.gpus(), UnorderedElementsAre(Node::at(Node::kWhole), Node::at(Node::kMdev)));
  EXPECT_EQ(record.in_the_way(Node::at(Node::kWhole), "u", true), nullptr) << "it is the claim's own GPU";
  EXPECT_NE(record.in_the_way(Node::at(Node::kWhole), "v", false), nullptr);
  EXPECT_EQ(record.in_the_way(Node::at(Node::kMdev), "v", false), nullptr) << "a vGPU leaves room for others";
  EXPECT_NE(record.in_the_way(Node::at(Node::kMdev), "v", true), nullptr);
  record.remove("u");
  EXPECT_THAT(record.claims, IsEmpty());
}

TEST(ClaimRecordFile, OfAnotherFormIsRefusedWithTheKey) {
  constexpr const char* kStart = R"({"version": 1, "boot_id": "b", "claims": [)";
  constexpr const char* kClaim =
      R"({"uid": "u", "namespace": "n", "name": "c", "phase": "intent", "devices": []})";
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "not JSON"},
           {"[]", "expected an object"},
           {R"({"version": 2})", "version: expected 1, found 2"},
           {R"({"version": 1, "claims": []})", "boot_id: the key is missing"},
           {std::string(kStart) + kClaim + "," + kClaim + "]}", "claims[1].uid: another claim has it"},
           {std::string(kStart) + R"({"uid": "u", "namespace": "n", "name": "c", "phase": "undone"}]})",
            "claims[0].phase: 'undone' is none of its words"},
           {std::string(kStart) + R"({"uid": "u", "namespace": "n", "name": "c", "phase": "done",
              "devices": [{"gpu": "05:00.0"}]}]})",
            "claims[0].devices[0].gpu: '05:00.0' is not a PCI address"},
           {std::string(kStart) + R"(], "missing_functions": 5})", "missing_functions: expected a list"},
           {std::string(kStart) + R"(], "missing_functions": [{"gpu": "x", "functions": 4}]})",
            "missing_functions[0].gpu: 'x' is not a PCI address"},
           {std::string(kStart) + R"(], "missing_functions": [{"gpu": "0000:05:00.0", "functions": -1}]})",
            "missing_functions[0].functions: expected a number from 0 on"}}) {
    const auto read = read_claim_record(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, Errc::malformed_host);
    EXPECT_EQ(read.error().message, "/run/ferry/hostd/claims.json: " + message);
  }
}

}  // namespace
}  // namespace ferry::host
