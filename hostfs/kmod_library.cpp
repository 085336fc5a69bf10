// SPDX-License-Identifier: Apache-2.0
#include "hostfs/kmod_library.h"

#include "common/lazy_library.h"

namespace ferry {
namespace {

Result<KmodLibrary> load() {
  auto library = LazyLibrary::load("libkmod.so.2", "install libkmod2");
  if (!library) return fail(std::move(library).error());
  KmodLibrary kmod;
  library->find("kmod_new", kmod.make);
  library->find("kmod_unref", kmod.unref);
  library->find("kmod_load_resources", kmod.load_resources);
  library->find("kmod_module_new_from_lookup", kmod.module_new_from_lookup);
  library->find("kmod_module_unref_list", kmod.module_unref_list);
  library->find("kmod_module_get_module", kmod.module_get_module);
  library->find("kmod_module_unref", kmod.module_unref);
  library->find("kmod_module_get_initstate", kmod.module_get_initstate);
  library->find("kmod_module_probe_insert_module", kmod.module_probe_insert_module);
  if (auto r = library->has_all("install libkmod2, kmod 30 or newer"); !r) return fail(std::move(r).error());
  return kmod;
}

}  // namespace

Result<const KmodLibrary*> KmodLibrary::get() {
  static const Result<KmodLibrary> loaded = load();
  if (!loaded) return fail(loaded.error());
  return &*loaded;
}

}  // namespace ferry
