// SPDX-License-Identifier: Apache-2.0
#include "vfio/confidential/mode_change.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "hostfs/check_reading.h"
#include "vfio/registers/register_facts.h"

namespace ferry::vfio {
namespace {

// NVIDIA's tool gives these no name, and turns them off before a mode.
constexpr std::uint32_t kUnnamed2 = 2;
constexpr std::uint32_t kUnnamed4 = 4;
constexpr std::uint32_t kUnnamed34 = 34;

constexpr std::uint32_t kFilterOn = 2;

// A request to read or to write: the action, the flag for a knob's value, and the knob.
constexpr std::uint32_t kReadKnob = 0x20c;
constexpr std::uint32_t kWriteKnob = 0x20d;
constexpr std::uint32_t action(std::uint32_t code, std::uint32_t knob) {
  return code | knob << 16U;
}

}  // namespace

std::vector<KnobValue> in_order(std::vector<KnobValue> values) {
  // NVIDIA's tool has the unnamed ones off while a mode is on.
  constexpr std::array kOff = {kUnnamed2,       kUnnamed4,           kUnnamed34,          knob::kBarFilter,
                               knob::kDevtools, knob::kConfidential, knob::kProtectedPcie};
  constexpr std::array kOn = {knob::kBarFilter, knob::kConfidential, knob::kDevtools, knob::kProtectedPcie,
                              kUnnamed2,        kUnnamed4,           kUnnamed34};
  const auto rank = [&](const KnobValue& one) {
    const auto& order = one.value == 0 ? kOff : kOn;
    return std::ranges::find(order, one.knob) - order.begin() + (one.value == 0 ? 0 : std::ssize(kOff));
  };
  std::ranges::stable_sort(values, {}, rank);
  return values;
}

std::vector<KnobValue> knobs_of(ChipFamily family, WantedMode mode) {
  const bool hopper = family == ChipFamily::hopper;
  const bool nvswitch = family == ChipFamily::ls10;
  if (family == ChipFamily::lr10 || (nvswitch && (mode == WantedMode::on || mode == WantedMode::devtools)) ||
      (mode == WantedMode::ppcie && !hopper && !nvswitch))
    return {};

  std::vector<KnobValue> out;
  if (mode != WantedMode::off) {
    out = {{.knob = kUnnamed2, .value = 0}, {.knob = kUnnamed4, .value = 0}};
    if (hopper || nvswitch) out.push_back({.knob = kUnnamed34, .value = 0});
  }
  const bool confidential = mode == WantedMode::on || mode == WantedMode::devtools;
  out.push_back({.knob = knob::kDevtools, .value = mode == WantedMode::devtools ? 1U : 0U});
  out.push_back({.knob = knob::kConfidential, .value = confidential ? 1U : 0U});
  if (hopper || nvswitch) {
    const bool filters = hopper && (mode == WantedMode::on || mode == WantedMode::ppcie);
    out.push_back({.knob = knob::kBarFilter, .value = filters ? kFilterOn : 0});
    out.push_back({.knob = knob::kProtectedPcie, .value = mode == WantedMode::ppcie ? 1U : 0U});
  }
  return in_order(std::move(out));
}

Result<std::optional<std::uint32_t>> read_knob(Fsp& fsp, std::uint32_t knob) {
  const auto data = fsp.call(std::array{action(kReadKnob, knob)});
  if (!data && data.error().code == Errc::unsupported) return std::nullopt;
  if (!data) return fail(Error(data.error()).during(fmt::format("read knob {}", knob)));
  if (data->empty()) return fail(Errc::failed, fmt::format("read knob {}: the answer has no value", knob));
  return data->front() & 0xffffU;  // the rest may have any value
}

Result<> write_knob(Fsp& fsp, const KnobValue& value) {
  const std::string what = fmt::format("write {} to knob {}", value.value, value.knob);
  const auto written = fsp.call(std::array{action(kWriteKnob, value.knob), value.value});
  if (!written) {
    Error error = Error(written.error()).during(what);
    if (error.code == Errc::failed) {
      // The knob before each one lets the host set it.
      const auto allowed = read_knob(fsp, value.knob - 1);
      if (allowed && *allowed == 0U) error.message += ": the firmware does not let the host set it";
    }
    return fail(std::move(error));
  }
  const auto now = read_knob(fsp, value.knob);
  if (!now) return fail(Error(now.error()).during(what));
  const std::optional<std::uint32_t> found = *now;
  if (found == value.value) return {};
  return fail(Errc::failed, found ? fmt::format("{}: it still reads {}", what, *found)
                                  : fmt::format("{}: the firmware no longer knows it", what));
}

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kBootPause{10};
constexpr std::chrono::seconds kHopperBoot{5};
// Its firewall may be up for 15 s, before a boot of 10 s.
constexpr std::chrono::seconds kBlackwellBoot{25};
// An answer that is later than its call waited is not taken for that of the next one.
constexpr std::chrono::seconds kLateAnswer{5};

// The value of a knob in a list; absent: not in it.
std::optional<std::uint32_t> value_of(const std::vector<KnobValue>& knobs, std::uint32_t knob) {
  const auto found = std::ranges::find(knobs, knob, &KnobValue::knob);
  return found == knobs.end() ? std::nullopt : std::optional(found->value);
}

// The mode that a reset gives to a device with these knobs.
WantedMode mode_of(const std::vector<KnobValue>& knobs) {
  if (value_of(knobs, knob::kProtectedPcie) == 1) return WantedMode::ppcie;
  if (value_of(knobs, knob::kConfidential) != 1) return WantedMode::off;
  return value_of(knobs, knob::kDevtools) == 1 ? WantedMode::devtools : WantedMode::on;
}

/// A device during a change.
class Device {
 public:
  Device(ModeBoard& board, const PciAddress& address) : board_(board), outcome_{.address = address} {}

  const PciAddress& address() const { return outcome_.address; }
  const DeviceOutcome& outcome() const { return outcome_; }
  DeviceOutcome& outcome() { return outcome_; }
  const RecordedDevice& before() const { return before_; }

  /// Waits for the boot, and reads the mode and the knobs that `mode` needs.
  Result<> look(WantedMode mode) {
    if (auto read = read_mode(); !read) return read;
    outcome_.before = outcome_.after;
    before_ = {.address = address(),
               .ids = board_.ids(address()),
               .wanted = mode,
               .mode = outcome_.before,
               .reset_methods = board_.reset_methods(address())};

    wanted_ = knobs_of(chip_.family, mode);
    if (wanted_.empty())
      return fail(Errc::unsupported,
                  fmt::format("its chip {} has no mode '{}'", chip_.name, word_for(kWantedModes, mode)));
    auto fsp = open_fsp();
    if (!fsp) return fail(std::move(fsp).error());
    for (const KnobValue& wanted : wanted_) {
      const auto read = read_knob(**fsp, wanted.knob);
      silent_ = !read && read.error().code == Errc::unreachable;
      if (!read) return fail(read.error());
      const std::optional<std::uint32_t> value = *read;
      if (value) {
        before_.knobs.push_back({.knob = wanted.knob, .value = *value});
      } else if (wanted.value != 0) {
        return fail(Errc::unsupported, fmt::format("its firmware has no mode '{}' (it does not know knob {})",
                                                   word_for(kWantedModes, mode), wanted.knob));
      }
    }
    std::erase_if(wanted_, [&](const KnobValue& one) { return !value_of(before_.knobs, one.knob); });
    return {};
  }

  /// True if look() found the mode in force and no knob to write.
  bool is_in(WantedMode mode) const {
    const auto is_set = [&](const KnobValue& one) { return value_of(before_.knobs, one.knob) == one.value; };
    return outcome_.after == word_for(kWantedModes, mode) && std::ranges::all_of(wanted_, is_set);
  }

  /// Takes over the record of an interrupted change.
  void recorded_as(const RecordedDevice& before) {
    before_ = before;
    outcome_.before = before.mode;
  }

  Result<> stage() { return write_knobs(wanted_); }

  /// Gives it back the recorded knobs. An invalid mode is none to come back to: such a device is turned off.
  Result<> unstage() {
    if (auto read = read_mode(); !read) return read;
    if (value_of(before_.knobs, knob::kConfidential) == 0)
      for (KnobValue& one : before_.knobs)
        if (one.knob == knob::kDevtools) one.value = 0;
    return write_knobs(in_order(before_.knobs));
  }
  bool needs_reset_back() const { return outcome_.after != before_.mode || before_.mode == "invalid"; }
  std::string_view mode_back() const { return word_for(kWantedModes, mode_of(before_.knobs)); }

  /// `whole_bus`: by the bus above it, if the kernel knows that way for it. Errors: it could not be reset.
  Result<> reset(bool whole_bus = false) {
    constexpr std::string_view kBus = "bus";
    outcome_.after.clear();
    const auto methods = ferry::words_of(before_.reset_methods);
    if (whole_bus && std::ranges::find(methods, kBus) != methods.end()) {
      if (auto chosen = board_.set_reset_methods(address(), std::string(kBus)); !chosen) return chosen;
    }
    auto done = board_.reset(address());
    // Later resets by another method are no fault of this one.
    (void)restore_reset_methods();
    return done;
  }
  /// A process that was killed in a reset of the whole bus has left that method alone.
  Result<> restore_reset_methods() {
    const std::string& methods = before_.reset_methods;
    if (methods.empty() || board_.reset_methods(address()) == methods) return {};
    return board_.set_reset_methods(address(), methods);
  }
  /// Expects a mode after a reset. The reset of a function alone leaves some states of the firmware as they
  /// were, so another one, of the whole bus, may help.
  Result<> expect(std::string_view mode) {
    auto read = read_mode();
    if (read && outcome_.after == mode) return {};
    if (auto again = reset(true); !again) return again;
    if (read = read_mode(); !read) return read;
    if (outcome_.after == mode) return {};
    return fail(Errc::failed,
                fmt::format("after two resets its register shows the mode '{}' in place of '{}'",
                            outcome_.after, mode));
  }

 private:
  /// Waits for the boot.
  Result<> read_mode() {
    RegisterFacts facts;
    std::optional<Error> unreachable;
    const auto booted = [&] {
      const auto registers = board_.reach(address());
      unreachable = registers ? std::nullopt : std::optional(registers.error());
      if (unreachable) return unreachable->code != std::errc::resource_unavailable_try_again;
      registers_ = *registers;
      auto chip = board_.chip(address());
      if (!chip) chip = switch_chip(registers_->read32(0));
      chip_ = chip.value_or(Chip());
      facts = chip ? read_register_facts(*registers_, *chip) : read_switch_facts(*registers_);
      return facts.problem.empty() && facts.booted.value_or(false) && !facts.mode().empty();
    };
    const auto chip = board_.chip(address());
    const bool blackwell = chip && chip->family != ChipFamily::hopper;
    const bool came =
        poll_until(board_.clock(), blackwell ? kBlackwellBoot : kHopperBoot, kBootPause, booted);
    outcome_.after.clear();
    if (unreachable) return fail(*std::move(unreachable));
    if (came) {
      outcome_.after = facts.mode();
      return {};
    }
    if (!facts.problem.empty()) return fail(Errc::failed, facts.problem);
    if (facts.recovery.value_or(false)) return fail(Errc::failed, "its firmware is in recovery mode");
    if (!facts.booted.value_or(false)) return fail(Errc::failed, "it has not booted");
    return fail(Errc::failed, "its mode register cannot be read");
  }

  Result<std::unique_ptr<Fsp>> open_fsp() {
    if (std::exchange(silent_, false)) board_.clock().sleep(kLateAnswer);
    auto fsp = make_fsp(*registers_, chip_.family, board_.clock());
    if (auto started = fsp->start(); !started) return fail(std::move(started).error());
    return fsp;
  }

  /// Writes the knobs that have another value.
  Result<> write_knobs(const std::vector<KnobValue>& values) {
    auto fsp = open_fsp();
    if (!fsp) return fail(std::move(fsp).error());
    for (const KnobValue& value : values) {
      const auto now = read_knob(**fsp, value.knob);
      auto written = !now                  ? Result<>(fail(now.error()))
                     : *now == value.value ? Result<>()
                                           : write_knob(**fsp, value);
      silent_ = !written && written.error().code == Errc::unreachable;
      if (!written) return written;
    }
    return {};
  }

  ModeBoard& board_;
  DeviceOutcome outcome_;
  RecordedDevice before_;
  std::vector<KnobValue> wanted_;
  Chip chip_;  ///< once read_mode() has succeeded
  Registers* registers_ = nullptr;
  bool silent_ = false;  ///< its last message had no answer in time
};

using Devices = std::vector<std::unique_ptr<Device>>;

/// Runs a step for each device until one fails, which is noted. False: one has failed.
template <typename Step>
bool run(const Devices& devices, std::string& problem, Step step) {
  for (const auto& device : devices) {
    const Result<> done = step(*device);
    if (done) continue;
    device->outcome().problem = done.error().message;
    problem = fmt::format("{}: {}", device->address().text(), done.error().message);
    return false;
  }
  return true;
}

// Brings every device back to its recorded knobs and mode, and records those that it could not.
Result<> undo(ModeBoard& board, const Devices& devices) {
  const auto failed = [](Device& device, const Error& error) {
    DeviceOutcome& outcome = device.outcome();
    outcome.result = ModeResult::unknown;
    if (!outcome.problem.empty()) outcome.problem += "; ";
    outcome.problem += "it could not be brought back: " + error.message;
  };
  const auto for_each = [&](auto step) {
    for (const auto& device : devices) {
      if (device->outcome().result == ModeResult::unknown) continue;
      if (const Result<> done = step(*device); !done) failed(*device, done.error());
    }
  };
  for (const auto& device : devices) device->outcome().result = ModeResult::kept;
  for_each([](Device& device) { return device.restore_reset_methods(); });
  for_each([](Device& device) { return device.unstage(); });
  std::vector<Device*> reset;
  for_each([&](Device& device) {
    if (!device.needs_reset_back()) return Result<>();
    reset.push_back(&device);
    return device.reset();
  });
  for_each([&](Device& device) {
    const bool was_reset = std::ranges::find(reset, &device) != reset.end();
    return was_reset ? device.expect(device.mode_back()) : Result<>();
  });

  std::vector<RecordedDevice> left;
  for (const auto& device : devices)
    if (device->outcome().result == ModeResult::unknown) left.push_back(device->before());
  return board.record(left);
}

}  // namespace

ModeOutcome change_modes(ModeBoard& board, const std::vector<PciAddress>& addresses, WantedMode mode) {
  const std::string_view word = word_for(kWantedModes, mode);
  Devices devices;
  for (const PciAddress& address : addresses) devices.push_back(std::make_unique<Device>(board, address));

  // Reads all of them before anything is written.
  ModeOutcome out;
  run(devices, out.problem, [&](Device& device) { return device.look(mode); });
  Devices changing;
  std::vector<RecordedDevice> record;
  for (auto& device : devices) {
    if (!out.problem.empty() || device->is_in(mode)) {
      device->outcome().result = out.problem.empty() ? ModeResult::unchanged : ModeResult::kept;
      out.devices.push_back(device->outcome());
    } else {
      record.push_back(device->before());
      changing.push_back(std::move(device));
    }
  }
  if (changing.empty()) return out;

  // Stages all, and only then resets all: protected PCIe is of use on a whole board alone.
  if (run(changing, out.problem, [&](Device& device) { return board.expect_reset(device.address()); })) {
    const auto recorded = board.record(record);
    if (!recorded) out.problem = recorded.error().message;
    if (recorded) {
      const bool done = run(changing, out.problem, [](Device& device) { return device.stage(); }) &&
                        run(changing, out.problem, [](Device& device) { return device.reset(); }) &&
                        run(changing, out.problem, [&](Device& device) { return device.expect(word); });
      if (done)
        for (const auto& device : changing) device->outcome().result = ModeResult::changed;
      const auto ended = done ? board.record({}) : undo(board, changing);
      if (!ended && out.problem.empty()) out.problem = ended.error().message;
    }
  }
  for (const auto& device : changing) out.devices.push_back(device->outcome());
  std::ranges::sort(out.devices, {}, &DeviceOutcome::address);
  return out;
}

ModeOutcome undo_mode_change(ModeBoard& board, const std::vector<RecordedDevice>& recorded) {
  if (recorded.empty()) return {};
  Devices devices;
  bool reached = true;
  for (const RecordedDevice& before : recorded) {
    devices.push_back(std::make_unique<Device>(board, before.address));
    Device& device = *devices.back();
    const auto looked = device.look(before.wanted);
    reached = reached && looked && device.is_in(before.wanted);
    device.recorded_as(before);
    reached = reached && device.restore_reset_methods();
  }
  ModeOutcome out;
  if (reached)
    for (const auto& device : devices) device->outcome().result = ModeResult::changed;
  const auto ended = reached ? board.record({}) : undo(board, devices);
  if (!ended) out.problem = ended.error().message;
  for (const auto& device : devices) out.devices.push_back(device->outcome());
  return out;
}

}  // namespace ferry::vfio
