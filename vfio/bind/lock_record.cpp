// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/lock_record.h"

#include "hostfs/boot_id.h"

namespace ferry::vfio {
namespace {

constexpr const char* kDirectory = "run/ferry/hostd/unbind-locks";

std::filesystem::path file_of(const PciAddress& device) {
  return std::filesystem::path(kDirectory) / device.text();
}

}  // namespace

Result<> record_lock(HostFs& host, const PciAddress& device) {
  const auto boot = boot_id(host);
  if (!boot) return fail(Error(boot.error()).during("record which locks are held"));
  return host.write_file(file_of(device), *boot + "\n");
}

Result<> forget_lock(HostFs& host, const PciAddress& device) {
  return host.remove_file(file_of(device));
}

Result<std::vector<PciAddress>> recorded_locks(const HostFs& host) {
  std::vector<PciAddress> out;
  const auto names = host.list(kDirectory);
  if (!names) {
    if (is_gone(names.error())) return out;
    return fail(Error(names.error()).during("look for locks that an earlier run has left"));
  }
  const auto boot = boot_id(host);
  if (!boot) return fail(Error(boot.error()).during("look for locks that an earlier run has left"));
  for (const std::string& name : *names) {
    const auto device = PciAddress::parse(name);
    const auto of_boot = host.read_attribute(std::filesystem::path(kDirectory) / name);
    if (device && device->text() == name && of_boot && *of_boot == *boot) out.push_back(*device);
  }
  return out;
}

}  // namespace ferry::vfio
