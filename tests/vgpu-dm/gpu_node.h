// SPDX-License-Identifier: Apache-2.0
// The node that several tests of this room give vGPUs to: T4s that carry them, other GPUs beside.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/fake_mdev.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/plan/stable_uuid.h"
#include "vgpu-dm/profile/profile_yaml.h"

namespace ferry::test {

inline vfio::PciAddress at(const std::string& text) {
  return vfio::PciAddress::parse(text).value();
}

/// A profile of one or more items; their first line is line 4 of "p.yaml".
inline vgpu::Profile profile(const std::string& items) {
  const auto file = vgpu::read_profiles({.file = "p.yaml",
                                         .text = "version: v1\nvgpu-configs:\n  mix:\n" + items,
                                         .first_line = 1,
                                         .one_line = false});
  if (!file) throw std::logic_error(file.error().message);
  return vgpu::select_profile(*file, {}).value();
}

/// `all` GPUs, or a list: on each `vgpus`, a YAML map.
inline vgpu::Profile on(const std::string& devices, const std::string& vgpus) {
  return profile("  - devices: " + devices + "\n    vgpu-devices: " + vgpus + "\n");
}

inline std::string message_of(const std::optional<Error>& error) {
  return error ? error->message : "(no error)";
}
inline std::string hint_of(const std::optional<Error>& error) {
  return error ? error->hint : "(no error)";
}
inline std::error_code code_of(const std::optional<Error>& error) {
  return error ? error->code : std::error_code();
}

/// Answers from a table; what is not in it is free.
class TableProbe final : public vfio::UseProbe {
 public:
  std::map<std::string, std::vector<vfio::DeviceUser>> users;
  std::vector<std::string> unknown;
  std::string blind;
  std::optional<Error> error;
  int looks = 0;
  std::function<void(int)> before_scan;  ///< what happens on the host meanwhile; the number of the look

  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override {
    ++looks;
    if (before_scan) before_scan(looks);
    if (error) return fail(*error);
    vfio::UseReport report{.users = {}, .unknown = unknown, .blind = blind};
    for (const vfio::UseQuestion& question : questions) {
      if (const auto found = users.find(question.device); found != users.end()) report.users.insert(*found);
    }
    return report;
  }
  void hold(const std::string& uuid) {
    users[uuid] = {{.kind = vfio::DeviceUser::Kind::virtual_machine,
                    .name = "render",
                    .pid = 412,
                    .what = "/dev/vfio/100",
                    .pod_uid = {}}};
  }
};

/// GPU 0 and GPU 1 are T4s; GPU 2 is on a driver that offers no vGPUs.
class GpuNode {
 public:
  static constexpr const char* kFirst = "0000:05:00.0";
  static constexpr const char* kSecond = "0000:06:00.0";
  static constexpr const char* kOther = "0000:07:00.0";

  GpuNode() {
    kernel.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    kernel.add_driver({.name = "nouveau", .ids = {"10de:2684"}});
    for (const char* address : {kFirst, kSecond}) {
      kernel.add_function({.address = address,
                           .ids = "10de:1eb8",
                           .subsystem_ids = "10de:12a2",
                           .class_code = 0x030200,
                           .driver = "nvidia"});
      mdev.add_parent(address);
    }
    kernel.add_function({.address = kOther, .driver = "nouveau"});
  }

  vgpu::VgpuHost host() {
    return {.host = kernel,
            .writer = kernel,
            .uses = probe,
            .rules = {.vendors = {0x10de}, .classes = {vfio::PciClass::vga, vfio::PciClass::display_3d}},
            .node = "node-a",
            .pause = [](auto) {}};
  }
  vgpu::VgpuSnapshot snapshot() { return look(host()).value(); }
  vgpu::VgpuOutcome apply(const vgpu::Profile& profile) {
    return vgpu::apply_profile(host(), profile).value();
  }
  /// The profile's own vGPUs, as a run of ours would make them.
  void make(const vgpu::Profile& profile) {
    apply(profile);
    kernel.forget_changes();
  }
  /// The UUID that the `number`th of a type gets.
  static std::string uuid(const std::string& address, const std::string& type, unsigned number) {
    return vgpu::stable_uuid("node-a", at(address), type, number).text;
  }
  /// "T4-4Q UUID" of all vGPUs of the node.
  std::string state() const {
    std::string out;
    for (const char* address : {kFirst, kSecond}) {
      for (const std::string& device : mdev.devices_on(address))
        out += std::string(address) + " " + device + "\n";
    }
    return out;
  }

  /// Takes away what the driver says of a type's size and maximum.
  void undescribe(const std::string& address, const std::string& type_id) {
    kernel.remove("sys/devices/pci0000:00/" + address + "/mdev_supported_types/" + type_id + "/description");
  }
  /// Makes a GPU one that the table of types has not.
  void make_unknown(const std::string& address) { kernel.overwrite_id(address, "device", "0x1eb9\n"); }

  FakeKernel kernel;
  FakeMdev mdev{kernel};
  TableProbe probe;
};

}  // namespace ferry::test
