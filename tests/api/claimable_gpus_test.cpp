// SPDX-License-Identifier: Apache-2.0
#include "api/claimable_gpus.h"

#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/must.h"

namespace ferry::api {
namespace {

using nlohmann::json;
using test::must;

vfio::PciAddress address(const char* text) {
  return must(vfio::PciAddress::parse(text));
}

std::vector<ClaimableGpu> two_gpus() {
  const VgpuType sixths{.id = "1150",
                        .name = "NVIDIA L40S-6Q",
                        .short_name = "L40S-6Q",
                        .framebuffer_mib = 6144,
                        .most_per_gpu = 8};
  const VgpuType placed{.id = "nvidia-230", .allowed = false, .size = 4, .placements = {0, 4, 8}};
  return {{.address = address("0000:05:00.0"),
           .iommu_group = 5,
           .vendor = 0x10de,
           .device = 0x1eb8,
           .for_dra = false,
           .whole = false,
           .framework = VgpuFramework::mdev,
           .mixed_sizes = true,
           .types = {placed},
           .health = GpuHealth::unhealthy,
           .reason = "off the bus"},
          {.address = address("0000:3b:00.0"),
           .iommu_group = 42,
           .vendor = 0x10de,
           .device = 0x26b9,
           .product = "AD102GL [L40S]",
           .memory_mib = 49140,
           .numa_node = 0,
           .pcie_root = "pci0000:3a",
           .framework = VgpuFramework::vendor_vfio,
           .types = {sixths},
           .vgpu_reason = "its 16 virtual functions are missing",
           .lost_claims = {"5be0c3aa", "c7"},
           .unplugged = {"0000:3c:00.0"}}};
}

TEST(ClaimableGpusFile, ReadsBackAsItself) {
  EXPECT_EQ(must(read_claimable_gpus(claimable_gpus_text(two_gpus()))), two_gpus());
  EXPECT_EQ(must(read_claimable_gpus(claimable_gpus_text({}))), std::vector<ClaimableGpu>());
  const std::vector<ClaimableGpu> without_group = {{.address = address("0000:05:00.0")}};
  EXPECT_EQ(must(read_claimable_gpus(claimable_gpus_text(without_group))), without_group);
  for (const auto health : {GpuHealth::ready, GpuHealth::unhealthy}) {
    for (const auto framework : {VgpuFramework::none, VgpuFramework::mdev, VgpuFramework::vendor_vfio}) {
      std::vector<ClaimableGpu> gpus = two_gpus();
      gpus[0].health = health;
      gpus[0].framework = framework;
      EXPECT_EQ(must(read_claimable_gpus(claimable_gpus_text(gpus))), gpus);
    }
  }
}

TEST(ClaimableGpusFile, HasTheGpusInOrderOfAddress) {
  std::vector<ClaimableGpu> gpus = two_gpus();
  std::swap(gpus[0], gpus[1]);
  EXPECT_EQ(claimable_gpus_text(gpus), claimable_gpus_text(two_gpus()));
}

TEST(ClaimableGpusFile, SaysNullForFactsThatAreUnknown) {
  const auto file = json::parse(claimable_gpus_text(two_gpus()));
  const auto& first = file.at("gpus").at(0);
  EXPECT_EQ(first.at("address"), "0000:05:00.0");
  for (const char* key : {"numa_node", "pcie_root"}) EXPECT_TRUE(first.at(key).is_null()) << key;
  EXPECT_TRUE(first.at("types").at(0).at("most_per_gpu").is_null());
  EXPECT_TRUE(file.at("gpus").at(1).at("reason").is_null());
  EXPECT_EQ(file.at("gpus").at(1).at("framework"), "vendor_vfio");
}

TEST(ClaimableGpusFile, PassesOverKeysThatCameLater) {
  auto file = json::parse(claimable_gpus_text(two_gpus()));
  file["newer"] = 1;
  file["gpus"][0]["newer"] = {1, 2};
  file["gpus"][0]["types"][0]["newer"] = "x";
  EXPECT_EQ(must(read_claimable_gpus(file.dump())), two_gpus());
}

TEST(ClaimableGpusFile, KeepsItsFormWhateverADriverCallsAType) {
  std::vector<ClaimableGpu> gpus = two_gpus();
  gpus[1].types[0].name = "a\xff\"\n";
  EXPECT_TRUE(read_claimable_gpus(claimable_gpus_text(gpus)));
}

struct Fault {
  const char* name;
  std::function<void(json&)> make;
  const char* message;
};
void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}
class BadClaimableGpusFile : public testing::TestWithParam<Fault> {};

TEST_P(BadClaimableGpusFile, IsRefusedWithTheKey) {
  auto file = json::parse(claimable_gpus_text(two_gpus()));
  GetParam().make(file);
  const auto read = read_claimable_gpus(file.dump());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::malformed_host);
  EXPECT_EQ(read.error().message, std::string("/run/ferry/claims/gpus.json: ") + GetParam().message);
  EXPECT_FALSE(read.error().hint.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Faults, BadClaimableGpusFile,
    testing::Values(
        Fault{"list", [](json& f) { f = json::array(); }, "expected an object"},
        Fault{"version", [](json& f) { f["version"] = 2; }, "version: expected 1, found 2"},
        Fault{"no version", [](json& f) { f.erase("version"); }, "version: the key is missing"},
        Fault{"no gpus", [](json& f) { f.erase("gpus"); }, "gpus: the key is missing"},
        Fault{"gpus", [](json& f) { f["gpus"] = json::object(); }, "gpus: expected a list"},
        Fault{"gpu", [](json& f) { f["gpus"][1] = 5; }, "gpus[1]: expected an object"},
        Fault{"no address", [](json& f) { f["gpus"][0].erase("address"); },
              "gpus[0].address: the key is missing"},
        Fault{"twice", [](json& f) { f["gpus"][1] = f["gpus"][0]; }, "gpus: 0000:05:00.0 stands twice"},
        Fault{"group", [](json& f) { f["gpus"][0]["iommu_group"] = -1; },
              "gpus[0].iommu_group: expected a number from 0 on"},
        Fault{"vendor", [](json& f) { f["gpus"][0]["vendor"] = 65536; },
              "gpus[0].vendor: expected a number from 0 on"},
        Fault{"device", [](json& f) { f["gpus"][0]["device"] = "1eb8"; },
              "gpus[0].device: expected a number from 0 on"},
        Fault{"product", [](json& f) { f["gpus"][0]["product"] = 5; }, "gpus[0].product: expected a text"},
        Fault{"memory", [](json& f) { f["gpus"][0]["memory_mib"] = -1; },
              "gpus[0].memory_mib: expected a number from 0 on"},
        Fault{"numa", [](json& f) { f["gpus"][1]["numa_node"] = -1; },
              "gpus[1].numa_node: expected a number from 0 on"},
        Fault{"root", [](json& f) { f["gpus"][1]["pcie_root"] = 0; }, "gpus[1].pcie_root: expected a text"},
        Fault{"for_dra", [](json& f) { f["gpus"][0]["for_dra"] = "yes"; },
              "gpus[0].for_dra: expected true or false"},
        Fault{"whole", [](json& f) { f["gpus"][0].erase("whole"); }, "gpus[0].whole: the key is missing"},
        Fault{"framework", [](json& f) { f["gpus"][0]["framework"] = "vdev"; },
              "gpus[0].framework: 'vdev' is none of its words"},
        Fault{"mixed", [](json& f) { f["gpus"][0]["mixed_sizes"] = 1; },
              "gpus[0].mixed_sizes: expected true or false"},
        Fault{"types", [](json& f) { f["gpus"][0]["types"] = nullptr; }, "gpus[0].types: expected a list"},
        Fault{"id", [](json& f) { f["gpus"][0]["types"][0]["id"] = ""; },
              "gpus[0].types[0].id: expected the ID of a vGPU type"},
        Fault{"id number", [](json& f) { f["gpus"][0]["types"][0]["id"] = 1150; },
              "gpus[0].types[0].id: expected a text"},
        Fault{"framebuffer", [](json& f) { f["gpus"][1]["types"][0]["framebuffer_mib"] = 4294967296; },
              "gpus[1].types[0].framebuffer_mib: expected a number from 0 on"},
        Fault{"most", [](json& f) { f["gpus"][1]["types"][0]["most_per_gpu"] = "8"; },
              "gpus[1].types[0].most_per_gpu: expected a number from 0 on"},
        Fault{"allowed", [](json& f) { f["gpus"][1]["types"][0].erase("allowed"); },
              "gpus[1].types[0].allowed: the key is missing"},
        Fault{"size", [](json& f) { f["gpus"][0]["types"][0]["size"] = 0.5; },
              "gpus[0].types[0].size: expected a number from 0 on"},
        Fault{"placements", [](json& f) { f["gpus"][0]["types"][0]["placements"] = 4; },
              "gpus[0].types[0].placements: expected a list"},
        Fault{"placement", [](json& f) { f["gpus"][0]["types"][0]["placements"][1] = -4; },
              "gpus[0].types[0].placements[1]: expected a number from 0 on"},
        Fault{"health", [](json& f) { f["gpus"][0]["health"] = "good"; },
              "gpus[0].health: 'good' is none of its words"},
        Fault{"reason", [](json& f) { f["gpus"][0]["reason"] = 5; }, "gpus[0].reason: expected a text"},
        Fault{"vgpu reason", [](json& f) { f["gpus"][0]["vgpu_reason"] = true; },
              "gpus[0].vgpu_reason: expected a text"},
        Fault{"lost claims", [](json& f) { f["gpus"][0]["lost_claims"] = "5be0c3aa"; },
              "gpus[0].lost_claims: expected a list of texts"},
        Fault{"bar", [](json& f) { f["gpus"][0]["bar_mib"] = -1; },
              "gpus[0].bar_mib: expected a number from 0 on"},
        Fault{"unplugged", [](json& f) { f["gpus"][0]["unplugged"] = "third"; },
              "gpus[0].unplugged: expected a list of texts"}));

TEST(ClaimableGpusFile, IsNotWhatIsNoJson) {
  for (const char* text : {"", "{", "nonsense"})
    EXPECT_EQ(read_claimable_gpus(text).error().message, "/run/ferry/claims/gpus.json: not JSON") << text;
}

}  // namespace
}  // namespace ferry::api
