// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/configuration/kata_configuration.h"

#include <initializer_list>
#include <ostream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/must.h"

namespace ferry::kata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr const char* kSocket = "/var/lib/kubelet/pod-resources/kubelet.sock";

/// A configuration of an artifact as NVIDIA makes them, with paths of the machine where it was made.
constexpr const char* kGpuBase =
    "# made elsewhere\n"
    "[hypervisor.qemu]\n"
    "path = \"/opt/kata/bin/qemu-system-x86_64\"\n"
    "kernel = \"/build/vmlinuz-nvidia-gpu.container\"\n"
    "image = \"/build/kata-containers-nvidia-gpu.img\"\n"
    "firmware = \"/opt/kata/share/ovmf/OVMF.fd\"\n"
    "machine_type = \"q35\"\n"
    "kernel_params = \"cgroup_no_v1=all pci=realloc\"\n"
    "default_memory = 4096\n"
    "pcie_root_port = 8\n"
    "cold_plug_vfio = \"root-port\"\n"
    "enable_annotations = [\"enable_iommu\"]\n"
    "[agent.kata]\n"
    "dial_timeout = 90\n"
    "[runtime]\n"
    "vfio_mode = \"guest-kernel\"\n"
    "create_container_timeout = 1800\n"
    "sandbox_cgroup_only = true\n"
    "static_sandbox_resource_mgmt = true\n"
    "pod_resource_api_sock = \"/var/lib/kubelet/pod-resources/kubelet.sock\"\n";

/// One of Kata's own for any pod.
constexpr const char* kPlainBase =
    "[hypervisor.qemu]\n"
    "kernel = \"/opt/kata/share/vmlinux\"\n"
    "image = \"/opt/kata/share/kata.img\"\n"
    "kernel_params = \"\"\n"
    "hot_plug_vfio = \"bridge-port\"\n"
    "[agent.kata]\n"
    "[runtime]\n";

KataBase base_of(std::string text, std::map<std::string, std::string> drop_ins = {}) {
  return {.file = "/opt/classes/gpu/configuration.toml",
          .text = std::move(text),
          .drop_ins = std::move(drop_ins),
          .folder = "/opt/classes/gpu",
          .files = {"configuration.toml", "vmlinuz-nvidia-gpu.container", "kata-containers-nvidia-gpu.img"}};
}

KataClass class_of(KataKind kind, const std::string& configuration = "") {
  KataClass out;
  out.name = "gpu";
  out.kind = kind;
  out.place = "k.yaml:3";
  out.configuration = test::must(parse_toml(configuration, "class"));
  return out;
}

KataDropIn drop_in(const KataClass& kata, const KataBase& base, const KataDevices& devices = {.gpus = 2}) {
  return test::must(kata_drop_in(kata, base, devices, kSocket));
}

/// A setting as TOML has it; "" where there is none.
std::string setting(const TomlTable& table, std::initializer_list<std::string_view> keys) {
  const TomlValue* value = find(table, keys);
  if (value == nullptr) return "";
  if (const auto* text = value->string()) return *text;
  if (const auto* number = value->integer()) return std::to_string(*number);
  if (const auto* truth = value->boolean()) return *truth ? "true" : "false";
  std::string out;
  if (const auto* list = value->array())
    for (const TomlValue& element : *list) out += *element.string() + ",";
  return out;
}
std::string qemu(const KataDropIn& made, std::string_view key) {
  return setting(made.effective, {"hypervisor", "qemu", key});
}

TEST(KataDropIn, SaysOnlyWhatTheArtifactDoesNot) {
  const KataDropIn made = drop_in(class_of(KataKind::gpu), base_of(kGpuBase));
  EXPECT_EQ(made.path, "/opt/classes/gpu/config.d/60-ferry.toml");
  EXPECT_EQ(
      made.text,
      "# Written by Ferry for the class gpu (gpu), and written anew whenever that changes.\n"
      "# Kata reads it after the configuration in the folder above; a file of a later name counts more.\n"
      "\n"
      "[agent.kata]\n"
      "dial_timeout = 1200\n"
      "\n"
      "[hypervisor.qemu]\n"
      "image = \"/opt/classes/gpu/kata-containers-nvidia-gpu.img\"\n"
      "kernel = \"/opt/classes/gpu/vmlinuz-nvidia-gpu.container\"\n"
      "kernel_params = \"cgroup_no_v1=all pci=realloc pci=nocrs pci=assign-busses\"\n");
  EXPECT_EQ(made.guest_memory_mib, 4096U);
  EXPECT_THAT(made.notes, IsEmpty());
}

TEST(KataDropIn, MergedWithItsBaseIsWhatIsSaidToBeEffective) {
  for (const KataKind kind : {KataKind::gpu, KataKind::vgpu, KataKind::snp, KataKind::tdx}) {
    for (const char* text : {kGpuBase, kPlainBase}) {
      const KataDropIn made = drop_in(class_of(kind, "[runtime]\nx = [1, {y = \"\\\"\"}]\n"), base_of(text));
      TomlTable merged = test::must(parse_toml(text, "base"));
      merge_over(merged, test::must(parse_toml(made.text, "drop-in")));
      EXPECT_EQ(merged, made.effective) << made.text;
    }
  }
}

TEST(KataDropIn, IsNothingWhereNothingIsToBeSaid) {
  KataBase base = base_of(kGpuBase);
  const KataDropIn first = drop_in(class_of(KataKind::gpu), base);
  base.drop_ins = {{"50-site.toml", first.text}};
  EXPECT_EQ(drop_in(class_of(KataKind::gpu), base).text, "");
  base.drop_ins = {{kKataDropIn, "[broken"}};
  EXPECT_EQ(drop_in(class_of(KataKind::gpu), base).text, first.text) << "ours is written anew";
}

TEST(KataDropIn, MakesAPlainConfigurationGiveGpusToPods) {
  const KataDropIn made = drop_in(class_of(KataKind::gpu), base_of(kPlainBase), {.gpus = 8, .switches = 4});
  EXPECT_EQ(qemu(made, "cold_plug_vfio"), "root-port");
  EXPECT_EQ(qemu(made, "hot_plug_vfio"), "no-port");
  EXPECT_EQ(qemu(made, "pcie_root_port"), "12");
  EXPECT_EQ(qemu(made, "kernel_params"), "pci=realloc pci=nocrs pci=assign-busses");
  EXPECT_EQ(qemu(made, "default_memory"), "8192");
  EXPECT_EQ(made.guest_memory_mib, 8192U);
  EXPECT_EQ(setting(made.effective, {"runtime", "vfio_mode"}), "guest-kernel");
  EXPECT_EQ(setting(made.effective, {"runtime", "sandbox_cgroup_only"}), "true");
  EXPECT_EQ(setting(made.effective, {"runtime", "static_sandbox_resource_mgmt"}), "true");
  EXPECT_EQ(setting(made.effective, {"runtime", "create_container_timeout"}), "1200");
  EXPECT_EQ(setting(made.effective, {"runtime", "pod_resource_api_sock"}), kSocket);
  EXPECT_EQ(setting(made.effective, {"agent", "kata", "dial_timeout"}), "1200");
  EXPECT_EQ(qemu(made, "kernel"), "/opt/kata/share/vmlinux") << "the artifact has no such file";
  EXPECT_THAT(made.host_files, ElementsAre("/opt/kata/share/vmlinux", "/opt/kata/share/kata.img"));
}

TEST(KataDropIn, KeepsWhatIsMoreThanIsNeeded) {
  const KataDropIn made = drop_in(class_of(KataKind::gpu), base_of(kGpuBase), {.gpus = 1});
  EXPECT_EQ(qemu(made, "pcie_root_port"), "8");
  EXPECT_EQ(setting(made.effective, {"runtime", "create_container_timeout"}), "1800");
}

TEST(KataDropIn, CountsThePortsOfTheKindThatIsUsed) {
  const KataDropIn made = drop_in(class_of(KataKind::gpu),
                                  base_of(std::string("[hypervisor.qemu]\nkernel = \"/k\"\ninitrd = \"/i\"\n"
                                                      "cold_plug_vfio = \"switch-port\"\n")));
  EXPECT_EQ(qemu(made, "pcie_switch_port"), "2");
  EXPECT_EQ(qemu(made, "pcie_root_port"), "");
  EXPECT_EQ(qemu(made, "cold_plug_vfio"), "switch-port");
}

TEST(KataDropIn, MakesNoMorePortsThanKataTakes) {
  const KataDropIn made = drop_in(class_of(KataKind::gpu), base_of(kGpuBase), {.gpus = 16, .switches = 6});
  EXPECT_EQ(qemu(made, "pcie_root_port"), "16");
  EXPECT_THAT(made.notes, ElementsAre("a pod can have 16 of the 22 devices: Kata makes no more ports"));
  const KataDropIn with_audio =
      drop_in(class_of(KataKind::gpu), base_of(kGpuBase), {.gpus = 9, .companions = 9});
  EXPECT_THAT(
      with_audio.notes,
      ElementsAre("a pod can have 16 of the 18 functions of the GPUs' groups: Kata makes no more ports"));
}

TEST(KataDropIn, AddsGuestParametersOnce) {
  const auto parameters = [](const std::string& was) {
    const std::string text =
        fmt::format("[hypervisor.qemu]\nkernel = \"/k\"\ninitrd = \"/i\"\nkernel_params = \"{}\"\n", was);
    return qemu(drop_in(class_of(KataKind::gpu), base_of(text)), "kernel_params");
  };
  EXPECT_EQ(parameters("quiet pci=nocrs,realloc pci=assign-busses"),
            "quiet pci=nocrs,realloc pci=assign-busses");
  EXPECT_EQ(parameters("pci=realloc=off"), "pci=realloc=off pci=nocrs pci=assign-busses");
  EXPECT_EQ(parameters("xpci=nocrs"), "xpci=nocrs pci=realloc pci=nocrs pci=assign-busses");
}

TEST(KataDropIn, IsOfAConfidentialVm) {
  const KataDropIn snp = drop_in(class_of(KataKind::snp), base_of(kPlainBase), {.gpus = 8});
  EXPECT_EQ(qemu(snp, "confidential_guest"), "true");
  EXPECT_EQ(qemu(snp, "sev_snp_guest"), "true");
  EXPECT_EQ(qemu(snp, "shared_fs"), "none");
  EXPECT_EQ(qemu(snp, "pcie_root_port"), "") << "Kata makes as many as there are devices";
  EXPECT_EQ(qemu(snp, "kernel_params"), "pci=realloc pci=nocrs pci=assign-busses nvrc.smi.srs=1");
  EXPECT_THAT(
      snp.notes,
      ElementsAre(
          "the artifact's configuration is not for confidential VMs: its firmware and image have to be",
          "kernel_params differ from the artifact's, and they are part of what is measured"));
  const KataDropIn tdx = drop_in(class_of(KataKind::tdx), base_of(kPlainBase));
  EXPECT_EQ(qemu(tdx, "confidential_guest"), "true");
  EXPECT_EQ(qemu(tdx, "sev_snp_guest"), "");
}

TEST(KataDropIn, LetsPodsChangeWhatTheClassSays) {
  KataClass kata = class_of(KataKind::gpu);
  EXPECT_EQ(qemu(drop_in(kata, base_of(kGpuBase)), "enable_annotations"), "enable_iommu,");
  kata.annotations = {"default_memory", "enable_iommu"};
  EXPECT_EQ(qemu(drop_in(kata, base_of(kGpuBase)), "enable_annotations"), "enable_iommu,default_memory,");
}

TEST(KataDropIn, LetsTheClassHaveTheLastWordAndSaysSo) {
  const KataDropIn made = drop_in(class_of(KataKind::gpu,
                                           "[hypervisor.qemu]\ndefault_memory = 16384\nkernel_params = "
                                           "\"quiet\"\ncold_plug_vfio = \"no-port\"\n"
                                           "hot_plug_vfio = \"root-port\"\n"),
                                  base_of(kGpuBase));
  EXPECT_EQ(made.guest_memory_mib, 16384U);
  EXPECT_EQ(qemu(made, "kernel_params"), "quiet");
  EXPECT_EQ(qemu(made, "hot_plug_vfio"), "root-port");
  EXPECT_THAT(
      made.notes,
      ElementsAre("hypervisor.qemu.kernel_params: the class says otherwise than Ferry would",
                  "kernel_params lack pci=realloc,nocrs,assign-busses: large BARs may find no place in "
                  "the guest"));
}

TEST(KataDropIn, SaysWhichLaterFileCountsMore) {
  const KataDropIn made =
      drop_in(class_of(KataKind::gpu),
              base_of(kGpuBase, {{"70-site.toml", "[agent.kata]\ndial_timeout = 5\n[runtime]\nx = 1\n"},
                                 {"10-site.toml", "[hypervisor.qemu]\ndefault_memory = 6144\n"}}));
  EXPECT_EQ(setting(made.effective, {"agent", "kata", "dial_timeout"}), "5");
  EXPECT_EQ(made.guest_memory_mib, 6144U);
  EXPECT_THAT(made.notes,
              ElementsAre("agent.kata.dial_timeout: config.d/70-site.toml counts more than 60-ferry.toml"));
}

TEST(KataDropIn, TakesFirmwareOfTheArtifactToo) {
  KataBase base = base_of(kGpuBase);
  base.files.emplace_back("OVMF.fd");
  EXPECT_EQ(qemu(drop_in(class_of(KataKind::gpu), base), "firmware"), "/opt/classes/gpu/OVMF.fd");
}

// As Kata's own build lays its files out.
TEST(KataDropIn, TakesFilesOfTheArtifactsFolders) {
  KataBase base = base_of(kGpuBase);
  base.files = {"share/defaults/kata-containers/configuration.toml",
                "share/kata-containers/vmlinuz-nvidia-gpu.container", "a/kata-containers-nvidia-gpu.img",
                "b/kata-containers-nvidia-gpu.img"};
  const KataDropIn made = drop_in(class_of(KataKind::gpu), base);
  EXPECT_EQ(qemu(made, "kernel"), "/opt/classes/gpu/share/kata-containers/vmlinuz-nvidia-gpu.container");
  EXPECT_EQ(qemu(made, "image"), "/build/kata-containers-nvidia-gpu.img") << "which of two is not known";
  // An administrator's copy elsewhere changes no class.
  base.files.emplace_back("backup/vmlinuz-nvidia-gpu.container");
  base.files.emplace_back("share/kata-containers/kata-containers-nvidia-gpu.img");
  const KataDropIn again = drop_in(class_of(KataKind::gpu), base);
  EXPECT_EQ(qemu(again, "kernel"), qemu(made, "kernel"));
  EXPECT_EQ(qemu(again, "image"), "/opt/classes/gpu/share/kata-containers/kata-containers-nvidia-gpu.img");
}

TEST(KataDropIn, HasNoSocketWhereNoneIsAskedFor) {
  const KataDropIn made =
      test::must(kata_drop_in(class_of(KataKind::gpu), base_of(kGpuBase), {.gpus = 1}, ""));
  EXPECT_THAT(made.text, HasSubstr("pod_resource_api_sock = \"\"\n"));
  const KataDropIn plain =
      test::must(kata_drop_in(class_of(KataKind::gpu), base_of(kPlainBase), {.gpus = 1}, ""));
  EXPECT_THAT(plain.text, Not(HasSubstr("pod_resource_api_sock")));
}

/// A GPU configuration for runtime-rs, with an image of its own for the GPU's user space.
constexpr const char* kRustBase =
    "[hypervisor.qemu]\n"
    "kernel = \"/build/vmlinuz-nvidia-gpu.container\"\n"
    "image = \"/build/kata-containers-nvidia-gpu.img\"\n"
    "cold_plug_vfio = \"root-port\"\n"
    "[[hypervisor.qemu.guest_extension_images]]\n"
    "name = \"nvidia-gpu\"\n"
    "path = \"/build/gpu-extension.img\"  # made elsewhere\n"
    "[[ hypervisor.qemu.other ]]\n"
    "path = \"/build/gpu-extension.img\"\n"
    "[agent.kata]\n"
    "dial_timeout_ms = 10\n"
    "reconnect_timeout_ms = 3000\n"
    "[runtime]\n"
    "name = \"virt_container\"\n";

TEST(KataDropIn, HasTheTimeoutsOfTheRuntimeThatReadsIt) {
  const KataDropIn made = drop_in(class_of(KataKind::gpu), base_of(kRustBase));
  EXPECT_EQ(setting(made.effective, {"agent", "kata", "reconnect_timeout_ms"}), "1200000");
  EXPECT_EQ(setting(made.effective, {"agent", "kata", "create_container_timeout"}), "1200");
  EXPECT_EQ(setting(made.effective, {"agent", "kata", "dial_timeout_ms"}), "10");
  EXPECT_EQ(setting(made.effective, {"agent", "kata", "dial_timeout"}), "") << "runtime-rs ends with it";
  EXPECT_EQ(setting(made.effective, {"runtime", "create_container_timeout"}), "");

  KataBase plain = base_of(kPlainBase);
  plain.shim = {.path = "/shim", .runtime = ShimRuntime::rust, .release = KataRelease{4, 1, 0}};
  EXPECT_THAT(drop_in(class_of(KataKind::gpu), plain).text, HasSubstr("reconnect_timeout_ms = 1200000\n"));
}

TEST(KataDropIn, TakesASettingOfTheGoRuntimeToNoOther) {
  KataBase base = base_of(kRustBase);
  base.shim = {.path = "/shim", .runtime = ShimRuntime::rust, .release = KataRelease{3, 31, 0}};
  const KataClass kata = class_of(KataKind::gpu, "[agent.kata]\ndial_timeout = 90\n");
  const auto made = kata_drop_in(kata, base, {.gpus = 1}, kSocket);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message,
            "k.yaml:3: class gpu: agent.kata.dial_timeout: /shim (Kata's runtime-rs 3.31.0) ends with it, "
            "since it is "
            "a setting of Kata's Go runtime");
  EXPECT_THAT(made.error().hint, HasSubstr("the class's configuration"));
  base.shim.release = KataRelease{3, 25, 0};
  EXPECT_TRUE(kata_drop_in(kata, base, {.gpus = 1}, kSocket)) << "it passes over unknown settings";
  base.shim.release = KataRelease{3, 31, 0};
  EXPECT_FALSE(
      kata_drop_in(class_of(KataKind::gpu, "[hypervisor.qemu]\npcie_switch_port = 1\npcie_root_port = 1\n"),
                   base, {.gpus = 1}, kSocket))
      << "two kinds of ports";
}

TEST(KataDropIn, LeadsExtensionImagesInTheCopy) {
  KataBase base = base_of(kRustBase);
  EXPECT_EQ(drop_in(class_of(KataKind::gpu), base).copy, kRustBase);
  EXPECT_THAT(drop_in(class_of(KataKind::gpu), base).host_files,
              testing::Contains("/build/gpu-extension.img"));
  base.files.emplace_back("gpu-extension.img");
  const KataDropIn made = drop_in(class_of(KataKind::gpu), base);
  std::string desired = kRustBase;
  const std::string line = "path = \"/build/gpu-extension.img\"  # made elsewhere";
  desired.replace(desired.find(line), line.size(), "path = \"/opt/classes/gpu/gpu-extension.img\"");
  EXPECT_EQ(made.copy, desired);
  EXPECT_THAT(made.host_files, testing::Contains("/opt/classes/gpu/gpu-extension.img"));
}

// Kata 3.20: only hot plug gives a pod the devices that its device plugin allocated.
TEST(KataDropIn, PlugsHotWhereKataAsksNoKubelet) {
  const KataShim old{.path = "/shim", .runtime = ShimRuntime::go, .release = KataRelease{3, 20, 0}};
  KataBase hot = base_of(kPlainBase);
  hot.shim = old;
  const KataDropIn made = drop_in(class_of(KataKind::gpu), hot);
  EXPECT_EQ(qemu(made, "hot_plug_vfio"), "bridge-port");
  EXPECT_EQ(qemu(made, "cold_plug_vfio"), "");
  EXPECT_THAT(made.notes,
              testing::Contains("hot_plug_vfio stays bridge-port: /shim (Kata's Go runtime 3.20.0) does "
                                "not ask the kubelet which devices a pod has"));

  KataBase cold = base_of(kGpuBase);
  cold.shim = old;
  const auto refused = kata_drop_in(class_of(KataKind::gpu), cold, {.gpus = 1}, kSocket);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_EQ(refused.error().message,
            "k.yaml:3: class gpu: /shim (Kata's Go runtime 3.20.0) does not ask the kubelet which devices a "
            "pod has: "
            "with cold_plug_vfio = root-port a pod gets none");
  EXPECT_THAT(refused.error().hint, HasSubstr("install Kata 3.24.0 or later"));
  EXPECT_EQ(qemu(test::must(kata_drop_in(class_of(KataKind::gpu), cold, {.gpus = 1}, "")), "cold_plug_vfio"),
            "root-port")
      << "annotations name the devices";
  const KataClass by_class = class_of(
      KataKind::gpu, "[hypervisor.qemu]\ncold_plug_vfio = \"no-port\"\nhot_plug_vfio = \"root-port\"\n");
  EXPECT_EQ(qemu(drop_in(by_class, cold), "hot_plug_vfio"), "root-port");
  cold.shim.release = KataRelease{3, 24, 0};
  EXPECT_TRUE(kata_drop_in(class_of(KataKind::gpu), cold, {.gpus = 1}, kSocket));
}

struct NoVm {
  const char* name;
  KataKind kind;
  std::string base;
  std::string configuration;
  std::string message;  ///< its beginning
};
void PrintTo(const NoVm& row, std::ostream* out) {
  *out << row.name;
}

class UnfitKataConfiguration : public testing::TestWithParam<NoVm> {};

TEST_P(UnfitKataConfiguration, IsRefusedWithTheReason) {
  const NoVm& row = GetParam();
  const auto made =
      kata_drop_in(class_of(row.kind, row.configuration), base_of(row.base), {.gpus = 1}, kSocket);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Errc::invalid_config);
  EXPECT_THAT(made.error().message, StartsWith(row.message));
}

std::string with_qemu(const std::string& lines) {
  return "[hypervisor.qemu]\nkernel = \"/k\"\ninitrd = \"/i\"\n" + lines;
}
constexpr KataKind kGpu = KataKind::gpu;
constexpr const char* kOf = "k.yaml:3: class gpu: hypervisor.qemu: ";

INSTANTIATE_TEST_SUITE_P(
    Table, UnfitKataConfiguration,
    testing::Values(
        NoVm{"no TOML", kGpu, "[a\n", "", "/opt/classes/gpu/configuration.toml:1:3: "},
        NoVm{"empty", kGpu, "", "", "k.yaml:3: class gpu: it has no hypervisor"},
        NoVm{"no table", kGpu, "[hypervisor]\nqemu = 1\n", "",
             "k.yaml:3: class gpu: hypervisor.qemu is no table"},
        NoVm{"two hypervisors", kGpu, "[hypervisor.qemu]\n[hypervisor.clh]\n", "",
             "k.yaml:3: class gpu: it has 2 hypervisors, clh, qemu, and Kata takes one"},
        NoVm{"another hypervisor of the class", kGpu, kGpuBase, "[hypervisor.clh]\ndefault_memory = 1\n",
             "k.yaml:3: class gpu: it has 2 hypervisors, clh, qemu, and Kata takes one"},
        NoVm{"without VFIO", kGpu, "[hypervisor.fc]\n", "",
             "k.yaml:3: class gpu: hypervisor fc is not known to take GPUs"},
        NoVm{"both ways to plug", kGpu, kGpuBase, "[hypervisor.qemu]\nhot_plug_vfio = \"root-port\"\n",
             std::string(kOf) +
                 "both cold_plug_vfio = root-port and hot_plug_vfio = root-port: Kata takes one of them"},
        NoVm{"neither way to plug", kGpu, kGpuBase, "[hypervisor.qemu]\ncold_plug_vfio = \"no-port\"\n",
             std::string(kOf) + "neither cold_plug_vfio nor hot_plug_vfio: no GPU would reach a pod"},
        NoVm{"a port of another kind", kGpu, with_qemu("cold_plug_vfio = \"pcie\"\n"), "",
             std::string(kOf) + "cold_plug_vfio is 'pcie', which is none of no-port, root-port, switch-port, "
                                "bridge-port"},
        NoVm{"too many ports", kGpu, kGpuBase, "[hypervisor.qemu]\npcie_root_port = 17\n",
             std::string(kOf) + "pcie_root_port is 17, and Kata makes 16 at most"},
        NoVm{"no kernel", kGpu, "[hypervisor.qemu]\nimage = \"/i\"\n", "",
             std::string(kOf) + "kernel is not set"},
        NoVm{"nothing to boot from", kGpu, "[hypervisor.qemu]\nkernel = \"/k\"\n", "",
             std::string(kOf) + "neither image nor initrd is set"},
        NoVm{"two to boot from", kGpu, with_qemu("image = \"/i\"\n"), "",
             std::string(kOf) + "image and initrd are both set: Kata takes one of them"},
        NoVm{"no PCIe", kGpu, with_qemu("machine_type = \"pc\"\n"), "",
             std::string(kOf) + "machine_type is 'pc', which has no PCIe ports; q35 and virt have"},
        NoVm{"memory in words", kGpu, with_qemu("default_memory = \"8 GiB\"\n"),
             "[hypervisor.qemu]\ndefault_memory = \"8 GiB\"\n",
             std::string(kOf) + "default_memory has to be a whole number"},
        NoVm{"negative ports", kGpu, with_qemu("pcie_switch_port = -1\n"), "",
             std::string(kOf) + "pcie_switch_port has to be a whole number"},
        NoVm{"a number as kernel", kGpu, "[hypervisor.qemu]\nkernel = 1\nimage = \"/i\"\n", "",
             std::string(kOf) + "kernel has to be a string"},
        NoVm{"a word as truth", kGpu, with_qemu("confidential_guest = \"true\"\n"), "",
             std::string(kOf) + "confidential_guest has to be true or false"},
        NoVm{"one annotation", kGpu, with_qemu("enable_annotations = \"a\"\n"), "",
             std::string(kOf) + "enable_annotations has to be a list"},
        NoVm{"confidential artifact", kGpu, with_qemu("confidential_guest = true\n"), "",
             std::string(kOf) + "it is for confidential VMs, and the class is of kind gpu"},
        NoVm{"artifact of another processor", KataKind::tdx, with_qemu("sev_snp_guest = true\n"), "",
             std::string(kOf) + "sev_snp_guest is true, and the class is of kind tdx"},
        NoVm{"confidence taken away", KataKind::snp, kGpuBase,
             "[hypervisor.qemu]\nconfidential_guest = false\n",
             std::string(kOf) + "confidential_guest is not true, and the class is of kind snp"},
        NoVm{"confidential elsewhere", KataKind::snp, "[hypervisor.clh]\nkernel = \"/k\"\ninitrd = \"/i\"\n",
             "",
             "k.yaml:3: class gpu: hypervisor.clh: hypervisor clh: confidential VMs with GPUs are QEMU's"}),
    [](const auto& row) {
      std::string name = row.param.name;
      std::erase_if(name, [](char c) { return c == ' '; });
      return name;
    });

TEST(KataDropIn, IsRefusedWhereALaterFileBreaksIt) {
  const auto made = kata_drop_in(
      class_of(KataKind::gpu),
      base_of(kGpuBase, {{"99-site.toml", "[hypervisor.qemu]\nhot_plug_vfio = \"root-port\"\n"}}),
      {.gpus = 1}, kSocket);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().hint,
            "settings come from /opt/classes/gpu: configuration.toml, config.d/99-site.toml; later ones "
            "count more");
  const auto broken = kata_drop_in(class_of(KataKind::gpu),
                                   base_of(kGpuBase, {{"99-site.toml", "a = = b\n"}}), {.gpus = 1}, kSocket);
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().message, StartsWith("/opt/classes/gpu/config.d/99-site.toml:1:5: "));
}

}  // namespace
}  // namespace ferry::kata
