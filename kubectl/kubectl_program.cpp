// SPDX-License-Identifier: Apache-2.0
#include "kubectl/kubectl_program.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/completion/command_model.h"
#include "cli/options/choice_option.h"
#include "cli/options/output_format.h"
#include "cli/output/text_output.h"
#include "common/exit_status.h"
#include "common/process/standard_streams.h"
#include "common/text/text.h"
#include "common/version.h"
#include "kube/api_calls.h"
#include "kubectl/cluster_facts.h"
#include "kubectl/cluster_reader.h"
#include "kubectl/cluster_verbs.h"
#include "kubectl/kubectl_completion.h"

namespace ferry::kubectl {
namespace {

using nlohmann::json;

constexpr const char* kWhat = "The GPUs of a cluster that Ferry carries into virtual machines.";
constexpr const char* kFooter =
    "What is shown is what the API server knows; which GPU is in which mode, and why, says `ferry status` "
    "on\n"
    "the node. Nothing is changed.\n"
    "Exit status: 0, 1 failed, `doctor` found a fault, or `gather` has not all, 2 wrong usage, no such "
    "node,\n"
    "or `plan`: what would be asked for cannot be, 4 `plan`: others serve the node.";

struct Report {  // NOLINT(bugprone-exception-escape): JSON is moved, which throws nothing
  json document;
  std::string text;
  ExitStatus status = ExitStatus::done;
  std::vector<std::string> notes = {};  ///< for stderr, when the document goes to a file
};

struct Command {
  cli::OutputFormat output = cli::OutputFormat::table;
  std::string kubeconfig;
  std::string context;
  std::string node;
  std::string space;
  std::vector<std::string> config_maps = {"ferry"};
  std::vector<std::string> changes;
};

/// The inputs of a verb.
struct Cluster {
  kube::AskForPart ask;
  AskForLog ask_for_log;
  std::string default_namespace;
  std::optional<std::size_t> columns;
};

using ClusterVerb = std::function<Result<Report>(const Cluster&)>;

Result<Report> list_cluster(const Cluster& cluster) {
  const auto objects = read_cluster(cluster.ask, VmisRead::no);
  if (!objects) return fail(objects.error());
  const ClusterGpus gpus = cluster_gpus(*objects);
  return Report{.document = list_document(gpus), .text = list_text(gpus, cluster.columns)};
}

Result<Report> show_node(const Cluster& cluster, const Command& command) {
  const auto objects = read_cluster_node(cluster.ask, command.node);
  if (!objects) return fail(objects.error());
  const ClusterGpus gpus = cluster_gpus(*objects, NodesShown::all);
  if (gpus.nodes.empty()) {
    return fail(Errc::malformed_host,
                fmt::format("Node {}: the API server's answer is not that", command.node));
  }
  const ClusterNode& node = gpus.nodes.front();
  return Report{.document = node_document(gpus, node), .text = node_text(gpus, node, cluster.columns)};
}

Result<Report> show_vms(const Cluster& cluster) {
  const auto objects = read_cluster(cluster.ask, VmisRead::yes);
  if (!objects) return fail(objects.error());
  const ClusterGpus gpus = cluster_gpus(*objects);
  return Report{.document = vms_document(gpus), .text = vms_text(gpus, cluster.columns)};
}

// Ferry's namespace: the option's, or the client's default. `plan` uses it only if no pod shows the agent's.
std::string space_of(const Cluster& cluster, const Command& command) {
  if (!command.space.empty()) return command.space;
  return cluster.default_namespace.empty() ? "default" : cluster.default_namespace;
}

Result<Report> plan_labels(const Cluster& cluster, const Command& command) {
  const auto changes = parse_label_changes(command.changes);
  if (!changes) return fail(changes.error());
  const auto plan =
      read_label_plan(cluster.ask, command.node, *changes,
                      {.space = space_of(cluster, command), .config_maps = command.config_maps});
  if (!plan) return fail(plan.error());
  return Report{.document = plan_document(*plan),
                .text = plan_text(*plan, cluster.columns),
                .status = plan_status(*plan)};
}

Result<Report> check_node(const Cluster& cluster, const Command& command) {
  const auto objects = read_cluster_node(cluster.ask, command.node);
  if (!objects) return fail(objects.error());
  const auto kubevirts = read_kubevirts(cluster.ask);
  if (!kubevirts) return fail(kubevirts.error());
  Report out{.document = {{"node", command.node}, {"checks", json::array()}}, .text = {}};
  const auto checks = cluster_checks(*objects, *kubevirts);
  std::size_t id_width = 0;
  for (const Check& check : checks) id_width = std::max(id_width, check.id.size());
  for (const Check& check : checks) {
    out.document["checks"].push_back(cli::to_json(check));
    out.text += cli::lines_of(check, id_width);
    if (check.verdict == Verdict::fail) out.status = ExitStatus::failed;
  }
  return out;
}

Result<Report> gather(const Cluster& cluster, const Command& command) {
  auto gathered = gather_cluster(cluster.ask, cluster.ask_for_log, {.space = space_of(cluster, command)});
  if (!gathered) return fail(std::move(gathered).error());
  std::string text = cli::printed(cli::OutputFormat::json, gathered->document, {});
  return Report{.document = std::move(gathered->document),
                .text = std::move(text),
                .status = gathered->whole ? ExitStatus::done : ExitStatus::failed,
                .notes = std::move(gathered->notes)};
}

class PluginVerbs {
 public:
  PluginVerbs(CLI::App& app, Command& command, ClusterVerb& verb) : command_(command), verb_(verb) {
    app.require_subcommand(1);
    cli::add_choice(app, "-o,--output", command.output, cli::output_formats(),
                    "how it is printed: table, json, yaml")
        ->option_text("FORMAT");
    app.add_option("--kubeconfig", command.kubeconfig,
                   "how to reach the API server; else $KUBECONFIG and so on")
        ->option_text("FILE");
    app.add_option("--context", command.context, "the context of that file; else its own choice");
    app.set_version_flag("--version", std::string("ferry ") + kVersion);
    app.footer(kFooter);
    add(app, "list", "all nodes' GPUs: what is advertised, and which VM or pod has it", list_cluster);
    name_node(add(app, "node", "one node: what it is asked to be, its state, its GPUs and who has them",
                  [this](const Cluster& cluster) { return show_node(cluster, command_); }));
    add(app, "vms", "VMs of KubeVirt and pods in VMs of Kata that have GPUs, which, and where", show_vms);
    add_plan(app);
    name_node(add(app, "doctor", "what keeps a node's GPUs from VMs, as far as the API server shows it",
                  [this](const Cluster& cluster) { return check_node(cluster, command_); }));
    CLI::App* const archive =
        add(app, "gather", "what support needs, as one JSON document, without what could be secret",
            [this](const Cluster& cluster) { return gather(cluster, command_); });
    name_space(archive, "where Ferry is installed; else the context's namespace");
  }

 private:
  CLI::App* add(CLI::App& app, const char* name, const char* description, ClusterVerb action) {
    CLI::App* const verb = app.add_subcommand(name, description);
    verb->fallthrough();  // global options may follow the verb
    verb->callback([this, action = std::move(action)] { verb_ = action; });
    return verb;
  }
  void name_node(CLI::App* verb) {
    verb->add_option("node", command_.node, "its name")->required()->option_text("NODE");
  }
  void name_space(CLI::App* verb, const char* description) {
    verb->add_option("-n,--namespace", command_.space, description);
  }
  void add_plan(CLI::App& app) {
    CLI::App* const plan =
        add(app, "plan", "what other labels of a node would ask for, as far as the API server can tell",
            [this](const Cluster& cluster) { return plan_labels(cluster, command_); });
    name_node(plan);
    plan->add_option("labels", command_.changes,
                     "KEY=VALUE sets one, KEY- takes it away, as for kubectl label")
        ->option_text("CHANGE...");
    name_space(plan, "of the configurations, where no pod on the node shows it");
    plan->add_option("--config-map", command_.config_maps, "likewise; may be repeated")
        ->capture_default_str();
  }

  Command& command_;
  ClusterVerb& verb_;
};

int tell(const Error& error) {
  print_to_stderr("kubectl ferry: {}\n", error.message);
  if (!error.hint.empty()) print_to_stderr("hint: {}\n", error.hint);
  return static_cast<int>(exit_status_of(error));
}

int wrong_usage(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const auto chosen = app.get_subcommands();
  const CLI::App& at = chosen.empty() ? app : *chosen.front();
  std::vector<std::string> known;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(verb->get_name());
  for (const CLI::App* of : {&app, &at})
    for (const CLI::Option* option : of->get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  std::string meant;
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
      dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    for (int i = 1; i < argc && meant.empty(); ++i) {
      const std::string word = argv[i];
      if (std::ranges::find(known, word) == known.end()) meant = did_you_mean(word, known);
    }
  }
  print_to_stderr("kubectl ferry: {}{}\nhint: `kubectl ferry{} --help` lists what there is\n", error.what(),
                  meant, chosen.empty() ? "" : " " + at.get_name());
  return static_cast<int>(ExitStatus::usage);
}

int run(const Command& command, const ClusterVerb& verb) {
  const auto calls = kube::ApiCalls::reach(command.kubeconfig, command.context);
  if (!calls) return tell(calls.error());
  kube::ApiCalls& api = **calls;
  const Cluster cluster{.ask = [&api](const kube::Selection& what,
                                      const kube::ListRange& range) { return api.list(what, range); },
                        .ask_for_log = [&api](const kube::ObjectRef& pod,
                                              const kube::LogEnd& end) { return api.log(pod, end); },
                        .default_namespace = api.default_namespace(),
                        .columns = cli::text_output_of(stdout).columns};
  const auto report = verb(cluster);
  if (!report) return tell(report.error());
  const std::string out = cli::printed(command.output, report->document, report->text);
  static_cast<void>(std::fwrite(out.data(), 1, out.size(), stdout));
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    print_to_stderr("kubectl ferry: write standard output: {}\n", std::generic_category().message(errno));
    return static_cast<int>(ExitStatus::failed);
  }
  for (const std::string& note : report->notes) print_to_stderr("kubectl ferry: note: {}\n", note);
  return static_cast<int>(report->status);
}

}  // namespace

bool is_kubectl_plugin(std::string_view name) {
  return std::filesystem::path(name).filename() == "kubectl-ferry";
}

cli::CommandModel kubectl_commands() {
  CLI::App app(kWhat, "kubectl ferry");
  Command command;
  ClusterVerb verb;
  const PluginVerbs verbs(app, command, verb);
  return cli::command_model(app);
}

int kubectl_completion_program(int argc, char** argv) {
  const std::string out =
      kubectl_completion(kubectl_commands(), std::vector<std::string>(argv + 1, argv + argc));
  const bool written =
      std::fwrite(out.data(), 1, out.size(), stdout) == out.size() && std::fflush(stdout) == 0;
  return static_cast<int>(written ? ExitStatus::done : ExitStatus::failed);
}

int kubectl_program(int argc, char** argv) {
  CLI::App app(kWhat, "kubectl ferry");
  Command command;
  ClusterVerb verb;
  const PluginVerbs verbs(app, command, verb);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return cli::print_help(app, help_or_version);
  } catch (const CLI::ParseError& error) {
    return wrong_usage(app, error, argc, argv);
  }
  try {
    return run(command, verb);
  } catch (const std::exception& error) {
    // Ferry throws for no reason that a user could fix, so this is out of memory or a defect.
    print_to_stderr("kubectl ferry: {}\n", error.what());
    return static_cast<int>(ExitStatus::failed);
  }
}

}  // namespace ferry::kubectl
