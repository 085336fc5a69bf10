// SPDX-License-Identifier: Apache-2.0
// Hosts, profiles, policies and nodes of public bug reports (tests/fixtures/cases), and what Ferry has to say
// to each of them.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "api/files.h"
#include "hostfs/host_fs.h"
#include "kubectl/kubevirt_permits.h"
#include "tests/cli/run_program.h"
#include "tests/support/described_host.h"

namespace ferry::cli {
namespace {

using test::case_file;
using test::DescribedHost;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using Words = std::vector<std::string>;

/// One command on one host. Its words are separated by blanks; "@vgpu/p13-a10" is that file of the cases.
struct Row {
  const char* host;  ///< the report, with which the host's name begins: "r01"
  const char* command;
  int status;
  std::vector<const char*> has;         ///< on stdout or stderr
  std::vector<const char*> lacks = {};  ///< neither there nor there
};

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      // Whole GPUs.
      {"r01", "status", 0, {"not viable", "0000:01:00.2 (USB, driver xhci_hcd), 0000:01:00.3 (USB-C"}},
      {"r01",
       "vfio plan --all",
       0,
       {"bind 0000:01:00.2 to vfio-pci", "bind 0000:01:00.3 to vfio-pci", "0000:00:01.0  pcieport (bridge)"},
       {"bind 0000:01:00.0", "bind 0000:01:00.1", "of 0000:00:01.0"}},
      {"r02",
       "vfio plan --all",
       4,
       {"0000:01:00.0 (1022:43d0, class 0c03, driver xhci_hcd) shares the group", "0000:01:00.1 (1022:43c8",
        "0000:03:00.0 (10ec:8168", "unbind the driver of each such device that the host can do without"},
       {"--with"}},
      {"r02",
       "vfio plan --device 0000:05:00.0 --with 0000:01:00.1",
       2,
       {"--with: 0000:01:00.1 (1022:43c8", "is no audio, USB or USB-C function of a chosen card"}},
      {"r06",
       "status",
       0,
       {"switch the SMMU on in the firmware setup; the kernel needs CONFIG_ARM_SMMU_V3"},
       {"VT-d", "intel_iommu"}},
      {"r06",
       "vfio plan --all",
       4,
       {"switch the SMMU on in the firmware setup; the kernel needs CONFIG_ARM_SMMU_V3"},
       {"VT-d", "intel_iommu"}},
      {"r06", "doctor", 1, {"switch the SMMU on in the firmware setup; the kernel needs CONFIG_ARM_SMMU_V3"}},
      {"r08", "doctor", 1, {"fail     iommu-active", "AMD-Vi", "/etc/modprobe.d/vfio.conf:1: ids=10de:21c4"}},
      {"r09", "status", 0, {"passthrough  free"}},
      {"r09", "vfio plan --all", 0, {"already so", "0000:3e:00.0  no driver (bridge)"}, {"bind "}},
      {"r10",
       "vfio plan --all",
       0,
       {"bind 0000:3d:00.0 to", "bind 0000:3e:00.0 to", "bind 0000:40:00.0 to", "bind 0000:41:00.0 to",
        "bind 0000:b1:00.0 to", "bind 0000:b2:00.0 to", "bind 0000:b4:00.0 to", "bind 0000:b5:00.0 to"}},
      {"r10", "vfio plan --numa 1", 0, {"bind 0000:b1:00.0 to"}, {"0000:3d:00.0"}},
      {"r11", "status", 0, {"0000:89:00.0", "0001:89:00.0", "  113  ", "  345  "}},
      {"r11",
       "assert -f @policy/r11-by-socket -c by-socket",
       3,
       {"GPU 3 (0000:d2:00.0): passthrough", "GPU 4 (0001:89:00.0): expected host, found passthrough"}},
      {"r11",
       "apply --dry-run -f @policy/r11-by-socket -c by-address",
       0,
       {"unbind 0001:89:00.0 from vfio-pci"},
       {"unbind 0000:89:00.0"}},
      {"r12", "status", 0, {"0000:17:00.0", "0000:65:00.0"}},
      {"r12",
       "apply --dry-run -f @policy/r12-one-of-two -c one-for-vms",
       0,
       {"bind 0000:17:00.0 to vfio-pci"},
       {"0000:03:00.0", "bind 0000:65:00.0"}},
      {"r12",
       "apply --dry-run -f @policy/r12-one-of-two -c by-number",
       0,
       {"bind 0000:17:00.0 to vfio-pci"},
       {"0000:03:00.0", "bind 0000:65:00.0"}},
      {"r12",
       "apply --dry-run -f @policy/r12-one-of-two -c by-id-as-peers-do",
       0,
       {"bind 0000:17:00.0 to vfio-pci", "bind 0000:65:00.0 to vfio-pci"},
       {"0000:03:00.0"}},
      {"r12", "vfio plan --device 17:00.0", 2, {"did you mean 0000:17:00.0?"}},
      {"r12", "vfio plan --device 00000000:17:00.0", 0, {"bind 0000:17:00.0 to vfio-pci"}},
      {"r14", "status", 0, {"0000:05:00.0     TU106 [GeForce RTX 2060 Rev. A]", "host  free"}},
      {"r15", "status", 0, {"passthrough  free", "0000:01:00.1  audio"}},
      {"r15", "vfio plan --all", 0, {"already so", "0000:01:00.1  vfio-pci (companion)"}},
      {"r22b", "vfio plan --all", 0, {"already so", "0000:02:00.0  pci-stub (bystander)"}},
      {"r28", "status", 0, {"0000:01:00.0", "0000:02:00.0", "passthrough  free"}, {"blocked", "not viable"}},
      {"r28",
       "apply --dry-run -f @policy/r28-one-of-the-group -c first",
       4,
       {"0000:01:00.0", "0000:02:00.0", "share an IOMMU group"}},
      {"r28", "assert -f @policy/r28-one-of-the-group -c first", 4, {"share an IOMMU group"}, {"agrees"}},
      {"r28", "apply --dry-run -f @policy/r28-one-of-the-group -c both", 0, {"already so"}, {"bind "}},
      {"r33", "status", 0, {"nvgrace_gpu_vfio_pci", "passthrough  free"}},
      {"r34", "status", 0, {"0000:10:00.0  GA100 [A800-SXM4-80GB]", "0000:ca:00.0", "passthrough  free"}},
      {"r34",
       "status",
       0,
       {"counted only where they are named, as in `ferry vfio bind --device 0000:42:00.0`:",
        "0000:c3:00.0  switch ", "group 53, driver nvidia-nvswitch"}},
      {"r34",
       "doctor -v",
       0,
       {"pass     accelerators-present    8 in /sys/bus/pci/devices; counted only where they are named: "
        "0000:42:00.0 (switch, 10de:1af1), "}},
      {"r34",
       "explain 0000:42:00.0",
       0,
       {"counted only where it is named", "`ferry vfio bind --device 0000:42:00.0` gives it to VMs"},
       {"never changes it"}},
      {"r34", "vfio plan --device 0000:42:00.0", 0, {"bind 0000:42:00.0 to vfio-pci"}},
      {"r35", "status", 0, {"unreadable", "the device is off the bus", "`dmesg`"}},
      {"r35", "vfio plan --all", 4, {"0000:01:00.0 cannot be read", "0000:02:00.0 (group 21): already so"}},
      {"r35",
       "assert -f @policy/r28-one-of-the-group -c both",
       3,
       {"GPU 0 (0000:01:00.0): expected passthrough, but 0000:01:00.0 cannot be read", "the host differs"}},
      {"r36",
       "vfio plan --device 0000:27:00.0",
       0,
       {"bind 0000:27:00.0 to vfio-pci", "0000:28:00.0 (10de:1db4, class 0302, no driver) shares the group"},
       {"bind 0000:28:00.0"}},

      // Other vendors' GPUs.
      {"r01", "status", 0, {"0000:00:02.0  display 8086:1912, group 0, driver i915"}},
      {"r03",
       "status",
       0,
       {"no accelerators of NVIDIA on this host", "counted only where they are named",
        "0000:04:00.0  GPU 1002:1638, group 5, driver amdgpu"}},
      {"r03",
       "doctor -v",
       0,
       {"passthrough: not applicable: there are no GPUs of NVIDIA on this host; 0000:04:00.0 (GPU, "
        "1002:1638) counts where it is named (",
        "none of NVIDIA in /sys/bus/pci/devices; counted only where they are named: 0000:04:00.0 (GPU, "
        "1002:1638)"},
       {"not found by the firmware"}},
      {"r03", "doctor --for vgpu,dra", 0, {"vgpu: not applicable: ", "dra: not applicable: "}, {"ready"}},
      {"r03", "vfio plan --all", 0, {"nothing to do"}, {"bind "}},
      {"r03",
       "vfio plan --vendor amd",
       4,
       {"0000:04:00.0 (group 5): refused",
        "0000:04:00.2 (1022:15df, class 1080, driver ccp) shares the group"}},
      {"r03", "vfio plan --all --vendor 1002", 4, {"0000:04:00.0 (group 5): refused"}},
      {"r03", "vfio plan --device 0000:04:00.0", 4, {"0000:04:00.0 (group 5): refused"}},
      {"r03",
       "vfio plan --model *Radeon*",
       2,
       {"there is no accelerator of NVIDIA on this host", "--device 0000:04:00.0, or --vendor 1002"}},
      {"r03", "explain 0000:04:00.0", 0, {"counted only where it is named"}, {"never changes it"}},
      {"r04", "status", 0, {"0000:c5:00.0  GPU 1002:1900, group 20, driver vfio-pci"}},
      {"r04", "doctor", 0, {"passthrough: ready"}, {"not applicable"}},
      {"r04",
       "vfio plan --device 0000:c5:00.0",
       0,
       {"already so", "0000:c5:00.0  vfio-pci (accelerator)", "0000:c5:00.1  vfio-pci (companion)"}},
      {"r04", "kubevirt-cr", 0, {"pciVendorSelector: \"1002:1900\"", "resourceName: amd.com/1900"}},
      {"r04",
       "apply --dry-run -f @policy/other-vendors -c by-address",
       0,
       {"0000:c5:00.0 (groups 20, 21): already so"}},
      {"r04", "assert -f @policy/other-vendors -c by-address", 0, {"GPU 0 (0000:c5:00.0): passthrough"}},
      {"r04", "assert -f @policy/other-vendors -c by-vendor", 0, {"GPU 0 (0000:c5:00.0): passthrough"}},
      {"r04",
       "apply --dry-run -f @policy/other-vendors -c all",
       0,
       {"matches no GPU of this node\nhint: 0000:c5:00.0 (GPU, 1002:1900) counts where it is named",
        "nothing to do: there are no GPUs of NVIDIA on this host; 0000:c5:00.0"},
       {"0000:c5:00.0 (group"}},
      {"r02",
       "assert -f @policy/other-vendors -c by-vendor",
       3,
       {"GPU 1 (0000:07:00.0): expected passthrough, found host (driver amdgpu)"}},
      {"r02", "apply --dry-run -f @policy/other-vendors -c by-vendor", 4, {"0000:07:00.0", "boot display"}},
      {"r12",
       "assert -f @policy/other-vendors -c bmc",
       3,
       {"GPU 0 (0000:17:00.0): expected passthrough, found host (driver nvidia)",
        "GPU 2 (0000:03:00.0): host"}},
      {"r18", "status", 0, {"0000:00:02.0  GPU 8086:3e98, group 0, driver i915"}},
      {"r18", "vfio plan --vendor intel", 0, {"0000:00:02.0: skipped: its driver offers vGPU types"}},
      {"r18", "vfio plan --device 0000:00:02.0", 4, {"0000:00:02.0", "boot display"}},
      {"r19", "status", 0, {"0000:00:02.0  GPU 8086:4690, group 0, driver i915"}},
      {"r19", "vfio plan --device 0000:00:02.1", 0, {"0000:00:02.1 (group 42): already so"}},
      {"r22",
       "status",
       0,
       {"0000:06:00.0  GPU 1002:6929, group 30, driver gim",
        "0000:06:02.2  virtual function 1002:692f, group 72, driver vfio-pci"}},
      {"r22",
       "explain 0000:06:02.2",
       0,
       {"a virtual function of 0000:06:00.0 (1002:6929): it is passed through whole",
        "ferry vfio unbind --device 0000:06:02.2"}},
      {"r22",
       "explain 0000:06:02.0",
       0,
       {"a virtual function of 0000:06:00.0 (1002:6929)", "ferry vfio bind --device 0000:06:02.0"}},
      {"r22", "kubevirt-cr", 0, {"pciVendorSelector: \"1002:692F\"", "resourceName: amd.com/692f"}},
      {"r22",
       "explain 0000:06:00.0",
       0,
       {"it cannot be bound to vfio: 0000:06:00.0 has 3 virtual functions enabled"},
       {"vfio bind --device 0000:06:00.0"}},
      {"r01",
       "explain 0000:00:02.0",
       0,
       {"it cannot be bound to vfio: 0000:00:02.0 is in use: the host's boot display"},
       {"vfio bind --device 0000:00:02.0"}},
      {"r22", "vfio plan --vendor amd", 0, {"0000:06:00.0", "skipped"}, {"refused"}},
      {"r22", "vfio plan --device 0000:06:00.0", 4, {"0000:06:00.0 has 3 virtual functions enabled"}},
      {"r22", "vfio plan --device 0000:06:02.0", 0, {"0000:06:02.0  pci-stub -> vfio-pci"}},

      // Exports leave out a GPU that no file describes.
      {"r01",
       "export",
       0,
       {"GPU 0 (0000:01:00.0): left out: ", "keep the kernel from giving the group to a VM", "version: v2"}},
      {"r19", "export", 0, {"0000:00:02.0): left out: 2 of its 3 virtual functions", "version: v2"}},
      {"r19", "vgpu export", 0, {"0000:00:02.0): left out: 2 of its 3 virtual functions", "version: v1"}},
      {"r22", "export", 0, {"0000:06:00.0): left out: 1 of its 3 virtual functions", "version: v2"}},
      {"r22", "vgpu export", 0, {"0000:06:00.0): left out: 1 of its 3 virtual functions", "version: v1"}},
      {"r35", "export", 0, {"left out: ", "version: v2"}},
      // A host without a GPU has one answer; the display of its hypervisor is no GPU.
      {"r31", "doctor -v", 0, {"passthrough: not applicable: there are no GPUs on this host"}, {"IOMMU"}},
      {"r31", "doctor --for vgpu,kubevirt,dra", 0, {"not applicable: there are no GPUs on this host"}},
      {"r31", "vfio plan --all", 0, {"nothing to do: there are no GPUs on this host"}, {"IOMMU"}},
      {"r31", "vfio plan --vendor nvidia", 0, {"nothing to do: there are no GPUs on this host"}},
      {"r31", "vfio bind --all --dry-run", 0, {"nothing to do: there are no GPUs on this host"}},
      {"r31", "vfio unbind --all --dry-run", 0, {"nothing to do: there are no GPUs on this host"}},
      {"r31",
       "apply --dry-run -f @policy/r12-one-of-two -c one-for-vms",
       0,
       {"nothing to do: there are no GPUs on this host"},
       {"IOMMU"}},
      {"r04", "vfio plan --all", 0, {"there are no GPUs of NVIDIA on this host; 0000:c5:00.0"}},

      // Reasons that keep a GPU from every VM (docs/findings.md).
      {"n1",
       "status",
       0,
       {"not viable", "the firmware reserves 0x00000000000e8000-0x00000000000e8fff for group 34",
        "pre-boot or kernel DMA protection", "shared memory of the slot (HPE)"}},
      {"n1", "vfio plan --all", 4, {"the firmware reserves"}},
      {"n1", "doctor", 1, {"fail     reserved-regions"}},
      {"n1b", "status", 0, {"free"}, {"not viable"}},
      {"n1b", "vfio plan --all", 0, {"already so"}},
      {"n2", "status", 0, {"0000:01:00.0", "free"}},
      {"n2",
       "vfio plan --all",
       4,
       {"0000:02:00.0 cannot be read", "the device is off the bus", "0000:01:00.0 (group 20): already so"}},
      {"n5",
       "vfio plan --device 0000:06:00.0",
       4,
       {"--device 0000:05:00.0 --device 0000:07:00.0 --device 0000:08:00.0"},
       {"--with"}},
      {"n5",
       "vfio plan --device 0000:05:00.0 --device 0000:08:00.0",
       4,
       {"name all of them: --device 0000:05:00.0 --device 0000:08:00.0 --device 0000:06:00.0 --device "
        "0000:07:00.0"}},
      {"n5",
       "apply --dry-run -f @policy/n5-one-switch-of-the-group -c one-switch",
       4,
       {"n5-one-switch-of-the-group.yaml:6: name them there too, by `address`: 0000:06:00.0, 0000:07:00.0, "
        "0000:08:00.0",
        "bind 0000:18:00.0 to vfio-pci"},
       {"--with", "another slot"}},
      {"n7", "vfio plan --all", 0, {"already so"}},
      {"n12",
       "status",
       0,
       {"the device tree must name an SMMU for this PCI host", "its driver"},
       {"switch the SMMU on in the firmware setup"}},
      {"n12", "vfio plan --all", 4, {"the device tree must name an SMMU for this PCI host"}},
      {"n12", "doctor", 1, {"the device tree must name an SMMU for this PCI host"}},
      {"n13", "status", 0, {"0008:01:00.0  10de:31c2  41 "}},
      {"n16", "status", 0, {"blocked", "the firmware's framebuffer BOOTFB in BAR 1"}},
      {"n16", "doctor", 1, {"fail     firmware-framebuffer"}, {"releases"}},

      // Resources for KubeVirt and the kubelet.
      {"r07",
       "kubevirt-cr",
       0,
       {"10DE:26B5", "nvidia.com/AD102GL_L40", "10DE:2235", "nvidia.com/GA102GL_A40"}},
      {"r28", "doctor -v --for kubevirt", 1, {"nvidia.com/TU102_GEFORCE_RTX_2080_TI_REV__A (2)"}},
      {"r29", "kubevirt-cr", 4, {"this host has no device for VMs yet"}, {"permittedHostDevices"}},
      {"r29", "doctor -v --for kubevirt", 1, {"no GPU is on a vfio driver", "`ferry vfio bind`"}},

      // vGPUs.
      {"r16", "vgpu validate --host -f @vgpu/p7b-by-last-word -c blackwell-3Q-3A", 0, {"works on this host"}},
      {"r16",
       "vgpu validate --host -f @vgpu/p7b-by-last-word -c blackwell-two-sizes",
       4,
       {"are of two sizes, and mixed-sizes is not set", "write `mixed-sizes: true`"}},
      {"r16",
       "vgpu types",
       0,
       {"DC-96A  NVIDIA RTX Pro 6000 Blackwell DC-96A  98304 MiB  1          1\n",
        "DC-48A  NVIDIA RTX Pro 6000 Blackwell DC-48A  49152 MiB  2          2\n",
        "DC-2B   NVIDIA RTX Pro 6000 Blackwell DC-2B   2048 MiB   48         48\n"}},
      {"r16",
       "vgpu validate --host -f @vgpu/p10-types-without-a-maximum",
       4,
       {"no room for 4 x DC-96A: 1 fit", "no room for 48 x DC-48A: 2 fit"},
       {"works"}},
      {"r16",
       "vgpu plan -f @vgpu/p10-types-without-a-maximum -c whole-card-four-times",
       4,
       {"no room for 4 x DC-96A: 1 fit"}},
      {"r16",
       "apply --dry-run -f @policy/r16-mixed",
       4,
       {"bind 0000:42:00.0 to vfio-pci", "bind 0000:8c:00.0 to vfio-pci", "GPU 3 (0001:c8:00.0): refused",
        "libnvidia-ml.so.1"}},
      {"n3",
       "vgpu types",
       0,
       {"DC-1-24A  NVIDIA RTX Pro 6000 Blackwell DC-1-24A  24576 MiB  4          4\n",
        "DC-1-24Q  NVIDIA RTX Pro 6000 Blackwell DC-1-24Q  24576 MiB  4          4\n",
        "DC-2-12A  NVIDIA RTX Pro 6000 Blackwell DC-2-12A  12288 MiB  8          8\n"}},
      {"n3",
       "vgpu validate --host -f @vgpu/n3-mig-backed-counts",
       4,
       {"profile eight-of-3: works\n", "profile most-of-2: works\n", "no room for 33 x DC-1-3Q: 32 fit",
        "no room for 48 x DC-1-24A: 4 fit", "no room for 48 x DC-2-12A: 8 fit"}},
      {"n3",
       "vgpu plan -f @vgpu/n3-mig-backed-counts -c most-of-2",
       0,
       {"would change", "create DC-1-2Q on 0000:42:06.1"},
       {"note:"}},
      {"n3",
       "vgpu plan -f @vgpu/n3-mig-backed-counts -c a-type-of-24",
       4,
       {"refused", "no room for 48 x DC-1-24A: 4 fit"}},
      {"n3", "vgpu choose --memory 24GiB --series A", 0, {"smallest: DC-1-24A", "4 can still be made"}},
      {"n10",
       "vgpu types",
       0,
       {"its driver nvidia offers no vGPU types on its 16 virtual functions"},
       {"full"}},
      {"n10",
       "doctor --for vgpu",
       1,
       {"warn     vgpu-types-offered", "its driver nvidia offers no vGPU types on its 16 virtual functions"}},
      {"n10", "vgpu choose --memory 8GiB", 1, {"its driver nvidia offers no vGPU types on its 16"}},
      {"n10",
       "vgpu plan -f @vgpu/p11-a100d",
       4,
       {"its driver nvidia offers no vGPU types on its 16 virtual functions",
        "knows no types for board 10de:2330", "in MIG mode it first needs GPU instances"}},
      {"n10", "explain 0000:1b:00.0", 0, {"none: its driver nvidia offers no vGPU types on its 16"}},
      {"n10",
       "vfio plan --all",
       0,
       {"0000:1b:00.0: skipped: it has 16 virtual functions"},
       {"its driver offers vGPU types"}},
      {"r30", "vgpu delete --all --dry-run", 0, {"GPU 0 (0000:", "): no vGPU\n"}, {"already so"}},
      {"r17", "vgpu types", 0, {"nvidia-259  RTX6000-4Q  GRID RTX6000-4Q"}},
      {"r17",
       "vgpu validate -f @vgpu/p7-full-names",
       2,
       {"'GRID RTX6000-4Q' is not the name of a vGPU type",
        "write RTX6000-4Q: a file names a type by the last word of the driver's name"}},
      {"r17", "vgpu choose --memory 4GiB", 0, {"smallest: RTX6000-4Q", "the largest is M60-2Q"}},
      {"r22",
       "vgpu choose --memory 4GiB --device 0000:06:00.0",
       1,
       {"no GPU asked offers a vGPU type with 4096 MiB or more"},
       {"there is no GPU"}},
      {"r17", "vfio plan --all", 0, {"0000:07:00.0", "offers vGPU types"}, {"bind 0000:07:00.0"}},
      {"r17", "vfio plan --device 0000:07:00.0", 4, {"refused", "boot display"}},
      {"r17",
       "vgpu plan -f @vgpu/p12-m60-0b",
       4,
       {"GPU 0 (0000:07:00.0): refused\n", ": offers no type M60-0B", "create M60-0B"},
       {"GPU 0 (0000:07:00.0): offers"}},
      {"r17", "vgpu validate --host -f @vgpu/p5-t4-by-number -c T4-1Q", 4, {"offers no type T4-1Q"}},
      {"r20", "vgpu plan -f @vgpu/p11-a100d", 4, {"offers no vGPU types on its 20 virtual functions"}},
      {"r20", "doctor --for vgpu", 1, {"fail     vgpu-manager-runs", "start nvidia-vgpu-mgr.service"}},
      {"r20b",
       "vgpu plan -f @vgpu/p11-a100d",
       4,
       {"this release of the vGPU host driver knows no types for board 10de:20b2", "`nvidia-smi vgpu -s`"}},
      {"r20b",
       "doctor --for vgpu",
       0,
       {"warn     vgpu-types-offered", "knows no types for board 10de:20b2", "`nvidia-smi vgpu -s`"},
       {"see the other checks"}},
      {"r21",
       "apply --dry-run -f @policy/r21-a2",
       0,
       {"unbind 0000:08:00.0 from vfio-pci", "its vGPUs are planned once it is back on its own driver"}},
      {"r24", "vgpu types", 0, {"offers no vGPU types until nvidia-vgpud lists them"}},
      {"r24", "doctor --for vgpu", 1, {"start nvidia-vgpud.service"}},
      {"r26", "vgpu types", 0, {"GPU 0 (0000:84:00.0)", "GPU 1 (0000:85:00.0)", "no driver is bound to it"}},
      {"r26", "doctor --for vgpu", 1, {"load the vGPU host driver and let it take the GPU"}},
      {"r30", "vgpu validate --host -f @vgpu/p13-a10 -c a10", 0, {"works on this host"}},
      {"r30", "vgpu plan -f @vgpu/p13-a10 -c a10-too-many", 4, {"no room for 7 x A10-4Q: 6 fit"}},
      {"r30", "vgpu plan -f @vgpu/p13-a10 -c a10-24q-2", 4, {"no room for 2 x A10-24Q: 1 fit"}},
      {"r30", "vgpu plan -f @vgpu/p13-a10 -c a10-4a", 4, {"offers no type A10-4A; did you mean 'A10-4Q'?"}},
      {"r30", "vgpu plan -f @vgpu/p2-too-much-for-a10", 4, {"A10-8Q (8192 MiB) and A10-6Q (6144 MiB)"}},
      {"r30",
       "vgpu plan -f @vgpu/p1b-docs-mended",
       4,
       {"A10-4Q (4096 MiB) and A10-6Q (6144 MiB) are of two sizes", "write `mixed-sizes: true`",
        "policy file (v2"}},
      {"r30",
       "apply --dry-run -f @policy/a10-two-sizes -c two-without",
       4,
       {"are of two sizes", "write `mixed-sizes: true`"}},
      {"r30",
       "vgpu plan -f @vgpu/p6-a40-configmap",
       4,
       {"p6-a40-configmap.yaml:13", "offers no type A40-8Q"}},
      {"r30", "vgpu plan -f @vgpu/p8-live-configmap", 0, {"skipped", "(line 4 of the text): matches no GPU"}},
      {"r30",
       "apply --dry-run -f @policy/a10-two-sizes -c two",
       4,
       {"vGPUs of different sizes, which NVML alone"}},
      {"r07", "vgpu validate -f @vgpu/p6-a40-configmap", 0, {"valid, 1 profile"}},

      // Files that are wrong.
      {"r07",
       "vgpu validate -f @vgpu/p1-docs-indentation",
       2,
       {"p1-docs-indentation.yaml:5: not readable as YAML",
        "its key begins 1 blank deeper than the key in the line before: keys of one map begin in the same "
        "column"},
       {"(v2)"}},
      {"r07",
       "vgpu validate -f @vgpu/p1c-in-a-configmap",
       2,
       {"p1c-in-a-configmap.yaml:10: not readable as YAML", "its key begins 1 blank deeper"},
       {"(v2)"}},
      {"r07",
       "vgpu validate -f @vgpu/p3-list-of-names",
       2,
       {"found the string 'T4-8Q'", "write '- {devices: all, vgpu-devices: {T4-8Q: 2}}'"},
       {"(v2)"}},
      {"r07",
       "kubevirt-cr --alias 10de:26b5=L40!",
       2,
       {"alias '10de:26b5=L40!': resource name 'nvidia.com/L40!': '!' is not one of letters",
        "a name has at most 63 letters"}},
      {"r07",
       "kubevirt-cr --name-template {name}/x",
       2,
       {"--name-template '{name}/x'", "'/' is not one of letters"}},

      // Nodes.
      {"r30", "agent --once --node-file @nodes/n1-passthrough-but-vfio-manager-false", 4, {"state: standby"}},
      {"r30",
       "agent --once --node-file @nodes/n2-empty-deploy-labels --config @vgpu/p6-a40-configmap",
       2,
       {"no policy or profile is called 'default'", "there are: a40-8q"}},
      {"r16",
       "agent --once --node-file @nodes/n3-vgpu-with-container-operands-off --config @vgpu/p7b-by-last-word",
       0,
       {"node hp-195: policy blackwell, by label", "nvidia.com/vgpu.config=blackwell"},
       {"standby"}},
      {"r30",
       "agent --once --node-file @nodes/n5-wrong-word",
       0,
       {"vm-vgpu-passthrough does not count: it is no workload; did you mean 'vm-passthrough'?"}},
      {"r30",
       "agent --once --node-file @nodes/n6-profile-unknown --config @vgpu/p6-a40-configmap",
       2,
       {"no policy or profile is called 'A40-8Q'; did you mean 'a40-8q'?"}},
  };
  return kRows;
}

/// A report's host, from "r01".
std::string host_of(const std::string& report) {
  for (const std::string& name : test::described_hosts())
    if (name.starts_with(report + "-")) return name;
  return report;
}

Words words_of(const std::string& command) {
  Words out;
  for (std::size_t at = 0; at < command.size();) {
    const std::size_t end = std::min(command.find(' ', at), command.size());
    const std::string word = command.substr(at, end - at);
    out.push_back(word.starts_with('@') ? case_file(word.substr(1) + ".yaml").string() : word);
    at = end + 1;
  }
  return out;
}

test::ProgramResult ferry_on(const DescribedHost& host, const std::string& command) {
  Words words = words_of(command);
  words.insert(words.begin(), {"--host-root", host.path().string()});
  return test::run_ferry(words);
}

// Rows that write (the agent's) each have a host of their own.
TEST(ReportedCases, EachCommandSaysWhatIsRightAndEachHostAndFileIsPlayed) {
  // By the other tests.
  std::set<std::string> played = {"r31-no-gpu", "n4-labelled-without-gpu", "kv1-two-names"};
  for (const Row& row : rows()) {
    played.insert(host_of(row.host));
    for (const std::string& word : words_of(row.command)) played.insert(std::filesystem::path(word).stem());
    const DescribedHost host(host_of(row.host));
    const auto result = ferry_on(host, row.command);
    const std::string text = result.out + result.err;
    const std::string where = fmt::format("{}: ferry {}", row.host, row.command);
    EXPECT_EQ(result.status, row.status) << where << "\n" << text;
    for (const char* part : row.has) EXPECT_THAT(text, HasSubstr(part)) << where;
    for (const char* part : row.lacks) EXPECT_THAT(text, Not(HasSubstr(part))) << where;
  }
  std::vector<std::string> forgotten;
  for (const char* folder : {"hosts", "vgpu", "policy", "nodes", "kubevirt"}) {
    for (const auto& entry : std::filesystem::directory_iterator(case_file(folder)))
      if (!played.contains(entry.path().stem())) forgotten.push_back(entry.path().filename());
  }
  std::ranges::sort(forgotten);
  EXPECT_EQ(fmt::format("{}", fmt::join(forgotten, " ")), "");
}

TEST(ReportedCases, ThePolicyOfTheNodeNamesItsGpusForEachCommand) {
  const DescribedHost host("r04-phoenix3-groups-apart");
  host.file("var/lib/ferry/desired.json",
            R"({"version": 2, "policy": "given", "file": "/etc/ferry/policy.yaml"})");
  for (const char* named : {"vendor: amd", "vendor: \"1002\"", "address: \"0000:c5:00.0\"",
                            "device-filter: \"0x19001002\"\n    devices: all"}) {
    host.file("etc/ferry/policy.yaml",
              fmt::format("version: v2\npolicies:\n  given:\n  - {}\n    mode: passthrough\n", named));
    EXPECT_THAT(ferry_on(host, "status").out,
                AllOf(HasSubstr("0000:c5:00.0  1002:1900  20     vfio-pci  passthrough"),
                      Not(HasSubstr("counted only where"))))
        << named;
    EXPECT_THAT(ferry_on(host, "explain 0000:c5:00.0").out,
                AllOf(HasSubstr("state       passthrough"), Not(HasSubstr("counted only where"))))
        << named;
    EXPECT_THAT(ferry_on(host, "doctor -v").out, HasSubstr("pass     accelerators-present    1 in")) << named;
    EXPECT_THAT(ferry_on(host, "doctor --for vgpu").out,
                HasSubstr("vgpu: not applicable: there are no GPUs of NVIDIA on this host"))
        << named;
    EXPECT_THAT(ferry_on(host, "export").out,
                HasSubstr("  - address: \"0000:c5:00.0\"\n    mode: passthrough\n"))
        << named;
  }
  for (const char* policy : {"version: v2\npolicies:\n  given:\n  - {devices: all, mode: passthrough}\n",
                             "version: v2\npolicies: [", "version: v2\npolicies: {}\n"}) {
    host.file("etc/ferry/policy.yaml", policy);
    EXPECT_THAT(ferry_on(host, "status").out, HasSubstr("counted only where they are named")) << policy;
  }
}

TEST(ReportedCases, AnExportHasNoSwitches) {
  const DescribedHost host("n7-four-switches-on-vfio");
  host.file("var/lib/ferry/desired.json",
            R"({"version": 2, "policy": "p", "file": "/etc/ferry/policy.yaml"})");
  host.file("etc/ferry/policy.yaml",
            "version: v2\npolicies:\n  p:\n  - {address: \"0000:05:00.0\", mode: passthrough}\n");
  const auto result = ferry_on(host, "export");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("mode: passthrough"), Not(HasSubstr("0000:05:00.0"))));
}

TEST(ReportedCases, AGpuWithAClaimCountsWhateverThePolicySays) {
  const char* const kAll = R"({"version": 2, "policy": "p", "file": "/etc/ferry/policy.yaml"})";
  for (const char* desired : {"", kAll}) {
    const DescribedHost host("r22-gim-pci-stub");
    host.file("proc/sys/kernel/random/boot_id", "b\n");
    host.file("run/ferry/hostd/claims.json", R"({"version": 1, "boot_id": "b", "claims": [
      {"uid": "u", "namespace": "studio", "name": "render", "phase": "done", "devices": [
        {"gpu": "0000:06:00.0", "type": "1002:692f", "placement": null, "was_on_vfio": true,
         "gpus": [{"address": "0000:06:00.0", "functions": 3}], "mdev_uuid": null,
         "function": "0000:06:02.2", "nodes": []}]}], "missing_functions": []})");
    if (*desired != 0) host.file("var/lib/ferry/desired.json", desired);
    host.file("etc/ferry/policy.yaml", "version: v2\npolicies:\n  p:\n  - {devices: all, mode: host}\n");
    (void)ferry_on(host, "hostd --once");
    const auto status = nlohmann::json::parse(HostFs(host.path()).read_file(api::kStatusFile).value_or(""));
    std::set<std::string> unavailable;
    for (const auto& one : status.at("unavailable")) unavailable.insert(one.at("id"));
    EXPECT_TRUE(unavailable.contains("0000:06:02.2")) << desired << status.dump();
    EXPECT_THAT(ferry_on(host, "status").out,
                AllOf(HasSubstr("0000:06:00.0  1002:6929  30     gim     vgpu  blocked"),
                      HasSubstr("1 in use: ResourceClaim studio/render has it\n")))
        << desired;
  }
}

TEST(ReportedCases, NodeWithoutGpuIsNotReportedAsReadyForVms) {
  const DescribedHost host("r31-no-gpu");
  const std::string agent = "agent --once --node-file @nodes/n4-labelled-without-gpu";
  EXPECT_EQ(ferry_on(host, agent).status, 0);
  EXPECT_EQ(ferry_on(host, "hostd --once --validations").status, 0);
  const auto said = ferry_on(host, agent);
  EXPECT_THAT(said.out, AllOf(HasSubstr("state: idle"), HasSubstr("this node has no GPU")));
  EXPECT_TRUE(std::filesystem::exists(host.path() / "run/nvidia/validations/workload-type"));
  EXPECT_FALSE(std::filesystem::exists(host.path() / "run/nvidia/validations/vfio-pci-ready"));
}

/// KubeVirt's object, as far as its lists go: maps, lists, texts, true and false.
nlohmann::json json_of(const YAML::Node& node) {
  nlohmann::json out;
  if (node.IsMap())
    for (const auto& entry : node) out[entry.first.as<std::string>()] = json_of(entry.second);
  else if (node.IsSequence())
    for (const auto& item : node) out.push_back(json_of(item));
  else if (bool truth = false; YAML::convert<bool>::decode(node, truth))
    out = truth;
  else
    out = node.as<std::string>();
  return out;
}

/// What the object of a report lacks of what a host offers.
kubectl::PermitChange permits_for(const std::string& report) {
  const auto ours = ferry_on(DescribedHost(host_of(report)), "-o json kubevirt-cr");
  EXPECT_THAT(ours.status, testing::AnyOf(0, 4)) << ours.err;
  const auto theirs = json_of(YAML::LoadFile(case_file("kubevirt/kv1-two-names.yaml").string()));
  auto change = kubectl::permit_change(theirs, nlohmann::json::parse(ours.out));
  EXPECT_TRUE(change) << change.error().message;
  return change.value_or(kubectl::PermitChange());
}

// Of two names for one selector KubeVirt's own plugin serves one, and both GPUs are of it.
TEST(ReportedCases, KubeVirtsOwnNamesForTheSameGpusAreNamed) {
  const kubectl::PermitChange change = permits_for("r28");
  EXPECT_THAT(change.by_hand,
              IsSupersetOf({AllOf(HasSubstr("10DE:1E07 as example.com/2080_Ti,"), HasSubstr("remove it")),
                            AllOf(HasSubstr("10DE:1E07 as example.com/2080_Ti2,"), HasSubstr("remove it"))}));
  EXPECT_THAT(change.lacks, Contains(HasSubstr("nvidia.com/TU102_GEFORCE_RTX_2080_TI_REV__A (10DE:1E07) is "
                                               "not permitted")));
  const auto& permitted =
      change.patch["/spec/configuration/permittedHostDevices/pciHostDevices"_json_pointer];
  EXPECT_THAT(permitted.dump(), HasSubstr("example.com/2080_Ti2")) << "entries of others stay";
}

// Its GPUs are on the host's driver: the container plugin's nvidia.com/gpu is no business of Ferry's.
TEST(ReportedCases, NothingIsAskedOfTheObjectWhereNothingIsAdvertised) {
  const kubectl::PermitChange change = permits_for("r29");
  EXPECT_TRUE(change.fits());
  EXPECT_TRUE(change.patch.is_null());
}

}  // namespace
}  // namespace ferry::cli
