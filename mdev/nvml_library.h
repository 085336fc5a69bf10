// SPDX-License-Identifier: Apache-2.0
// Inside this room: the loaded library, and its calls as Result values.
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

/// Loads the library when it is opened, and unloads it at its destruction.
class Library {
 public:
  /// Errc::unsupported: the host lacks the library, it cannot be loaded, or its driver is not loaded.
  static Result<Library> open(const HostFs& host);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  Library(Library&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Library& operator=(Library&&) = delete;
  ~Library();

  /// The GPU's handle. Errc::not_found.
  Result<Device> device(const PciAddress& address) const;

  /// Calls a function of the library by name. A library without the function counts as kNotSupported.
  template <typename... Arguments>
  Status call(const char* name, Arguments... arguments) const {
    using Function = Status (*)(Arguments...);
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): dlsym() returns functions as void*
    const auto function = reinterpret_cast<Function>(symbol(name));
    return function == nullptr ? kNotSupported : function(arguments...);
  }

  /// A status as a Result: success, Errc::refused (in use), Errc::unsupported, Errc::not_found, Errc::failed.
  Result<> checked(Status status, const std::string& what) const;

  /// The elements of a call that first reports its count, then fills an array; empty if it fails.
  template <typename T>
  std::vector<T> list(const std::function<Status(unsigned*, T*)>& fill) const {
    std::vector<T> out;
    unsigned count = 0;
    Status status = fill(&count, nullptr);
    constexpr int kTries = 3;  // the list may grow between the two calls
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
