// SPDX-License-Identifier: Apache-2.0
// The keys of register facts in JSON: in status.json, and in the answer of the child that reads them.
#pragma once

#include "common/text/json_fields.h"
#include "vfio/registers/register_facts.h"

namespace ferry::vfio {

template <typename Io, SameAs<UnknownFact> Value>
void fields(Io& io, Value& unknown) {
  io("fact", unknown.fact);
  io("reason", unknown.reason);
}

template <typename Io, SameAs<RegisterFacts> Value>
void fields(Io& io, Value& facts) {
  io.or_null("chip", facts.chip);
  io.or_null("problem", facts.problem);
  io.or_default("in_use", facts.in_use);
  io.or_default("booted", facts.booted);
  io.or_default("recovery", facts.recovery);
  io.or_default("cc_mode", facts.cc_mode);
  io.or_default("ppcie", facts.ppcie);
  io.or_default("bar0_filter", facts.bar0_filter);
  io.or_default("nvlink_encryption", facts.nvlink_encryption);
  io.or_default("scrubbed", facts.scrubbed);
  io.or_default("memory_bytes", facts.memory_bytes);
  io.or_default("ecc", facts.ecc);
  io.or_null("chip_id", facts.chip_id);
  io.or_default("unknown", facts.unknown);
}

}  // namespace ferry::vfio
