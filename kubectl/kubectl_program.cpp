// SPDX-License-Identifier: Apache-2.0
#include "kubectl/kubectl_program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/completion/command_model.h"
#include "cli/completion/completion.h"
#include "cli/options/output_format.h"
#include "cli/options/usage_fault.h"
#include "cli/options/value_option.h"
#include "cli/output/check_report.h"
#include "cli/output/help_text.h"
#include "cli/output/text_output.h"
#include "cli/output/wait_note.h"
#include "common/exit_status.h"
#include "common/process/standard_streams.h"
#include "common/version.h"
#include "dra/names.h"
#include "kube/paged_list.h"
#include "kubectl/agent_pod.h"
#include "kubectl/cluster_facts.h"
#include "kubectl/cluster_reader.h"
#include "kubectl/cluster_verbs.h"
#include "kubectl/kubectl_child.h"
#include "kubectl/kubevirt_permits.h"

namespace ferry::kubectl {
namespace {

using cli::VerbOutput;
using nlohmann::json;

constexpr const char* kWhat = "Shows the GPUs of a Kubernetes cluster, and the VMs and pods that have them";
constexpr const char* kNotes =
    "It shows what the API server knows, and changes nothing. On the node `ferry status` prints the mode of "
    "each GPU, and the reason for it.";

constexpr std::array kExamples = {
    cli::Example{"list", "Show which VM or pod has which GPUs", "kubectl ferry list"},
    cli::Example{"list", "Show two nodes, and how long ago each was last changed",
                 "kubectl ferry list gpu-1 gpu-2 -o wide"},
    cli::Example{"node", "Show one node", "kubectl ferry node gpu-1"},
    cli::Example{"vms", "List the VMs that have GPUs or ask for some", "kubectl ferry vms"},
    cli::Example{"plan", "Print what a label would ask of a node",
                 "kubectl ferry plan gpu-1 nvidia.com/gpu.workload.config=container"},
    cli::Example{"doctor", "Find what keeps the GPUs of a node from VMs", "kubectl ferry doctor gpu-1"},
    cli::Example{"doctor", "Find why a VM gets no GPU", "kubectl ferry doctor vm studio/render"},
    cli::Example{"kubevirt-cr", "Show which resources KubeVirt does not permit", "kubectl ferry kubevirt-cr"},
    cli::Example{"kubevirt-cr", "Show what the KubeVirt object lacks of a node's devices",
                 "kubectl ferry kubevirt-cr --check node.json"},
    cli::Example{"gather", "Collect a file for a report", "kubectl ferry gather -n ferry > support.json"},
    cli::Example{"completion", "Let kubectl complete command lines of the plugin",
                 "kubectl ferry completion > /usr/local/bin/kubectl_complete-ferry"},
    cli::Example{"help", "Print the options and examples of a command", "kubectl ferry help list"},
    cli::Example{"version", "Print the version", "kubectl ferry version"}};

constexpr std::array kStatuses = {
    cli::StatusMeaning{"0", "done"},
    cli::StatusMeaning{"1",
                       "kubectl is missing or fails, or the API server refuses; doctor found a fault; gather "
                       "has not all"},
    cli::StatusMeaning{"2",
                       "the command line is wrong, or there is no such node or VM; plan: the labels ask for "
                       "something impossible"},
    cli::StatusMeaning{"3", "kubevirt-cr: KubeVirt does not permit a resource"},
    cli::StatusMeaning{"4",
                       "plan: NVIDIA's programs serve the node; kubevirt-cr --patch: a part is left to you"}};

// Verbs of `ferry` and of kubectl.
constexpr std::array kOtherWords = {cli::OtherWord{"get", "list"}, cli::OtherWord{"nodes", "list"},
                                    cli::OtherWord{"describe", "node"}, cli::OtherWord{"explain", "node"}};

cli::HelpFrame frame() {
  return {
      .program = "kubectl ferry", .examples = kExamples, .statuses = kStatuses, .other_words = kOtherWords};
}

struct Command {
  cli::OutputFormat output = cli::OutputFormat::table;
  std::string kubectl;                                     ///< kubectl_words(); empty: not given
  std::map<std::string, std::vector<std::string>> handed;  ///< kHandedOn by long_name(), with their values
  std::string node;
  std::vector<std::string> nodes;   ///< of `list`
  std::vector<std::string> target;  ///< of `doctor`: a node, or "vm" and a VM
  std::vector<std::string> help_for;
  std::string labels;  ///< a label selector
  bool verbose = false;
  std::string offered;  ///< of `kubevirt-cr`: a file of `ferry kubevirt-cr -o json`; "-" is standard input
  bool patch = false;
  bool device_classes = false;
  std::string space;
  std::vector<std::string> config_maps;
  std::vector<std::string> changes;
};

/// The inputs of a verb.
struct Cluster {
  const Kubectl& kubectl;
  kube::AskForPart ask;
  cli::TextOutput output;
  std::int64_t now;  ///< for ages
};

using ClusterVerb = std::function<Result<VerbOutput>(const Cluster&, const Command&)>;

Result<VerbOutput> list_cluster(const Cluster& cluster, const Command& command) {
  auto objects = read_cluster(cluster.ask, command.nodes, command.labels);
  if (!objects) return fail(objects.error());
  if (auto read = read_claims(cluster.ask, *objects); !read) return fail(std::move(read).error());
  ClusterGpus gpus = cluster_gpus(*objects);
  if (command.nodes.empty() && command.labels.empty()) drop_nodes_without_gpus(gpus);
  std::optional<std::int64_t> now;
  if (command.output == cli::OutputFormat::wide) now = cluster.now;
  return VerbOutput{.document = list_document(gpus), .text = list_text(gpus, cluster.output.columns, now)};
}

Result<VerbOutput> show_node(const Cluster& cluster, const Command& command) {
  auto objects = read_cluster_node(cluster.ask, command.node);
  if (!objects) return fail(objects.error());
  if (auto read = read_claims(cluster.ask, *objects); !read) return fail(std::move(read).error());
  const ClusterGpus gpus = cluster_gpus(*objects);
  if (gpus.nodes.empty()) {
    return fail(Errc::malformed_host,
                fmt::format("Node {}: the API server's answer is not that", command.node));
  }
  const ClusterNode& node = gpus.nodes.front();
  return VerbOutput{.document = node_document(gpus, node),
                    .text = node_text(gpus, node, cluster.output.columns, cluster.now)};
}

Result<VerbOutput> show_vms(const Cluster& cluster, const Command&) {
  auto objects = read_cluster(cluster.ask);
  if (!objects) return fail(objects.error());
  if (auto read = read_vmis(cluster.ask, *objects); !read) return fail(std::move(read).error());
  const ClusterGpus gpus = cluster_gpus(*objects);
  return VerbOutput{.document = vms_document(gpus), .text = vms_text(gpus, cluster.output.columns)};
}

std::string space_of(const Cluster& cluster, const Command& command) {
  return command.space.empty() ? cluster.kubectl.default_namespace() : command.space;
}

Result<VerbOutput> plan_labels(const Cluster& cluster, const Command& command) {
  const auto changes = parse_label_changes(command.changes);
  if (!changes) return fail(changes.error());
  const auto plan = read_label_plan(cluster.ask, command.node, *changes,
                                    {.space = command.space, .config_maps = command.config_maps});
  if (!plan) return fail(plan.error());
  return VerbOutput{.document = plan_document(*plan),
                    .text = plan_text(*plan, cluster.output.columns),
                    .status = plan_status(*plan)};
}

VerbOutput checks_report(const std::string& what, const json& subject, std::vector<Check> checks,
                         const Cluster& cluster, const Command& command) {
  VerbOutput out{.document = subject, .text = {}, .tinted = true};
  out.document["checks"] = json::array();
  for (const Check& check : checks) out.document["checks"].push_back(cli::to_json(check));
  const std::vector<cli::CheckReport> reports = {{.what = what, .checks = std::move(checks)}};
  if (!reports.front().ready()) out.status = ExitStatus::failed;
  out.text = cli::checks_text(reports, {}, command.verbose, cluster.output);
  return out;
}

Result<VerbOutput> check_vm(const Cluster& cluster, const Command& command) {
  const std::string& vm = command.target.back();
  const auto slash = vm.find('/');
  const std::string space = slash == std::string::npos ? space_of(cluster, command) : vm.substr(0, slash);
  const std::string name = slash == std::string::npos ? vm : vm.substr(slash + 1);
  const auto vmi = read_vmi(cluster.ask, space, name);
  if (!vmi) return fail(vmi.error());
  const auto objects = read_cluster(cluster.ask, {}, node_selector_of(*vmi));
  if (!objects) return fail(objects.error());
  const auto kubevirts = read_kubevirts(cluster.ask);
  if (!kubevirts) return fail(kubevirts.error());
  return checks_report(fmt::format("VM {}/{}", space, name), json::object({{"vm", space + "/" + name}}),
                       vm_checks(*vmi, *objects, *kubevirts), cluster, command);
}

Result<VerbOutput> check(const Cluster& cluster, const Command& command) {
  const std::string& name = command.target.front();
  if (name == "vm") return check_vm(cluster, command);

  const auto objects = read_cluster_node(cluster.ask, name);
  if (!objects) return fail(objects.error());
  const auto kubevirts = read_kubevirts(cluster.ask);
  if (!kubevirts) return fail(kubevirts.error());
  Result<std::vector<json>> slices;
  Result<std::vector<json>> classes;
  if (std::ranges::any_of(objects->pods, runs_dra)) {
    slices = kube::list_by_parts(cluster.ask, kube::slices_of_node(name, dra::kDriver));
    classes = kube::list_by_parts(cluster.ask, {.kind = kube::kDeviceClasses});
  }
  return checks_report("node " + name, json::object({{"node", name}}),
                       cluster_checks(*objects, *kubevirts, slices, classes), cluster, command);
}

/// The first KubeVirt object.
Result<json> known_kubevirt(const Cluster& cluster) {
  auto kubevirts = read_kubevirts(cluster.ask);
  if (!kubevirts) return fail(std::move(kubevirts).error());
  if (!*kubevirts)
    return fail(Errc::failed, "your role may not list KubeVirt objects",
                "let your role list `kubevirts` in the API group \"kubevirt.io\"");
  if ((*kubevirts)->empty())
    return fail(Errc::failed, "the cluster has no KubeVirt object",
                "KubeVirt is installed by its operator and the object kubevirt/kubevirt");
  return std::move((*kubevirts)->front());
}

Result<VerbOutput> print_classes(const Cluster& cluster) {
  const auto slices = kube::list_by_parts(
      cluster.ask, {.kind = kube::kResourceSlices, .fields = fmt::format("spec.driver={}", dra::kDriver)});
  if (!slices) return fail(slices.error());
  const auto plugins =
      kube::list_by_parts(cluster.ask, {.kind = kube::kPods, .labels = "app.kubernetes.io/component=plugin"});
  if (!plugins) return fail(plugins.error());
  auto published = published_classes(*slices, *plugins);
  if (published.classes.empty())
    return fail(Errc::refused, "no node publishes devices for claims, so no class has devices",
                "docs/dra.md says how a GPU is given to claims");
  return VerbOutput{.document = plugin::device_classes_document(published.classes),
                    .text = plugin::device_classes_text(published.classes),
                    .notes = std::move(published.notes)};
}

Result<VerbOutput> compare_permitted(const Cluster& cluster, const Command& command) {
  const auto offered = read_offered(command.offered);
  if (!offered) return fail(offered.error());
  const auto kubevirt = known_kubevirt(cluster);
  if (!kubevirt) return fail(kubevirt.error());
  auto change = permit_change(*kubevirt, *offered);
  if (!change) return fail(std::move(change).error().during("KubeVirt " + full_name(*kubevirt)));
  // The API server refuses the patch of an object that has changed meanwhile.
  if (const json& version = field_at(*kubevirt, {"metadata", "resourceVersion"});
      !change->patch.is_null() && version.is_string())
    change->patch["metadata"]["resourceVersion"] = version;
  json document = {{"object", full_name(*kubevirt)}, {"fits", change->fits()}, {"lacks", change->lacks},
                   {"by_hand", change->by_hand},     {"notes", change->notes}, {"patch", change->patch}};
  if (!command.patch)
    return VerbOutput{.document = std::move(document),
                      .text = change_text(full_name(*kubevirt), *change),
                      .status = change->fits() ? ExitStatus::done : ExitStatus::differs};
  const json patch = change->patch.is_null() ? json::object() : change->patch;
  return VerbOutput{.document = patch,
                    .text = patch.dump(2) + "\n",
                    .status = change->by_hand.empty() ? ExitStatus::done : ExitStatus::refused,
                    .notes = change->by_hand};
}

Result<VerbOutput> show_permits(const Cluster& cluster, const Command& command) {
  if (command.device_classes) return print_classes(cluster);
  if (!command.offered.empty()) return compare_permitted(cluster, command);

  const auto objects = read_cluster(cluster.ask);
  if (!objects) return fail(objects.error());
  const auto kubevirt = known_kubevirt(cluster);
  if (!kubevirt) return fail(kubevirt.error());
  const auto resources = permitted_resources(cluster_gpus(*objects), *kubevirt);
  const bool all = std::ranges::all_of(resources, &PermittedResource::permitted);
  return VerbOutput{.document = permitted_document(resources),
                    .text = permitted_text(resources, *kubevirt, cluster.output.columns),
                    .status = all ? ExitStatus::done : ExitStatus::differs};
}

Result<VerbOutput> gather(const Cluster& cluster, const Command& command) {
  const AskForLog ask_for_log = [&cluster](const kube::ObjectRef& pod, const kube::LogEnd& end) {
    return cluster.kubectl.log(pod, end);
  };
  auto gathered = gather_cluster(cluster.ask, ask_for_log, space_of(cluster, command));
  if (!gathered) return fail(std::move(gathered).error());
  std::string text = cli::printed(cli::OutputFormat::json, gathered->document, {});
  return VerbOutput{.document = std::move(gathered->document),
                    .text = std::move(text),
                    .status = gathered->whole ? ExitStatus::done : ExitStatus::failed,
                    .notes = std::move(gathered->notes)};
}

/// The parser of a command line, and the values that it fills.
class PluginVerbs {
 public:
  PluginVerbs() {
    app.require_subcommand(1);
    app.set_help_flag("-h,--help", "print this help");
    cli::add_choice(app, "-o,--output FORMAT [table]", command.output, cli::output_formats(),
                    "the format of the data: table, wide (a table with more columns), json or yaml");
    cli::add_value(app, "--kubectl PROGRAM", command.kubectl,
                   "the program to ask; the default is $KUBECTL, then kubectl. It may have several words");
    for (const HandedOn& flag : kHandedOn) add_handed_on(flag);
    app.set_version_flag("--version", std::string("ferry ") + kVersion, "print the version");
    app.footer(kNotes);

    CLI::App* const list =
        add("list", "list the GPUs of all nodes, and which VM or pod has them", list_cluster);
    cli::add_value(*list, "nodes NODE...", command.nodes, "only these nodes");
    cli::add_value(*list, "-l,--selector SELECTOR", command.labels,
                   "only nodes with these labels, such as zone=a,gpu-ferry.io/state!=ready");
    cli::refuse_option(*list, "-w,--watch", "`watch kubectl ferry list` prints the list again and again");
    list->footer(
        "`-o wide` adds the column CHANGED: how long ago the agent last changed any label or annotation of "
        "the node. It is not the age of the state, which may be older.");

    add("node", "show one node: its desired state, its state, its GPUs and their users (also: status)",
        show_node)
        ->alias("status")
        ->footer(
            "The last line is the command that shows each GPU of the node. It needs the right to create "
            "pods/exec in the namespace of Ferry.")
        ->add_option("node", command.node, "a node")
        ->required()
        ->option_text("NODE");
    add("vms", "list the VMs of KubeVirt and the pods of Kata that have GPUs, with their nodes", show_vms);
    add_plan();
    add_doctor();
    add_kubevirt_cr();
    name_space(add("gather", "print what support needs as one JSON document, with possible secrets left out",
                   gather),
               "the namespace of Ferry; the default is the namespace of the context");

    add("completion", "print the program kubectl_complete-ferry, by which kubectl completes command lines",
        nullptr);
    add("help", "print the commands, or the options and examples of one", nullptr)
        ->add_option("verb", command.help_for, "the words of a command")
        ->option_text("VERB...");
    add("version", "print the version", nullptr);
  }

  CLI::App app{kWhat, "kubectl ferry"};
  Command command;
  ClusterVerb chosen;  ///< empty: a verb that needs no cluster

 private:
  /// `action` is empty for verbs that need no cluster.
  CLI::App* add(const char* name, const char* description, ClusterVerb action) {
    CLI::App* const verb = app.add_subcommand(name, description);
    verb->fallthrough();  // global options may follow the verb
    verb->callback([this, action = std::move(action)] { chosen = action; });
    return verb;
  }
  void add_handed_on(const HandedOn& flag) {
    std::vector<std::string>& values = command.handed[std::string(long_name(flag))];
    if (flag.value == nullptr) {
      app.add_flag_callback(
          flag.name, [&values] { values = {"true"}; }, flag.help);
    } else if (std::string_view(flag.value).ends_with("...")) {
      app.add_option(flag.name, values, flag.help)->option_text(flag.value)->allow_extra_args(false);
    } else {
      app.add_option_function<std::string>(
             flag.name, [&values](const std::string& value) { values = {value}; }, flag.help)
          ->option_text(flag.value);
    }
  }
  void name_space(CLI::App* verb, const char* description) {
    cli::add_value(*verb, "-n,--namespace NAME", command.space, description);
  }
  void add_plan() {
    CLI::App* const plan = add("plan", "print what other labels of a node would ask for", plan_labels);
    cli::add_value(*plan, "node NODE", command.node, "a node")->required();
    cli::add_value(*plan, "labels CHANGE...", command.changes,
                   "KEY=VALUE sets a label, KEY- removes it, as in kubectl label");
    name_space(plan, "the namespace of the ConfigMaps, if no pod of the agent on the node shows it");
    cli::add_value(
        *plan, "--config-map NAME ...", command.config_maps,
        "a ConfigMap with policies and vGPU profiles, if no pod of the agent on the node shows it; "
        "may be repeated. Without it those of another node's agent count, or the chart's");
  }
  void add_kubevirt_cr() {
    CLI::App* const permits =
        add("kubevirt-cr", "show which of the nodes' resources the KubeVirt object permits", show_permits);
    CLI::Option* const check = cli::add_value(*permits, "--check FILE", command.offered,
                                              "compare the KubeVirt object with this output of `ferry "
                                              "kubevirt-cr -o json` of a node; - is standard "
                                              "input. The exit status is 3 if an entry is missing");
    permits
        ->add_flag(
            "--patch", command.patch,
            "with --check: print the merge patch that adds the missing entries and keeps all others, for "
            "`kubectl patch --type merge --patch-file /dev/stdin`")
        ->needs(check);
    permits
        ->add_flag(
            "--device-classes", command.device_classes,
            "print the chart's value dra.deviceClasses.more for all devices that the nodes publish for "
            "claims: with it VMs that ask by a resource's name get them by claims")
        ->excludes(check);
  }
  void add_doctor() {
    CLI::App* const doctor =
        add("doctor", "find what keeps the GPUs of a node from VMs, or a VM from its GPUs", check);
    cli::suggest_words(cli::add_value(*doctor, "target NODE|vm...", command.target,
                                      "a node, or the word vm and NAMESPACE/NAME of a VM"),
                       {"vm"})
        ->required();
    doctor->add_flag("-v,--verbose", command.verbose, "also print the checks that passed");
    name_space(doctor, "the namespace of a VM that is named without one");
  }
};

int report_error(const Error& error) {
  return static_cast<int>(print_error("kubectl ferry", error));
}

/// Prints to standard output; done: all was written.
ExitStatus write_out(const std::string& out) {
  static_cast<void>(std::fwrite(out.data(), 1, out.size(), stdout));
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return ExitStatus::done;
  print_to_stderr("kubectl ferry: write standard output: {}\n", std::generic_category().message(errno));
  return ExitStatus::failed;
}

int run(const Command& command, const ClusterVerb& verb) {
  // Other verbs than `doctor` have no target.
  const std::size_t words = !command.target.empty() && command.target.front() == "vm" ? 2U : 1U;
  if (!command.target.empty() && command.target.size() != words)
    return report_error(
        {.code = Errc::usage,
         .message = "doctor takes one node, or the word vm and one VM",
         .hint = "for example `kubectl ferry doctor gpu-1`, or `kubectl ferry doctor vm studio/render`"});

  std::vector<std::string> flags;
  for (const auto& [name, values] : command.handed)
    for (const std::string& value : values) flags.push_back(fmt::format("{}={}", name, value));
  const char* const variable = std::getenv("KUBECTL");
  const Kubectl kubectl{.program = kubectl_words(command.kubectl, variable == nullptr ? "" : variable),
                        .flags = std::move(flags)};
  const Cluster cluster{.kubectl = kubectl,
                        .ask = [&kubectl](const kube::Selection& what,
                                          const kube::ListRange& range) { return kubectl.list(what, range); },
                        .output = cli::text_output_of(stdout),
                        .now = std::time(nullptr)};

  std::optional<cli::WaitNote> waits(std::in_place, "reading from the API server");
  const auto report = verb(cluster, command);
  waits.reset();
  if (!report) return report_error(report.error());

  const std::string out = cli::printed(command.output, report->document, report->text,
                                       report->tinted ? Colours::kept : Colours::escaped);
  if (const ExitStatus status = write_out(out); status != ExitStatus::done) return static_cast<int>(status);
  for (const std::string& note : report->notes) print_to_stderr("kubectl ferry: note: {}\n", note);
  return static_cast<int>(report->status);
}

/// The verbs that need no cluster.
int run_alone(const CLI::App& app, const Command& command) {
  const std::string verb = cli::parsed_command(app).get_name();
  if (verb == "version") {
    fmt::print("ferry {}\n", kVersion);
    return static_cast<int>(ExitStatus::done);
  }
  if (verb == "completion")
    return static_cast<int>(write_out(cli::completion_program(cli::command_model(app))));
  const auto text = cli::help_of(app, command.help_for, frame(), cli::text_output_of(stdout));
  if (!text) return report_error(text.error());
  fmt::print("{}", *text);
  return static_cast<int>(ExitStatus::done);
}

}  // namespace

cli::CommandModel kubectl_commands() {
  const PluginVerbs verbs;
  return cli::command_model(verbs.app);
}

int kubectl_program(int argc, char** argv) {
  PluginVerbs verbs;
  CLI::App& app = verbs.app;
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return cli::print_help(app, help_or_version, frame());
  } catch (const CLI::ParseError& error) {
    return report_error(cli::usage_fault(app, error, {argv, static_cast<std::size_t>(argc)}, frame()));
  }
  try {
    return verbs.chosen ? run(verbs.command, verbs.chosen) : run_alone(app, verbs.command);
  } catch (const std::exception& error) {
    // Ferry throws for no reason that a user could fix, so this is out of memory or a defect.
    print_to_stderr("kubectl ferry: {}\n", error.what());
    return static_cast<int>(ExitStatus::failed);
  }
}

}  // namespace ferry::kubectl
