// SPDX-License-Identifier: Apache-2.0
#include "host/nvidia_unbind_lock.h"

namespace ferry {
namespace {

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
  if (auto written = writer_->write(path, "1"); !written) return written;
  const auto answer = host_->read_attribute(path);
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
