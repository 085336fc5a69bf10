// SPDX-License-Identifier: Apache-2.0
#include "vfio/confidential/mode_setting.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/text/json.h"
#include "common/text/json_fields.h"
#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "vfio/pci/pci_function.h"
#include "vfio/registers/reading_record.h"
#include "vfio/registers/register_access.h"
#include "vfio/registers/register_reading.h"
#include "vfio/use_probe.h"

namespace ferry::vfio {

template <typename Io, SameAs<KnobValue> Value>
void fields(Io& io, Value& value) {
  io("knob", value.knob);
  io("value", value.value);
}

template <typename Io, SameAs<RecordedDevice> Value>
void fields(Io& io, Value& device) {
  io("address", device.address);
  io("ids", device.ids);
  io("wanted", device.wanted);
  io("mode", device.mode);
  io.or_default("reset_methods", device.reset_methods);
  io("knobs", device.knobs);
}

template <typename Io, SameAs<ModeRecord> Value>
void fields(Io& io, Value& record) {
  io.version(1);
  io("devices", record.devices);
}

template <typename Io, SameAs<DeviceOutcome> Value>
void fields(Io& io, Value& device) {
  io("address", device.address);
  io("before", device.before);
  io("after", device.after);
  io("result", device.result);
  io("problem", device.problem);
}

template <typename Io, SameAs<ModeOutcome> Value>
void fields(Io& io, Value& outcome) {
  io("devices", outcome.devices);
  io("problem", outcome.problem);
  io("refused", outcome.refused);
}

namespace {

constexpr std::string_view kUndo = "undo";
constexpr const char* kRecordHint =
    "it says which settings devices had before a change that was interrupted; docs/cc.md says what to do";

// The kernel waits for up to 60 s for a device after a reset.
constexpr std::chrono::seconds kForOneDevice{180};

/// The ids of the board that has replaced a recorded one. Empty: none has, or that cannot be read now.
std::string replaced_by(const HostFs& host, const RecordedDevice& device) {
  const auto now = read_function(host, device.address);
  return now && !now->problem && now->ids() != device.ids ? now->ids() : std::string();
}

class KernelBoard final : public ModeBoard, public PollClock {
 public:
  /// `recorded`: what the file has of all devices.
  KernelBoard(HostFs& host, ReadingRecord reading, ModeRecord recorded)
      : host_(host), reading_(std::move(reading)), recorded_(std::move(recorded)) {}
  ~KernelBoard() override { (void)reading_.restore(host_); }

  /// Keeps VMs away from a device. Errc::refused: it is in use, or is not on vfio-pci.
  Result<> hold(const PciAddress& address) {
    auto function = read_function(host_, address);
    if (!function) return fail(std::move(function).error());
    if (function->problem) return fail(*function->problem);
    const auto group = function->iommu_group;
    if (function->driver != "vfio-pci" || !group)
      return fail(
          Errc::refused,
          fmt::format("{} is not on vfio-pci, whose IOMMU group keeps VMs away meanwhile", address.text()));
    const auto hold = [&] {
      devices_.insert_or_assign(address, Held{.function = std::move(*function), .registers = {}});
      return Result<>();
    };
    if (groups_.contains(*group)) return hold();
    for (const std::string& name : group_node_names(*group)) {
      auto node = host_.open("dev/vfio/" + name, O_RDWR);
      if (!node && is_gone(node.error())) continue;
      if (!node && node.error().code == std::errc::device_or_resource_busy)
        return fail(Errc::refused, fmt::format("{} is in use: its IOMMU group is open", address.text()));
      if (!node) return fail(std::move(node).error());
      groups_.emplace(*group, std::move(*node));
      return hold();
    }
    return fail(Errc::refused,
                fmt::format("{}: its IOMMU group has no node in /dev/vfio to keep VMs away", address.text()));
  }

  /// Removes the entries of boards that others have replaced: their settings went with them. Returns a
  /// warning; empty: there are none.
  Result<std::string> drop_replaced() {
    std::string out;
    std::erase_if(recorded_.devices, [&](const RecordedDevice& device) {
      const std::string now = replaced_by(host_, device);
      if (now.empty()) return false;
      out += fmt::format(
          "{}{}: a change of the confidential mode of a board {} was interrupted, and a board {} is there "
          "now: the entry is removed from /{}",
          out.empty() ? "" : "; ", device.address.text(), device.ids, now, kModeRecordFile);
      return true;
    });
    if (out.empty()) return out;
    // No device is held yet, so that this writes the other entries.
    if (auto written = record({}); !written) return fail(std::move(written).error());
    return out;
  }

  PollClock& clock() override { return *this; }
  std::chrono::milliseconds now() const override {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
  }
  void sleep(std::chrono::milliseconds pause) override { std::this_thread::sleep_for(pause); }

  Result<Registers*> reach(const PciAddress& device) override {
    Held& held = devices_.at(device);
    auto registers = open_registers(host_, reading_, held.function, MappedRegisters::Access::write);
    if (!registers) return fail(std::move(registers).error());
    held.registers = std::move(*registers);
    return held.registers.get();
  }

  std::optional<Chip> chip(const PciAddress& device) override {
    const PciFunction& function = devices_.at(device).function;
    return is_switch(function) ? std::nullopt : gpu_chip(function.device);
  }

  std::string ids(const PciAddress& device) override { return devices_.at(device).function.ids(); }

  // ABI: sysfs `reset` and, since Linux 5.15, `reset_method`: drivers/pci/pci-sysfs.c.
  Result<> expect_reset(const PciAddress& device) override {
    const auto path = sysfs_path(device);
    if (host_.exists(path / "reset") &&
        !host_.read_attribute(path / "reset_method").value_or("reset").empty())
      return {};
    return fail(Errc::unsupported, "the kernel knows no method to reset it");
  }

  std::string reset_methods(const PciAddress& device) override {
    return host_.read_attribute(sysfs_path(device) / "reset_method").value_or("");
  }
  Result<> set_reset_methods(const PciAddress& device, const std::string& methods) override {
    return host_.write_attribute(sysfs_path(device) / "reset_method", methods);
  }

  Result<> reset(const PciAddress& device) override {
    const auto path = sysfs_path(device);
    if (host_.link_name(path / "driver").value_or("") != "vfio-pci")
      return fail(Errc::refused, "its driver has changed meanwhile");
    auto done = host_.write_attribute(path / "reset", "1");
    if (!done && done.error().code == std::errc::inappropriate_io_control_operation)
      return fail(Errc::failed,
                  fmt::format("none of the kernel's methods ({}) can reset it", reset_methods(device)));
    return done;
  }

  Result<> record(const std::vector<RecordedDevice>& devices) override {
    std::erase_if(recorded_.devices,
                  [&](const RecordedDevice& device) { return devices_.contains(device.address); });
    recorded_.devices.insert(recorded_.devices.end(), devices.begin(), devices.end());
    if (recorded_.devices.empty()) return host_.remove_file(kModeRecordFile);
    return host_.write_file(kModeRecordFile, mode_record_text(recorded_));
  }

  const std::vector<RecordedDevice>& recorded() const { return recorded_.devices; }

 private:
  struct Held {
    PciFunction function;
    std::unique_ptr<MappedRegisters> registers;
  };
  HostFs& host_;
  ReadingRecord reading_;
  ModeRecord recorded_;
  std::map<std::uint32_t, UniqueFd> groups_;
  std::map<PciAddress, Held> devices_;
};

ModeOutcome refusal(std::string problem) {
  return {.problem = std::move(problem), .refused = true};
}

ModeOutcome change(KernelBoard& board, std::string_view mode_word, std::string_view addresses) {
  const auto mode = value_for(kWantedModes, mode_word);
  if (!mode) return {.problem = "the request has no mode"};
  std::vector<PciAddress> devices;
  while (!addresses.empty()) {
    const auto address = PciAddress::parse(cut(addresses, '\n'));
    if (!address) return {.problem = address.error().message};
    if (std::ranges::find(board.recorded(), *address, &RecordedDevice::address) != board.recorded().end())
      return refusal(fmt::format("{}: an earlier change of its mode is not undone yet", address->text()));
    if (const auto held = board.hold(*address); !held) return refusal(held.error().message);
    devices.push_back(*address);
  }
  return change_modes(board, devices, *mode);
}

// A device that cannot be held now stays recorded.
ModeOutcome undo(KernelBoard& board) {
  const auto dropped = board.drop_replaced();
  if (!dropped) return {.problem = dropped.error().message};
  std::vector<RecordedDevice> held;
  std::vector<DeviceOutcome> left;
  for (const RecordedDevice& device : board.recorded()) {
    const auto holds = board.hold(device.address);
    if (holds) {
      held.push_back(device);
    } else {
      left.push_back({.address = device.address,
                      .before = device.mode,
                      .result = ModeResult::unknown,
                      .problem = holds.error().message});
    }
  }
  ModeOutcome out = undo_mode_change(board, held);
  out.devices.insert(out.devices.end(), left.begin(), left.end());
  if (!dropped->empty()) out.problem = *dropped + (out.problem.empty() ? "" : "; " + out.problem);
  return out;
}

/// `device`: the first one, which a record of a late child names.
Result<ModeOutcome> ask_child(HostWriter& writer, const std::string& request, std::size_t devices,
                              const std::string& device, const std::string& what) {
  const LibraryCall call{
      .name = std::string(kModeLibrary), .request = request, .device = device, .changes = true, .what = what};
  const auto answer = writer.call(call, kForOneDevice * devices);
  if (!answer) return fail(answer.error());
  return read_document(*answer, call.what, "", read_fields<ModeOutcome>);
}

}  // namespace

std::string mode_record_text(const ModeRecord& record) {
  return json_text(written_fields(record));
}

Result<ModeRecord> read_mode_record(std::string_view text) {
  return read_json(text, kModeRecordFile, kRecordHint, read_fields<ModeRecord>);
}

Result<ModeRecord> mode_record_of(const HostFs& host) {
  const auto text = host.read_file(kModeRecordFile);
  if (!text && is_gone(text.error())) return ModeRecord();
  if (!text) return fail(text.error());
  return read_mode_record(*text);
}

std::vector<PciAddress> interrupted_mode_changes(const HostFs& host) {
  std::vector<PciAddress> out;
  if (const auto record = mode_record_of(host))
    for (const RecordedDevice& device : record->devices)
      if (replaced_by(host, device).empty()) out.push_back(device.address);
  return out;
}

std::map<PciAddress, std::string> open_modes(const HostFs& host, std::span<const PciAddress> among) {
  std::map<PciAddress, std::string> out;
  const auto record = mode_record_of(host);
  for (const PciAddress& device : among) {
    const auto is_open = [&](const RecordedDevice& one) {
      return one.address == device && replaced_by(host, one).empty();
    };
    if (!record)
      out.emplace(device,
                  fmt::format("the record of a change of confidential modes may name {}, and cannot be read: "
                              "{}; docs/cc.md says what to do",
                              device.text(), record.error().message));
    else if (std::ranges::any_of(record->devices, is_open))
      out.emplace(device,
                  fmt::format("a change of the confidential mode of {} is recorded in /{} and has not "
                              "ended; {}`ferry cc set` undoes an interrupted one (docs/cc.md)",
                              device.text(), kModeRecordFile,
                              host.link_name(sysfs_path(device) / "driver").value_or("") == "vfio-pci"
                                  ? ""
                                  : "once the device is bound to vfio-pci, "));
  }
  return out;
}

std::map<PciAddress, std::string> open_modes(const HostFs& host, const Inventory& inventory) {
  std::vector<PciAddress> devices;
  for (const auto& [address, function] : inventory.functions)
    if (function.vendor == kNvidia) devices.push_back(address);
  return open_modes(host, devices);
}

bool has_interrupted_mode_change(const HostFs& host) {
  const auto record = mode_record_of(host);
  return !record || !record->devices.empty();
}

std::string answer_mode_call(const HostFs& host, std::string_view request) {
  const auto failed = [](std::string problem) {
    return json_text(written_fields(ModeOutcome{.problem = std::move(problem)}));
  };
  HostFs writable(host.root());
  // hostd reads registers from time to time, and has ended within this.
  const auto until = std::chrono::steady_clock::now() + kRegisterDeadline;
  auto reading = ReadingRecord::take(writable);
  while (!reading && reading.error().code == Errc::stuck && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    reading = ReadingRecord::take(writable);
  }
  if (!reading) return failed(reading.error().message);
  const std::vector<std::string> faults = reading->restore(writable);
  if (!faults.empty()) return failed(faults.front());
  auto recorded = mode_record_of(writable);
  if (!recorded) return failed(recorded.error().text());

  KernelBoard board(writable, std::move(*reading), std::move(*recorded));
  const std::string_view word = cut(request, '\n');
  return json_text(written_fields(word == kUndo ? undo(board) : change(board, word, request)));
}

ModeOutcome undo_interrupted_mode_change(HostWriter& writer, const HostFs& host) {
  const auto recorded = mode_record_of(host);
  if (!recorded) return {.problem = recorded.error().text()};
  if (recorded->devices.empty()) return {};
  auto undone = ask_child(writer, std::string(kUndo), recorded->devices.size(),
                          recorded->devices.front().address.text(), "undo a change of the confidential mode");
  return undone ? std::move(*undone) : ModeOutcome{.problem = undone.error().message};
}

ModeOutcome set_modes(HostWriter& writer, const HostFs& host, std::span<const PciAddress> devices,
                      WantedMode mode) {
  if (devices.empty()) return {};
  const std::string what = fmt::format("set the confidential mode of {} to '{}'",
                                       counted(devices.size(), "device"), word_for(kWantedModes, mode));
  std::string request = fmt::format("{}\n", word_for(kWantedModes, mode));
  for (const PciAddress& device : devices) request += device.text() + "\n";
  auto outcome = ask_child(writer, request, devices.size(), devices.front().text(), what);
  if (outcome) return std::move(*outcome);
  // A child that is late is still at work, and must not be disturbed.
  if (outcome.error().code == Errc::stuck || !has_interrupted_mode_change(host))
    return {.problem = outcome.error().message};
  ModeOutcome undone = undo_interrupted_mode_change(writer, host);
  const bool reached = std::ranges::all_of(
      undone.devices, [](const DeviceOutcome& device) { return device.result == ModeResult::changed; });
  if (!reached || !undone.problem.empty())
    undone.problem = outcome.error().message + (undone.problem.empty() ? "" : "; " + undone.problem);
  return undone;
}

}  // namespace ferry::vfio
