// SPDX-License-Identifier: Apache-2.0
#include "api/host_status.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto orders = api::read_plugin_orders(text);
  const auto read = api::read_host_status(text);
  if (!read) {
    require(read.error().code == Errc::malformed_host, "a refusal is of the host");
    return require(read.error().message.starts_with("/run/ferry/status.json: "), "a refusal says where");
  }
  const auto again = api::read_host_status(api::host_status_text(*read));
  require(again && *again == *read, "a status reads back as itself");
  require(!orders || orders->unavailable == read->unavailable, "the plugin reads the same");
}
