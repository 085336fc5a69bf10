// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "vfio/confidential/mode_setting.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto record = vfio::read_mode_record(text);
  if (!record) {
    require(record.error().code == Errc::malformed_host, "a record that cannot be read is malformed");
    return require(record.error().message.starts_with("/var/lib/ferry-hostd/gpus/mode-change.json: "),
                   "a refusal says where");
  }
  const auto again = vfio::read_mode_record(vfio::mode_record_text(*record));
  require(again && *again == *record, "a record reads back as itself");
}
