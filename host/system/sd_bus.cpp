// SPDX-License-Identifier: Apache-2.0
#include "host/system/sd_bus.h"

#include "common/lazy_library.h"

namespace ferry::host {
namespace {

Result<SdBus> load() {
  auto library = LazyLibrary::load("libsystemd.so.0", "install libsystemd0");
  if (!library) return fail(std::move(library).error().during("talk to systemd"));
  SdBus bus;
  library->find("sd_bus_new", bus.make);
  library->find("sd_bus_set_fd", bus.set_fd);
  library->find("sd_bus_set_bus_client", bus.set_bus_client);
  library->find("sd_bus_set_method_call_timeout", bus.set_method_call_timeout);
  library->find("sd_bus_start", bus.start);
  library->find("sd_bus_match_signal_async", bus.match_signal_async);
  library->find("sd_bus_call_method_async", bus.call_method_async);
  library->find("sd_bus_process", bus.process);
  library->find("sd_bus_wait", bus.wait);
  library->find("sd_bus_close_unref", bus.close_unref);
  library->find("sd_bus_message_read", bus.message_read);
  library->find("sd_bus_message_get_error", bus.message_get_error);
  library->find("sd_bus_message_get_sender", bus.message_get_sender);
  if (auto r = library->has_all("systemd 252 or newer"); !r) return fail(std::move(r).error());
  return bus;
}

}  // namespace

Result<const SdBus*> SdBus::get() {
  static const Result<SdBus> loaded = load();
  if (!loaded) return fail(Error(loaded.error()));
  return &*loaded;
}

}  // namespace ferry::host
