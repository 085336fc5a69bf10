// SPDX-License-Identifier: Apache-2.0
// Nodes whose GPUs are for ResourceClaims, and hostd's keeper of claims on them.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "api/claim_request.h"
#include "api/claimable_gpus.h"
#include "api/files.h"
#include "host/claims/claim_keeper.h"
#include "host/claims/claim_record.h"
#include "host/claims/claimable_gpus.h"
#include "mdev/gpu_management.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/fake_mdev.h"
#include "tests/support/fake_vendor_vfio.h"
#include "tests/support/must.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::host {

/// Free, but for what a test says.
class ClaimUsers final : public vfio::UseProbe {
 public:
  std::map<std::string, vfio::DeviceUser> held;
  std::string blind;
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override {
    vfio::UseReport report;
    report.blind = blind;
    for (const vfio::UseQuestion& question : questions)
      if (const auto user = held.find(question.device); user != held.end())
        report.users[question.device] = {user->second};
    return report;
  }
};

/// A node for ResourceClaims, and hostd's keeper of claims on it. A test adds its GPUs.
class ClaimHost {
 public:
  static vfio::PciAddress at(const std::string& address) {
    return test::must(vfio::PciAddress::parse(address));
  }
  static api::ClaimRequest request(const std::string& uid, const std::vector<api::RequestedDevice>& devices) {
    api::ClaimRequest out{
        .action = api::ClaimAction::prepare, .claim = uid, .space = "studio", .name = "render-" + uid};
    for (const api::RequestedDevice& device : devices)
      out.devices.push_back({.device = device,
                             .request = "card",
                             .pool = "node7/gpu-ferry",
                             .name = "device-" + std::to_string(out.devices.size())});
    return out;
  }
  static api::ClaimRequest undo_request(const std::string& uid) {
    api::ClaimRequest out = request(uid, {});
    out.action = api::ClaimAction::unprepare;
    return out;
  }

  ClaimKeeper::Answer prepare(const std::string& uid, const std::vector<api::RequestedDevice>& devices) {
    return keeper.serve(request(uid, devices));
  }
  ClaimKeeper::Answer unprepare(const std::string& uid) { return keeper.serve(undo_request(uid)); }
  ClaimRecord record() const { return test::must(load_claim_record(kernel)); }
  NodeContext context(const NodeProbes& uses) {
    return {.rebind_context = {.host = &kernel,
                               .writer = &kernel,
                               .probe = &uses.for_rebinds,
                               .rules = rules,
                               .on_step = {}},
            .vgpu_host = {.host = kernel,
                          .writer = kernel,
                          .uses = uses.for_vgpus,
                          .rules = rules,
                          .node = "node-a",
                          .pause = [](auto) {},
                          .management = management}};
  }

  test::FakeKernel kernel;
  vfio::AcceleratorRules rules{.vendors = {0x10de},
                               .classes = {vfio::PciClass::display_3d},
                               .of_other_vendors = {vfio::PciClass::vga}};
  mdev::GpuManagement* management = nullptr;
  ClaimUsers users;
  ClaimKeeper keeper{kernel,
                     {.for_rebinds = users, .for_vgpus = users, .open_nodes = users},
                     [this](const NodeProbes& uses) { return context(uses); },
                     {.lock_patience = std::chrono::milliseconds(1)}};

 protected:
  ClaimHost() {
    kernel.file("proc/sys/kernel/random/boot_id", "b\n");
    kernel.file("dev/vfio/vfio", "");
  }
};

/// A node with one GPU, which hostd lists for claims as its policy says.
class OneGpuNode : public ClaimHost {
 public:
  static constexpr const char* kGpu = "0000:17:00.0";
  static vfio::PciAddress gpu() { return at(kGpu); }

  /// A round of hostd, which asks the driver's library.
  void publish() {
    const vfio::Inventory inventory = test::must(vfio::scan(kernel));
    const ScannedNode node{.inventory = inventory,
                           .vgpus = test::must(vgpu::scan_known_vgpus(kernel, inventory, rules))};
    const std::set<vfio::PciAddress> dra = {gpu()};
    ClaimableFacts facts{.node = node,
                         .models = product_,
                         .rules = rules,
                         .for_dra = for_dra,
                         .dra = dra,
                         .before = claimable};
    test::must(read_claimable_facts(kernel, facts));
    asked = gpus_without_placements(facts);
    asked.merge(gpus_with_instances(facts));
    for (const vfio::PciAddress& one : asked) facts.managed.emplace(one, ask_library(one));
    claimable = claimable_gpus(facts);
    kernel.file(api::kClaimableGpusFile, api::claimable_gpus_text(claimable));
  }

  std::map<vfio::PciAddress, policy::AllowedDevices> for_dra = {{gpu(), {}}};
  std::vector<api::ClaimableGpu> claimable;
  std::set<vfio::PciAddress> asked;  // by the last round
  std::function<Result<mdev::ManagedGpu>(const vfio::PciAddress& gpu)> ask_library =
      [](const vfio::PciAddress&) { return fail(Errc::unsupported, "no libnvidia-ml.so.1"); };

 protected:
  explicit OneGpuNode(const std::string& product)
      : product_([product](const vfio::PciFunction&) { return product; }) {}

 private:
  const policy::ModelNames product_;
};

/// T4s: one with audio in its group, one that makes mediated devices, one with virtual functions for
/// vendor-specific VFIO, and two in one group.
class ClaimNode : public ClaimHost {
 public:
  static constexpr const char* kWhole = "0000:05:00.0";
  static constexpr const char* kAudio = "0000:05:00.1";
  static constexpr const char* kMdev = "0000:06:00.0";
  static constexpr const char* kVendor = "0000:07:00.0";
  static constexpr const char* kPair = "0000:08:00.0";
  static constexpr const char* kOtherOfPair = "0000:09:00.0";
  static constexpr const char* kMdevType = "nvidia-232";  // T4-4Q
  static constexpr const char* kVendorType = "232";

  ClaimNode() {
    kernel.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}, .sriov = true});
    kernel.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
    add_gpu(kWhole, 5, 0);
    kernel.add_function({.address = kAudio,
                         .ids = "10de:10f8",
                         .class_code = 0x040300,
                         .group = 5,
                         .driver = "snd_hda_intel"});
    add_gpu(kMdev, 6, 0);
    mdev.add_parent(kMdev);
    add_gpu(kVendor, 7, 4);
    kernel.enable_vfs(kVendor, 4);
    vendor.add_gpu(kVendor, test::t4_types());
    add_gpu(kPair, 8, 0);
    add_gpu(kOtherOfPair, 8, 0);
    publish(gpus());
  }

  /// All GPUs, for DRA.
  static std::vector<api::ClaimableGpu> gpus() {
    std::vector<api::ClaimableGpu> out;
    std::uint32_t group = 5;
    for (const char* address : {kWhole, kMdev, kVendor, kPair, kOtherOfPair}) {
      api::ClaimableGpu gpu{.address = at(address)};
      gpu.iommu_group = group;
      gpu.vendor = 0x10de;
      gpu.device = 0x1eb8;
      gpu.product = "TU104GL [Tesla T4]";
      gpu.memory_mib = 16384;
      if (address == std::string(kMdev)) add_type(api::VgpuFramework::mdev, kMdevType, gpu);
      if (address == std::string(kVendor)) add_type(api::VgpuFramework::vendor_vfio, kVendorType, gpu);
      out.push_back(gpu);
      if (address != std::string(kPair)) ++group;
    }
    return out;
  }
  void publish(const std::vector<api::ClaimableGpu>& gpus) {
    kernel.file(api::kClaimableGpusFile, api::claimable_gpus_text(gpus));
  }

  static api::RequestedDevice whole(const char* gpu) { return {.gpu = at(gpu)}; }
  static api::RequestedDevice vgpu(const char* gpu, const char* type) {
    return {.gpu = at(gpu), .type = type};
  }

  /// Of each GPU: drivers and overrides, the number of virtual functions, vGPUs.
  std::string state() const {
    std::string out;
    for (const char* gpu : {kWhole, kAudio, kMdev, kVendor, kPair, kOtherOfPair}) {
      out += std::string(gpu) + " " + kernel.driver_of(gpu) + "(" + kernel.override_of(gpu) + ") " +
             std::to_string(kernel.vfs_of(gpu).size());
      for (const std::string& one : vgpus_on(gpu)) out += " " + one;
      out += "\n";
    }
    return out;
  }
  std::vector<std::string> vgpus_on(const std::string& gpu) const {
    if (gpu == kVendor) return vendor.devices_on(gpu);
    return gpu == kMdev ? mdev.devices_on(gpu) : std::vector<std::string>();
  }
  /// The files of claims, in both folders.
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    for (const char* folder : {api::kCdiFolder, kClaimMetadataFolder})
      for (const std::string& name : kernel.list(folder).value_or(std::vector<std::string>()))
        out.push_back(std::string(folder) + "/" + name);
    return out;
  }
  /// Writes to sysfs, and loaded modules.
  std::size_t host_changes() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(kernel.changes(), [](const test::HostChange& change) {
          const auto has = [&](const char* folder) { return change.path.find(folder) != std::string::npos; };
          return !has("run/ferry") && !has(api::kCdiFolder) && !has(kClaimMetadataFolder);
        }));
  }
  std::vector<std::string> undo_journals() const {
    return kernel.list("run/ferry/hostd/moves").value_or(std::vector<std::string>());
  }

  test::FakeMdev mdev{kernel};
  test::FakeVendorVfio vendor{kernel};

 private:
  void add_gpu(const char* address, unsigned group, unsigned totalvfs) {
    kernel.add_function({.address = address,
                         .ids = "10de:1eb8",
                         .subsystem_ids = "10de:12a2",
                         .class_code = 0x030200,
                         .group = group,
                         .driver = "nvidia",
                         .totalvfs = totalvfs > 0 ? std::optional(totalvfs) : std::nullopt});
  }
  static void add_type(api::VgpuFramework framework, const char* id, api::ClaimableGpu& gpu) {
    gpu.framework = framework;
    gpu.types.push_back(
        {.id = id, .name = "GRID T4-4Q", .short_name = "T4-4Q", .framebuffer_mib = 4096, .most_per_gpu = 4});
  }
};

}  // namespace ferry::host
