// SPDX-License-Identifier: Apache-2.0
// A board of models whose modes are changed, with a clock that runs only while something waits. It can be
// killed at any write.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/must.h"
#include "tests/vfio/bar_model.h"
#include "vfio/confidential/mode_change.h"

namespace ferry::test {

/// Thrown at the write at which the process ends.
struct Killed {};

class ModelBoard final : public vfio::ModeBoard, public vfio::PollClock {
 public:
  struct Device {
    BarModel::Kind kind;
    std::unique_ptr<BarModel> model;
    std::optional<Error> reset_fails = {};
    bool has_no_reset = false;
    bool reset_kills_it = false;  ///< it is dead after its reset
    bool reset_into_recovery = false;
    unsigned resets = 0;
    unsigned bus_resets = 0;
    std::string reset_methods = "flr bus";
  };

  /// Adds a device and returns its model. The addresses count from 0000:01:00.0.
  Device& add(BarModel::Kind kind) {
    const auto address = must(vfio::PciAddress::parse(fmt::format("0000:{:02x}:00.0", devices_.size() + 1)));
    auto& device = devices_[address];
    device = {.kind = kind, .model = std::make_unique<BarModel>(kind)};
    return device;
  }
  Device& at(std::size_t index) {
    return std::next(devices_.begin(), static_cast<std::ptrdiff_t>(index))->second;
  }
  std::vector<vfio::PciAddress> addresses() const {
    std::vector<vfio::PciAddress> out;
    for (const auto& [address, device] : devices_) out.push_back(address);
    return out;
  }
  void power_cycle() {
    for (auto& [address, device] : devices_) device.model->reset();
  }
  unsigned resets() const {
    unsigned out = 0;
    for (const auto& [address, device] : devices_) out += device.resets;
    return out;
  }

  /// The process ends before its write of this number, counted from 0: of a knob, a reset, a method of resets
  /// or the record.
  std::optional<unsigned> killed_at = {};
  unsigned writes = 0;
  std::optional<Error> store_fails = {};
  std::vector<vfio::RecordedDevice> recorded = {};

  vfio::PollClock& clock() override { return *this; }
  std::chrono::milliseconds now() const override { return now_; }
  void sleep(std::chrono::milliseconds pause) override { now_ += pause; }

  Result<vfio::Registers*> reach(const vfio::PciAddress& device) override {
    auto& seen = taps_[device];
    if (seen == nullptr) seen = std::make_unique<Tap>(*this, *devices_.at(device).model);
    return seen.get();
  }
  std::optional<vfio::Chip> chip(const vfio::PciAddress& device) override {
    switch (devices_.at(device).kind) {
      case BarModel::Kind::gh100:
        return vfio::gpu_chip(0x2330);
      case BarModel::Kind::gb100:
        return vfio::gpu_chip(0x2901);
      case BarModel::Kind::gb202:
        return vfio::gpu_chip(0x2b85);
      case BarModel::Kind::ls10:
      case BarModel::Kind::lr10:
        break;
    }
    return std::nullopt;
  }
  std::string reset_methods(const vfio::PciAddress& device) override {
    return devices_.at(device).reset_methods;
  }
  Result<> set_reset_methods(const vfio::PciAddress& device, const std::string& methods) override {
    count();
    devices_.at(device).reset_methods = methods;
    return {};
  }
  Result<> reset(const vfio::PciAddress& device) override {
    count();
    Device& one = devices_.at(device);
    if (one.reset_fails) return fail(*one.reset_fails);
    ++one.resets;
    if (one.reset_methods == "bus") ++one.bus_resets;
    one.model->reset();
    one.model->dead = one.reset_kills_it;
    if (one.reset_into_recovery) one.model->recovery = true;
    return {};
  }
  std::string ids(const vfio::PciAddress& /*device*/) override { return "10de:2330"; }
  Result<> expect_reset(const vfio::PciAddress& device) override {
    if (devices_.at(device).has_no_reset) return fail(Errc::unsupported, "no method");
    return {};
  }
  Result<> record(const std::vector<vfio::RecordedDevice>& devices) override {
    count();
    if (store_fails) return fail(*store_fails);
    recorded = devices;
    return {};
  }

 private:
  /// Counts the messages to the security processor that write a knob.
  class Tap final : public vfio::Registers {
   public:
    Tap(ModelBoard& board, BarModel& model) : board_(board), model_(model) {}
    std::uint32_t read32(std::uint32_t offset) override { return model_.read32(offset); }
    void write32(std::uint32_t offset, std::uint32_t value) override {
      if ((value & 0xffffU) == 0x20d && value >> 16U != 0) board_.count();
      model_.write32(offset, value);
    }

   private:
    ModelBoard& board_;
    BarModel& model_;
  };
  void count() {
    if (killed_at && writes == *killed_at) throw Killed();
    ++writes;
  }

  std::map<vfio::PciAddress, Device> devices_;
  std::map<vfio::PciAddress, std::unique_ptr<Tap>> taps_;
  std::chrono::milliseconds now_{0};
};

}  // namespace ferry::test
