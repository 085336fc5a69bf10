// SPDX-License-Identifier: Apache-2.0
// usage: gpu-model SOCKET IDS LOG CONTROL
// A GPU of a Hopper board as a PCI function of the virtual node: BAR 0 is the model of the unit tests
// (bar_model.h), and BAR 2 has 1 MiB of memory. QEMU connects to SOCKET by its device vfio-user-pci. IDS:
// "10de:2330". The program ends with the connection.
//
// A function-level reset leaves the memory as it is, and so does the end of a VM. A reset of the bus clears
// it, unless `keeps` counts. The program adds "bus-reset" and "flr" to LOG, a word a line. It reads CONTROL
// again whenever that has changed; a line is one of these words and a number:
//   scrubbed    0: the register says that the memory has not been cleared
//   recovery    1: the firmware has started in recovery mode
//   polls       reads of the boot register before it is complete; 0 ends a boot that has begun, too
//   keeps       so many next resets leave the memory and the modes as they are
//   knob8       the value of knob 8, and so any other one
// ABI: docs/interop/vfio-user.rst of QEMU 11; PCI Express Base Specification 5.0, 7.5.
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include "tests/vfio/bar_model.h"

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kConfigBytes = 4096;
constexpr std::size_t kMemoryBytes = std::size_t{1} << 20U;
constexpr std::size_t kPowerState = 0x44;     // of the power management capability
constexpr std::size_t kDeviceControl = 0x50;  // of the PCI Express capability

template <typename T>
T at(std::span<const std::uint8_t> bytes, std::size_t offset) {
  T out{};
  if (offset + sizeof out <= bytes.size()) std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}

template <typename T>
void put(std::span<std::uint8_t> bytes, std::size_t offset, T value) {
  if (offset + sizeof value <= bytes.size()) std::memcpy(bytes.data() + offset, &value, sizeof value);
}

class Function {
 public:
  Function(std::uint16_t vendor, std::uint16_t device, std::string log, std::string control)
      : log_(std::move(log)), control_(std::move(control)), ids_{vendor, device} {
    set_up_config();
  }

  void read(std::uint32_t region, std::uint64_t offset, std::span<std::uint8_t> out) {
    follow_control();
    std::memset(out.data(), 0xff, out.size());
    if (region == kConfig && offset + out.size() <= config_.size()) {
      std::memcpy(out.data(), config_.data() + offset, out.size());
    } else if (!answers()) {
      return;
    } else if (region == 0 && out.size() == sizeof(std::uint32_t)) {
      put(out, 0, registers_.read32(static_cast<std::uint32_t>(offset)));
    } else if (region == 2 && offset + out.size() <= memory_.size()) {
      std::memcpy(out.data(), memory_.data() + offset, out.size());
    }
  }

  void write(std::uint32_t region, std::uint64_t offset, std::span<const std::uint8_t> in) {
    follow_control();
    if (region == kConfig) {
      write_config(offset, in);
    } else if (!answers()) {
      return;
    } else if (region == 0 && in.size() == sizeof(std::uint32_t)) {
      registers_.write32(static_cast<std::uint32_t>(offset), at<std::uint32_t>(in, 0));
    } else if (region == 2 && offset + in.size() <= memory_.size()) {
      std::memcpy(memory_.data() + offset, in.data(), in.size());
    }
  }

  void reset_bus() {
    follow_control();
    if (registers_.resets_without_effect == 0) std::memset(memory_.data(), 0, memory_.size());
    registers_.reset();
    set_up_config();
    log("bus-reset");
  }

  static std::uint64_t size_of(std::uint32_t region) {
    if (region == 0) return ferry::vfio::kRegisterBytes;
    if (region == 2) return kMemoryBytes;
    return region == kConfig ? kConfigBytes : 0;
  }

 private:
  static constexpr std::uint32_t kConfig = 7;  // VFIO_PCI_CONFIG_REGION_INDEX

  /// False while it sleeps or its memory range is disabled.
  bool answers() const {
    return (at<std::uint16_t>(config_, 0x4) & 2U) != 0 && (at<std::uint16_t>(config_, kPowerState) & 3U) == 0;
  }

  void set_up_config() {
    config_.assign(kConfigBytes, 0);
    put<std::uint16_t>(config_, 0x0, ids_[0]);
    put<std::uint16_t>(config_, 0x2, ids_[1]);
    put<std::uint16_t>(config_, 0x6, 0x10);        // has capabilities
    put<std::uint32_t>(config_, 0x8, 0x030200a1);  // class, revision
    put<std::uint32_t>(config_, 0x10, 0x4);        // BAR 0: 64 bits
    put<std::uint32_t>(config_, 0x18, 0xc);        // BAR 2: 64 bits, prefetchable
    put<std::uint16_t>(config_, 0x2c, ids_[0]);    // subsystem
    put<std::uint16_t>(config_, 0x2e, 0x16c1);
    put<std::uint8_t>(config_, 0x34, 0x40);
    put<std::uint32_t>(config_, 0x40, 0x00034801);  // power management, then the next one
    put<std::uint16_t>(config_, kPowerState, 0x8);  // no reset by D3hot
    put<std::uint32_t>(config_, 0x48, 0x00020010);  // PCI Express endpoint
    put<std::uint32_t>(config_, 0x4c, 0x10008000);  // function-level reset
    put<std::uint32_t>(config_, 0x54, 0x11);        // link: x1
    put<std::uint16_t>(config_, 0x5a, 0x11);
  }

  void write_config(std::uint64_t offset, std::span<const std::uint8_t> in) {
    for (std::size_t i = 0; i < in.size(); ++i)
      if (const auto place = offset + i; is_writable(place)) config_[place] = in[i];
    if ((at<std::uint16_t>(config_, kDeviceControl) & 0x8000U) == 0) return;
    registers_.reset();
    set_up_config();
    log("flr");
  }

  static bool is_writable(std::uint64_t place) {
    return place == 0x4 || place == 0x5 || place == 0xc || place == 0x3c || place == kPowerState ||
           place == kDeviceControl || place == kDeviceControl + 1 || (place >= 0x10 && place < 0x28);
  }

  void follow_control() {
    struct stat now {};
    if (::stat(control_.c_str(), &now) != 0) return;
    if (now.st_mtim.tv_sec == read_.tv_sec && now.st_mtim.tv_nsec == read_.tv_nsec) return;
    read_ = now.st_mtim;
    std::ifstream file(control_);
    std::string word;
    std::uint32_t value = 0;
    while (file >> word >> value) {
      if (word == "scrubbed") registers_.scrubbed = value != 0;
      if (word == "recovery") registers_.recovery = value != 0;
      if (word == "polls") registers_.polls_until_boot = value;
      if (word == "polls" && value == 0) registers_.end_boot();
      if (word == "keeps") registers_.resets_without_effect = value;
      unsigned knob = 0;
      if (word.starts_with("knob") &&
          std::from_chars(word.data() + 4, word.data() + word.size(), knob).ec == std::errc())
        registers_.set_knob(knob, value);
    }
  }

  void log(std::string_view word) const { std::ofstream(log_, std::ios::app) << word << '\n'; }

  std::string log_;
  std::string control_;
  timespec read_{};
  std::array<std::uint16_t, 2> ids_;
  Bytes config_;
  Bytes memory_ = Bytes(kMemoryBytes);
  ferry::test::BarModel registers_{ferry::test::BarModel::Kind::gh100};
};

// Messages of vfio-user. Each begins with: id and command (16 bits each), size, flags, error (32 bits each).
constexpr std::size_t kHeader = 16;
enum Command : std::uint16_t {
  version = 1,
  dma_map = 2,
  dma_unmap = 3,
  device_info = 4,
  region_info = 5,
  irq_info = 7,
  set_irqs = 8,
  region_read = 9,
  region_write = 10,
  device_reset = 13
};

bool receive(int connection, std::span<std::uint8_t> out) {
  while (!out.empty()) {
    const ssize_t got = ::read(connection, out.data(), out.size());
    if (got <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

/// The answer's data, for the data of a request. Absent commands have an empty one.
Bytes answer_of(Function& gpu, std::uint16_t command, const Bytes& data, std::uint32_t& error) {
  Bytes out = data;
  switch (command) {
    case version: {
      constexpr std::string_view kTells =
          R"({"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576}})";
      out.assign(4 + kTells.size() + 1, 0);  // version 0.0
      std::memcpy(out.data() + 4, kTells.data(), kTells.size());
      return out;
    }
    case dma_unmap:
      return out;
    case dma_map:
    case set_irqs:
      return {};
    case device_info:
      out.assign(16, 0);
      put<std::uint32_t>(out, 0, 16);
      put<std::uint32_t>(out, 4, 3);  // it has a reset, and is a PCI function
      put<std::uint32_t>(out, 8, 9);  // regions
      put<std::uint32_t>(out, 12, 5);
      return out;
    case region_info: {
      out.assign(32, 0);
      const auto region = at<std::uint32_t>(data, 8);
      put<std::uint32_t>(out, 0, 32);
      put<std::uint32_t>(out, 4, Function::size_of(region) != 0 ? 3 : 0);  // can be read and written
      put<std::uint32_t>(out, 8, region);
      put<std::uint64_t>(out, 16, Function::size_of(region));
      return out;
    }
    case irq_info:
      out.resize(16);
      put<std::uint32_t>(out, 4, 0);
      put<std::uint32_t>(out, 12, 0);  // it has no interrupts
      return out;
    case region_read:
      out.resize(16 + at<std::uint32_t>(data, 12));
      gpu.read(at<std::uint32_t>(data, 8), at<std::uint64_t>(data, 0), std::span(out).subspan(16));
      return out;
    case region_write:
      gpu.write(at<std::uint32_t>(data, 8), at<std::uint64_t>(data, 0), std::span(data).subspan(16));
      out.resize(16);
      return out;
    case device_reset:
      gpu.reset_bus();
      return {};
    default:
      error = 95;  // EOPNOTSUPP
      return {};
  }
}

void serve(Function& gpu, int connection) {
  Bytes header(kHeader);
  while (receive(connection, header)) {
    const auto size = at<std::uint32_t>(header, 4);
    const auto flags = at<std::uint32_t>(header, 8);
    if (size < kHeader || size > (4U << 20U)) return;
    Bytes data(size - kHeader);
    if (!receive(connection, data)) return;
    std::uint32_t error = 0;
    const auto command = at<std::uint16_t>(header, 2);
    if ((command == region_read || command == region_write) && data.size() < 16) return;
    const Bytes answer = answer_of(gpu, command, data, error);
    if ((flags & 0x10U) != 0) continue;  // no answer is wanted
    Bytes message(kHeader + answer.size());
    std::memcpy(message.data(), header.data(), 4);
    put<std::uint32_t>(message, 4, static_cast<std::uint32_t>(message.size()));
    put<std::uint32_t>(message, 8, error == 0 ? 0x1 : 0x21);
    put<std::uint32_t>(message, 12, error);
    std::memcpy(message.data() + kHeader, answer.data(), answer.size());
    if (::send(connection, message.data(), message.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(message.size()))
      return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  unsigned vendor = 0;
  unsigned device = 0;
  if (words.size() != 4 || std::sscanf(words[1].c_str(), "%4x:%4x", &vendor, &device) != 2) {
    std::cerr << "usage: gpu-model SOCKET IDS LOG CONTROL\n";
    return 2;
  }
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (words[0].size() >= sizeof address.sun_path) {
    std::cerr << "gpu-model: " << words[0] << " is too long for a socket\n";
    return 2;
  }
  std::memcpy(address.sun_path, words[0].data(), words[0].size());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, 1) != 0) {
    std::perror("gpu-model");
    return 1;
  }
  const int connection = ::accept(listener, nullptr, nullptr);
  Function gpu(static_cast<std::uint16_t>(vendor), static_cast<std::uint16_t>(device), words[2], words[3]);
  serve(gpu, connection);
  return 0;
}
