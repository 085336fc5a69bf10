// SPDX-License-Identifier: Apache-2.0
// The functions of libkmod.so.2 that Ferry uses, loaded with the first module: the library brings libcrypto
// along, which alone was a fifth of a process' start. ABI: libkmod.h of kmod 30.
#pragma once

#include <libkmod.h>

#include "common/result.h"

namespace ferry {

/// Names are libkmod's without the prefix.
struct KmodLibrary {
  decltype(&::kmod_new) make = nullptr;
  decltype(&::kmod_unref) unref = nullptr;
  decltype(&::kmod_load_resources) load_resources = nullptr;
  decltype(&::kmod_module_new_from_lookup) module_new_from_lookup = nullptr;
  decltype(&::kmod_module_unref_list) module_unref_list = nullptr;
  decltype(&::kmod_module_get_module) module_get_module = nullptr;
  decltype(&::kmod_module_unref) module_unref = nullptr;
  decltype(&::kmod_module_get_initstate) module_get_initstate = nullptr;
  decltype(&::kmod_module_probe_insert_module) module_probe_insert_module = nullptr;

  /// Loaded once a process. Errc::unsupported: the library or a function of it is missing.
  static Result<const KmodLibrary*> get();
};

}  // namespace ferry
