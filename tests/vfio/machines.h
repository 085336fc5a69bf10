// SPDX-License-Identifier: Apache-2.0
// The machines on which several tests of this room bind GPUs.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <sys/utsname.h>
#include <utility>
#include <vector>

#include "tests/support/fake_kernel.h"
#include "vfio/bind/rebind_apply.h"

namespace ferry::test {

inline vfio::AcceleratorRules gpu_rules() {
  return {.vendors = {0x10de}, .classes = {vfio::PciClass::vga, vfio::PciClass::display_3d}};
}

inline vfio::PciAddress at(const std::string& text) {
  return vfio::PciAddress::parse(text).value();
}

/// What a failed unit says.
inline Error error_of(const vfio::RebindResult& result) {
  return result.error ? *result.error : Error{.code = {}, .message = "(no error)", .hint = {}};
}

/// Drivers that hosts load at boot.
inline void add_host_drivers(FakeKernel& kernel) {
  kernel.add_driver({.name = "nouveau", .ids = {"10de:2684", "10de:1db6"}});
  kernel.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
  kernel.add_driver({.name = "xhci_hcd", .ids = {"class:0c03"}});
  kernel.add_driver({.name = "radeon", .ids = {"1002:5046"}});
  kernel.add_driver({.name = "pcieport", .ids = {"class:0604"}});
  kernel.add_driver({.name = "nvme", .ids = {"class:0108"}});
}

/// A card with four functions behind a port in one group: GPU and audio and USB bound, UCSI without a driver.
inline void add_four_function_card(FakeKernel& kernel) {
  kernel.add_function({.address = "0000:64:00.0",
                       .ids = "8086:2030",
                       .class_code = 0x060400,
                       .group = 41,
                       .driver = "pcieport",
                       .header_type = 1});
  kernel.add_function({.address = "0000:65:00.0",
                       .group = 41,
                       .driver = "nouveau",
                       .consumers = {"0000:65:00.1", "0000:65:00.2", "0000:65:00.3"}});
  kernel.add_function(kinds::kAudio, "0000:65:00.1", 41, "snd_hda_intel");
  kernel.add_function({"10de:1ad6", 0x0c0330}, "0000:65:00.2", 41, "xhci_hcd");
  kernel.add_function({.address = "0000:65:00.3", .ids = "10de:1ad7", .class_code = 0x0c8000, .group = 41});
}

/// Puts a line into the running kernel's modules.alias: "PATTERN MODULE".
inline void add_alias(FakeKernel& kernel, const std::string& alias) {
  utsname system{};
  ::uname(&system);
  const auto path = std::filesystem::path("lib/modules") / system.release / "modules.alias";
  kernel.file(path, kernel.read_file(path).value() + "alias " + alias + "\n");
}

/// Answers from a table; asked about something else, it is free.
class TableProbe final : public vfio::UseProbe {
 public:
  std::map<std::string, std::vector<vfio::DeviceUser>> users;
  std::vector<std::string> unknown;
  std::vector<std::string> asked;  ///< the devices of the last look
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override {
    asked.clear();
    vfio::UseReport report{.users = {}, .unknown = unknown};
    for (const vfio::UseQuestion& question : questions) {
      asked.push_back(question.device);
      if (const auto found = users.find(question.device); found != users.end()) {
        report.users.insert(*found);
      }
    }
    return report;
  }
};

/// Answers as a test's function does, which gets the number of the look, counted from 1.
class ProbeOf final : public vfio::UseProbe {
 public:
  explicit ProbeOf(std::function<vfio::UseReport(int look)> answer) : answer_(std::move(answer)) {}
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> /*questions*/) override {
    return answer_(++looks_);
  }

 private:
  std::function<vfio::UseReport(int look)> answer_;
  int looks_ = 0;
};

}  // namespace ferry::test
