// SPDX-License-Identifier: Apache-2.0
#include "host/sd_bus.h"

#include <dlfcn.h>
#include <string>

namespace ferry {
namespace {

constexpr const char* kLibrary = "libsystemd.so.0";

template <typename Function>
void find(void* library, const char* name, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) missing = name;
}

Result<SdBus> load() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(Errc::unsupported, std::string("load what talks to systemd: ") + ::dlerror(),
                "install libsystemd0");
  }
  SdBus bus;
  std::string missing;
  find(library, "sd_bus_new", bus.make, missing);
  find(library, "sd_bus_set_fd", bus.set_fd, missing);
  find(library, "sd_bus_set_bus_client", bus.set_bus_client, missing);
  find(library, "sd_bus_set_method_call_timeout", bus.set_method_call_timeout, missing);
  find(library, "sd_bus_start", bus.start, missing);
  find(library, "sd_bus_match_signal_async", bus.match_signal_async, missing);
  find(library, "sd_bus_call_method_async", bus.call_method_async, missing);
  find(library, "sd_bus_process", bus.process, missing);
  find(library, "sd_bus_wait", bus.wait, missing);
  find(library, "sd_bus_close_unref", bus.close_unref, missing);
  find(library, "sd_bus_message_read", bus.message_read, missing);
  find(library, "sd_bus_message_get_error", bus.message_get_error, missing);
  find(library, "sd_bus_message_get_sender", bus.message_get_sender, missing);
  if (missing.empty()) return bus;
  return fail(Errc::unsupported, std::string(kLibrary) + " is too old: it has no " + missing,
              "systemd 252 or newer");
}

}  // namespace

Result<const SdBus*> SdBus::get() {
  static const Result<SdBus> loaded = load();
  if (!loaded) return fail(Error(loaded.error()));
  return &*loaded;
}

}  // namespace ferry
