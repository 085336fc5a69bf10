// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/output/document.h"
#include "cli/output/table.h"
#include "cli/output/wait_note.h"
#include "cli/verbs/verbs.h"
#include "virt/virt_client.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

std::string ids_text(const virt::PciIds& ids) {
  return fmt::format("{:04x}:{:04x} ({:04x}:{:04x})", ids.vendor, ids.device, ids.subsystem_vendor,
                     ids.subsystem_device);
}

json to_json(const virt::PciIds& ids) {
  return {{"vendor", fmt::format("{:04x}", ids.vendor)},
          {"device", fmt::format("{:04x}", ids.device)},
          {"subsystem_vendor", fmt::format("{:04x}", ids.subsystem_vendor)},
          {"subsystem_device", fmt::format("{:04x}", ids.subsystem_device)}};
}

}  // namespace

ExitStatus selftest_verb(const Session& session, const virt::SelftestOptions& options) {
  const virt::VirtHelper helper{.program = virt::virt_program(), .host_root = session.host->root()};
  auto report = [&] {
    const WaitNote waits("running the VM");
    return virt::run_selftest(helper, options);
  }();
  if (!report) return complain(report.error());

  Table table({"DEVICE", "IDS (SUBSYSTEM)", "SEEN IN THE GUEST AS"});
  json devices = json::array();
  for (const virt::SelftestDevice& device : report->devices) {
    table.add(
        {device.device, ids_text(device.host_ids), device.seen_as ? device.seen_as->text() : "not seen"});
    json entry = to_json(device.host_ids);
    entry["asked"] = device.device;
    entry["seen_as"] = device.seen_as ? json(device.seen_as->text()) : json(nullptr);
    devices.push_back(std::move(entry));
  }
  json guest = json::array();
  for (const virt::GuestDevice& device : report->guest) {
    json entry = to_json(device.ids);
    entry["address"] = device.address.text();
    entry["class"] = fmt::format("{:06x}", device.class_code);
    guest.push_back(std::move(entry));
  }
  const std::string end =
      fmt::format("{} in {:.1f} s\n", report->passed() ? "passed" : "failed", report->seconds);
  return print(session, {.document = {{"passed", report->passed()},
                                      {"domain", report->domain},
                                      {"seconds", report->seconds},
                                      {"devices", devices},
                                      {"guest", guest}},
                         .text = table.text() + end,
                         .status = report->passed() ? ExitStatus::done : ExitStatus::failed});
}

}  // namespace ferry::cli
