// SPDX-License-Identifier: Apache-2.0
#include "mdev/nvml_library.h"

#include <array>
#include <dlfcn.h>
#include <fcntl.h>

#include <fmt/format.h>

namespace ferry::nvml {
namespace {

// Directories of distributions and of the driver's own installer. A driver container has its own root.
constexpr std::array<const char*, 2> kRoots = {"", "run/nvidia/driver"};
constexpr std::array<const char*, 7> kDirectories = {
    "usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu",
    "lib64",     "lib/x86_64-linux-gnu",     "lib/aarch64-linux-gnu",
    ""};
constexpr const char* kName = "libnvidia-ml.so.1";

std::string last_dl_error() {
  const char* text = ::dlerror();
  return text == nullptr ? "unknown reason" : text;
}

// Loads through a descriptor, since a link in the host's root must not lead out of that root.
Result<void*> load(const HostFs& host, const std::filesystem::path& path) {
  const auto file = host.open(path, O_RDONLY | O_CLOEXEC);
  if (!file) return fail(Error(file.error()));
  void* handle = ::dlopen(fmt::format("/proc/self/fd/{}", file->get()).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  return fail(Errc::unsupported, fmt::format("load /{}: {}", path.string(), last_dl_error()));
}

}  // namespace

Result<Library> Library::open(const HostFs& host) {
  for (const char* root : kRoots) {
    for (const char* directory : kDirectories) {
      auto handle = load(host, std::filesystem::path(root) / directory / kName);
      if (!handle && is_gone(handle.error())) continue;
      if (!handle) return fail(std::move(handle).error());
      Library library(*handle);
      const Status status = library.call("nvmlInit_v2");
      if (status == kSuccess) return library;
      auto failed = library.checked(status, "initialise NVML");
      ::dlclose(std::exchange(library.handle_, nullptr));
      return fail(Errc::unsupported, failed.error().message, failed.error().hint);
    }
  }
  return fail(Errc::unsupported, fmt::format("this host has no {}", kName),
              "it comes with NVIDIA's driver: install the vGPU host driver, or mount the root that has it");
}

Library::~Library() {
  if (handle_ == nullptr) return;
  (void)call("nvmlShutdown");
  ::dlclose(handle_);
}

void* Library::symbol(const char* name) const {
  return ::dlsym(handle_, name);
}

Result<Device> Library::device(const PciAddress& address) const {
  Device device = nullptr;
  const std::string text = address.text();
  if (auto found = checked(call("nvmlDeviceGetHandleByPciBusId_v2", text.c_str(), &device), text); !found) {
    // NVML gives this error for a device that is no GPU, and for a GPU without its driver.
    return fail(Errc::not_found, found.error().message, found.error().hint);
  }
  return device;
}

Result<> Library::checked(Status status, const std::string& what) const {
  if (status == kSuccess) return {};
  using Describe = const char* (*)(Status);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): dlsym() returns functions as void*
  const auto describe = reinterpret_cast<Describe>(symbol("nvmlErrorString"));
  const Errc code = status == kInUse                                        ? Errc::refused
                    : status == kNotSupported || status == kDriverNotLoaded ? Errc::unsupported
                    : status == kNotFound                                   ? Errc::not_found
                                                                            : Errc::failed;
  return fail(code, fmt::format("{}: NVML says {} ({})", what,
                                describe == nullptr ? "nothing more" : describe(status), status));
}

}  // namespace ferry::nvml
