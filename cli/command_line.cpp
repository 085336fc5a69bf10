// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "agent/agent_options.h"
#include "cli/completion/command_model.h"
#include "cli/completion/completion.h"
#include "cli/options/choice_option.h"
#include "cli/options/plugin_options.h"
#include "cli/verbs/verbs.h"
#include "common/log.h"
#include "common/process/standard_streams.h"
#include "common/text/text.h"
#include "common/version.h"

namespace ferry::cli {
namespace {

constexpr const char* kFooter =
    "Exit status: 0 done or already so, 1 failed, 2 wrong usage or invalid file, 3 `assert` or `verify` "
    "found a difference,\n"
    "4 refused: in use, or cannot be moved whole; nothing was written for that group.\n"
    "Data goes to stdout, talk to stderr.";

struct Globals {
  std::string host_root = "/";
  OutputFormat output = OutputFormat::table;
  std::string log_level = "warn";
  LogFormat log_format = LogFormat::text;
  bool dry_run = false;
  bool explain = false;
};

using Verb = std::function<ExitStatus(const Session&)>;

/// False: no word of the command line is this verb, so it is not built.
using MayBeNamed = std::function<bool(std::string_view verb)>;

/// Builds the tree of verbs. The chosen verb leaves its action in `verb`.
class CommandTree {
 public:
  CommandTree(CLI::App& app, Globals& globals, Verb& verb, const MayBeNamed& may_be_named)
      : globals_(globals), verb_(verb) {
    app.require_subcommand(1);
    app.add_option("--host-root", globals.host_root, "where the host's / is mounted")
        ->check(CLI::ExistingDirectory)
        ->option_text("DIR [/]");
    add_choice(app, "-o,--output", globals.output, output_formats(), "how data is printed: table, json, yaml")
        ->option_text("FORMAT");
    suggest_words(app.add_option("--log-level", globals.log_level, "trace, debug, info, warn, error, off"),
                  {"trace", "debug", "info", "warn", "error", "off"})
        ->option_text("LEVEL [warn]");
    add_choice(app, "--log-format", globals.log_format,
               {{"text", LogFormat::text}, {"json", LogFormat::json}}, "text, json")
        ->option_text("FORMAT");
    app.set_version_flag("--version", std::string("ferry ") + kVersion);
    app.footer(kFooter);

    for (const auto& [name, add] : kVerbs)
      if (may_be_named(name)) (this->*add)(app);
  }

 private:
  CLI::App* add_verb(CLI::App& parent, const std::string& name, const std::string& description, Verb action) {
    CLI::App* verb = parent.add_subcommand(name, description);
    verb->fallthrough();  // global options may follow the verb
    verb->callback([this, action = std::move(action)] { verb_ = action; });
    return verb;
  }
  CLI::App* add_changing_verb(CLI::App& parent, const std::string& name, const std::string& description,
                              Verb action) {
    CLI::App* verb = add_verb(parent, name, description, std::move(action));
    verb->add_flag("--dry-run", globals_.dry_run, "say what would be written, write nothing");
    verb->add_flag("--explain", globals_.explain, "print the reason of each write");
    return verb;
  }

  void add_status(CLI::App& app) {
    CLI::App* status =
        add_verb(app, "status", "every accelerator, its group and the other members, its driver, who uses it",
                 [this](const Session& session) { return status_verb(session, status_); });
    CLI::Option* watch =
        status->add_flag("--watch", status_.watch, "again whenever something changes, until Ctrl-C");
    status
        ->add_option("--capture", status_.capture,
                     "instead write this host there, for tests and support, as --host-root reads it")
        ->option_text("DIR")
        ->check([](const std::string& to) { return to.empty() ? "'' names no folder" : ""; })
        ->excludes(watch);
    status->footer(
        "On a terminal the table is as wide as that (COLUMNS counts before it) and has colours, unless "
        "NO_COLOR\n"
        "is set.");
  }

  void add_explain(CLI::App& app) {
    add_verb(app, "explain", "the whole story of one device: where it sits, why it is as it is, who has it",
             [this](const Session& session) { return explain_verb(session, word_); })
        ->add_option("what", word_, "a PCI address, a vGPU's UUID or a resource's name")
        ->required()
        ->option_text("ADDRESS|UUID|RESOURCE");
  }

  void add_doctor(CLI::App& app) {
    CLI::App* doctor =
        add_verb(app, "doctor", "what keeps this host from giving GPUs to VMs, and what to change",
                 [this](const Session& session) { return doctor_verb(session, doctor_); });
    suggest_words(doctor->add_option(
                      "--for", doctor_.purposes,
                      "what to check for: passthrough, vgpu, kubevirt, kata; several with commas between"),
                  {"passthrough", "vgpu", "kubevirt", "kata"})
        ->option_text("PURPOSE [passthrough]");
    doctor->add_option("--classes", doctor_.classes, "with kata: a class file, to look at its classes too")
        ->option_text("FILE");
    doctor
        ->add_option("--node-file", doctor_.node,
                     "with kata: a Node object, for the mode of its GPUs (kubectl get node NODE -o yaml)")
        ->option_text("FILE");
    add_naming_options(*doctor, doctor_.naming);
  }

  static void add_release(CLI::App* verb, std::vector<std::string>& names) {
    verb->add_option(
        "--release", names,
        "host service that may be stopped meanwhile, beside nvidia-persistenced, or nvidia_drm with its "
        "console; none: not even persistenced; may be repeated");
  }
  void add_selection(CLI::App* verb) {
    verb->add_flag("--all", selection_.all,
                   "every accelerator that offers and carries no vGPUs; --vendor to --numa narrow it");
    verb->add_option("--device", selection_.devices, "accelerator, as 0000:3b:00.0; may be repeated");
    verb->add_option("--group", selection_.groups, "IOMMU group; may be repeated");
    verb->add_option("--vendor", selection_.filter.vendors,
                     "accelerators of this vendor, as 10de or nvidia; may be repeated");
    suggest_words(
        verb->add_option("--class", selection_.filter.classes,
                         "accelerators of this class, as 0302, vga, 3d or nvswitch; may be repeated"),
        {"vga", "3d", "nvswitch"})
        ->option_text("CLASS ...");
    verb->add_option("--model", selection_.filter.models,
                     "accelerators of this model, as '*H100*' or 10de:2330; may be repeated");
    verb->add_option("--numa", selection_.filter.numa_nodes,
                     "accelerators on this NUMA node; may be repeated");
    verb->add_option("--with", selection_.with, "also move this foreign member of a group; may be repeated");
  }
  void add_vfio(CLI::App& app) {
    CLI::App* vfio = app.add_subcommand("vfio", "whole GPUs, by IOMMU group, to vfio-pci and back");
    vfio->require_subcommand(1);
    vfio->fallthrough();
    CLI::App* plan = add_verb(*vfio, "plan", "what bind would do; writes nothing",
                              [](const Session&) { return ExitStatus::done; });
    plan->add_flag("--explain", globals_.explain, "print the reason of each write");
    plan->callback([this] {
      globals_.dry_run = true;
      verb_ = [this](const Session& session) {
        return move_verb(session, selection_, vfio::Direction::to_vfio);
      };
    });
    add_selection(plan);
    CLI::App* bind = add_changing_verb(*vfio, "bind", "move groups to vfio", [this](const Session& session) {
      return move_verb(session, selection_, vfio::Direction::to_vfio);
    });
    add_selection(bind);
    for (CLI::App* verb : {plan, bind}) {
      verb->add_flag("--force", selection_.force, "also what only a screen depends on; never what is in use");
      add_release(verb, selection_.release);
    }
    add_selection(add_changing_verb(
        *vfio, "unbind", "give groups back to the host",
        [this](const Session& session) { return move_verb(session, selection_, vfio::Direction::back); }));
    add_selection(add_changing_verb(
        *vfio, "restore", "give back what was moved, or what is chosen of it, each to the driver it had",
        [this](const Session& session) { return restore_verb(session, selection_); }));
  }

  void add_apply(CLI::App& app) {
    CLI::App* apply =
        add_changing_verb(app, "apply", "make the whole node what a policy says",
                          [this](const Session& session) { return apply_verb(session, profile_); });
    add_policy(apply, "name of the policy; not needed where there is only one");
    add_foreign(apply);
  }
  void add_assert(CLI::App& app) {
    add_policy(add_verb(app, "assert", "is the whole node what a policy says? 3 if not",
                        [this](const Session& session) { return assert_verb(session, profile_); }),
               "name of the policy; not needed where there is only one");
  }
  void add_export(CLI::App& app) {
    add_verb(app, "export", "the whole node as it is, as a policy that apply and assert take back",
             [this](const Session& session) { return export_verb(session, export_name_); })
        ->add_option("-c,--config", export_name_, "what to call the policy")
        ->capture_default_str();
  }
  void add_convert(CLI::App& app) {
    add_policy(add_verb(app, "convert", "print a vGPU profile file as a policy file",
                        [this](const Session& session) { return convert_verb(session, profile_); }),
               "only this one");
  }
  void add_hostd(CLI::App& app) {
    CLI::App* hostd =
        add_changing_verb(app, "hostd", "keep the whole node as a file says until SIGTERM",
                          [this](const Session& session) { return hostd_verb(session, keeping_); });
    hostd->add_flag("--once", keeping_.once, "make it so one time, and end as `ferry apply` does");
    hostd->add_flag("--own-scope", keeping_.own_scope,
                    "in a container: have the host's systemd take it out of the container's device rules");
    CLI::Option* socket =
        hostd->add_option("--cri-socket", keeping_.cri_socket,
                          "socket of the container runtime, to say which Kata handlers of ours it knows: "
                          "/run/containerd/containerd.sock");
    socket->option_text("FILE");
    hostd
        ->add_flag(
            "--kata", keeping_.kata,
            "install the Kata runtimes that /var/lib/ferry/kata-classes.json wants, and take away others of "
            "ours")
        ->needs(socket);
    CLI::Option* group = hostd->add_option("--agent-group", keeping_.agent_group,
                                           "the agent is not root: let this group, by its number, write "
                                           "/var/lib/ferry and the folders below");
    group->check(CLI::Range(1U, std::numeric_limits<unsigned>::max() - 1))->option_text("GID");
    hostd->add_option("--agent-folder", keeping_.agent_folders, "a folder of the host that it may write")
        ->option_text("DIR ...")
        ->needs(group);
    hostd
        ->add_option("--agent-tree", keeping_.agent_trees,
                     "likewise, with all in it that root owns: what an agent that was root has left there")
        ->option_text("DIR ...")
        ->needs(group);
    hostd->add_flag("--lenient", keeping_.lenient,
                    "let pass of a vGPU profile what NVIDIA's program lets pass, such as a key that stands "
                    "twice, with a warning");
    hostd->add_option("--wanted", keeping_.desired, "file of the host that says which policy shall hold")
        ->option_text("FILE [/var/lib/ferry/desired.json]");
    hostd->add_option("--state", keeping_.state, "file of the host to say in what has become of it")
        ->option_text("FILE [/run/ferry/status.json]");
    hostd->footer(
        "Without the first file nothing is changed. A running `ferry plugin` is asked to make way before "
        "what\n"
        "it offers is moved; what is in use is refused, and done when it comes free. Ending it changes "
        "nothing.");
  }
  void add_policy(CLI::App* verb, const std::string& name_is) {
    verb->add_option("-f,--file", profile_.file, "policy, vGPU profile or ConfigMap; - is standard input")
        ->type_name("FILE")
        ->required();
    verb->add_option("-c,--config", profile_.name, name_is);
    verb->add_flag("--lenient", profile_.lenient,
                   "let pass of a vGPU profile what NVIDIA's program lets pass, such as a key that stands "
                   "twice, with a warning");
  }

  void add_foreign(CLI::App* verb) {
    verb->add_flag("--foreign", profile_.foreign,
                   "take away mediated devices too that ferry did not make, where they are not asked for");
  }
  void add_profile(CLI::App* verb) {
    verb->add_option("-f,--file", profile_.file, "profile file or ConfigMap; - is standard input")
        ->type_name("FILE")
        ->required();
    verb->add_option("-c,--config", profile_.name, "name of the profile; not needed where there is only one");
    verb->add_flag(
        "--lenient", profile_.lenient,
        "let pass what NVIDIA's program lets pass, such as a key that stands twice, with a warning");
  }
  void add_profile_of_node(CLI::App* verb) {
    add_profile(verb);
    verb->add_option("--node", profile_.node,
                     "Node object whose label nvidia.com/vgpu.config names the profile")
        ->type_name("FILE");
    verb->add_option("--default", profile_.otherwise, "name of the profile for a node without that label");
  }
  void add_vgpu(CLI::App& app) {
    CLI::App* vgpu = app.add_subcommand("vgpu", "vGPUs, by profile");
    vgpu->require_subcommand(1);
    vgpu->fallthrough();
    add_verb(*vgpu, "types", "what each GPU can be divided into now", vgpu_types_verb);
    CLI::App* validate =
        add_verb(*vgpu, "validate", "check a profile file, alone or against this host",
                 [this](const Session& session) { return vgpu_validate_verb(session, profile_, on_host_); });
    add_profile(validate);
    validate->add_flag("--host", on_host_, "also what of it this host could not do");
    CLI::App* plan = add_verb(*vgpu, "plan", "what apply would do; writes nothing", nullptr);
    plan->add_flag("--explain", globals_.explain, "print the reason of each write");
    plan->callback([this] {
      globals_.dry_run = true;
      verb_ = [this](const Session& session) { return vgpu_apply_verb(session, profile_); };
    });
    CLI::App* apply =
        add_changing_verb(*vgpu, "apply", "make the host agree with a profile",
                          [this](const Session& session) { return vgpu_apply_verb(session, profile_); });
    for (CLI::App* verb : {plan, apply}) {
      add_profile_of_node(verb);
      add_release(verb, profile_.release);
      add_foreign(verb);
    }
    add_profile_of_node(
        add_verb(*vgpu, "assert", "does the host agree with a profile? 3 if not",
                 [this](const Session& session) { return vgpu_assert_verb(session, profile_); }));
    add_verb(*vgpu, "export", "what the host carries as a profile that apply and assert take back",
             [this](const Session& session) { return vgpu_export_verb(session, export_name_); })
        ->add_option("-c,--config", export_name_, "what to call the configuration")
        ->capture_default_str();
    add_vgpu_choose(*vgpu);
    CLI::App* remove = add_changing_verb(*vgpu, "delete", "take vGPUs away", [this](const Session& session) {
      return vgpu_delete_verb(session, removal_);
    });
    remove->add_flag("--all", removal_.all, "of every GPU");
    remove->add_option("--device", removal_.devices, "of this GPU; may be repeated");
    remove->add_flag("--foreign", removal_.foreign, "also those that were not made by ferry");
  }

  void add_vgpu_choose(CLI::App& vgpu) {
    CLI::App* choose =
        add_verb(vgpu, "choose", "the smallest vGPU type with enough memory, and how many can still be made",
                 [this](const Session& session) { return vgpu_choose_verb(session, choice_); });
    choose
        ->add_option("--memory", choice_.memory,
                     "at least so much: 6GiB, 4096MiB, or 6G, which means 6,000,000,000 bytes")
        ->required();
    suggest_words(
        choose->add_option("--series", choice_.series, "Q, C, B or A; any without it, Q before the others"),
        {"Q", "C", "B", "A"})
        ->option_text("SERIES");
    choose->add_option("--device", choice_.devices, "of this GPU; may be repeated; all without it");
  }

  void add_kubevirt_cr(CLI::App& app) {
    CLI::App* verb =
        add_verb(app, "kubevirt-cr", "the part of the KubeVirt object that permits what this host offers",
                 [this](const Session& session) { return kubevirt_cr_verb(session, permits_); });
    CLI::Option* check = verb->add_flag("--check", permits_.check,
                                        "compare the cluster's object with it; 3 if that lacks something");
    verb->add_flag("--apply", permits_.apply, "add to the cluster's object what it lacks, and nothing else")
        ->excludes(check);
    verb->add_flag("--dry-run", globals_.dry_run, "with --apply: say what would be added");
    verb->add_option("--kubeconfig", permits_.kubeconfig,
                     "how to reach the API server; else $KUBECONFIG, the pod's own account, ~/.kube/config")
        ->type_name("FILE");
    verb->add_option("--context", permits_.context, "the context of that file; else its own choice");
    verb->footer(
        "Give it the naming options of `ferry plugin`. Without --check or --apply it only prints: `kubectl "
        "apply`\n"
        "or a merge patch of this part alone would replace the lists of the object that is there, and with "
        "them\n"
        "what other nodes offer.");
    add_naming_options(*verb, permits_.naming);
  }

  void add_agent(CLI::App& app) {
    CLI::App* agent = add_changing_verb(
        app, "agent", "do what a Node object's labels say, and say what has come of it",
        [this, level = app.get_option("--log-level")](const Session& session) {
          agent_.only_for_the_server = agent_list_->given_for_the_server();
          // The agent's actions are worth log lines, while other verbs print theirs as output.
          agent_.words = {"--host-root",  globals_.host_root,
                          "--log-level",  level->count() > 0 ? globals_.log_level : "info",
                          "--log-format", globals_.log_format == LogFormat::json ? "json" : "text"};
          const auto more = agent_list_->words();
          agent_.words.insert(agent_.words.end(), more.begin(), more.end());
          return agent_verb(session, agent_);
        });
    agent->add_flag("--once", agent_.once, "one look at files, without an API server");
    agent->add_option("--node-file", agent_.node, "with --once: the Node object; - is standard input")
        ->type_name("FILE");
    agent
        ->add_option("--config", agent_.configs,
                     "with --once: policies or vGPU profiles, alone or in a ConfigMap; may be repeated")
        ->type_name("FILE");
    agent->add_flag("--handed-over", agent_.handed_over,
                    "the gpu-operator's own managers and device plugins for VMs are switched off, although "
                    "it labels the node for them");
    agent_list_.emplace(*agent, agent_.program);
    agent->footer(
        "Without --once it serves the node until SIGTERM, as the program ferry-agent.\n"
        "Writes /var/lib/ferry/desired.json and /run/nvidia/validations; --once prints the labels, "
        "annotations\n"
        "and events that the cluster would be given, and exits with 4 where NVIDIA's programs, or an agent, "
        "serve\n"
        "the node.");
  }

  void add_plugin(CLI::App& app) {
    CLI::App* plugin = add_verb(app, "plugin", "offer GPUs and vGPUs to the kubelet until SIGTERM",
                                [this](const Session& session) { return plugin_verb(session, serving_); });
    add_plugin_options(*plugin, serving_);
  }

  CLI::App* with_class_file(CLI::App* verb) {
    verb->add_option("-f,--file", kata_.file, "class file or ConfigMap; - is standard input")
        ->type_name("FILE")
        ->required();
    verb->add_flag("--lenient", kata_.lenient,
                   "let pass what NVIDIA's kata-manager lets pass in its file, with a warning");
    return verb;
  }
  CLI::App* with_runtime(CLI::App* verb) {
    suggest_words(verb->add_option("--runtime", kata_.runtime,
                                   "containerd, cri-o, k0s, k3s, microk8s or rke2; found without it"),
                  {"containerd", "cri-o", "k0s", "k3s", "microk8s", "rke2"})
        ->option_text("NAME");
    verb->add_option("--containerd-version", kata_.containerd_version,
                     "its release, as 1.7.24, where neither its program nor the running one can be asked");
    return verb;
  }
  CLI::App* with_node(CLI::App* verb) {
    verb->add_option("--node-file", kata_.node,
                     "a Node object, for the mode of its GPUs (kubectl get node NODE -o yaml)")
        ->type_name("FILE");
    return verb;
  }
  void with_edited_files(CLI::App* verb) {
    verb->add_flag(
        "--accept-edited-files", kata_.accept_edited_files,
        "restart containerd although its files have changed since its start and its program cannot be "
        "asked if CRI loads with them");
  }
  void add_installation(CLI::App* verb) {
    with_node(with_runtime(with_class_file(verb)));
    verb->add_option("--docker-config", kata_.docker_config,
                     "file of the host with the registries' credentials, in Docker's form")
        ->type_name("FILE");
    verb->add_option("--pull-secrets", kata_.pull_secrets,
                     "folder with the Secrets that the class file names, DIR/NAME/.dockerconfigjson")
        ->type_name("DIR");
    verb->add_flag("--no-restart", kata_.no_restart,
                   "write the files only; the container runtime reads them with its next start");
    with_edited_files(verb);
    verb->add_flag("--no-modules", kata_.no_modules, "load no kernel modules");
  }
  void add_kata(CLI::App& app) {
    CLI::App* kata = app.add_subcommand("kata", "Kata runtimes in the container runtime of this host");
    kata->require_subcommand(1);
    kata->fallthrough();
    CLI::App* plan = add_verb(*kata, "plan",
                              "what install would do, with each file's difference; writes nothing", nullptr);
    plan->add_flag("--explain", globals_.explain, "print the reason of each write");
    plan->callback([this] {
      globals_.dry_run = true;
      verb_ = [this](const Session& session) { return kata_install_verb(session, kata_); };
    });
    add_installation(plan);
    add_installation(add_changing_verb(
        *kata, "install", "make the classes of a file runtimes of this host, and no others of ours",
        [this](const Session& session) { return kata_install_verb(session, kata_); }));
    CLI::App* uninstall = add_changing_verb(
        *kata, "uninstall", "take all of ours away; the container runtime's files are what they were before",
        [this](const Session& session) { return kata_uninstall_verb(session, kata_); });
    with_runtime(uninstall);
    uninstall
        ->add_option("-f,--file", kata_.file,
                     "the class file they were installed by, where it says where the runtime is or how it is "
                     "restarted")
        ->type_name("FILE");
    uninstall->add_flag("--no-restart", kata_.no_restart, "write the files only");
    with_edited_files(uninstall);
    uninstall->add_flag("--keep-artifacts", kata_.keep_artifacts, "leave the guests' kernels and images");
    uninstall->add_option("--wait", kata_.wait_seconds,
                          "seconds to wait for pods that run with them to end; at once refused without it");
    CLI::App* status =
        add_verb(*kata, "status", "our runtimes, who knows them, and the pods that run with them",
                 [this](const Session& session) { return kata_status_verb(session, kata_); });
    with_node(with_runtime(status));
    status->add_option("-f,--file", kata_.file, "the class file, where it says where the runtime is")
        ->type_name("FILE");
    with_node(with_runtime(with_class_file(
        add_verb(*kata, "verify", "are the classes of a file all there and known? 3 if not",
                 [this](const Session& session) { return kata_verify_verb(session, kata_); }))));
    with_class_file(
        add_verb(*kata, "runtimeclass", "print the RuntimeClass objects of a class file",
                 [this](const Session& session) { return kata_runtimeclass_verb(session, kata_); }));
  }

  void add_selftest(CLI::App& app) {
    CLI::App* selftest =
        add_verb(app, "selftest", "start a throw-away VM that has the device and look from inside",
                 [this](const Session& session) { return selftest_verb(session, selftest_); });
    selftest->add_option("--device", selftest_.devices, "PCI address or vGPU UUID; may be repeated")
        ->required();
    selftest->add_option("--kernel", selftest_.kernel, "kernel for the VM")->type_name("FILE")->required();
    selftest->add_option("--initrd", selftest_.initrd, "initrd for the VM: prints the PCI devices it sees")
        ->type_name("FILE")
        ->required();
    selftest->add_option("--memory", selftest_.memory_mib, "of the VM, in MiB")->capture_default_str();
    selftest->add_option_function<unsigned>(
        "--timeout", [this](unsigned seconds) { selftest_.timeout = std::chrono::seconds(seconds); },
        fmt::format("seconds until the VM is given up [{}]", selftest_.timeout.count()));
  }

  void add_completion(CLI::App& app) {
    CLI::App* completion =
        add_verb(app, "completion", "print a script that completes command lines in a shell",
                 [this](const Session& session) {
                   static const std::map<std::string, Shell> kShells = {
                       {"bash", Shell::bash}, {"zsh", Shell::zsh}, {"fish", Shell::fish}};
                   const auto script = completion_script(ferry_commands(), kShells.at(shell_), {"ferry"});
                   fmt::print(session.out, "{}", script);
                   return ExitStatus::done;
                 });
    completion->add_option("shell", shell_, "whose: bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}))
        ->option_text("bash|zsh|fish");
    completion->footer(
        "For this shell: source <(ferry completion bash), the same for zsh, or in fish\n"
        "`ferry completion fish | source`. For all: into bash-completion/completions/ferry,\n"
        "zsh/site-functions/_ferry or fish/vendor_completions.d/ferry.fish below /usr/share.");
  }

  // The verbs in the order of the help text.
  static constexpr std::array<std::pair<std::string_view, void (CommandTree::*)(CLI::App&)>, 16> kVerbs = {{
      {"status", &CommandTree::add_status},
      {"explain", &CommandTree::add_explain},
      {"doctor", &CommandTree::add_doctor},
      {"apply", &CommandTree::add_apply},
      {"assert", &CommandTree::add_assert},
      {"export", &CommandTree::add_export},
      {"convert", &CommandTree::add_convert},
      {"hostd", &CommandTree::add_hostd},
      {"vfio", &CommandTree::add_vfio},
      {"vgpu", &CommandTree::add_vgpu},
      {"plugin", &CommandTree::add_plugin},
      {"agent", &CommandTree::add_agent},
      {"kubevirt-cr", &CommandTree::add_kubevirt_cr},
      {"kata", &CommandTree::add_kata},
      {"selftest", &CommandTree::add_selftest},
      {"completion", &CommandTree::add_completion},
  }};

  Globals& globals_;
  Verb& verb_;
  StatusOptions status_;
  std::string word_;
  DoctorOptions doctor_;
  SelectionOptions selection_;
  ProfileOptions profile_;
  KeepingOptions keeping_;
  bool on_host_ = false;
  std::string export_name_ = "current";
  ChoiceOptions choice_;
  RemovalOptions removal_;
  virt::SelftestOptions selftest_;
  KataOptions kata_;
  ServingOptions serving_;
  AgentOptions agent_;
  std::optional<agent::AgentOptionList> agent_list_;
  KubevirtCrOptions permits_;
  std::string shell_;
};

// The parser of the verbs, and the values that it fills.
struct Program {
  explicit Program(const MayBeNamed& may_be_named) : tree(app, globals, verb, may_be_named) {}

  CLI::App app{"Carries the GPUs of a node into virtual machines.", "ferry"};
  Globals globals;
  Verb verb;
  const CommandTree tree;
};

bool any_verb(std::string_view /*verb*/) {
  return true;
}

// The deepest verb that was parsed, whose help and names the user needs.
const CLI::App* deepest(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return at;
}

int usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const CLI::App* at = deepest(app);
  std::vector<std::string> known;
  for (const CLI::App* verb : at->get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(verb->get_name());
  for (const CLI::App* with = at; with != nullptr; with = with->get_parent()) {
    for (const CLI::Option* option : with->get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  std::string meant;
  std::string what = error.what();
  const auto unread = at->remaining();
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && at->get_require_subcommand_min() > 0 &&
      !unread.empty())
    what = fmt::format("there is no {} '{}'", unread.front().starts_with("-") ? "option" : "verb",
                       unread.front());
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
      dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    for (int i = 1; i < argc && meant.empty(); ++i) {
      const std::string word = argv[i];
      if (std::find(known.begin(), known.end(), word) == known.end() && word != at->get_name()) {
        meant = did_you_mean(word, known);
      }
    }
  }
  print_to_stderr(
      "ferry: {}{}\nhint: `{} --help` lists what there is\n", what, meant,
      at == &app
          ? "ferry"
          : "ferry " + (at->get_parent() == &app ? "" : at->get_parent()->get_name() + " ") + at->get_name());
  return static_cast<int>(ExitStatus::usage);
}

// A full disk shows only at the last flush. A file's reader must not take a part for the whole.
bool all_was_said() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  print_to_stderr(
      "ferry: write standard output: {}\nhint: what there is to see is not whole; a change of the host, if "
      "one was asked for, is done\n",
      std::generic_category().message(errno));
  return false;
}

int run_verb(const Program& program) {
  const Globals& globals = program.globals;
  if (auto log = set_up_log(globals.log_level, globals.log_format); !log) {
    return static_cast<int>(complain(log.error()));
  }
  try {
    Session session = open_session(globals.host_root);
    session.output = globals.output;
    session.dry_run = globals.dry_run;
    session.explain = globals.explain;
    const ExitStatus status = program.verb(session);
    return static_cast<int>(all_was_said() ? status : ExitStatus::failed);
  } catch (const std::exception& error) {
    if (!all_was_said()) return static_cast<int>(ExitStatus::failed);
    // Ferry throws for no reason that a user could fix, so this is out of memory or a defect.
    print_to_stderr("ferry: {}\n", error.what());
    return static_cast<int>(ExitStatus::failed);
  }
}

// Parses with all verbs in the tree.
int run_whole_command_line(int argc, char** argv) {
  Program program(any_verb);
  CLI::App& app = program.app;
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    const int status = print_help(app, help_or_version);
    return all_was_said() ? status : static_cast<int>(ExitStatus::failed);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error, argc, argv);
  }
  return run_verb(program);
}

}  // namespace

CommandModel ferry_commands() {
  const Program program(any_verb);
  return command_model(program.app);
}

int run_command_line(int argc, char** argv) {
  // Building all verbs takes a quarter of a start, so the first try has only those that a word may name.
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  Program program([words](std::string_view verb) { return std::ranges::find(words, verb) != words.end(); });
  try {
    program.app.parse(argc, argv);
  } catch (const CLI::Error&) {  // help is asked for, or needed
    return run_whole_command_line(argc, argv);
  }
  return run_verb(program);
}

}  // namespace ferry::cli
