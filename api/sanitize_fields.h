// SPDX-License-Identifier: Apache-2.0
// The keys of a SanitizeStatus in JSON: in status.json, and in hostd's record of each GPU's users.
#pragma once

#include "api/host_status.h"
#include "common/text/json_fields.h"

namespace ferry::api {

template <typename Io, SameAs<SanitizeStatus> Value>
void fields(Io& io, Value& sanitize) {
  io("state", sanitize.state);
  io("since", sanitize.since);
  io("count", sanitize.count);
  io.or_default("result", sanitize.result);
  io.or_default("method", sanitize.method);
  io.or_default("detail", sanitize.detail);
  io.or_default("milliseconds", sanitize.milliseconds);
}

}  // namespace ferry::api
