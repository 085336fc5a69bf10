// SPDX-License-Identifier: Apache-2.0
// What a cluster's KubeVirt object lacks of what a node offers, object by object.
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "kubectl/kubevirt_permits.h"

namespace ferry::kubectl {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json pci(const char* selector, const char* resource, bool external = true) {
  json out = {{"pciVendorSelector", selector}, {"resourceName", resource}};
  if (external) out["externalResourceProvider"] = true;
  return out;
}
json mediated(const char* selector, const char* resource, bool external = true) {
  json out = {{"mdevNameSelector", selector}, {"resourceName", resource}};
  if (external) out["externalResourceProvider"] = true;
  return out;
}
json kubevirt(json configuration) {
  return {{"kind", "KubeVirt"}, {"spec", {{"configuration", std::move(configuration)}}}};
}
json permitting(const json& pci_list, const json& mediated_list = json::array()) {
  json lists = json::object();
  if (!pci_list.empty()) lists["pciHostDevices"] = pci_list;
  if (!mediated_list.empty()) lists["mediatedDevices"] = mediated_list;
  return kubevirt({{"permittedHostDevices", lists}});
}

// In words: a list of one in braces is that one.
template <typename... Entries>
json list(const Entries&... entries) {
  return json::array({entries...});
}

const json kGpu = pci("10DE:2684", "nvidia.com/AD102");
const json kVgpu = mediated("NVIDIA A40-8Q", "nvidia.com/NVIDIA_A40-8Q");

PermitChange change(const json& theirs, const json& ours) {
  auto result = permit_change(theirs, ours);
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(PermitChange());
}
json patched(json object, const PermitChange& change) {
  object.merge_patch(change.patch);
  return object;
}

TEST(KubevirtPermits, HasNothingToDoWhereAllIsListed) {
  const auto ours = permitting(list(kGpu), list(kVgpu));
  const auto same = change(ours, ours);
  EXPECT_TRUE(same.fits());
  EXPECT_TRUE(same.patch.is_null());
  // KubeVirt compares PCI IDs in lower case and takes a type's name with underscores.
  EXPECT_TRUE(change(permitting(list(pci("10de:2684", "nvidia.com/AD102")),
                                list(mediated("NVIDIA_A40-8Q", "nvidia.com/NVIDIA_A40-8Q"))),
                     ours)
                  .fits());
}

TEST(KubevirtPermits, AddsToTheListsAndKeepsEveryOtherEntry) {
  json other = pci("10DE:1EB8", "nvidia.com/T4");
  other["unknown"] = "kept";
  json cluster = permitting(list(other));
  cluster["spec"]["configuration"]["permittedHostDevices"]["usb"] = json::array({{{"resourceName", "a/b"}}});
  const auto found = change(cluster, permitting(list(kGpu), list(kVgpu)));
  EXPECT_THAT(found.lacks, ElementsAre("nvidia.com/AD102 (10DE:2684) is not permitted",
                                       "nvidia.com/NVIDIA_A40-8Q (NVIDIA A40-8Q) is not permitted"));
  EXPECT_THAT(found.by_hand, IsEmpty());
  const auto after = patched(cluster, found);
  const json& lists = after["spec"]["configuration"]["permittedHostDevices"];
  EXPECT_EQ(lists["pciHostDevices"], list(other, kGpu));
  EXPECT_EQ(lists["mediatedDevices"], list(kVgpu));
  EXPECT_EQ(lists["usb"].size(), 1U);
  EXPECT_TRUE(change(after, permitting(list(kGpu), list(kVgpu))).fits());
}

TEST(KubevirtPermits, LeavesAListAloneThatLacksNothing) {
  const auto found = change(permitting(list(kGpu)), permitting(list(kGpu), list(kVgpu)));
  EXPECT_FALSE(found.patch.contains("/spec/configuration/permittedHostDevices/pciHostDevices"_json_pointer));
  EXPECT_TRUE(found.patch.contains("/spec/configuration/permittedHostDevices/mediatedDevices"_json_pointer));
}

TEST(KubevirtPermits, TakesItFromKubeVirtToAdvertiseTheSameResource) {
  const auto cluster = permitting(list(pci("10de:2684", "nvidia.com/AD102", false)));
  const auto found = change(cluster, permitting(list(kGpu)));
  EXPECT_THAT(found.lacks, ElementsAre(HasSubstr("is offered by KubeVirt too")));
  EXPECT_EQ(patched(cluster, found), permitting(list(pci("10de:2684", "nvidia.com/AD102"))));
  json no = pci("10de:2684", "nvidia.com/AD102");
  no["externalResourceProvider"] = false;
  EXPECT_FALSE(change(permitting(list(no)), permitting(list(kGpu))).fits());
}

TEST(KubevirtPermits, LeavesADeviceThatKubeVirtAdvertisesByAnotherNameToAPerson) {
  const auto found =
      change(permitting(list(pci("10de:2684", "devices.example/gpu", false))), permitting(list(kGpu)));
  EXPECT_THAT(found.by_hand,
              ElementsAre(HasSubstr("KubeVirt itself offers 10DE:2684 as devices.example/gpu")));
  EXPECT_THAT(found.lacks, ElementsAre(HasSubstr("is not permitted")));
  // Where others than KubeVirt offer it, nothing is wrong: one PCI ID may stand for several types of vGPU.
  EXPECT_THAT(
      change(permitting(list(pci("10de:2684", "devices.example/gpu"))), permitting(list(kGpu))).by_hand,
      IsEmpty());
}

TEST(KubevirtPermits, BeginsNoListWhereEverythingIsPermitted) {
  for (const json& open : {kubevirt(json::object()), kubevirt({{"permittedHostDevices", nullptr}}),
                           json({{"kind", "KubeVirt"}}), json({{"spec", nullptr}})}) {
    const auto gpus = change(open, permitting(list(kGpu)));
    EXPECT_TRUE(gpus.fits());
    EXPECT_TRUE(gpus.patch.is_null());
    const auto vgpus = change(open, permitting(list(kGpu), list(kVgpu)));
    EXPECT_TRUE(vgpus.patch.is_null());
    EXPECT_THAT(vgpus.by_hand, ElementsAre(HasSubstr("KubeVirt removes")));
  }
  EXPECT_FALSE(change(kubevirt({{"permittedHostDevices", json::object()}}), permitting(list(kGpu))).fits());
}

TEST(KubevirtPermits, KnowsWhatKeepsKubeVirtFromRemovingVgpus) {
  const auto vgpus = permitting(list(), list(kVgpu));
  const json gate = {{"featureGates", {"DisableMDEVConfiguration"}}};
  EXPECT_TRUE(change(kubevirt({{"mediatedDevicesConfiguration", {{"enabled", false}}}}), vgpus).fits());
  EXPECT_TRUE(change(kubevirt({{"developerConfiguration", gate}}), vgpus).fits());
  EXPECT_FALSE(change(kubevirt({{"mediatedDevicesConfiguration", {{"enabled", true}}},
                                {"developerConfiguration", gate}}),
                      vgpus)
                   .fits());
}

TEST(KubevirtPermits, LeavesItToAPersonThatKubeVirtMakesVgpusToo) {
  const auto vgpus = permitting(list(), list(kVgpu));
  for (const char* const key : {"mediatedDeviceTypes", "mediatedDevicesTypes", "nodeMediatedDeviceTypes"}) {
    json cluster = vgpus;
    cluster["spec"]["configuration"]["mediatedDevicesConfiguration"][key] = {"nvidia-558"};
    EXPECT_THAT(change(cluster, vgpus).by_hand, ElementsAre(HasSubstr("makes mediated vGPUs itself")));
    EXPECT_TRUE(change(cluster, permitting(list())).fits()) << "it makes none of what this node has";
    cluster["spec"]["configuration"]["mediatedDevicesConfiguration"]["enabled"] = false;
    EXPECT_TRUE(change(cluster, vgpus).fits());
  }
}

TEST(KubevirtPermits, NotesTheFeatureGate) {
  EXPECT_THAT(change(permitting(list(kGpu)), permitting(list(kGpu))).notes,
              ElementsAre(HasSubstr("HostDevices")));
  json cluster = permitting(list(kGpu));
  cluster["spec"]["configuration"]["developerConfiguration"]["featureGates"] = {"GPU", "HostDevices"};
  EXPECT_THAT(change(cluster, permitting(list(kGpu))).notes, IsEmpty());
}

const json kGrace = pci("10DE:2342", "nvidia.com/GH100_GH200");

TEST(KubevirtPermits, SaysWhichFeatureGatesAGraceGpuNeeds) {
  const auto ours = permitting(list(kGrace));
  const auto bare = change(ours, ours);
  EXPECT_THAT(bare.by_hand,
              ElementsAre(AllOf(HasSubstr("a VM with nvidia.com/GH100_GH200 starts only"),
                                HasSubstr("GraceIOVirtualization, PCINUMAAwareTopology, IOMMUFD"))));
  EXPECT_THAT(bare.notes, testing::Contains(HasSubstr("cpu.dedicatedCpuPlacement: true")));
  json cluster = ours;
  auto& gates = cluster["spec"]["configuration"]["developerConfiguration"]["featureGates"];
  gates = {"IOMMUFD", "GraceIOVirtualization"};
  EXPECT_THAT(change(cluster, ours).by_hand,
              ElementsAre(HasSubstr("feature gates PCINUMAAwareTopology: add")));
  gates.push_back("PCINUMAAwareTopology");
  EXPECT_TRUE(change(cluster, ours).fits());
  cluster = ours;
  for (const char* older : {"v1.8.2", "v1.8-rc.1", "1.8.2", "v0.59.2"}) {
    cluster["status"]["observedKubeVirtVersion"] = older;
    EXPECT_TRUE(change(cluster, ours).fits()) << older << " does not know these gates";
  }
  cluster["status"]["observedKubeVirtVersion"] = "v1.10.0";
  EXPECT_FALSE(change(cluster, ours).fits());
}

TEST(KubevirtPermits, NeedsANameOfItsOwnForAGraceGpu) {
  const json shared = pci("10DE:2330", "nvidia.com/GH100_GH200");
  json cluster = permitting(list(kGrace, shared));
  cluster["status"]["observedKubeVirtVersion"] = "v1.8.2";
  for (const auto& ours : {permitting(list(kGrace, shared)), permitting(list(kGrace))})
    EXPECT_THAT(change(cluster, ours).by_hand,
                ElementsAre(HasSubstr("is the name of a Grace GPU (10de:2342) and of 10de:2330")));
}

// A40 with an mdev host driver on one node, with vendor-specific VFIO on another.
TEST(KubevirtPermits, SaysThatOneNameStandsForVgpusOfTwoKinds) {
  const json function = pci("10DE:2235", "nvidia.com/NVIDIA_A40-8Q");
  for (const auto& [theirs, ours] :
       {std::pair(permitting(list(function)), permitting(json::array(), list(kVgpu))),
        std::pair(permitting(json::array(), list(kVgpu)), permitting(list(function)))}) {
    const auto found = change(theirs, ours);
    EXPECT_THAT(found.notes,
                testing::Contains(AllOf(HasSubstr("nvidia.com/NVIDIA_A40-8Q is a PCI function on some nodes"),
                                        HasSubstr("VGPULiveMigration"), HasSubstr("--alias"))));
    EXPECT_THAT(found.lacks, testing::SizeIs(1)) << "it is permitted all the same";
  }
  const auto one_kind = change(permitting(list(kGpu)), permitting(json::array(), list(kVgpu)));
  EXPECT_THAT(one_kind.notes, testing::Not(testing::Contains(HasSubstr("VGPULiveMigration"))));
}

json applied_by(json object, const char* manager, const char* operation, const json& lists) {
  object["metadata"]["managedFields"].push_back(
      {{"manager", manager},
       {"operation", operation},
       {"fieldsV1", {{"f:spec", {{"f:configuration", {{"f:permittedHostDevices", lists}}}}}}}});
  return object;
}

TEST(KubevirtPermits, LeavesAListAloneThatAnotherFieldManagerApplies) {
  const json of_pci = {{"f:pciHostDevices", json::object()}};
  const auto cluster = permitting(list(pci("10DE:1EB8", "nvidia.com/T4")));
  const auto ours = permitting(list(kGpu), list(kVgpu));
  for (const auto& [manager, operation] :
       {std::pair("repository", "Apply"), std::pair("kubectl-client-side-apply", "Update")}) {
    const auto found = change(applied_by(cluster, manager, operation, of_pci), ours);
    EXPECT_THAT(found.by_hand,
                ElementsAre("nvidia.com/AD102 (10DE:2684) is not permitted; the field manager " +
                            std::string(manager) +
                            " applies pciHostDevices: change it where that has it from, or it is put back"));
    EXPECT_THAT(found.lacks, ElementsAre(HasSubstr("A40-8Q"))) << "the other list is nobody's";
    EXPECT_EQ(patched(cluster, found)["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"],
              list(pci("10DE:1EB8", "nvidia.com/T4")));
  }
  const auto marked = change(applied_by(permitting(list(pci("10DE:2684", "nvidia.com/AD102", false))),
                                        "repository", "Apply", of_pci),
                             permitting(list(kGpu)));
  EXPECT_TRUE(marked.patch.is_null());
  EXPECT_THAT(marked.by_hand, ElementsAre(HasSubstr("is offered by KubeVirt too")));
  // Nothing to say of one that lacks nothing, nor where somebody has only written once, or it was us.
  EXPECT_TRUE(change(applied_by(ours, "repository", "Apply", of_pci), ours).fits());
  EXPECT_THAT(change(applied_by(cluster, "kubectl-edit", "Update", of_pci), ours).by_hand, IsEmpty());
  EXPECT_THAT(change(applied_by(cluster, "ferry", "Apply", of_pci), ours).by_hand, IsEmpty());
  EXPECT_THAT(change(applied_by(cluster, "repository", "Apply", json::object()), ours).by_hand, IsEmpty());
}

TEST(KubevirtPermits, TakesFieldManagersAsTheyCome) {
  const auto ours = permitting(list(kGpu));
  for (const char* const managers :
       {"1", "[]", "[1]", "[{}]", R"([{"manager": 1, "operation": "Apply"}])",
        R"([{"manager": "m", "operation": 1, "fieldsV1": {"f:spec": {"f:configuration": 1}}}])",
        R"([{"operation": "Apply",
             "fieldsV1": {"f:spec": {"f:configuration": {"f:permittedHostDevices": {"f:pciHostDevices": {}}}}}}])"}) {
    json cluster = permitting(list(pci("10DE:1EB8", "nvidia.com/T4")));
    cluster["metadata"]["managedFields"] = json::parse(managers);
    EXPECT_THAT(change(cluster, ours).by_hand, IsEmpty()) << managers;
  }
}

TEST(KubevirtPermits, SaysWhichKeyIsWrong) {
  const auto said = [](const json& value, const char* key = "pciHostDevices") {
    const auto result = permit_change(kubevirt({{"permittedHostDevices", {{key, value}}}}),
                                      permitting(list(kGpu), list(kVgpu)));
    return result ? std::string("nothing") : result.error().message;
  };
  const std::string lists = "spec.configuration.permittedHostDevices.";
  EXPECT_EQ(said("x"), lists + "pciHostDevices: is not a list");
  EXPECT_EQ(said(list(1)), lists + "pciHostDevices[0].pciVendorSelector: is not a text");
  EXPECT_EQ(said(list(kGpu, json{{"pciVendorSelector", "a"}})),
            lists + "pciHostDevices[1].resourceName: is not a text");
  EXPECT_EQ(
      said(list(json{{"mdevNameSelector", "a"}, {"resourceName", "b"}, {"externalResourceProvider", "yes"}}),
           "mediatedDevices"),
      lists + "mediatedDevices[0].externalResourceProvider: is neither true nor false");
  EXPECT_THAT(
      permit_change(permitting(list(kGpu)), kubevirt({{"permittedHostDevices", {{"pciHostDevices", 1}}}}))
          .error()
          .message,
      HasSubstr("what this node offers: "));
}

}  // namespace
}  // namespace ferry::kubectl
