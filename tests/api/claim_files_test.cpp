// SPDX-License-Identifier: Apache-2.0
#include "api/claim_files.h"

#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "api/own_cdi_files.h"
#include "tests/support/must.h"

namespace ferry::api {
namespace {

using nlohmann::json;
using testing::ElementsAre;

constexpr const char* kUid = "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711";
constexpr const char* kFolder = "var/lib/kubelet/plugins/gpu-ferry.io.hostd";

vfio::PciAddress at(const std::string& address) {
  return test::must(vfio::PciAddress::parse(address));
}

/// A claim, and hostd's answer.
struct Claim {
  ClaimRequest request;
  std::vector<PreparedDevice> devices = {};

  void add_whole(const std::string& name, const std::string& address, const std::string& group) {
    request.devices.push_back({.device = {.gpu = at(address)},
                               .request = name,
                               .pool = "node7/gpu-ferry",
                               .name = "whole-" + group,
                               .attributes = {{"type", "whole"},
                                              {"resource.kubernetes.io/pciBusID", address},
                                              {"resource.kubernetes.io/numaNode", 1}}});
    devices.push_back({.function = at(address),
                       .nodes = {{.path = "/dev/vfio/vfio", .mode = 0666U},
                                 {.path = "/dev/vfio/" + group, .mode = 0600U}}});
  }
  /// Gives a request the names of an extended resource.
  void ask_by(const std::string& of, const std::vector<std::string>& resources) {
    for (DeviceOfPod& device : request.devices)
      if (device.request == of) device.resources = resources;
  }
  /// The variables that a container with this request gets.
  json variables(const std::string& of) const {
    const json file = json::parse(metadata_cdi_text(request, devices, of, "/m"));
    EXPECT_EQ(file.at("devices").size(), 1U) << "it is there once for each request";
    const json& edits = file.at("devices").at(0).at("containerEdits");
    EXPECT_EQ(edits.at("mounts").size(), 1U);
    return edits.value("env", json::array());
  }
  std::string metadata(const std::string& of) const { return metadata_text(request, devices, of); }
  std::vector<ClaimFile> files() const { return claim_files(request, devices, kFolder); }
};

/// The claim render-a with one whole GPU.
Claim direct() {
  Claim out{.request = {.claim = kUid, .space = "studio", .name = "render-a"}};
  out.add_whole("card", "0000:3b:00.0", "42");
  return out;
}

/// Reads a metadata file as KubeVirt's launcher does: the attribute by which it finds the request's only
/// device. Empty: it refuses the file.
std::string read_as_kubevirt(const std::string& file, const std::string& request) {
  static const std::regex kAddress("^[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\\.[0-7]$");
  const json object = json::parse(file);
  if (object.at("apiVersion").get<std::string>() != "metadata.resource.k8s.io/v1alpha1") return {};
  for (const json& one : object.at("requests")) {
    if (one.at("name").get<std::string>() != request || one.at("devices").size() != 1) continue;
    const json& attributes = one.at("devices").at(0).at("attributes");
    for (const char* const key : {"mdevUUID", "resource.kubernetes.io/pciBusID"}) {
      if (!attributes.contains(key)) continue;
      auto value = attributes.at(key).at("string").get<std::string>();
      if (std::string(key) != "mdevUUID" && !std::regex_match(value, kAddress)) return {};
      if (!value.empty()) return value;
    }
  }
  return {};
}

TEST(ClaimFiles, HaveTheClaimsUidInTheirNames) {
  EXPECT_EQ(claim_cdi_file("u-1"), "gpu-ferry.io-claim_u-1.json");
  EXPECT_EQ(claim_cdi_id("u-1", "whole-a"), "gpu-ferry.io/claim=u-1_whole-a");
  EXPECT_EQ(metadata_cdi_file("u-1", "card"), "gpu-ferry.io_metadata_u-1_card.json");
  EXPECT_EQ(metadata_cdi_id("u-1", "card"), "gpu-ferry.io/metadata=u-1_card");
  EXPECT_EQ(metadata_file("u-1", "card"), "u-1_card.json");
  EXPECT_EQ(claim_of_metadata_file("u-1_card.json"), "u-1");
  EXPECT_EQ(claim_of_metadata_file("u-1.json"), std::nullopt);
  EXPECT_EQ(main_request("card"), "card");
  EXPECT_EQ(main_request("card/small"), "card");
  EXPECT_EQ(claim_of_cdi_file("gpu-ferry.io-claim_u-1.json"), "u-1");
  EXPECT_EQ(claim_of_cdi_file("gpu-ferry.io_metadata_u-1_card.json"), "u-1");
  for (const char* const other : {"gpu-ferry.io_metadata_u-1.json", "gpu-ferry.io-claim_u-1.yaml",
                                  "gpu.nvidia.com-claim_u-1.json", "nvidia.com-pgpu.yaml", "", ".json"})
    EXPECT_EQ(claim_of_cdi_file(other), std::nullopt) << other;
}

TEST(ClaimFiles, GiveTheNodesOfEachDeviceToTheRuntime) {
  Claim claim = direct();
  claim.add_whole("second", "0000:5e:00.0", "7");
  claim.devices[1].nodes[1].mode = {};
  EXPECT_EQ(json::parse(claim_cdi_text(claim.request, claim.devices)), json::parse(R"({
    "cdiVersion": "0.5.0", "kind": "gpu-ferry.io/claim", "devices": [
      {"name": "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711_whole-42", "containerEdits": {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [{"path": "/dev/vfio/vfio", "fileMode": 438}, {"path": "/dev/vfio/42", "fileMode": 384}]}},
      {"name": "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711_whole-7", "containerEdits": {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [{"path": "/dev/vfio/vfio", "fileMode": 438}, {"path": "/dev/vfio/7"}]}}]})"));
}

TEST(ClaimFiles, TellKubevirtTheFunctionOfAWholeGpu) {
  const std::string file = direct().metadata("card");
  EXPECT_EQ(json::parse(file), json::parse(R"({
    "apiVersion": "metadata.resource.k8s.io/v1alpha1", "kind": "DeviceMetadata",
    "metadata": {"name": "render-a", "namespace": "studio",
                 "uid": "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711", "generation": 1},
    "requests": [{"name": "card", "devices": [
      {"driver": "gpu-ferry.io", "pool": "node7/gpu-ferry", "name": "whole-42",
       "attributes": {"type": {"string": "whole"},
                      "resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"},
                      "resource.kubernetes.io/numaNode": {"int": 1}}}]}]})"));
  EXPECT_EQ(read_as_kubevirt(file, "card"), "0000:3b:00.0");
  EXPECT_EQ(read_as_kubevirt(file, "other"), "");
  EXPECT_EQ(
      metadata_container_path(direct().request, "card"),
      "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/render-a/card/gpu-ferry.io-metadata.json");
}

TEST(ClaimFiles, TellKubevirtTheUuidOfAMediatedDevice) {
  Claim claim = direct();
  claim.request.pod_claim = "gpu";
  claim.devices[0] = {.mdev_uuid = "b7064fe1-6802-5216-8eb4-f5580c656c4f",
                      .nodes = {{.path = "/dev/vfio/57"}}};
  const std::string file = claim.metadata("card");
  EXPECT_EQ(read_as_kubevirt(file, "card"), "b7064fe1-6802-5216-8eb4-f5580c656c4f");
  EXPECT_EQ(file.find("pciBusID"), std::string::npos) << "the parent's address would be the GPU's";
  EXPECT_EQ(json::parse(file).at("podClaimName"), "gpu");
  EXPECT_EQ(metadata_container_path(claim.request, "card"),
            "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/gpu/card/"
            "gpu-ferry.io-metadata.json");
}

TEST(ClaimFiles, TellKubevirtTheFunctionOfAVendorsVgpu) {
  Claim claim = direct();
  claim.request.devices[0].attributes = {{"type", "vgpu"}, {"mdevUUID", "stale"}};
  claim.devices[0].function = at("0000:3b:00.4");
  const std::string file = claim.metadata("card");
  EXPECT_EQ(read_as_kubevirt(file, "card"), "0000:3b:00.4");
  EXPECT_EQ(file.find("mdevUUID"), std::string::npos);
  claim.devices[0].function = at("10000:3b:00.4");
  EXPECT_EQ(read_as_kubevirt(claim.metadata("card"), "card"), "") << "check_available() refuses it before";
}

TEST(ClaimFiles, HaveAMetadataFileForEachRequest) {
  Claim claim = direct();
  claim.add_whole("second/large", "0000:5e:00.0", "7");
  claim.add_whole("second/large", "0000:86:00.0", "9");
  const json second = json::parse(claim.metadata("second")).at("requests");
  EXPECT_EQ(second.size(), 1U);
  EXPECT_EQ(second.at(0).at("name"), "second/large") << "the alternative stays in the name";
  EXPECT_EQ(second.at(0).at("devices").size(), 2U);
  EXPECT_EQ(read_as_kubevirt(claim.metadata("card"), "card"), "0000:3b:00.0");

  std::vector<std::string> paths;
  for (const ClaimFile& file : claim.files()) {
    paths.push_back(file.path);
    EXPECT_TRUE(file.text.ends_with("}\n"));
  }
  const std::string uid = kUid;
  const std::string folder = kFolder;
  EXPECT_THAT(paths, ElementsAre(folder + "/" + uid + "_card.json", folder + "/" + uid + "_second.json",
                                 "run/cdi/gpu-ferry.io_metadata_" + uid + "_card.json",
                                 "run/cdi/gpu-ferry.io_metadata_" + uid + "_second.json",
                                 "run/cdi/gpu-ferry.io-claim_" + uid + ".json"));
  EXPECT_EQ(json::parse(metadata_cdi_text(claim.request, claim.devices, "second", "/" + folder))
                .at("devices")
                .at(0),
            json::parse(R"({
    "name": "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711_second",
    "containerEdits": {"mounts": [{
      "hostPath":
        "/var/lib/kubelet/plugins/gpu-ferry.io.hostd/5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711_second.json",
      "containerPath":
        "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/render-a/second/gpu-ferry.io-metadata.json",
      "options": ["ro", "bind"]}]}})"));
}

// Source of the names: KubeVirt v1.9.0, ResourceNameToEnvVar in pkg/util/util.go.
TEST(ClaimFiles, NameTheDevicesOfAnExtendedResourceToKubevirt) {
  EXPECT_EQ(direct().variables("card"), json::array()) << "a claim that the pod names";
  for (const auto& [resource, variable] :
       {std::pair{"nvidia.com/AD102GL_L40S", "PCI_RESOURCE_NVIDIA_COM_AD102GL_L40S"},
        {"nvidia.com/GRID_T4-4Q", "PCI_RESOURCE_NVIDIA_COM_GRID_T4-4Q"},
        {"example.com/gpu.small", "PCI_RESOURCE_EXAMPLE_COM_GPU_SMALL"},
        {"deviceclass.resource.kubernetes.io/l40s",
         "PCI_RESOURCE_DEVICECLASS_RESOURCE_KUBERNETES_IO_L40S"}}) {
    Claim claim = direct();
    claim.ask_by("card", {resource});
    EXPECT_EQ(claim.variables("card"), json::array({std::string(variable) + "=0000:3b:00.0"}));
  }
}

TEST(ClaimFiles, NameAllDevicesOfARequestInTheOrderOfTheAllocation) {
  Claim claim{.request = {.claim = kUid, .space = "studio", .name = "render-a"}};
  for (int i = 8; i > 0; --i)
    claim.add_whole("container-0-request-0", "0000:0" + std::to_string(i) + ":00.0", std::to_string(i));
  claim.ask_by("container-0-request-0", {"nvidia.com/L40S", "deviceclass.resource.kubernetes.io/l40s"});
  const std::string all =
      "0000:08:00.0,0000:07:00.0,0000:06:00.0,0000:05:00.0,0000:04:00.0,0000:03:00.0,0000:02:00.0,"
      "0000:01:00.0";
  EXPECT_EQ(claim.variables("container-0-request-0"),
            json::array({"PCI_RESOURCE_NVIDIA_COM_L40S=" + all,
                         "PCI_RESOURCE_DEVICECLASS_RESOURCE_KUBERNETES_IO_L40S=" + all}));
  EXPECT_EQ(claim_cdi_text(claim.request, claim.devices).find("PCI_RESOURCE"), std::string::npos)
      << "of several devices the last variable would win";
}

TEST(ClaimFiles, NameAGpuAndAVgpuOfOnePodEachToItsContainer) {
  constexpr const char* kUuid = "b7064fe1-6802-5216-8eb4-f5580c656c4f";
  Claim claim{.request = {.claim = kUid, .space = "studio", .name = "render-a"}};
  claim.add_whole("container-0-request-0", "0000:3b:00.0", "42");
  claim.add_whole("container-0-request-1", "0000:5e:00.0", "43");
  claim.add_whole("container-1-request-0", "0000:af:00.0", "44");
  claim.devices[1] = {.mdev_uuid = kUuid, .nodes = {{.path = "/dev/vfio/57"}}};
  claim.ask_by("container-0-request-0", {"nvidia.com/L40S"});
  claim.ask_by("container-0-request-1", {"nvidia.com/L40S-6Q"});
  claim.ask_by("container-1-request-0", {"nvidia.com/L40S"});
  EXPECT_EQ(claim.variables("container-0-request-0"),
            json::array({"PCI_RESOURCE_NVIDIA_COM_L40S=0000:3b:00.0"}));
  EXPECT_EQ(claim.variables("container-0-request-1"),
            json::array({std::string("MDEV_PCI_RESOURCE_NVIDIA_COM_L40S-6Q=") + kUuid}));
  EXPECT_EQ(claim.variables("container-1-request-0"),
            json::array({"PCI_RESOURCE_NVIDIA_COM_L40S=0000:af:00.0"}));
  // Nodes with different drivers have vGPUs of both kinds under one name.
  claim.add_whole("container-0-request-1", "0000:5e:00.4", "58");
  claim.ask_by("container-0-request-1", {"nvidia.com/L40S-6Q"});
  EXPECT_EQ(claim.variables("container-0-request-1"),
            json::array({"PCI_RESOURCE_NVIDIA_COM_L40S-6Q=0000:5e:00.4",
                         std::string("MDEV_PCI_RESOURCE_NVIDIA_COM_L40S-6Q=") + kUuid}));
}

TEST(ClaimFiles, AreAsTheJudgeOfOwnFilesTakesThem) {
  Claim claim = direct();
  claim.add_whole("second", "0000:5e:00.0", "7");
  claim.ask_by("second", {"nvidia.com/L40S"});
  std::size_t files = 0;
  for (const ClaimFile& file : claim.files()) {
    if (file.path.parent_path() != kCdiFolder) continue;
    ++files;
    EXPECT_TRUE(is_own_cdi_file(file.path.filename().string(), file.text)) << file.path;
    EXPECT_TRUE(check_own_cdi_file({.file = file.path.string(), .text = file.text})) << file.text;
  }
  EXPECT_EQ(files, 3U);
}

}  // namespace
}  // namespace ferry::api
