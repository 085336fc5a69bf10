// SPDX-License-Identifier: Apache-2.0
#include "kubectl/agent_pod.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/text.h"
#include "kubectl/cluster_reader.h"

namespace ferry::kubectl {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 6> kPrograms = {"ferry",       "ferry-agent", "ferry-dra",
                                                       "ferry-fetch", "ferry-virt",  "kubectl-ferry"};

/// A container's `command` and `args` as one list.
std::vector<std::string> words_of(const json& container) {
  std::vector<std::string> words;
  for (const char* const part : {"command", "args"})
    for (const json& word : items_field(container, part))
      if (word.is_string()) words.push_back(word.get<std::string>());
  return words;
}

/// The option that names the root of the host, with a blank before it; empty: there is none, or a shell would
/// not take it as one word.
std::string host_root_in(const std::vector<std::string>& words) {
  constexpr std::string_view kOption = "--host-root";
  const auto option =
      std::ranges::find_if(words, [&](const std::string& word) { return word.starts_with(kOption); });
  if (option == words.end()) return {};
  std::string out = *option;
  if (out == kOption && std::next(option) != words.end()) out += "=" + *std::next(option);
  const bool plain = std::ranges::all_of(out, [](char c) {
    return is_alphanumeric(c) || std::string_view("-=/._").find(c) != std::string_view::npos;
  });
  return plain ? " " + out : std::string();
}

bool has_labels_of_the_chart(const json& pod) {
  const json& labels = field_at(pod, {"metadata", "labels"});
  // An installer may change `app.kubernetes.io/name`; `helm.sh/chart` has the chart's own name.
  return text_field(labels, "app.kubernetes.io/name") == "ferry" ||
         text_field(labels, "helm.sh/chart").starts_with("ferry-");
}

}  // namespace

std::string_view ferry_program_in(const json& container) {
  const auto& command = items_field(container, "command");
  if (command.empty() || !command.front().is_string()) return {};
  const auto name = std::filesystem::path(command.front().get<std::string>()).filename();
  const auto* const found = std::ranges::find(kPrograms, name.string());
  return found == kPrograms.end() ? std::string_view() : *found;
}

std::string ferry_verb_in(const json& container) {
  if (ferry_program_in(container) != "ferry") return {};
  const auto words = words_of(container);
  const auto verb = std::ranges::find_if(
      words, [](const std::string& word) { return word == "hostd" || word == "plugin"; });
  return verb == words.end() ? std::string() : *verb;
}

bool runs_dra(const json& pod) {
  const auto& containers = items_field(json_at(pod, "spec"), "containers");
  return std::ranges::any_of(
      containers, [](const json& container) { return ferry_program_in(container) == "ferry-dra"; });
}

std::string status_command_in(const json& pod) {
  if (!has_labels_of_the_chart(pod) || text_field(json_at(pod, "status"), "phase") != "Running") return {};
  const json& metadata = json_at(pod, "metadata");
  for (const json& container : items_field(json_at(pod, "spec"), "containers"))
    if (ferry_verb_in(container) == "hostd")
      return fmt::format("kubectl -n {} exec {} -c {} -- ferry{} status", text_field(metadata, "namespace"),
                         text_field(metadata, "name"), text_field(container, "name"),
                         host_root_in(words_of(container)));
  return {};
}

bool is_of_ferry(const json& pod, const std::string& space) {
  return text_field(json_at(pod, "metadata"), "namespace") == space || has_labels_of_the_chart(pod);
}

std::optional<agent::AgentProgramOptions> agent_options_in(const json& pod) {
  for (const json& container : items_field(json_at(pod, "spec"), "containers")) {
    const auto program = ferry_program_in(container);
    std::vector<std::string> words = words_of(container);
    const bool as_verb = program == "ferry" && words.size() > 1 && words[1] == "agent";
    if (program != "ferry-agent" && !as_verb) continue;
    words.erase(words.begin(), words.begin() + (as_verb ? 2 : 1));

    agent::AgentProgramOptions options;
    CLI::App app;
    const agent::AgentOptionList list(app, options);
    app.allow_extras();  // logging options, and --host-root
    std::ranges::reverse(words);
    try {
      app.parse(words);
    } catch (const CLI::Error&) {
      return std::nullopt;  // such an agent does not start either
    }
    if (options.space.empty()) options.space = text_field(json_at(pod, "metadata"), "namespace");
    return options;
  }
  return std::nullopt;
}

}  // namespace ferry::kubectl
