// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/command_tree.h"
#include "cli/completion/command_model.h"
#include "cli/options/value_option.h"

namespace ferry::cli {

CLI::App* CommandTree::with_class_file(CLI::App* verb) {
  add_value(*verb, "-f,--file FILE", kata_.file, "the class file or ConfigMap; - is standard input")
      ->required();
  verb->add_flag("--lenient", kata_.lenient,
                 "accept the faults that NVIDIA's kata-manager accepts in its own file, with a warning");
  return verb;
}

CLI::App* CommandTree::with_runtime(CLI::App* verb) {
  suggest_words(add_value(*verb, "--runtime NAME", kata_.runtime,
                          "the container runtime: containerd, cri-o, k0s, k3s, microk8s or rke2; the "
                          "default is the one that Ferry finds"),
                {"containerd", "cri-o", "k0s", "k3s", "microk8s", "rke2"});
  add_value(*verb, "--containerd-version VERSION", kata_.containerd_version,
            "the version of containerd, such as 1.7.24, if neither its program nor the running one answers");
  return verb;
}

CLI::App* CommandTree::with_node(CLI::App* verb) {
  add_value(*verb, "--node-file FILE", kata_.node,
            "the Node object, for the confidential mode of its GPUs (kubectl get node NODE -o yaml)");
  return verb;
}

void CommandTree::with_edited_files(CLI::App* verb) {
  verb->add_flag("--accept-edited-files", kata_.accept_edited_files,
                 "restart containerd even if its files have changed since its start, and its program cannot "
                 "show that CRI loads with them");
}

void CommandTree::add_installation(CLI::App* verb) {
  with_node(with_runtime(with_class_file(verb)));
  add_value(*verb, "--docker-config FILE", kata_.docker_config,
            "the file of the host with the credentials of the registries, in Docker's format");
  add_value(*verb, "--pull-secrets DIR", kata_.pull_secrets,
            "the folder with the Secrets that the class file names, each as DIR/NAME/.dockerconfigjson");
  verb->add_flag("--no-restart", kata_.no_restart,
                 "only write the files; the container runtime reads them at its next start");
  with_edited_files(verb);
  verb->add_flag("--no-modules", kata_.no_modules, "load no kernel modules");
  verb->footer(
      "install restarts the container runtime, unless --no-restart is given. It refuses a restart that would "
      "end running pods. If the restarted container runtime does not know the classes, install puts back all "
      "of its files.");
}

void CommandTree::add_kata() {
  CLI::App* kata = add_group("kata", "install Kata runtimes in the container runtime of this host");
  const auto install = call_with(kata_install_verb, kata_);
  add_installation(add_plan_verb(
      *kata, "print what install would do, with the difference of each file, and write nothing", install));
  add_installation(add_changing_verb(
      *kata, "install", "install the Kata runtimes of a class file, and remove Ferry's other ones", install));
  CLI::App* uninstall = add_changing_verb(
      *kata, "uninstall", "remove Ferry's Kata runtimes, and restore the files of the container runtime",
      call_with(kata_uninstall_verb, kata_));
  with_runtime(uninstall);
  add_value(*uninstall, "-f,--file FILE", kata_.file,
            "the class file of the installation, if it names the place of the container runtime or the "
            "way to restart it");
  uninstall->add_flag("--no-restart", kata_.no_restart,
                      "only write the files; the container runtime reads them at its next start");
  with_edited_files(uninstall);
  uninstall->add_flag("--keep-artifacts", kata_.keep_artifacts,
                      "leave the kernels and images of the guests on the host");
  add_value(*uninstall, "--wait SECONDS", kata_.wait_seconds,
            "the time to wait for the end of pods that run with the runtimes; without it the command is "
            "refused at once if such pods run");
  CLI::App* status = add_verb(*kata, "status", "list Ferry's Kata runtimes, their state and their pods",
                              call_with(kata_status_verb, kata_));
  with_node(with_runtime(status));
  add_value(*status, "-f,--file FILE", kata_.file,
            "the class file of the installation, if it names the place of the container runtime");
  with_node(with_runtime(with_class_file(
      add_verb(*kata, "verify",
               "check that all classes of a file are installed and known; the exit status is 3 if not",
               call_with(kata_verify_verb, kata_)))));
  with_class_file(add_verb(*kata, "runtimeclass", "print the RuntimeClass objects of a class file",
                           call_with(kata_runtimeclass_verb, kata_)));
}

}  // namespace ferry::cli
