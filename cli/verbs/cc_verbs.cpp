// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/output/document.h"
#include "cli/output/table.h"
#include "cli/output/vgpu_report.h"
#include "cli/output/wait_note.h"
#include "cli/session.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/exit_status.h"
#include "common/process/standard_streams.h"
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
  vfio::Chip chip = {};
  std::string mode = {};     ///< now; empty: not read
  std::string why_not = {};  ///< why it cannot be changed now; empty: it can

  bool has(WantedMode wanted) const { return !vfio::knobs_of(chip.family, wanted).empty(); }
};

// NVIDIA's NVSwitch of A100 boards: lr10. Those of Hopper boards are ls10.
constexpr std::uint16_t kSwitchOfA100 = 0x1af1;

/// The chip of a GPU or NVSwitch with confidential modes; absent: it has none.
std::optional<vfio::Chip> chip_of(const vfio::PciFunction& function) {
  if (function.vendor != vfio::kNvidia) return std::nullopt;
  if (!vfio::is_switch(function)) return vfio::gpu_chip(function.device);
  if (function.device == kSwitchOfA100) return std::nullopt;
  return vfio::Chip{.name = "ls10", .family = vfio::ChipFamily::ls10};
}

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
  const auto snapshot = snapshot_node(session, rules);
  if (!snapshot) return fail(snapshot.error());
  const host::NodeDescription node = host::describe_node(*snapshot, rules, model_names(session));

  std::vector<CcDevice> out;
  std::vector<vfio::PciAddress> free;
  for (const host::AcceleratorDescription& one : node.accelerators) {
    const auto chip = chip_of(one.function);
    if (!chip) continue;
    out.push_back({.address = one.address(), .chip = *chip, .why_not = why_not_free(one)});
    if (out.back().why_not.empty()) free.push_back(one.address());
  }
  if (free.empty()) return out;

  for (const auto& [address, registers] : vfio::read_registers(*session.writer, free).functions) {
    const auto device = std::ranges::find(out, address, &CcDevice::address);
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

/// Takes out the NVSwitches that cannot be changed now, unless there are no other devices. Returns a note for
/// each. A driver of the host may keep them while no GPU is in protected PCIe, their only mode.
std::vector<std::string> leave_out_switches(std::vector<CcDevice>& devices) {
  std::vector<std::string> notes;
  const auto is_kept = [](const CcDevice& device) {
    return device.chip.family == vfio::ChipFamily::ls10 && !device.why_not.empty();
  };
  if (std::ranges::all_of(devices, is_kept)) return notes;
  for (const CcDevice& device : devices)
    if (is_kept(device))
      notes.push_back(fmt::format("{} is left out, since no GPU is in protected PCIe: {}",
                                  device.address.text(), device.why_not));
  std::erase_if(devices, is_kept);
  return notes;
}

/// The devices that a command is about, all of which can be changed now.
Result<std::vector<CcDevice>> choose(const std::vector<CcDevice>& all,
                                     const std::set<vfio::PciAddress>& named, WantedMode mode) {
  for (const vfio::PciAddress& address : named)
    if (std::ranges::find(all, address, &CcDevice::address) == all.end())
      return fail(Errc::not_found,
                  fmt::format("{} is no device of this host with confidential modes", address.text()),
                  "GPUs of Hopper and newer have them, and NVSwitches of Hopper boards");
  const auto is_chosen = [&](const CcDevice& device) {
    return named.empty() ? device.has(mode) : named.contains(device.address);
  };

  std::vector<CcDevice> out;
  std::ranges::copy_if(all, std::back_inserter(out), is_chosen);
  const std::string_view word = word_for(vfio::kWantedModes, mode);
  if (out.empty())
    return fail(Errc::not_found, fmt::format("no device of this host has the mode '{}'", word));
  for (const CcDevice& device : out)
    if (!device.has(mode))
      return fail(
          Errc::refused,
          fmt::format("{}: its chip {} has no mode '{}'", device.address.text(), device.chip.name, word),
          "docs/cc.md has the modes of each chip");

  const bool leaves_board =
      std::ranges::any_of(out, [](const CcDevice& device) { return device.mode == "ppcie"; });
  const bool whole_board = leaves_board || mode == WantedMode::ppcie;
  std::vector<std::string> notes;
  if (named.empty() && !whole_board) notes = leave_out_switches(out);
  for (const CcDevice& device : out) {
    if (device.why_not.empty()) continue;
    const char* hint = named.empty() ? "name the others with --device, or end its use first" : "";
    if (whole_board)
      hint = "protected PCIe is of all GPUs and NVSwitches of a board: this one must be ready first";
    return fail(Errc::refused, fmt::format("{}: {}", device.address.text(), device.why_not), hint);
  }
  print_to_stderr("{}", note_lines(notes, ""));
  for (const CcDevice& device : all)
    if (whole_board && device.has(WantedMode::ppcie) && !is_chosen(device))
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
    list.push_back({{"address", device.address.text()}, {"chip", device.chip.name}, {"mode", device.mode}});
    table.add({device.address.text(), std::string(device.chip.name), device.mode, wanted});
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
  const VerbOutput out{.document = {{"mode", word_for(vfio::kWantedModes, mode)},
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

  const auto record = vfio::mode_record_of(*session.host);
  if (!record) return complain(record.error());
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
