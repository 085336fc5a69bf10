// SPDX-License-Identifier: Apache-2.0
#include "host/nvidia_unbind_lock.h"

namespace ferry {
namespace {

// A GPU that nobody has open may have to be woken for it, which takes seconds; one that hangs keeps the look
// behind the fences waiting for so long, and with it the other GPUs.
constexpr std::chrono::seconds kPatience{30};

std::filesystem::path lock_of(const PciAddress& device) {
  return std::filesystem::path("proc/driver/nvidia/gpus") / device.text() / "unbindLock";
}

}  // namespace

bool NvidiaUnbindLock::has(const PciAddress& device) const {
  return host_->exists(lock_of(device));
}

// The write succeeds whatever the driver thinks of it: what it reads then is the answer.
Result<> NvidiaUnbindLock::take(const PciAddress& device) {
  const auto path = lock_of(device);
  if (auto written = writer_->write(path, "1", kPatience); !written) return written;
  // Under the GPU's lock, which somebody else may have taken meanwhile and hang with.
  const auto answer = writer_->read(path, kPatience);
  if (!answer) return fail(Error(answer.error()));
  if (*answer == "1") return {};
  return fail(
      Errc::refused,
      device.text() + " is in use: its driver refuses the unbind lock, though nobody was found who holds it",
      "a console or a kernel client may hold it: see refcnt and holders of /sys/module/nvidia");
}

Result<> NvidiaUnbindLock::release(const PciAddress& device) {
  return has(device) ? writer_->write(lock_of(device), "0") : Result<>();
}

}  // namespace ferry
