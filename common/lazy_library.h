// SPDX-License-Identifier: Apache-2.0
// A shared library of this system, loaded at first use, so that programs without a use for it start faster.
// Nothing is loaded from the host's root, which may be another system.
#pragma once

#include <string>

#include "common/result.h"

namespace ferry {

class LazyLibrary {
 public:
  /// `name` as the loader knows it: "libsystemd.so.0". Never unloaded. Errc::unsupported with `hint`: not
  /// installed.
  static Result<LazyLibrary> load(const char* name, const char* hint);

  /// Points `function` to the library's function of that name; null: the library has none.
  template <typename Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(symbol(name));
  }
  /// Errc::unsupported with `hint`: a function that find() looked for is missing.
  Result<> has_all(const char* hint) const;

 private:
  LazyLibrary(const char* name, void* handle) : name_(name), handle_(handle) {}
  void* symbol(const char* name);

  std::string name_;
  void* handle_;
  std::string missing_;
};

}  // namespace ferry
