// SPDX-License-Identifier: Apache-2.0
// A shared library of this system's that is loaded when it is first needed: who never needs it does not wait
// for it, and for what it brings along, at each start. Nothing of the host's root: that is another system's.
#pragma once

#include <string>

#include "common/result.h"

namespace ferry {

class LazyLibrary {
 public:
  /// `name` as the loader knows it: "libsystemd.so.0". Never unloaded. Errc::unsupported: it is not here;
  /// `hint` then says what to do.
  static Result<LazyLibrary> load(const char* name, const char* hint);

  /// Sets `function`, a pointer to one, to what the library has under that name; null where it has none.
  template <typename Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(symbol(name));
  }
  /// Errc::unsupported: something that find() looked for is not in there; `hint` then says what to do.
  Result<> has_all(const char* hint) const;

 private:
  LazyLibrary(const char* name, void* handle) : name_(name), handle_(handle) {}
  void* symbol(const char* name);

  std::string name_;
  void* handle_;
  std::string missing_;
};

}  // namespace ferry
