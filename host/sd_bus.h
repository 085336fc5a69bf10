// SPDX-License-Identifier: Apache-2.0
// The needed functions of sd-bus(3), from libsystemd.so.0. The library is loaded at the first use, so that a
// process that never talks to systemd does not carry it (docs/adr/0008). ABI: sd-bus.h, libsystemd 252. A
// function that the library lacks is an error, never a null pointer.
#pragma once

#include <systemd/sd-bus.h>

#include "common/result.h"

namespace ferry {

/// Members are named as in sd-bus, without the prefix.
struct SdBus {
  decltype(&::sd_bus_new) make = nullptr;
  decltype(&::sd_bus_set_fd) set_fd = nullptr;
  decltype(&::sd_bus_set_bus_client) set_bus_client = nullptr;
  decltype(&::sd_bus_set_method_call_timeout) set_method_call_timeout = nullptr;
  decltype(&::sd_bus_start) start = nullptr;
  decltype(&::sd_bus_match_signal_async) match_signal_async = nullptr;
  decltype(&::sd_bus_call_method_async) call_method_async = nullptr;
  decltype(&::sd_bus_process) process = nullptr;
  decltype(&::sd_bus_wait) wait = nullptr;
  decltype(&::sd_bus_close_unref) close_unref = nullptr;
  decltype(&::sd_bus_message_read) message_read = nullptr;
  decltype(&::sd_bus_message_get_error) message_get_error = nullptr;
  decltype(&::sd_bus_message_get_sender) message_get_sender = nullptr;

  /// Loads the library once per process and never unloads it. Errc::unsupported: it is not installed.
  static Result<const SdBus*> get();
};

}  // namespace ferry
