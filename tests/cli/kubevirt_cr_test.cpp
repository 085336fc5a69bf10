// SPDX-License-Identifier: Apache-2.0
// `ferry kubevirt-cr` as a user meets it, and the names that it shares with `plugin` and `doctor`.
#include <filesystem>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "api/claimable_gpus.h"
#include "api/files.h"
#include "hostfs/locks.h"
#include "tests/cli/run_program.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/fake_vendor_vfio.h"
#include "tests/support/must.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class KubevirtCr : public testing::Test {
 protected:
  KubevirtCr() {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_driver({.name = "nvidia"});
    kernel_.file("dev/vfio/vfio", "");
  }
  void add_gpu() {
    kernel_.add_function({.address = "0000:01:00.0", .ids = "10de:2684", .group = 15, .driver = "vfio-pci"});
    kernel_.add_function({.address = "0000:01:00.1",
                          .ids = "10de:22ba",
                          .class_code = 0x040300,
                          .group = 15,
                          .driver = "vfio-pci"});
  }
  void add_vgpu() {
    const std::string home = "sys/devices/pci0000:00/0000:81:00.0/";
    const std::string uuid = "3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11";
    kernel_.add_function({.address = "0000:81:00.0", .ids = "10de:2235", .group = 30, .driver = "nvidia"});
    kernel_.link("sys/class/mdev_bus/0000:81:00.0", "../../devices/pci0000:00/0000:81:00.0");
    kernel_.file(home + "mdev_supported_types/nvidia-558/name", "NVIDIA A40-8Q\n");
    kernel_.file(home + "mdev_supported_types/nvidia-558/available_instances", "3\n");
    kernel_.link(home + uuid + "/mdev_type", "../mdev_supported_types/nvidia-558");
    kernel_.link(home + uuid + "/iommu_group", "../../../../kernel/iommu_groups/211");
    kernel_.link("sys/bus/mdev/devices/" + uuid, "../../../devices/pci0000:00/0000:81:00.0/" + uuid);
    kernel_.file("dev/vfio/211", "");
  }
  test::ProgramResult ferry(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--host-root", kernel_.root().string()});
    return test::run_ferry(arguments);
  }
  json permitted(std::vector<std::string> arguments = {}) const {
    arguments.insert(arguments.begin(), {"-o", "json", "kubevirt-cr"});
    const auto result = ferry(std::move(arguments));
    const auto document = json::parse(result.out, nullptr, false);
    EXPECT_EQ(document.value("kind", ""), "KubeVirt");
    EXPECT_EQ(result.status, result.out.find("resourceName") == std::string::npos ? 4 : 0) << result.err;
    return document.value("/spec/configuration/permittedHostDevices"_json_pointer, json("nothing"));
  }
  static json entry(const char* selector, const char* value, const char* resource) {
    return {{selector, value}, {"resourceName", resource}, {"externalResourceProvider", true}};
  }

  test::FakeKernel kernel_;
};

TEST_F(KubevirtCr, HasAListForWhatIsAdvertisedAndNoneForWhatIsNot) {
  EXPECT_EQ(permitted(), json::object());
  add_gpu();
  const std::string alone = "--no-companion-places";
  const auto gpu = entry("pciVendorSelector", "10DE:2684", "nvidia.com/AD102_GEFORCE_RTX_4090");
  EXPECT_EQ(permitted({alone}), (json{{"pciHostDevices", {gpu}}}));
  add_vgpu();
  const auto vgpu = entry("mdevNameSelector", "NVIDIA A40-8Q", "nvidia.com/NVIDIA_A40-8Q");
  EXPECT_EQ(permitted({alone}), (json{{"pciHostDevices", {gpu}}, {"mediatedDevices", {vgpu}}}));
}

TEST_F(KubevirtCr, NamesResourcesByThePluginsOptions) {
  add_gpu();
  add_vgpu();
  const auto renamed = permitted({"--alias", "NVIDIA A40-8Q=small", "--name-template", "gpu-{device}",
                                  "--vgpu-name-template", "v-{name}", "--companions"});
  EXPECT_EQ(renamed["pciHostDevices"],
            (json{entry("pciVendorSelector", "10DE:22BA", "nvidia.com/gpu-22ba"),
                  entry("pciVendorSelector", "10DE:2684", "nvidia.com/gpu-2684")}));
  EXPECT_EQ(renamed["mediatedDevices"],
            json::array({entry("mdevNameSelector", "NVIDIA A40-8Q", "nvidia.com/small")}));
  const auto typed = permitted({"--vgpu-name-template", "v-{name}"});
  EXPECT_EQ(typed["mediatedDevices"][0]["resourceName"], "nvidia.com/v-NVIDIA_A40-8Q");
}

// For Git, and for a HyperConverged object: no device is there yet.
TEST_F(KubevirtCr, HasTheEntriesOfModelsByTheTables) {
  const auto l40s = entry("pciVendorSelector", "10DE:26B9", "nvidia.com/AD102GL_L40S");
  EXPECT_EQ(permitted({"--model", "L40S"}), (json{{"pciHostDevices", {l40s}}}));
  EXPECT_EQ(permitted({"--model", "l40s", "--model", "L40S"}), (json{{"pciHostDevices", {l40s}}}));
  EXPECT_EQ(permitted({"--model", "A2"}), permitted({"--model", "a16"})) << "they have one ID";
  EXPECT_EQ(permitted({"--model", "RTX A4500 Embedded GPU"})["pciHostDevices"][0]["resourceName"],
            "nvidia.com/24fa")
      << "its name would end with a blank, as the plugin sees, too";
  for (const char* spelling : {"A100 SXM4 40GB", "A100-SXM4-40GB", "a100sxm440gb"})
    EXPECT_EQ(permitted({"--model", spelling})["pciHostDevices"][0]["resourceName"],
              "nvidia.com/GA100_A100_SXM4_40GB");
  const auto type = entry("mdevNameSelector", "NVIDIA A40-12Q", "nvidia.com/NVIDIA_A40-12Q");
  EXPECT_EQ(permitted({"--model", "A40-12Q"}), (json{{"mediatedDevices", {type}}}));
  const auto renamed = permitted({"--model", "L40S", "--model", "A40-12Q", "--alias", "10de:26b9=big",
                                  "--vgpu-name-template", "v-{name}"});
  EXPECT_EQ(renamed["pciHostDevices"][0]["resourceName"], "nvidia.com/big");
  EXPECT_EQ(renamed["mediatedDevices"][0]["resourceName"], "nvidia.com/v-NVIDIA_A40-12Q");
  for (const char* unknown : {"L40Z", "", "10de", "A40-12X"}) {
    const auto result = ferry({"kubevirt-cr", "--model", unknown});
    EXPECT_NE(result.status, 0) << unknown;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_THAT(ferry({"kubevirt-cr", "--model", "L40Z"}).err, HasSubstr("did you mean"));
  EXPECT_EQ(ferry({"kubevirt-cr", "--model", "L40S", "--apply"}).status, 2);
  EXPECT_EQ(ferry({"kubevirt-cr", "--model", "L40S"}).err, "");
  EXPECT_THAT(ferry({"kubevirt-cr", "--model", "GH200 120GB"}).err, HasSubstr("need the feature gates"));
}

TEST_F(KubevirtCr, HasThePlacesAndKeysOfAHyperConvergedObject) {
  const auto part = [&](const std::string& version, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"-o", "json", "kubevirt-cr", "--hyperconverged", version});
    return json::parse(ferry(std::move(more)).out, nullptr, false);
  };
  const json l40s = {
      {"pciHostDevices", {entry("pciDeviceSelector", "10DE:26B9", "nvidia.com/AD102GL_L40S")}}};
  const json stable = part("v1", {"--model", "L40S"});
  EXPECT_EQ(stable["apiVersion"], "hco.kubevirt.io/v1");
  EXPECT_EQ(stable["kind"], "HyperConverged");
  EXPECT_EQ(stable["spec"], (json{{"virtualization", {{"permittedHostDevices", l40s}}}}));
  const json former = part("v1beta1", {"--model", "L40S"});
  EXPECT_EQ(former["apiVersion"], "hco.kubevirt.io/v1beta1");
  EXPECT_EQ(former["spec"], (json{{"permittedHostDevices", l40s}}));
  EXPECT_EQ(ferry({"kubevirt-cr", "--hyperconverged", "v1", "--model", "L40S", "--model", "A40-12Q"}).out,
            "apiVersion: hco.kubevirt.io/v1\n"
            "kind: HyperConverged\n"
            "metadata:\n"
            "  name: kubevirt-hyperconverged\n"
            "  namespace: kubevirt-hyperconverged\n"
            "spec:\n"
            "  virtualization:\n"
            "    permittedHostDevices:\n"
            "      pciHostDevices:\n"
            "      - pciDeviceSelector: \"10DE:26B9\"\n"
            "        resourceName: nvidia.com/AD102GL_L40S\n"
            "        externalResourceProvider: true\n"
            "      mediatedDevices:\n"
            "      - mdevNameSelector: \"NVIDIA A40-12Q\"\n"
            "        resourceName: nvidia.com/NVIDIA_A40-12Q\n"
            "        externalResourceProvider: true\n");
  add_gpu();
  EXPECT_EQ(part("v1")["spec"]["virtualization"]["permittedHostDevices"]["pciHostDevices"].size(), 2U);
  const auto here = ferry({"kubevirt-cr", "--hyperconverged", "v1beta1"});
  EXPECT_EQ(here.status, 0);
  EXPECT_THAT(here.err, AllOf(HasSubstr("remove the entries of other nodes"), Not(HasSubstr("--check"))));
  for (const char* version : {"v1alpha1", ""})
    EXPECT_EQ(ferry({"kubevirt-cr", "--hyperconverged", version, "--model", "L40S"}).status, 2) << version;
}

// The key of its list is the ID. A vGPU that is a virtual function has the ID of its GPU.
TEST_F(KubevirtCr, RefusesAnIdThatAHyperConvergedObjectWouldHaveTwice) {
  kernel_.add_function({.address = "0000:11:00.0", .ids = "10de:26b9", .group = 41, .driver = "vfio-pci"});
  kernel_.add_function({.address = "0000:12:00.0", .ids = "10de:26b9", .group = 42, .driver = "vfio-pci"});
  EXPECT_EQ(ferry({"kubevirt-cr", "--hyperconverged", "v1"}).status, 0) << "two GPUs of one model";
  kernel_.add_function(
      {.address = "0000:17:00.0", .ids = "10de:26b9", .group = 20, .driver = "nvidia", .totalvfs = 3});
  kernel_.enable_vfs("0000:17:00.0", 3);
  test::FakeVendorVfio vendor(kernel_);
  vendor.add_gpu("0000:17:00.0");
  vendor.set("0000:17:00.4", "1153");
  for (const char* node : {"dev/vfio/100", "dev/vfio/101", "dev/vfio/102"}) kernel_.file(node, "");
  EXPECT_EQ(permitted()["pciHostDevices"].size(), 2U) << "the KubeVirt object takes both";
  for (const char* version : {"v1", "v1beta1"}) {
    const auto result = ferry({"kubevirt-cr", "--hyperconverged", version});
    EXPECT_EQ(result.status, 4);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("a HyperConverged object takes each ID once, and 10DE:26B9 is of "
                                      "nvidia.com/AD102GL_L40S and nvidia.com/NVIDIA_L40S-12Q"));
  }
}

/// GPUs for claims: an L40S that makes vGPUs on virtual functions, and an A40 that makes mediated devices.
std::string gpus_for_claims() {
  api::ClaimableGpu l40s{.address = test::must(vfio::PciAddress::parse("0000:65:00.0")),
                         .vendor = 0x10de,
                         .device = 0x26b9,
                         .framework = api::VgpuFramework::vendor_vfio};
  l40s.types = {{.id = "1151", .name = "NVIDIA L40S-6Q", .short_name = "L40S-6Q", .framebuffer_mib = 6144},
                {.id = "1152", .name = "NVIDIA L40S-8Q", .short_name = "L40S-8Q", .framebuffer_mib = 8192},
                {.id = "1153", .name = "NVIDIA L40S-0Q", .short_name = "L40S-0Q"}};
  l40s.types[1].allowed = false;
  api::ClaimableGpu a40{.address = test::must(vfio::PciAddress::parse("0000:81:00.0")),
                        .vendor = 0x10de,
                        .device = 0x2235,
                        .whole = false,
                        .framework = api::VgpuFramework::mdev};
  a40.types = {
      {.id = "nvidia-558", .name = "NVIDIA A40-8Q", .short_name = "A40-8Q", .framebuffer_mib = 8192}};
  api::ClaimableGpu leaves{
      .address = test::must(vfio::PciAddress::parse("0000:99:00.0")), .vendor = 0x10de, .device = 0x2330};
  leaves.for_dra = false;
  return api::claimable_gpus_text({l40s, a40, leaves});
}

TEST_F(KubevirtCr, HasTheEntriesOfGpusForClaims) {
  add_gpu();
  kernel_.file(api::kClaimableGpusFile, gpus_for_claims());
  kernel_.add_function({.address = "0000:65:00.0", .ids = "10de:26b9", .group = 65, .driver = "nvidia"});
  kernel_.file("sys/bus/pci/devices/0000:65:00.0/sriov_vf_device", "26ba\n");
  const auto both = permitted({"--no-companion-places"});
  EXPECT_EQ(both["pciHostDevices"],
            (json{entry("pciVendorSelector", "10DE:2684", "nvidia.com/AD102_GEFORCE_RTX_4090"),
                  entry("pciVendorSelector", "10DE:26B9", "nvidia.com/AD102GL_L40S"),
                  entry("pciVendorSelector", "10DE:26BA", "nvidia.com/NVIDIA_L40S-6Q")}));
  EXPECT_EQ(both["mediatedDevices"],
            json::array({entry("mdevNameSelector", "NVIDIA A40-8Q", "nvidia.com/NVIDIA_A40-8Q")}));
  kernel_.file(api::kClaimableGpusFile, "{");
  EXPECT_EQ(ferry({"kubevirt-cr"}).status, 1);
}

TEST_F(KubevirtCr, PrintsTheDeviceClassesOfGpusForClaims) {
  const auto none = ferry({"kubevirt-cr", "--device-classes"});
  EXPECT_EQ(none.status, 4);
  EXPECT_THAT(none.err, HasSubstr("this host has no device for claims that has a resource's name"));
  add_gpu();
  kernel_.file(api::kClaimableGpusFile, gpus_for_claims());
  EXPECT_EQ(ferry({"kubevirt-cr", "--device-classes"}).out,
            "dra:\n"
            "  deviceClasses:\n"
            "    more:\n"
            "    - {model: \"10de:26b9\", extendedResourceName: nvidia.com/AD102GL_L40S}\n"
            "    - {vgpuType: \"A40-8Q\", extendedResourceName: nvidia.com/NVIDIA_A40-8Q}\n"
            "    - {vgpuType: \"L40S-6Q\", extendedResourceName: nvidia.com/NVIDIA_L40S-6Q}\n");
  const auto renamed = ferry({"-o", "json", "kubevirt-cr", "--device-classes", "--alias", "10de:26b9=big",
                              "--vgpu-name-template", "v-{name}"});
  EXPECT_EQ(json::parse(renamed.out)["dra"]["deviceClasses"]["more"],
            (json{{{"model", "10de:26b9"}, {"extendedResourceName", "nvidia.com/big"}},
                  {{"vgpuType", "A40-8Q"}, {"extendedResourceName", "nvidia.com/v-NVIDIA_A40-8Q"}},
                  {{"vgpuType", "L40S-6Q"}, {"extendedResourceName", "nvidia.com/v-NVIDIA_L40S-6Q"}}}));
  EXPECT_EQ(ferry({"kubevirt-cr", "--device-classes", "--model", "L40S"}).status, 2);
}

TEST_F(KubevirtCr, NamesAreLookedAtByTheDoctorForGpusOfClaims) {
  add_gpu();
  const auto checks = [&] { return ferry({"doctor", "-v", "--for", "dra"}).out; };
  kernel_.file(api::kClaimableGpusFile, gpus_for_claims());
  EXPECT_THAT(checks(), HasSubstr("pass     dra-resource-names"));
  kernel_.file(api::kAdvertisedFile, R"({"version": 2, "resources": [
    {"name": "nvidia.com/AD102GL_L40S", "devices": []}]})");
  EXPECT_THAT(checks(), HasSubstr("pass     dra-resource-names"));
  kernel_.file(api::kAdvertisedFile, R"({"version": 2, "resources": [
    {"name": "nvidia.com/AD102GL_L40S", "devices": [{"id": "0000:17:00.0", "healthy": true, "iommu_group": 17, "allocated": false}]}]})");
  EXPECT_THAT(checks(), AllOf(HasSubstr("unknown  dra-resource-names"),
                              HasSubstr("the device plugin advertises nvidia.com/AD102GL_L40S")));
}

TEST_F(KubevirtCr, WarnsOfNamesThatTheRunningPluginDoesNotHave) {
  add_gpu();
  kernel_.file(api::kAdvertisedFile,
               R"({"version": 2, "resources": [{"name": "nvidia.com/gaming", "devices": []}]})");
  const auto warning = [&](std::vector<std::string> naming) {
    naming.insert(naming.begin(), {"kubevirt-cr", "--no-companion-places"});
    return ferry(std::move(naming)).err;
  };
  EXPECT_THAT(warning({}), Not(HasSubstr("warning"))) << "the plugin that wrote the file has ended";
  const auto plugin = test::must(LivenessLock::announce(kernel_, api::kPluginLiveness));
  EXPECT_THAT(
      warning({}),
      HasSubstr("warning: the running plugin does not advertise nvidia.com/AD102_GEFORCE_RTX_4090: "));
  EXPECT_THAT(warning({"--alias", "10de:2684=gaming"}), Not(HasSubstr("warning")));
}

TEST_F(KubevirtCr, PermitsTheResourcesOfPlaces) {
  add_gpu();
  EXPECT_EQ(
      permitted()["pciHostDevices"],
      (json{entry("pciVendorSelector", "10DE:22BA", "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER"),
            entry("pciVendorSelector", "10DE:2684", "nvidia.com/AD102_GEFORCE_RTX_4090")}));
  const auto checks = ferry({"-o", "json", "doctor", "--for", "kubevirt"});
  EXPECT_THAT(checks.out, HasSubstr("nvidia.com/AD102_GEFORCE_RTX_4090 (1), "
                                    "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER (1)"));
  const auto both = ferry({"kubevirt-cr", "--companion-places", "--companions"});
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.err, HasSubstr("--companions"));
}

TEST_F(KubevirtCr, RefusesAnAliasThatIsNoneInAllVerbsThatTakeIt) {
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"kubevirt-cr"}, {"doctor", "--for", "kubevirt"}, {"plugin"}}) {
    auto arguments = verb;
    arguments.insert(arguments.end(), {"--alias", "10de:2684"});
    const auto result = ferry(arguments);
    EXPECT_EQ(result.status, 2) << verb.front();
    EXPECT_THAT(result.err, HasSubstr("alias '10de:2684': not of the form MODEL=NAME")) << verb.front();
    EXPECT_THAT(result.out, IsEmpty()) << verb.front();
  }
}

TEST_F(KubevirtCr, IsCheckedByTheDoctorUnderTheNamesThatItIsGiven) {
  add_gpu();
  const auto checks = [&](const std::vector<std::string>& naming) {
    std::vector<std::string> arguments = {"doctor", "-v", "--for", "kubevirt"};
    arguments.insert(arguments.end(), naming.begin(), naming.end());
    return ferry(arguments).out;
  };
  EXPECT_THAT(checks({}), HasSubstr("nvidia.com/AD102_GEFORCE_RTX_4090"));
  EXPECT_THAT(checks({"--alias", "10de:2684=gaming"}), HasSubstr("nvidia.com/gaming"));
}

// Only a host with iommufd hands such nodes out.
TEST_F(KubevirtCr, IsAskedByTheDoctorWhoseTheNodesOfIommufdAreInAContainer) {
  add_gpu();
  kernel_.file("run/containerd/containerd.sock", "");
  kernel_.file("etc/containerd/config.toml", "version = 2\n");
  const auto checks = [&] { return ferry({"doctor", "-v", "--for", "kubevirt"}).out; };
  EXPECT_THAT(checks(), Not(HasSubstr("cdev-ownership")));
  kernel_.file("dev/iommu", "");
  EXPECT_THAT(checks(), AllOf(HasSubstr("warn     cdev-ownership"),
                              HasSubstr("[plugins.\"io.containerd.grpc.v1.cri\"] of "
                                        "/etc/containerd/config.toml")));
}

TEST_F(KubevirtCr, SaysThatItReplacesWhatOthersPermit) {
  add_gpu();
  const auto result = ferry({"kubevirt-cr"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, HasSubstr("pciVendorSelector: \"10DE:2684\""));
  EXPECT_THAT(result.out, Not(HasSubstr("mediatedDevices")));
  EXPECT_THAT(result.err, HasSubstr("remove the entries of other nodes"));
  EXPECT_THAT(test::run_ferry({"kubevirt-cr", "--help"}).out, HasSubstr("would replace the lists"));
}

TEST_F(KubevirtCr, RefusesToAskAnApiServerByName) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--check"},
                                                {"--apply"},
                                                {"--apply", "--dry-run"},
                                                {"--kubeconfig", "/none"},
                                                {"--context=c"}}) {
    std::vector<std::string> arguments = {"kubevirt-cr"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const auto result = ferry(arguments);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr(words.front().substr(0, words.front().find('=')) + ": it is gone; "),
                      HasSubstr("`kubectl ferry kubevirt-cr --check FILE`")));
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace ferry::cli
