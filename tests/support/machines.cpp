// SPDX-License-Identifier: Apache-2.0
#include "tests/support/machines.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <fmt/format.h>

#include "tests/support/must.h"
#include "vfio/bind/undo_journal.h"

namespace ferry::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIdle = "2.5 GT/s PCIe";
constexpr const char* kGen3 = "8.0 GT/s PCIe";
constexpr const char* kGen4 = "16.0 GT/s PCIe";
constexpr const char* kGen5 = "32.0 GT/s PCIe";

fs::path device_path(const std::string& address) {
  return fs::path("sys/devices/pci0000:00") / address;
}

void put_slot(FakeKernel& kernel, const std::string& slot, const std::string& address) {
  kernel.file(fs::path("sys/bus/pci/slots") / slot / "address",
              address.substr(0, address.find_last_of('.')) + "\n");
}

void put_power(FakeKernel& kernel, const std::string& address, const std::string& state) {
  kernel.file(device_path(address) / "power_state", state + "\n");
}

void put_reset(FakeKernel& kernel, const std::string& address, const std::string& methods) {
  kernel.file(device_path(address) / "reset_method", methods + "\n");
  kernel.file(device_path(address) / "reset", "");
}

/// Drivers of an ordinary host.
void add_drivers(FakeKernel& kernel) {
  kernel.add_driver({.name = "pcieport", .ids = {"class:0604"}});
  kernel.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
  kernel.add_driver({.name = "xhci_hcd", .ids = {"class:0c03"}});
  kernel.add_driver({.name = "nvme", .ids = {"class:0108"}});
  kernel.add_driver({.name = "mlx5_core", .ids = {"15b3:1021"}, .sriov = true});
}
void add_nvidia(FakeKernel& kernel, const std::set<std::string>& ids) {
  kernel.add_driver({.name = "nvidia", .ids = ids, .sriov = true});
}
void add_vfio(FakeKernel& kernel) {
  kernel.add_driver({.name = "vfio-pci", .vfio = true});
}

void add_bridge(FakeKernel& kernel, const std::string& address, unsigned group) {
  kernel.add_function({.address = address,
                       .ids = "8086:2030",
                       .class_code = 0x060400,
                       .group = group,
                       .driver = "pcieport",
                       .header_type = 1});
}

/// A card with a screen: GPU and audio in one group.
void add_card(FakeKernel& kernel, const std::string& slot, const std::string& ids, const std::string& audio,
              unsigned group, const std::string& driver, const std::string& audio_driver) {
  kernel.add_function({.address = slot + ".0",
                       .ids = ids,
                       .group = group,
                       .driver = driver,
                       .numa_node = 0,
                       .consumers = {slot + ".1"}});
  kernel.add_function(
      {.address = slot + ".1", .ids = audio, .class_code = 0x040300, .group = group, .driver = audio_driver});
}

/// The undo journal after Ferry bound a GPU.
void record_rebind(FakeKernel& kernel, const std::string& address, const std::string& ids, unsigned group,
                   const std::string& driver) {
  must(vfio::write_undo_journal(
      kernel, group,
      {{must(vfio::PciAddress::parse(address)),
        {.ids = ids, .driver = driver, .driver_override = {}, .role = "accelerator"}}}));
  kernel.forget_changes();
}

/// A device as advertised.json lists it.
struct ResourceSet {
  std::string id;
  unsigned group = 0;
  bool allocated = false;
  std::string reason = {};
};
std::string advertised_file(const std::string& resource, const std::vector<ResourceSet>& offers) {
  std::string devices;
  for (const ResourceSet& offer : offers) {
    devices += fmt::format(
        R"({}{{"id":"{}","healthy":{},"reason":"{}","numa_node":null,"iommu_group":{},"allocated":{}}})",
        devices.empty() ? "" : ",", offer.id, offer.reason.empty(), offer.reason, offer.group,
        offer.allocated);
  }
  return fmt::format(
      R"({{"version":2,"generation":7,"pid":4711,"state_generation":17,"resources":[{{"name":"{}",)"
      R"("env":"PCI_RESOURCE_X","registered":true,"devices":[{}]}}],"not_advertised":[]}})"
      "\n",
      resource, devices);
}

// A laptop: the screen is the processor's, the GPU sleeps.
void build_laptop(Machine& machine) {
  FakeKernel& kernel = machine.kernel;
  add_drivers(kernel);
  kernel.add_driver({.name = "i915", .ids = {"8086:a7a0"}});
  add_nvidia(kernel, {"10de:28a0"});
  kernel.add_function(
      {.address = "0000:00:02.0", .ids = "8086:a7a0", .group = 0, .driver = "i915", .boot_display = true});
  add_bridge(kernel, "0000:00:01.0", 13);
  add_card(kernel, "0000:01:00", "10de:28a0", "10de:22be", 13, "nvidia", "snd_hda_intel");
  put_power(kernel, "0000:01:00.0", "D3cold");
  put_link(kernel, "0000:01:00.0", {.speed = kIdle, .width = 8, .max_speed = kGen4, .max_width = 8});
}

// Eight GPUs joined by four NVSwitches, all the host's.
void build_nvswitch_board(Machine& machine) {
  FakeKernel& kernel = machine.kernel;
  add_drivers(kernel);
  add_nvidia(kernel, {"10de:2330"});
  kernel.add_driver({.name = "nvidia-nvswitch", .ids = {"10de:22a3"}});
  constexpr std::array kBuses = {0x18, 0x2a, 0x3a, 0x5d, 0x9a, 0xab, 0xba, 0xdb};
  unsigned group = 60;
  for (const int bus : kBuses) {
    const std::string address = fmt::format("0000:{:02x}:00.0", bus);
    kernel.add_function({.address = address,
                         .ids = "10de:2330",
                         .class_code = 0x030200,
                         .group = group++,
                         .driver = "nvidia",
                         .numa_node = bus < 0x80 ? 0 : 1,
                         .totalvfs = 16});
    put_link(kernel, address, {.speed = kGen5, .width = 16, .max_speed = kGen5, .max_width = 16});
    put_slot(kernel, fmt::format("{}", group - 60), address);
  }
  for (int i = 0; i < 4; ++i) {
    kernel.add_function({.address = fmt::format("0000:{:02x}:00.0", 0x05 + i),
                         .ids = "10de:22a3",
                         .class_code = 0x068000,
                         .group = group++,
                         .driver = "nvidia-nvswitch",
                         .numa_node = 0});
  }
}

// Four T4: one the host's, one given away and in a VM, one divided, one full.
void build_t4_server(Machine& machine) {
  FakeKernel& kernel = machine.kernel;
  add_drivers(kernel);
  add_nvidia(kernel, {"10de:1eb8"});
  add_vfio(kernel);
  unsigned group = 30;
  for (const char* address : {"0000:3b:00.0", "0000:5e:00.0", "0000:af:00.0", "0000:d8:00.0"}) {
    const bool given = group == 31;
    kernel.add_function({.address = address,
                         .ids = "10de:1eb8",
                         .subsystem_ids = "10de:12a2",
                         .class_code = 0x030200,
                         .group = group++,
                         .driver = given ? "vfio-pci" : "nvidia",
                         .driver_override = given ? "vfio-pci" : "",
                         .numa_node = address[5] < 'a' ? 0 : 1});
    put_link(kernel, address, {.speed = given ? kIdle : kGen3, .max_speed = kGen3});
    put_reset(kernel, address, "flr bus");
  }
  put_slot(kernel, "4", "0000:5e:00.0");
  record_rebind(kernel, "0000:5e:00.0", "10de:1eb8", 31, "nvidia");
  machine.mdev().add_parent("0000:af:00.0");
  machine.mdev().add_parent("0000:d8:00.0");
  machine.mdev().add_device("0000:af:00.0", "nvidia-232", "566b0cda-8c18-5fd3-92cb-496c5a60815f");
  machine.mdev().add_device("0000:af:00.0", "nvidia-232", "d9a1c0de-1f2b-5a6c-8d7e-0a1b2c3d4e5f");
  machine.mdev().add_device("0000:d8:00.0", "nvidia-234", "7b1e6c52-4f0a-5d9b-a3c4-1122334455aa");
  kernel.file("sys/class/dmi/id/product_name", "Rack Server 2U (rev. B)\n");
  machine.users["0000:5e:00.0"] = {vm_user("whole", 670, "/dev/vfio/31")};
  machine.users["566b0cda-8c18-5fd3-92cb-496c5a60815f"] = {vm_user("half", 811, "/dev/vfio/200")};
  kernel.file("run/ferry/plugin/advertised.json",
              advertised_file("nvidia.com/TU104GL_TESLA_T4",
                              {{.id = "0000:5e:00.0", .group = 31, .allocated = true}}));
}

// Two L40S divided without mdev; one function of the second is itself given away.
void build_sriov_host(Machine& machine) {
  FakeKernel& kernel = machine.kernel;
  add_drivers(kernel);
  add_nvidia(kernel, {"10de:26b9"});
  add_vfio(kernel);
  for (const char* address : {"0000:17:00.0", "0000:ca:00.0"}) {
    kernel.add_function({.address = address,
                         .ids = "10de:26b9",
                         .class_code = 0x030200,
                         .group = address[5] == '1' ? 42U : 43U,
                         .driver = "nvidia",
                         .numa_node = address[5] == '1' ? 0 : 1,
                         .totalvfs = 32});
    kernel.enable_vfs(address, 4);
    machine.vendor().add_gpu(address);
  }
  const auto first = kernel.vfs_of("0000:17:00.0");
  for (const std::size_t i : {0U, 1U, 2U}) machine.vendor().set(first[i], "1153");
  machine.users[first[0]] = {vm_user("desk-1", 1201, "/dev/vfio/50")};
  machine.users[first[2]] = {vm_user("desk-2", 1202, "/dev/vfio/52")};
}

// Two Grace Hopper modules: another vfio driver, and a PCI domain of their own.
void build_grace(Machine& machine) {
  FakeKernel& kernel = machine.kernel;
  add_drivers(kernel);
  kernel.add_driver({.name = "nvgrace_gpu_vfio_pci", .vfio = true});
  add_nvidia(kernel, {"10de:2342"});
  kernel.add_function({.address = "0009:01:00.0",
                       .ids = "10de:2342",
                       .class_code = 0x030200,
                       .group = 18,
                       .driver = "nvgrace_gpu_vfio_pci",
                       .driver_override = "nvgrace_gpu_vfio_pci",
                       .numa_node = 0});
  kernel.add_function({.address = "0019:01:00.0",
                       .ids = "10de:2342",
                       .class_code = 0x030200,
                       .group = 19,
                       .driver = "nvidia",
                       .numa_node = 1});
  put_link(kernel, "0009:01:00.0", {.speed = kGen5, .width = 1, .max_speed = kGen5, .max_width = 1});
}

// The firmware's VT-d is off.
void build_without_iommu(Machine& machine) {
  FakeKernel& kernel = machine.kernel;
  add_drivers(kernel);
  kernel.add_driver({.name = "nouveau", .ids = {"10de:2684", "10de:2204"}});
  kernel.add_function({.address = "0000:01:00.0", .ids = "10de:2684", .driver = "nouveau"});
  kernel.add_function(
      {.address = "0000:01:00.1", .ids = "10de:22ba", .class_code = 0x040300, .driver = "snd_hda_intel"});
  kernel.add_function({.address = "0000:02:00.0", .ids = "10de:2204"});
}

// Screens of three vendors; one of another vendor shares a GPU's group.
void build_mixed_vendors(Machine& machine) {
  FakeKernel& kernel = machine.kernel;
  add_drivers(kernel);
  kernel.add_driver({.name = "amdgpu", .ids = {"1002:744c"}});
  kernel.add_driver({.name = "xe", .ids = {"8086:56c0"}});
  kernel.add_driver({.name = "nouveau", .ids = {"10de:2684", "10de:1db6"}});
  add_card(kernel, "0000:03:00", "10de:2684", "10de:22ba", 12, "nouveau", "snd_hda_intel");
  kernel.add_function({"10de:1db6", 0x030200}, "0000:05:01.0", 14, "nouveau");
  kernel.add_function({.address = "0000:05:02.0", .ids = "1002:744c", .group = 14, .driver = "amdgpu"});
  add_bridge(kernel, "0000:04:00.0", 14);
  kernel.add_function({"8086:56c0", 0x038000}, "0000:08:00.0", 20, "xe");
}

// 16 GPUs with 32 virtual functions each, on every one a vGPU that a VM may have.
void build_large(Machine& machine) {
  FakeKernel& kernel = machine.kernel;
  add_drivers(kernel);
  add_nvidia(kernel, {"10de:26b9"});
  for (unsigned i = 0; i < 16; ++i) {
    const std::string address = fmt::format("0000:{:02x}:00.0", 0x10 + 8 * i);
    kernel.add_function({.address = address,
                         .ids = "10de:26b9",
                         .class_code = 0x030200,
                         .group = 10 + i,
                         .driver = "nvidia",
                         .numa_node = i < 8 ? 0 : 1,
                         .totalvfs = 32});
    kernel.enable_vfs(address, 32);
    const auto functions = kernel.vfs_of(address);
    for (std::size_t vf = 0; vf < functions.size(); ++vf) {
      const auto nvidia = device_path(functions[vf]) / "nvidia";
      kernel.file(nvidia / "current_vgpu_type", vf < 8 ? "1147\n" : "0\n");
      kernel.file(nvidia / "creatable_vgpu_types", "ID    : vGPU Name\n1147  : NVIDIA L40S-1Q\n");
      if (vf < 4) machine.users[functions[vf]] = {vm_user(fmt::format("vm-{}-{}", i, vf), 2000, "it")};
    }
    kernel.file("proc/driver/nvidia/gpus/" + address + "/unbindLock", "0\n");
  }
}

// What breaks: a GPU off the bus, one whose group is half on vfio, a narrow link, one without a driver, one
// that the kubelet has as unhealthy.
void build_broken(Machine& machine) {
  FakeKernel& kernel = machine.kernel;
  add_drivers(kernel);
  add_nvidia(kernel, {"10de:20b5"});
  add_vfio(kernel);
  const auto add = [&](const std::string& address, unsigned group, const std::string& driver) {
    kernel.add_function({.address = address,
                         .ids = "10de:20b5",
                         .class_code = 0x030200,
                         .group = group,
                         .driver = driver,
                         .driver_override = driver == "vfio-pci" ? driver : "",
                         .numa_node = 0});
  };
  add("0000:21:00.0", 21, "nvidia");
  kernel.file(device_path("0000:21:00.0") / "config", std::string(64, '\xff'));
  add("0000:22:00.0", 22, "vfio-pci");
  kernel.add_function(kinds::kDisk, "0000:22:00.1", 22, "nvme");
  add("0000:23:00.0", 23, "nvidia");
  put_link(kernel, "0000:23:00.0", {.speed = kGen3, .width = 4, .max_speed = kGen4, .max_width = 16});
  add("0000:24:00.0", 24, "");
  add("0000:25:00.0", 25, "vfio-pci");
  kernel.file(
      "run/ferry/plugin/advertised.json",
      advertised_file("nvidia.com/GA100_A100_PCIE_80GB",
                      {{.id = "0000:25:00.0", .group = 25, .reason = "a fatal error (AER) was logged"}}));
}

// No ACS: four GPUs and a network card in one group.
void build_one_group(Machine& machine) {
  FakeKernel& kernel = machine.kernel;
  add_drivers(kernel);
  kernel.add_driver({.name = "nouveau", .ids = {"10de:2204"}});
  add_bridge(kernel, "0000:40:01.0", 7);
  for (const char* slot : {"0000:41:00", "0000:42:00", "0000:43:00", "0000:44:00"})
    add_card(kernel, slot, "10de:2204", "10de:1aef", 7, "nouveau", "snd_hda_intel");
  kernel.add_function(kinds::kNetworkCard, "0000:45:00.0", 7, "mlx5_core");
}

// A node that obeys a policy: hostd says what has become of it, a VM keeps one GPU from its desired mode.
void build_policy_node(Machine& machine) {
  FakeKernel& kernel = machine.kernel;
  add_drivers(kernel);
  add_nvidia(kernel, {"10de:2335"});
  add_vfio(kernel);
  const auto add = [&](const std::string& address, unsigned group, const std::string& driver) {
    kernel.add_function({.address = address,
                         .ids = "10de:2335",
                         .class_code = 0x030200,
                         .group = group,
                         .driver = driver,
                         .driver_override = driver == "vfio-pci" ? driver : "",
                         .numa_node = 1});
  };
  add("0000:18:00.0", 51, "vfio-pci");
  add("0000:2a:00.0", 52, "vfio-pci");
  record_rebind(kernel, "0000:18:00.0", "10de:2335", 51, "nvidia");
  record_rebind(kernel, "0000:2a:00.0", "10de:2335", 52, "nvidia");
  machine.users["0000:2a:00.0"] = {vm_user("train", 912, "/dev/vfio/52")};
  kernel.file(
      "run/ferry/status.json",
      R"({"version":2,"generation":17,"pid":4711,"boot_id":"b","desired":{"generation":12,)"
      R"("policy":"mixed","source":"label gpu-ferry.io/policy=mixed"},"phase":"blocked",)"
      R"("accelerators":[{"address":"0000:18:00.0","id":"10de:2335","model":"GH100 [H200 SXM 141GB]",)"
      R"("iommu_group":51,"driver":"vfio-pci","mode":"passthrough","desired":"passthrough",)"
      R"("state":"ready","reason":"","hint":"","users":[],"only_in_use":false,"vgpus":[]},)"
      R"({"address":"0000:2a:00.0","id":"10de:2335","model":"GH100 [H200 SXM 141GB]",)"
      R"("iommu_group":52,"driver":"vfio-pci","mode":"passthrough","desired":"host",)"
      R"("state":"blocked","reason":"0000:2a:00.0 is in use: VM train (pid 912) holds /dev/vfio/52",)"
      R"("hint":"stop the VM first","users":[{"kind":"virtual_machine","name":"train","pid":912,)"
      R"("pod_uid":null}],"only_in_use":true,"vgpus":[]}],"unavailable":[],"error":null})"
      "\n");
  kernel.file("run/ferry/plugin/advertised.json",
              advertised_file("nvidia.com/GH100_H200_SXM_141GB",
                              {{.id = "0000:18:00.0", .group = 51},
                               {.id = "0000:2a:00.0", .group = 52, .allocated = true}}));
}

// A host with a screen of NVIDIA's alone: binding it takes that.
void build_workstation(Machine& machine) {
  FakeKernel& kernel = machine.kernel;
  add_drivers(kernel);
  kernel.add_driver({.name = "nouveau", .ids = {"10de:2684"}});
  add_card(kernel, "0000:01:00", "10de:2684", "10de:22ba", 2, "nouveau", "snd_hda_intel");
  kernel.file(device_path("0000:01:00.0") / "boot_vga", "1\n");
  machine.users["0000:01:00.0"] = {
      {.kind = vfio::DeviceUser::Kind::boot_display, .name = {}, .pid = {}, .what = {}, .pod_uid = {}}};
}

void build_empty(Machine& machine) {
  add_drivers(machine.kernel);
  machine.kernel.add_function({"8086:15bc", 0x020000}, "0000:00:1f.6", 3);
}

constexpr std::array<ComposedMachine, 13> kMachines = {{
    {.name = "laptop", .what = "a laptop whose GPU sleeps beside the processor's", .build = build_laptop},
    {.name = "nvswitch-board", .what = "eight H100 joined by four NVSwitches", .build = build_nvswitch_board},
    {.name = "t4-server",
     .what = "four T4: the host's, passthrough, divided, full",
     .build = build_t4_server},
    {.name = "sriov-host", .what = "two L40S divided on virtual functions", .build = build_sriov_host},
    {.name = "grace", .what = "two Grace Hopper modules", .build = build_grace},
    {.name = "without-iommu", .what = "a host whose IOMMU is off", .build = build_without_iommu},
    {.name = "mixed-vendors", .what = "GPUs of three vendors", .build = build_mixed_vendors},
    {.name = "large", .what = "16 GPUs with 32 virtual functions each", .build = build_large},
    {.name = "broken", .what = "devices that are broken in five ways", .build = build_broken},
    {.name = "one-group", .what = "four GPUs and a network card in one group", .build = build_one_group},
    {.name = "policy-node", .what = "a node that obeys a policy", .build = build_policy_node},
    {.name = "workstation", .what = "one GPU, and the screen is on it", .build = build_workstation},
    {.name = "empty", .what = "a host without accelerators", .build = build_empty},
}};

}  // namespace

FakeMdev& Machine::mdev() {
  if (!mdev_) mdev_ = std::make_unique<FakeMdev>(kernel);
  return *mdev_;
}

FakeVendorVfio& Machine::vendor() {
  if (!vendor_) vendor_ = std::make_unique<FakeVendorVfio>(kernel);
  return *vendor_;
}

std::span<const ComposedMachine> composed_machines() {
  return kMachines;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& machine : kMachines) names.emplace_back(machine.name);
  return names;
}

std::string row_of_machine(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
}

const ComposedMachine& composed_machine(const std::string& name) {
  const auto found =
      std::ranges::find_if(kMachines, [&](const ComposedMachine& machine) { return machine.name == name; });
  if (found == kMachines.end()) throw std::out_of_range("no composed machine " + name);
  return *found;
}

void put_link(FakeKernel& kernel, const std::string& address, const FakeLink& link) {
  const auto path = device_path(address);
  kernel.file(path / "current_link_speed", link.speed + "\n");
  kernel.file(path / "current_link_width", fmt::format("{}\n", link.width));
  kernel.file(path / "max_link_speed", link.max_speed + "\n");
  kernel.file(path / "max_link_width", fmt::format("{}\n", link.max_width));
}

vfio::DeviceUser vm_user(const std::string& name, int pid, const std::string& node) {
  return {
      .kind = vfio::DeviceUser::Kind::virtual_machine, .name = name, .pid = pid, .what = node, .pod_uid = {}};
}

}  // namespace ferry::test
