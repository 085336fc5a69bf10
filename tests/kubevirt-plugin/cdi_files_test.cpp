// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/cdi/cdi_files.h"

#include <gmock/gmock.h>

#include "api/own_cdi_files.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/kata_cdi_check.h"
#include "tests/support/must.h"

namespace ferry::plugin {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

Resource kata(const std::string& part,
              const std::vector<std::pair<std::string, std::vector<std::string>>>& devices) {
  Resource resource{
      .name = *ResourceName::parse("nvidia.com/" + part), .env_prefix = EnvPrefix::none, .devices = {}};
  for (const auto& [id, nodes] : devices) {
    resource.devices.push_back({.id = id,
                                .model = {},
                                .driver = {},
                                .iommu_group = 1,
                                .numa_node = {},
                                .nodes = nodes,
                                .problem = {}});
  }
  return resource;
}

std::optional<mode_t> as_the_kernel_makes_it(const std::string& node) {
  if (node.starts_with("/dev/vfio/devices")) return std::nullopt;
  return node == "/dev/vfio/vfio" ? 0666 : 0600;
}

std::optional<mode_t> no_mode(const std::string&) {
  return std::nullopt;
}

TEST(CdiSpec, SaysWhatKataLooksUp) {
  EXPECT_EQ(
      cdi_spec(kata("pgpu", {{"8", {"/dev/vfio/devices/vfio8"}}, {"9", {"/dev/vfio/vfio", "/dev/vfio/9"}}}),
               as_the_kernel_makes_it),
      "# Made by `ferry plugin`, and removed by it.\n"
      "cdiVersion: \"0.5.0\"\n"
      "kind: nvidia.com/pgpu\n"
      "devices:\n"
      "- name: \"8\"\n"
      "  containerEdits:\n"
      "    deviceNodes:\n"
      "    - path: /dev/vfio/devices/vfio8\n"
      "- name: \"9\"\n"
      "  containerEdits:\n"
      "    deviceNodes:\n"
      "    - path: /dev/vfio/vfio\n"
      "      fileMode: 438\n"
      "    - path: /dev/vfio/9\n"
      "      fileMode: 384\n");
  EXPECT_THAT(cdi_spec(kata("pgpu", {{"8", {}}}), no_mode), IsEmpty()) << "a file without devices is invalid";
  EXPECT_THAT(cdi_spec(kata("a.b", {{"8", {"/dev/vfio/8"}}}), no_mode),
              testing::HasSubstr("cdiVersion: \"0.6.0\""));
}

Snapshot allocated(const std::string& id) {
  ListedResource listed{.name = *ResourceName::parse("nvidia.com/pgpu"),
                        .env_prefix = EnvPrefix::none,
                        .devices = {{.id = id, .allocated = true}}};
  Snapshot snapshot;
  snapshot.resources.push_back(std::make_shared<const ListedResource>(std::move(listed)));
  return snapshot;
}

TEST(CdiEntries, KeepWhatAPodHasWithItsNodes) {
  const auto both = kata("pgpu", {{"8", {"/dev/vfio/8"}}, {"9", {"/dev/vfio/9"}}});
  const auto eight = kata("pgpu", {{"8", {"/dev/vfio/8"}}});
  const auto none = kata("pgpu", {});
  CdiEntries entries;
  entries.replace(std::vector{both}, std::vector{both});
  EXPECT_FALSE(entries.drop_released(Snapshot()));
  entries.replace(std::vector{none}, std::vector{none});
  EXPECT_THAT(entries.resources(), testing::ElementsAre(both)) << "until it is known who has what";
  EXPECT_TRUE(entries.drop_released(allocated("8")));
  EXPECT_THAT(entries.resources(), testing::ElementsAre(eight));
  EXPECT_FALSE(entries.drop_released(allocated("8")));
  Snapshot unavailable;
  unavailable.unlisted.push_back({.resource = "nvidia.com/pgpu", .id = "8"});
  EXPECT_FALSE(entries.drop_released(unavailable));
  EXPECT_TRUE(entries.drop_released(Snapshot()));
  EXPECT_THAT(entries.resources(), testing::ElementsAre(none));
}

TEST(CdiEntries, HaveWhatWasFoundAndIsUnavailableFromTheStart) {
  const auto eight = kata("pgpu", {{"8", {"/dev/vfio/8"}}});
  auto kubevirt = kata("GPU", {{"0000:01:00.0", {"/dev/vfio/8"}}});
  kubevirt.env_prefix = EnvPrefix::pci_resource;
  CdiEntries entries;
  entries.replace(std::vector{eight, kubevirt}, std::vector{kata("pgpu", {})});
  EXPECT_THAT(entries.resources(), testing::ElementsAre(eight));
}

class CdiFilesTest : public testing::Test {
 protected:
  void TearDown() override {
    for (const auto& name : kernel.list("var/run/cdi").value_or(std::vector<std::string>{})) {
      const std::string text = content(name);
      if (api::is_own_cdi_file(name, text)) {
        EXPECT_TRUE(api::check_own_cdi_file({.file = name, .text = text})) << text;
      }
    }
    test::expect_kata_reads_our_cdi_files(kernel.root());
  }
  std::string content(const std::string& name) const {
    return kernel.read_file("var/run/cdi/" + name).value_or("");
  }
  void update(const std::vector<Resource>& resources) {
    ASSERT_THAT(CdiFiles(kernel, "var/run/cdi").update(resources), IsEmpty());
  }
  void set_mode(const std::string& node, unsigned mode) {
    kernel.file(node, "");
    std::filesystem::permissions(kernel.root() / node, std::filesystem::perms(mode));
  }
  test::FakeKernel kernel;
};

TEST_F(CdiFilesTest, WritesWhatDiffersOnly) {
  const std::vector<Resource> resources = {kata("pgpu", {{"8", {"/dev/vfio/8"}}}),
                                           kata("nvswitch", {{"9", {"/dev/vfio/9"}}})};
  update(resources);
  EXPECT_EQ(content("nvidia.com-pgpu.yaml"), cdi_spec(resources[0], no_mode));
  EXPECT_EQ(content("nvidia.com-nvswitch.yaml"), cdi_spec(resources[1], no_mode));
  kernel.forget_changes();
  update(resources);
  EXPECT_THAT(kernel.changes(), IsEmpty());
}

TEST_F(CdiFilesTest, GivesANodeTheModeThatItHasOnTheHost) {
  kernel.file("dev/vfio/8", "");
  std::filesystem::permissions(kernel.root() / "dev/vfio/8", std::filesystem::perms(0640));
  update({kata("pgpu", {{"8", {"/dev/vfio/8"}}})});
  EXPECT_THAT(content("nvidia.com-pgpu.yaml"),
              testing::HasSubstr("path: /dev/vfio/8\n      fileMode: 416\n"));
}

/// Each kind of node that a device for Kata can have, each with and without a mode, and each form of a name.
TEST_F(CdiFilesTest, WritesFilesThatKatasLibraryReads) {
  if (!test::kata_cdi_check()) GTEST_SKIP() << test::kNoKataCdiCheck;
  set_mode("dev/vfio/vfio", 0666);
  set_mode("dev/vfio/8", 0600);
  set_mode("dev/vfio/0", 0);
  set_mode("dev/vfio/devices/vfio9", 0777);
  update({kata("pgpu", {{"8", {"/dev/vfio/vfio", "/dev/vfio/8"}},
                        {"0", {"/dev/vfio/vfio", "/dev/vfio/0"}},
                        {"9", {"/dev/vfio/devices/vfio9"}},
                        {"10", {"/dev/vfio/devices/vfio10"}},
                        {"4294967295", {"/dev/vfio/4294967295"}}}),
          kata("GH100_H100_SXM5_80GB", {{"7", {"/dev/vfio/devices/vfio7"}}}),
          kata("a.b-c_d", {{"6", {"/dev/vfio/6"}}}), kata("device_2330", {{"5", {"/dev/vfio/5"}}}),
          kata("nvswitch", {})});
  EXPECT_EQ(test::expect_kata_reads_our_cdi_files(kernel.root()),
            "nvidia.com/GH100_H100_SXM5_80GB=7 nvidia.com/a.b-c_d=6 nvidia.com/device_2330=5 "
            "nvidia.com/pgpu=0 nvidia.com/pgpu=10 nvidia.com/pgpu=4294967295 nvidia.com/pgpu=8 "
            "nvidia.com/pgpu=9");
}

TEST_F(CdiFilesTest, RemovesItsOwnWhenTheDevicesGo) {
  kernel.file("var/run/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n");
  update({kata("pgpu", {{"8", {"/dev/vfio/8"}}})});
  update({kata("pgpu", {})});
  EXPECT_EQ(content("nvidia.com-pgpu.yaml"), "");
  EXPECT_EQ(content("nvidia.yaml"), "kind: nvidia.com/gpu\n") << "another's";
  EXPECT_THAT(test::must(kernel.list("var/run/cdi")), SizeIs(1));
}

TEST_F(CdiFilesTest, KnowsWhichResourcesItsFilesAreFor) {
  kernel.file("var/run/cdi/nvidia.yaml", "\nkind: nvidia.com/gpu\n");
  update({kata("pgpu", {{"8", {"/dev/vfio/8"}}}), kata("nvswitch", {{"9", {"/dev/vfio/9"}}})});
  EXPECT_THAT(CdiFiles(kernel, "var/run/cdi").resources(),
              testing::ElementsAre("nvidia.com/nvswitch", "nvidia.com/pgpu"));
}

TEST_F(CdiFilesTest, WritesNoneForKubeVirt) {
  Resource resource = kata("pgpu", {{"8", {"/dev/vfio/8"}}});
  resource.env_prefix = EnvPrefix::pci_resource;
  update({resource});
  EXPECT_FALSE(kernel.exists("var/run/cdi"));
}

TEST_F(CdiFilesTest, SaysWhatItCannotWriteAndGoesOn) {
  kernel.directory("var/run/cdi/nvidia.com-aa.yaml");
  const auto done =
      CdiFiles(kernel, "var/run/cdi")
          .update(std::vector{kata("aa", {{"8", {"/dev/vfio/8"}}}), kata("bb", {{"9", {"/dev/vfio/9"}}})});
  ASSERT_THAT(done, SizeIs(1));
  EXPECT_EQ(done[0].resource, "nvidia.com/aa");
  EXPECT_THAT(done[0].error.message, testing::HasSubstr("nvidia.com-aa.yaml"));
  EXPECT_NE(content("nvidia.com-bb.yaml"), "");
}

}  // namespace
}  // namespace ferry::plugin
