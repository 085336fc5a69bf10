// SPDX-License-Identifier: Apache-2.0
// The commands that look at this host, or at the program itself.
#include <fmt/format.h>

#include "cli/command_line.h"
#include "cli/commands/command_tree.h"
#include "cli/completion/completion.h"
#include "cli/options/plugin_options.h"
#include "cli/options/value_option.h"
#include "common/version.h"

namespace ferry::cli {
namespace {

ExitStatus help_verb(const Session& session, const std::vector<std::string>& words) {
  const CommandTree tree([](std::string_view /*verb*/) { return true; });
  const auto text = help_of(tree.app, words, help_frame(), text_output(session));
  if (!text) return complain(text.error());
  fmt::print(session.out, "{}", *text);
  return ExitStatus::done;
}

}  // namespace

void CommandTree::add_status() {
  CLI::App* status =
      add_verb(app, "status", "list the accelerators of this host with their groups, drivers and users",
               [this](const Session& session) { return status_verb(session, watches_); });
  status->add_flag("--watch", watches_, "print the table again whenever something changes, until Ctrl-C");
  status->footer(
      "On a terminal the table is as wide as the terminal. The environment variable COLUMNS sets another "
      "width. `-o wide` also prints the NUMA node, the PCIe link, the desired mode and the resource of each "
      "GPU.");
}

void CommandTree::add_explain() {
  add_verb(app, "explain", "describe one device: its place, the reason for its mode, its users",
           call_with(explain_verb, word_))
      ->add_option("what", word_, "a device: a PCI address, a vGPU's UUID, or a resource's name")
      ->required()
      ->option_text("ADDRESS|UUID|RESOURCE");
}

void CommandTree::add_doctor() {
  CLI::App* doctor = add_verb(app, "doctor", "find what keeps this host from giving GPUs to VMs",
                              call_with(doctor_verb, doctor_));
  suggest_words(
      add_value(*doctor, "--for PURPOSE [passthrough]", doctor_.purposes,
                "the purpose to check for: passthrough, vgpu, kubevirt, kata or dra; several with commas"),
      doctor_purposes());
  doctor->add_flag("-v,--verbose", doctor_.verbose, "also print the checks that passed");
  add_value(*doctor, "--classes FILE", doctor_.classes,
            "for kata: a class file, whose classes are checked, too");
  add_value(*doctor, "--node-file FILE", doctor_.node,
            "for kata: the Node object, for the confidential mode of its GPUs");
  add_naming_options(*doctor, doctor_.naming);
}

void CommandTree::add_completion() {
  CLI::App* completion =
      add_verb(app, "completion", "print a script that completes command lines in a shell",
               [this](const Session& session) {
                 fmt::print(session.out, "{}", completion_script(ferry_commands(), shell_));
                 return ExitStatus::done;
               });
  add_value(*completion, "shell bash|zsh|fish", shell_, "a shell: bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer(
      "For the running shell use `source <(ferry completion bash)`, the same for zsh, and `ferry completion "
      "fish | source` in fish.\n"
      "For all users write the script to bash-completion/completions/ferry, zsh/site-functions/_ferry or "
      "fish/vendor_completions.d/ferry.fish below /usr/share.");
}

void CommandTree::add_help() {
  add_verb(app, "help", "print the commands, or the options and examples of one",
           call_with(help_verb, help_for_))
      ->add_option("verb", help_for_, "the words of a command")
      ->option_text("VERB...");
}

void CommandTree::add_version() {
  add_verb(app, "version", "print the version", [](const Session& session) {
    fmt::print(session.out, "ferry {}\n", kVersion);
    return ExitStatus::done;
  });
}

}  // namespace ferry::cli
