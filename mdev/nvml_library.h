// SPDX-License-Identifier: Apache-2.0
// Inside this room: the library loaded, its calls with results.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "mdev/nvml_abi.h"
#include "vfio/pci_address.h"

namespace ferry::nvml {

/// Open from begin to end of its life.
class Library {
 public:
  /// Errc::unsupported: the host has none, it cannot be loaded, or its driver is not there.
  static Result<Library> open(const HostFs& host);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  Library(Library&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Library& operator=(Library&&) = delete;
  ~Library();

  /// Errc::not_found.
  Result<Device> device(const PciAddress& address) const;

  /// Calls a function by its name. A library that lacks it is one that does not support it.
  template <typename... Arguments>
  Status call(const char* name, Arguments... arguments) const {
    using Function = Status (*)(Arguments...);
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): what dlsym() is for
    const auto function = reinterpret_cast<Function>(symbol(name));
    return function == nullptr ? kNotSupported : function(arguments...);
  }

  /// What is left of a call: success, Errc::refused (in use), Errc::unsupported, Errc::not_found,
  /// Errc::failed.
  Result<> checked(Status status, const std::string& what) const;

  /// What fills an array of which it first says how long it must be.
  template <typename T>
  std::vector<T> list(const std::function<Status(unsigned*, T*)>& fill) const {
    std::vector<T> out;
    unsigned count = 0;
    Status status = fill(&count, nullptr);
    constexpr int kTries = 3;  // it may have grown meanwhile
    for (int i = 0; i < kTries && status == kInsufficientSize; ++i) {
      out.resize(count);
      status = fill(&count, out.data());
    }
    out.resize(status == kSuccess ? count : 0);
    return out;
  }

 private:
  explicit Library(void* handle) : handle_(handle) {}
  void* symbol(const char* name) const;
  void* handle_;
};

}  // namespace ferry::nvml
