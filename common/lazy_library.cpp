// SPDX-License-Identifier: Apache-2.0
#include "common/lazy_library.h"

#include <dlfcn.h>

#include <fmt/format.h>

namespace ferry {

Result<LazyLibrary> LazyLibrary::load(const char* name, const char* hint) {
  void* const handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return LazyLibrary(name, handle);
  const char* const why = ::dlerror();  // the message names the library
  return fail(Errc::unsupported, fmt::format("load {}", why == nullptr ? name : why), hint);
}

void* LazyLibrary::symbol(const char* name) {
  void* const found = ::dlsym(handle_, name);
  if (found == nullptr) missing_ = name;
  return found;
}

Result<> LazyLibrary::has_all(const char* hint) const {
  if (missing_.empty()) return {};
  return fail(Errc::unsupported, fmt::format("{} has no {}", name_, missing_), hint);
}

}  // namespace ferry
