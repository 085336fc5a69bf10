// SPDX-License-Identifier: Apache-2.0
// The commands for a node as a whole, and the processes that serve it.
#include <limits>
#include <utility>

#include "cli/commands/command_tree.h"
#include "cli/completion/command_model.h"
#include "cli/options/plugin_options.h"
#include "cli/options/value_option.h"
#include "cli/verbs/agent_program.h"

namespace ferry::cli {

void CommandTree::add_policy(CLI::App* verb, const std::string& name_is) {
  add_value(*verb, "-f,--file FILE", profile_.file,
            "the policy file, vGPU profile file or ConfigMap; - is standard input")
      ->required();
  add_value(*verb, "-c,--config NAME", profile_.name, name_is);
  verb->add_flag("--lenient", profile_.lenient,
                 "accept the faults of a vGPU profile file that NVIDIA's program accepts, with a warning");
}

void CommandTree::add_apply() {
  CLI::App* apply = add_changing_verb(app, "apply", "give each GPU of the node the mode that a policy names",
                                      call_with(apply_verb, profile_));
  add_policy(apply, "the policy; a file with a single policy needs no name");
  add_foreign(apply);
}

void CommandTree::add_assert() {
  add_policy(add_verb(app, "assert", "compare the node with a policy; the exit status is 3 if they differ",
                      call_with(assert_verb, profile_)),
             "the policy; a file with a single policy needs no name");
}

void CommandTree::add_export() {
  add_value(*add_verb(app, "export", "print the present state of the node as a policy for apply and assert",
                      call_with(export_verb, export_name_)),
            "-c,--config NAME [current]", export_name_, "the name of the printed policy");
}

void CommandTree::add_convert() {
  add_policy(add_verb(app, "convert", "print a vGPU profile file as a policy file",
                      call_with(convert_verb, profile_)),
             "print this policy alone");
}

void CommandTree::add_hostd() {
  CLI::App* hostd =
      add_changing_verb(app, "hostd", "keep the node in the desired state of a file, until SIGTERM",
                        call_with(hostd_verb, hostd_));
  hostd->add_flag("--once", hostd_.once, "apply the desired state once, and end as `ferry apply` does");
  hostd->add_flag("--own-scope", hostd_.own_scope,
                  "for a container: let the host's systemd move hostd into a scope of its own, where the "
                  "device rules of the container do not apply");
  CLI::Option* socket =
      add_value(*hostd, "--cri-socket FILE", hostd_.cri_socket,
                "the socket of the container runtime, such as /run/containerd/containerd.sock, to "
                "report which Kata handlers of Ferry it knows");
  hostd
      ->add_flag(
          "--kata", hostd_.kata,
          "install the Kata runtimes of /var/lib/ferry/kata-classes.json, and remove Ferry's other ones")
      ->needs(socket);
  const CLI::Range numbers(1U, std::numeric_limits<unsigned>::max() - 1);
  CLI::Option* group = add_value(*hostd, "--agent-group GID", hostd_.agent_group,
                                 "the number of the group of an agent that is not root; the group may "
                                 "write /var/lib/ferry and in the folders of the next option");
  group->check(numbers);
  hostd->add_option("--agent-folder")->group("")->check([](const std::string&) {
    return std::string(
        "the agent writes no folder of another program: remove the option; for /run/nvidia/validations give "
        "--validations, and for labels by Node Feature Discovery start the agent with --feature-labels=nfd");
  });
  add_value(*hostd, "--agent-tree DIR ...", hostd_.agent_trees,
            "a folder of Kata's artifacts, in which the agent may write Ferry's store and the lock; "
            "other files in it stay root's; may be repeated")
      ->needs(group);
  CLI::Option* dra_user =
      add_value(*hostd, "--dra-user UID", hostd_.dra_user,
                "the number of the user of `ferry dra`, whose requests about ResourceClaims hostd "
                "serves at /run/ferry/claims/hostd.sock");
  dra_user->check(numbers);
  CLI::Option* dra_group =
      add_value(*hostd, "--dra-group GID", hostd_.dra_group,
                "the number of the group of `ferry dra`, which may enter /run/ferry/claims and write "
                "/run/ferry/dra");
  dra_group->check(numbers)->needs(dra_user);
  dra_user->needs(dra_group);
  add_value(*hostd, "--dra-folder DIR ...", hostd_.dra_folders,
            "a folder of the host that `ferry dra` may write in addition to /run/ferry/dra; may be repeated")
      ->needs(dra_group);
  add_value(*hostd, "--claim-metadata DIR [/var/lib/kubelet/plugins/gpu-ferry.io.hostd]",
            hostd_.claim_metadata,
            "hostd's folder of the host for the files by which KubeVirt learns the devices of ResourceClaims")
      ->needs(dra_user);
  CLI::Option* classes = add_value(*hostd, "--class RESOURCE=DEVICE ...", hostd_.classes,
                                   "a DeviceClass's name for pods, and its GPUs' IDs or vGPU type, as "
                                   "nvidia.com/AD102GL_L40S=10de:26b9: the device plugin must have no device "
                                   "of the name; may be repeated");
  add_name_options(*hostd, hostd_.naming);
  for (const char* name : {"--alias", "--name-template", "--vgpu-name-template"})
    hostd->get_option(name)->needs(classes);
  hostd->add_flag("--validations", hostd_.validations,
                  "write the files in /run/nvidia/validations that pods of NVIDIA's gpu-operator wait for");
  hostd->add_flag("--set-cc-mode", hostd_.sets_cc_mode,
                  "set the confidential mode that the desired state asks for, on GPUs that no VM uses; not "
                  "tried on hardware");
  hostd->add_flag("--lenient", hostd_.lenient,
                  "accept the faults of a vGPU profile file that NVIDIA's program accepts, with a warning");
  add_value(*hostd, "--wanted FILE [/var/lib/ferry/desired.json]", hostd_.desired,
            "the file of the host with the desired state");
  add_value(*hostd, "--state FILE [/run/ferry/status.json]", hostd_.status_file,
            "the file of the host for the host status");
  hostd->footer(
      "Without the file of the desired state hostd changes nothing. Before it changes a device that `ferry "
      "plugin` advertises, it asks the plugin to make the device unavailable. A device in use is blocked, "
      "and hostd changes it when its last user has ended. When hostd ends, all devices stay as they are.");
}

/// The options of every command that a program in place of this one takes, too. Its actions are worth log
/// lines, while other verbs print theirs as output.
std::vector<std::string> CommandTree::words_for_a_program() const {
  const bool has_level = app.get_option("--log-level")->count() > 0;
  return {"--host-root",  globals.host_root,
          "--log-level",  has_level ? globals.log_level : "info",
          "--log-format", globals.log_format == LogFormat::json ? "json" : "text"};
}

void CommandTree::add_agent() {
  CLI::App* agent = add_changing_verb(
      app, "agent", "turn the labels of a Node into the desired state of its host, and report the result",
      [this](const Session& session) {
        agent_.only_for_the_server = agent_list_->given_for_the_server();
        agent_.words = words_for_a_program();
        const auto more = agent_list_->words();
        agent_.words.insert(agent_.words.end(), more.begin(), more.end());
        return agent_verb(session, agent_);
      });
  agent->add_flag("--once", agent_.once,
                  "read files once, without an API server, and print what the cluster would get");
  add_value(*agent, "--node-file FILE", agent_.node,
            "with --once: the file with the Node object; - is standard input");
  add_value(*agent, "--config FILE ...", agent_.configs,
            "with --once: a file with policies or vGPU profiles, alone or in a ConfigMap; may be "
            "repeated");
  agent->add_flag(
      "--handed-over", agent_.handed_over,
      "with --once: assume that the gpu-operator's managers and device plugins for VMs are switched "
      "off, even if it labels the node for them");
  agent_list_.emplace(*agent, agent_.program);
  agent->footer(
      "Without --once the agent serves the node until SIGTERM, as the program ferry-agent.\n"
      "It writes /var/lib/ferry/desired.json. With --once the exit status is 4 if NVIDIA's programs or "
      "another agent serve the node.");
}

void CommandTree::add_plugin() {
  CLI::App* plugin = add_verb(app, "plugin", "advertise GPUs and vGPUs to the kubelet, until SIGTERM",
                              call_with(plugin_verb, plugin_));
  add_plugin_options(*plugin, plugin_);
}

void CommandTree::add_dra() {
  CLI::App* verb = add_verb(
      app, "dra", "publish GPUs as ResourceSlices, and prepare the devices of ResourceClaims, until SIGTERM",
      [this](const Session& /*session*/) {
        auto words = words_for_a_program();
        const auto more = dra::words_of(dra_);
        words.insert(words.end(), more.begin(), more.end());
        return complain(become_program("ferry-dra", std::move(words)));
      });
  dra::add_dra_options(*verb, dra_);
  verb->footer(
      "It runs as the program ferry-dra, asks hostd to change GPUs, and serves those whose policy has "
      "`allocation: dra`. Kubernetes 1.34 or later is needed. Slices and prepared claims stay when it ends.");
}

void CommandTree::add_claims() {
  CLI::App* claims = add_group("claims", "list the ResourceClaims of this host, and release their devices");
  add_verb(*claims, "list", "list the ResourceClaims whose devices hostd has prepared", claims_list_verb);
  CLI::App* release =
      add_verb(*claims, "release", "undo the devices of a claim that `ferry dra` cannot undo any more",
               call_with(claims_release_verb, claim_));
  release->add_flag("--dry-run", globals.dry_run, "print the devices and release none");
  add_value(*release, "uid UID", claim_, "the UID of a claim: `ferry claims list` prints it")->required();
  release->footer(
      "Use it if `ferry dra` is gone from the node for good. While it runs, delete the pods of the claim "
      "instead. A claim whose device a program uses is refused, with the name of that program.");
}

void CommandTree::add_history() {
  add_verb(app, "history", "list the users of the GPUs of this host, and the resets between them",
           call_with(history_verb, word_))
      ->add_option("gpu", word_, "a GPU's PCI address; without it, all GPUs")
      ->option_text("ADDRESS");
}

void CommandTree::add_sanitize() {
  CLI::App* verb = add_verb(app, "sanitize", "have hostd reset a free GPU as between two VMs",
                            call_with(sanitize_verb, sanitize_));
  verb->add_flag("--accept", sanitize_.accepts,
                 "reset nothing: make a GPU that could not be sanitized available without a proof");
  verb->add_flag("--dry-run", globals.dry_run, "print what would be done");
  add_value(*verb, "gpu ADDRESS", sanitize_.gpu, "a GPU's PCI address")->required();
  verb->footer(
      "hostd sanitizes GPUs by itself unless the policy has `sanitize: off`. Use this command for a GPU that "
      "has failed.");
}

void CommandTree::add_cc() {
  CLI::App* cc = add_group("cc", "set the confidential-computing mode of GPUs on vfio-pci");
  const auto action = call_with(cc_verb, cc_);
  CLI::App* plan = add_verb(*cc, "plan", "print the modes now and then, and change none", nullptr);
  plan->callback([this, action] {
    globals.dry_run = true;
    chosen = action;
  });
  CLI::App* set =
      add_verb(*cc, "set", "set the mode of all chosen devices, or of none, and reset them", action);
  set->add_flag("--dry-run", globals.dry_run, "print the modes now and then, and change none");
  for (CLI::App* verb : {plan, set}) {
    suggest_words(add_value(*verb, "mode MODE", cc_.mode, "off, on, devtools or ppcie"),
                  {"off", "on", "devtools", "ppcie"})
        ->required()
        ->check(CLI::IsMember({"off", "on", "devtools", "ppcie"}));
    add_value(*verb, "--device ADDRESS ...", cc_.devices,
              "this GPU or NVSwitch alone; may be repeated; the default is all that have the mode");
    verb->footer(
        "A mode is kept over a power cycle. A device in use is refused. Protected PCIe (ppcie) is set and "
        "ended "
        "for all GPUs and NVSwitches of a Hopper board at once. This has not been tried on hardware.");
  }
}

void CommandTree::add_kubevirt_cr() {
  CLI::App* verb =
      add_verb(app, "kubevirt-cr", "print the part of the KubeVirt object that permits this host's devices",
               call_with(kubevirt_cr_verb, permits_));
  add_value(*verb, "--model NAME", permits_.models,
            "print the entries of this GPU or vGPU type, L40S or A40-12Q, by the tables of names: for a file "
            "that is written before the device is there. May be repeated");
  add_value(
      *verb, "--hyperconverged VERSION", permits_.hyperconverged,
      "print the part of the HyperConverged object, which owns the KubeVirt object, by this version of its "
      "API: v1 or v1beta1")
      ->check(CLI::IsMember({"v1", "v1beta1"}));
  verb->add_flag("--device-classes", permits_.device_classes,
                 "print the chart's value dra.deviceClasses.more for this host's GPUs with `allocation: dra` "
                 "instead: "
                 "with it VMs that ask by a resource's name get them by claims")
      ->excludes("--model");
  const std::string plugin =
      "`kubectl ferry kubevirt-cr --check FILE` reads the output of `ferry kubevirt-cr -o json`";
  refuse_option(*verb, "--check", plugin);
  refuse_option(*verb, "--apply", plugin + ", and prints a patch for `kubectl patch` with --patch");
  for (const char* const option : {"--dry-run", "--kubeconfig", "--context"})
    refuse_option(*verb, option, "this command asks no API server; " + plugin);
  verb->footer(
      "Give it the naming options of `ferry plugin`. It only prints. Do not apply that output with kubectl: "
      "it would replace the lists of the object, with the entries of other nodes.");
  add_naming_options(*verb, permits_.naming);
}

}  // namespace ferry::cli
