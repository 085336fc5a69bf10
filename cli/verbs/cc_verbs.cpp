// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/output/document.h"
#include "cli/output/table.h"
#include "cli/output/wait_note.h"
#include "cli/session.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/exit_status.h"
#include "common/result.h"
#include "common/text/json.h"
#include "common/text/visible_text.h"
#include "host/node_description.h"
#include "vfio/confidential/mode_setting.h"
#include "vfio/pci/pci_function.h"
#include "vfio/registers/chip.h"
#include "vfio/registers/register_access.h"
#include "vfio/registers/register_reading.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using vfio::WantedMode;

/// A GPU or NVSwitch that has confidential modes.
struct CcDevice {
  vfio::PciAddress address;
  bool of_a_board = false;  ///< it has protected PCIe, with all others of its board
  bool nvswitch = false;
  std::string chip = {};     ///< "gh100"; empty: not read
  std::string mode = {};     ///< now; empty: not read
  std::string why_not = {};  ///< why it cannot be changed now; empty: it can
};

/// Why a device may not be touched now; empty: it may.
std::string why_not_free(const host::AcceleratorDescription& device) {
  if (device.function.driver != "vfio-pci")
    return fmt::format(
        "{}, and only vfio-pci keeps VMs away during a change",
        device.function.driver ? "driver " + *device.function.driver + " owns it" : "it has no driver");
  for (const vfio::Finding& finding : device.findings)
    if (finding.blocks(vfio::Blocks::prepare) && finding.rule != vfio::RuleId::not_sanitized &&
        finding.rule != vfio::RuleId::interrupted_mode_change)
      return finding.text;
  return {};
}

Result<std::vector<CcDevice>> read_devices(const Session& session) {
  const vfio::AcceleratorRules rules = session.rules.asking_for_all();
  const auto snapshot = snapshot_node(session, Depth::rows, rules);
  if (!snapshot) return fail(snapshot.error());
  const host::NodeDescription node = host::describe_node(*snapshot, rules, model_names(session));

  std::vector<CcDevice> out;
  std::vector<vfio::PciAddress> free;
  for (const host::AcceleratorDescription& one : node.accelerators) {
    if (one.function.vendor != vfio::kNvidia) continue;
    const bool nvswitch = vfio::is_switch(one.function);
    const auto chip = nvswitch ? std::nullopt : vfio::gpu_chip(one.function.device);
    if (!nvswitch && !chip) continue;
    out.push_back({.address = one.address(),
                   .of_a_board = nvswitch || chip->family == vfio::ChipFamily::hopper,
                   .nvswitch = nvswitch,
                   .why_not = why_not_free(one)});
    if (out.back().why_not.empty()) free.push_back(one.address());
  }
  if (free.empty()) return out;

  for (const auto& [address, registers] : vfio::read_registers(*session.writer, free).functions) {
    const auto device = std::ranges::find(out, address, &CcDevice::address);
    device->chip = registers.chip;
    device->mode = registers.mode();
    if (!registers.problem.empty()) {
      device->why_not = registers.problem;
    } else if (registers.recovery.value_or(false)) {
      device->why_not = "its firmware is in recovery mode";
    } else if (!registers.booted.value_or(true)) {
      device->why_not = "it has not booted";
    } else if (device->mode.empty()) {
      device->why_not = "its mode register cannot be read";
    }
  }
  return out;
}

/// The devices that a command is about, all of which can be changed now.
Result<std::vector<CcDevice>> choose(const std::vector<CcDevice>& all,
                                     const std::set<vfio::PciAddress>& named, WantedMode mode) {
  for (const vfio::PciAddress& address : named)
    if (std::ranges::find(all, address, &CcDevice::address) == all.end())
      return fail(Errc::not_found,
                  fmt::format("{} is no device of this host with confidential modes", address.text()),
                  "GPUs of Hopper and newer have them, and NVSwitches of Hopper boards");
  const bool whole_board = mode == WantedMode::ppcie;
  const auto is_chosen = [&](const CcDevice& device) {
    if (!named.empty()) return named.contains(device.address);
    return whole_board ? device.of_a_board : mode == WantedMode::off || !device.nvswitch;
  };

  std::vector<CcDevice> out;
  std::ranges::copy_if(all, std::back_inserter(out), is_chosen);
  if (out.empty())
    return fail(Errc::not_found,
                fmt::format("no device of this host has the mode '{}'", word_for(vfio::kWantedModes, mode)));
  for (const CcDevice& device : out)
    if (whole_board && !device.of_a_board)
      return fail(Errc::refused,
                  fmt::format("{}: only boards of Hopper have protected PCIe", device.address.text()));
  for (const CcDevice& device : out)
    if (!device.why_not.empty())
      return fail(Errc::refused, fmt::format("{}: {}", device.address.text(), device.why_not),
                  named.empty() ? "name the others with --device, or end its use first" : "");
  const bool leaves_board =
      std::ranges::any_of(out, [](const CcDevice& device) { return device.mode == "ppcie"; });
  for (const CcDevice& device : all)
    if ((whole_board || leaves_board) && device.of_a_board && !is_chosen(device))
      return fail(Errc::refused,
                  fmt::format("{} is left out, and protected PCIe is of all GPUs and NVSwitches of a board",
                              device.address.text()),
                  leaves_board ? "`ferry cc set off` ends it for all of them" : "leave out --device");
  return out;
}

ExitStatus show_plan(const Session& session, const std::vector<CcDevice>& devices, WantedMode mode) {
  const std::string wanted(word_for(vfio::kWantedModes, mode));
  VerbOutput out;
  auto list = json::array();
  Table table({"DEVICE", "CHIP", "NOW", "THEN"});
  for (const CcDevice& device : devices) {
    list.push_back({{"address", device.address.text()}, {"chip", device.chip}, {"mode", device.mode}});
    table.add({device.address.text(), device.chip, device.mode, wanted});
  }
  const bool interrupted = vfio::has_interrupted_mode_change(*session.host);
  out.document = {{"mode", wanted}, {"devices", std::move(list)}, {"interrupted", interrupted}};
  out.text = table.text(text_output(session).columns);
  if (interrupted) out.text += "an earlier change was interrupted: `ferry cc set` undoes it first\n";
  return print(session, out);
}

ExitStatus show(const Session& session, const vfio::ModeOutcome& outcome, WantedMode mode) {
  const auto or_unknown = [](const std::string& text) {
    return text.empty() ? std::string("unknown") : text;
  };
  auto devices = json::array();
  Table table({"DEVICE", "BEFORE", "NOW", "RESULT", "PROBLEM"});
  for (const vfio::DeviceOutcome& device : outcome.devices) {
    const std::string result(word_for(vfio::kModeResults, device.result));
    devices.push_back({{"address", device.address.text()},
                       {"before", or_null(device.before)},
                       {"after", or_null(device.after)},
                       {"result", result},
                       {"problem", or_null(device.problem)}});
    table.add({device.address.text(), or_unknown(device.before), or_unknown(device.after), result,
               visible_line(device.problem)});
  }
  VerbOutput out{.document = {{"mode", word_for(vfio::kWantedModes, mode)},
                              {"devices", std::move(devices)},
                              {"problem", or_null(outcome.problem)}},
                 .text = table.text(text_output(session).columns)};
  (void)print(session, out);
  if (outcome.problem.empty()) return ExitStatus::done;

  Error error{.code = make_error_code(outcome.refused ? Errc::refused : Errc::failed),
              .message = outcome.problem};
  const auto interrupted = vfio::interrupted_mode_changes(*session.host);
  if (!interrupted.empty())
    error.hint = fmt::format(
        "start no VM with {}: its next reset may change its mode; `ferry cc set` tries to undo "
        "the change again",
        join(interrupted));
  else if (!vfio::has_interrupted_mode_change(*session.host) && !outcome.devices.empty())
    error.hint = "all devices are as before";
  return complain(error);
}

/// Undoes an earlier change that a crash has interrupted, and says so.
void undo_earlier_change(const Session& session) {
  if (!vfio::has_interrupted_mode_change(*session.host)) return;
  const vfio::ModeOutcome undone = [&] {
    const WaitNote waits("undoing an interrupted change");
    return vfio::undo_interrupted_mode_change(*session.writer, *session.host);
  }();
  if (!undone.problem.empty())
    (void)complain({.code = make_error_code(Errc::failed), .message = undone.problem});
  for (const vfio::DeviceOutcome& device : undone.devices) {
    const bool unknown = device.result == vfio::ModeResult::unknown;
    fmt::print(stderr, "ferry: {}: an interrupted change of its mode {}{}\n", device.address.text(),
               unknown                                      ? "is not undone: "
               : device.result == vfio::ModeResult::changed ? "had ended"
                                                            : "is undone",
               unknown ? visible_line(device.problem) : "");
  }
}

}  // namespace

ExitStatus cc_verb(const Session& session, const CcOptions& options) {
  const auto mode = value_for(vfio::kWantedModes, options.mode);
  if (!mode)
    return complain(
        {.code = make_error_code(Errc::usage), .message = "there is no mode '" + options.mode + "'"});
  const auto named = parse_gpus(options.devices);
  if (!named) return complain(named.error());
  const auto change = begin_change(session);
  if (!change) return complain(change.error());

  if (!session.dry_run) undo_earlier_change(session);
  const auto all = read_devices(session);
  if (!all) return complain(all.error());
  const auto chosen = choose(*all, *named, *mode);
  if (!chosen) return complain(chosen.error());
  if (session.dry_run) return show_plan(session, *chosen, *mode);

  std::vector<vfio::PciAddress> devices;
  for (const CcDevice& device : *chosen) devices.push_back(device.address);
  const auto outcome = [&] {
    const WaitNote waits("changing the confidential mode");
    return vfio::set_modes(*session.writer, *session.host, devices, *mode);
  }();
  return show(session, outcome, *mode);
}

}  // namespace ferry::cli
