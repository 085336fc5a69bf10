// SPDX-License-Identifier: Apache-2.0
#include "mdev/vgpu.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto id = mdev::parse_mdev_uuid(text);
  if (!id) return require(id.error().code == Errc::usage, "a refusal is wrong usage");
  require(id->text.size() == 36 && text.size() == 36, "a UUID has 36 characters");
  const auto again = mdev::parse_mdev_uuid(id->text);
  require(again && *again == *id, "a UUID reads back as itself");
}
