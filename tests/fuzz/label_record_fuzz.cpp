// SPDX-License-Identifier: Apache-2.0
#include "agent/labels/own_labels.h"
#include "tests/fuzz/fuzz.h"

// Any annotation that a Node has under that name: what the agent takes for its own is read back as itself,
// and no label that is another's by it is touched.
void ferry::fuzz::one_input(std::string_view text) {
  const agent::Labels record = agent::read_label_record(text);
  require(agent::read_label_record(agent::label_record_text(record)) == record, "reads back as itself");
  agent::Labels node = record;
  node["theirs"] = "theirs";
  if (record.contains("theirs") && record.at("theirs") == "theirs") return;
  const agent::OwnLabels own = agent::own_labels(node, record, {{"ours", "1"}});
  require(!own.changes.contains("theirs"), "another's stays");
  for (const auto& [key, value] : record)
    require(key == "theirs" || key == "ours" || own.changes.contains(key), "no other of ours stays");
}
