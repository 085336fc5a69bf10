// SPDX-License-Identifier: Apache-2.0
#include "agent/kubevirt_cr_program.h"

#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/kubevirt_permits.h"
#include "common/exit_status.h"
#include "common/standard_streams.h"
#include "kube/api_calls.h"
#include "kube/api_error.h"

namespace ferry {
namespace {

using nlohmann::json;

struct Command {
  bool check = false;
  bool apply = false;
  bool dry_run = false;
  bool as_json = false;
  std::filesystem::path kubeconfig;
  std::string context;
};

/// The cluster's only KubeVirt object.
Result<json> the_kubevirt(ApiCalls& cluster) {
  auto list = cluster.list({.kind = kKubeVirts});
  const char* const install = "KubeVirt has to be installed in the cluster first";
  if (!list) {
    if (list.error().code != ApiErrc::not_found) return fail(std::move(list).error());
    return fail(Errc::not_found, "the cluster does not know KubeVirt objects", install);
  }
  const json& items = (*list)["items"];
  if (!items.is_array() || items.empty())
    return fail(Errc::not_found, "there is no KubeVirt object", install);
  if (items.size() > 1) {
    return fail(Errc::malformed_host, fmt::format("there are {} KubeVirt objects", items.size()),
                "a cluster has one: remove what is left of another installation");
  }
  return items.front();
}

void say(const Command& command, const std::string& name, const PermitChange& change, bool changed) {
  if (command.as_json) {
    const json document = {{"object", name},
                           {"fits", change.fits()},
                           {"lacks", change.lacks},
                           {"by_hand", change.by_hand},
                           {"notes", change.notes},
                           {"changed", changed},
                           {"dry_run", command.dry_run}};
    fmt::print("{}\n", document.dump(2));
    return;
  }
  const auto verdict = [&] {
    if (change.fits()) return "permits what this node offers";
    if (changed) return "changed";
    return command.dry_run ? "would be changed" : "does not permit all that this node offers";
  };
  fmt::print("KubeVirt {}: {}\n", name, verdict());
  for (const auto& text : change.lacks) fmt::print("  {}{}\n", text, changed ? ": mended" : "");
  for (const auto& text : change.by_hand) fmt::print("  by hand: {}\n", text);
  for (const auto& text : change.notes) fmt::print("  note: {}\n", text);
}

ExitStatus status_of(const Command& command, const PermitChange& change) {
  if (!command.apply) return change.fits() ? ExitStatus::done : ExitStatus::differs;
  return change.by_hand.empty() ? ExitStatus::done : ExitStatus::refused;
}

Result<ExitStatus> compare(const Command& command, const json& ours) {
  auto cluster = ApiCalls::reach(command.kubeconfig, command.context);
  if (!cluster) return fail(std::move(cluster).error());
  const auto found = the_kubevirt(**cluster);
  if (!found) return fail(found.error());
  const ObjectRef object{.kind = kKubeVirts,
                         .space = found->value("/metadata/namespace"_json_pointer, ""),
                         .name = found->value("/metadata/name"_json_pointer, "")};
  auto change = permit_change(*found, ours);
  if (!change) return fail(std::move(change).error().during(object.text()));
  const bool changes = command.apply && !command.dry_run && !change->patch.is_null();
  if (changes) {
    // Other programs write the object too: the additions are computed from its newest version.
    const auto written = (*cluster)->change(
        object,
        [&](const json& now) -> Result<json> {
          auto again = permit_change(now, ours);
          if (!again) return fail(std::move(again).error());
          *change = std::move(*again);
          return change->patch;
        },
        *found);
    if (!written) return fail(written.error());
  }
  say(command, object.space + "/" + object.name, *change, changes);
  return status_of(command, *change);
}

ExitStatus complain(const Error& error) {
  print_to_stderr("ferry kubevirt-cr: {}\n", error.message);
  if (!error.hint.empty()) print_to_stderr("hint: {}\n", error.hint);
  return exit_status_of(error);
}

}  // namespace

int kubevirt_cr_program(int argc, char** argv) {
  CLI::App app(
      "Compares the cluster's KubeVirt object with what `ferry kubevirt-cr -o json` says on standard "
      "input.",
      "ferry-agent kubevirt-cr");
  Command command;
  CLI::Option* check = app.add_flag("--check", command.check, "say what it lacks; 3 if it does");
  app.add_flag("--apply", command.apply, "add what it lacks; every other entry stays")->excludes(check);
  app.add_flag("--dry-run", command.dry_run, "with --apply: say what would be added");
  app.add_flag("--json", command.as_json, "for machines");
  app.add_option("--kubeconfig", command.kubeconfig, "how to reach the API server");
  app.add_option("--context", command.context, "the context of that file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    print_to_stderr("ferry-agent kubevirt-cr: {}\n", error.what());
    return static_cast<int>(ExitStatus::usage);
  }
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const json ours = json::parse(text, nullptr, false);
  if (!ours.is_object()) {
    print_to_stderr(
        "ferry-agent kubevirt-cr: standard input is not what `ferry kubevirt-cr -o json` prints\n");
    return static_cast<int>(ExitStatus::usage);
  }
  const auto status = compare(command, ours);
  return static_cast<int>(status ? *status : complain(status.error()));
}

}  // namespace ferry
