// SPDX-License-Identifier: Apache-2.0
// Messages to the security processor (FSP) of a GPU of Hopper or newer, or of an NVSwitch LS10, by registers.
// Hopper and LS10 have queues in the processor's memory (EMEM), Blackwell has a mailbox (MNOC).
// Source: NVIDIA's gpu-admin-tools v2025.10.20 (gpu/fsp_mctp.py, nvidia_gpu_tools.py). Not tried on hardware.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "vfio/registers/chip.h"
#include "vfio/registers/registers.h"

namespace ferry::vfio {

/// The time in which registers are polled: a register raises no event when its value changes.
class PollClock : Pinned {
 public:
  virtual ~PollClock() = default;
  virtual std::chrono::milliseconds now() const = 0;
  virtual void sleep(std::chrono::milliseconds pause) = 0;
};

/// Asks `holds` at once and after each pause, until it is true or `most` has gone by. False: it never was.
bool poll_until(PollClock& clock, std::chrono::milliseconds most, std::chrono::milliseconds pause,
                const std::function<bool()>& holds);

using FspWords = std::vector<std::uint32_t>;

class Fsp : Pinned {
 public:
  virtual ~Fsp() = default;

  /// Drops what an earlier program has left: a message in the queues, an answer that it has not read. Errors:
  /// as call().
  virtual Result<> start() = 0;

  /// Sends a PRC request, and returns the words of the answer after its status. Errc::unsupported: the
  /// firmware does not know what the request names. Errc::unreachable: no answer in time, or the registers
  /// read as errors. Errc::failed: another status, or an answer that does not belong to the request.
  Result<FspWords> call(std::span<const std::uint32_t> request);

 protected:
  Fsp(Registers& registers, PollClock& clock) : registers_(registers), clock_(clock) {}

  /// The value of a register. Errc::unreachable: it reads as an error.
  Result<std::uint32_t> read(std::uint32_t offset);
  /// The value of a register once `holds` is true for it. Errc::unreachable names `awaited`.
  Result<std::uint32_t> await(std::uint32_t offset, std::chrono::milliseconds most,
                              std::chrono::milliseconds pause, const char* awaited,
                              const std::function<bool(std::uint32_t)>& holds);

  Registers& registers_;
  PollClock& clock_;

 private:
  virtual Result<> send(const FspWords& message) = 0;
  virtual Result<FspWords> receive() = 0;
};

/// Registers and clock must outlive it.
std::unique_ptr<Fsp> make_fsp(Registers& registers, ChipFamily family, PollClock& clock);

}  // namespace ferry::vfio
