// SPDX-License-Identifier: Apache-2.0
// The text of `ferry explain` about one object, by pure functions of a snapshot.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/output/text_output.h"
#include "host/node_description.h"
#include "vfio/pci/device_facts.h"

namespace ferry::cli {

struct ExplanationLine {
  std::string label;  ///< "link"; lines with the same one follow each other
  std::string text;
  Tint tint = Tint::plain;
};

struct Explanation {
  std::string title;
  std::vector<ExplanationLine> lines = {};

  void add(const std::string& label, std::string text, Tint tint = Tint::plain);
};

/// The input of an explanation.
struct ExplainInputs {
  host::NodeSnapshot snapshot;
  host::NodeDescription description;
  std::map<vfio::PciAddress, vfio::DevicePlace> places;
  bool plugin_runs = false;
  std::string node = {};                      ///< identity, to know vGPUs that Ferry made; empty: it has none
  std::string policy_fault = {};              ///< why the policy cannot be read; empty: it can
  std::optional<std::string> asked_for = {};  ///< the policy that desired.json names
  vfio::AcceleratorRules rules = {};          ///< Session::rules
  /// mdev::carriers_of_vgpus(), also of GPUs that count only where they are named.
  std::map<vfio::PciAddress, std::string> carriers = {};
};

/// The object that a word of the command line names. Without a vGPU and a resource it is a PCI function: an
/// accelerator, a virtual function, or any other.
struct Subject {
  vfio::PciAddress address = {};
  std::string vgpu = {};      ///< UUID
  std::string resource = {};  ///< name of an advertised resource
};

/// Errc::usage: no object of this node has that name; the message suggests the nearest name.
Result<Subject> find_subject(const ExplainInputs& inputs, const std::string& word);

Explanation explanation_of(const ExplainInputs& inputs, const Subject& subject);
nlohmann::json to_json(const ExplainInputs& inputs, const Subject& subject);

std::string explanation_text(const Explanation& explanation, const TextOutput& output);

/// Compares a link with its best speed and width: "2.5 GT/s x8, could be 16.0 GT/s x16". Without a text: the
/// kernel reports none.
ExplanationLine link_line(const vfio::LinkFacts& link);

}  // namespace ferry::cli
