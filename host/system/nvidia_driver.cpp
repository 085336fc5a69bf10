// SPDX-License-Identifier: Apache-2.0
#include "host/system/nvidia_driver.h"

#include <chrono>
#include <filesystem>

namespace ferry::host {
namespace {

// An unused GPU may have to wake up for the lock, which takes seconds. A GPU that hangs delays the check
// after the fences, and with it the other GPUs, for this long.
constexpr std::chrono::seconds kPatience{30};

std::filesystem::path lock_of(const vfio::PciAddress& device) {
  return std::filesystem::path("proc/driver/nvidia/gpus") / device.text() / "unbindLock";
}

}  // namespace

bool NvidiaUnbindLock::has(const vfio::PciAddress& device) const {
  return host_->exists(lock_of(device));
}

// The write succeeds in any case; the driver's answer is in the value read back.
Result<> NvidiaUnbindLock::take(const vfio::PciAddress& device) {
  const auto path = lock_of(device);
  if (auto written = writer_->write(path, "1", kPatience); !written) return written;
  // The read takes the GPU's lock, which another process may hold and hang with.
  const auto answer = writer_->read(path, kPatience);
  if (!answer) return fail(answer.error());
  if (*answer == "1") return {};
  return fail(
      Errc::refused,
      device.text() + " is in use: its driver refuses the unbind lock, though no device user was found",
      "a console or a kernel client may hold it: see refcnt and holders of /sys/module/nvidia");
}

Result<> NvidiaUnbindLock::release(const vfio::PciAddress& device) {
  return has(device) ? writer_->write(lock_of(device), "0") : Result<>();
}

}  // namespace ferry::host
