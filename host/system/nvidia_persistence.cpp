// SPDX-License-Identifier: Apache-2.0
#include "host/system/nvidia_persistence.h"

#include <array>

namespace ferry::host {
namespace {

constexpr const char* kTool = "usr/bin/nvidia-smi";
constexpr const char* kSocket = "run/nvidia-persistenced/socket";

}  // namespace

Result<> NvidiaPersistence::set(const vfio::PciAddress& gpu, bool on) {
  if (!host_->exists(driver_root_ / kSocket)) {
    if (on) return {};
    return fail(Errc::unreachable, "nvidia-persistenced does not listen");
  }
  return writer_->run({.root = driver_root_,
                       .words = {std::string("/") + kTool, "-i", gpu.text(), "-pm", on ? "1" : "0"},
                       .device = gpu.text()});
}

std::unique_ptr<vfio::PersistenceSwitch> nvidia_persistence(const HostFs& host, HostWriter& writer) {
  for (const char* root : std::array{"", "run/nvidia/driver"}) {
    if (host.exists(std::filesystem::path(root) / kTool))
      return std::make_unique<NvidiaPersistence>(host, writer, root);
  }
  return nullptr;
}

}  // namespace ferry::host
