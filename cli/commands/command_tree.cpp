// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/command_tree.h"

#include <utility>

#include "cli/completion/command_model.h"
#include "cli/options/value_option.h"
#include "common/version.h"

namespace ferry::cli {

CommandTree::CommandTree(const MayBeNamed& may_be_named) {
  app.require_subcommand(1);
  app.set_help_flag("-h,--help", "print this help");
  add_value(app, "--host-root DIR [/]", globals.host_root,
            "the folder on which the root of the host is mounted")
      ->check(CLI::ExistingDirectory);
  add_choice(app, "-o,--output FORMAT [table]", globals.output, output_formats(),
             "the format of the data: table, wide (a table with more columns), json or yaml");
  add_choice(
      app, "--color WHEN [auto]", globals.colours,
      {{"auto", ColourChoice::terminal}, {"always", ColourChoice::always}, {"never", ColourChoice::never}},
      "when to use colours: auto (on a terminal, unless NO_COLOR is set), always or never");
  suggest_words(add_value(app, "--log-level LEVEL [warn]", globals.log_level,
                          "the least severe messages to log: trace, debug, info, warn, error or off"),
                {"trace", "debug", "info", "warn", "error", "off"});
  add_choice(app, "--log-format FORMAT [text]", globals.log_format,
             {{"text", LogFormat::text}, {"json", LogFormat::json}}, "the format of the log: text or json");
  app.set_version_flag("--version", std::string("ferry ") + kVersion, "print the version");
  app.footer("Data goes to standard output, messages go to standard error.");

  // In the order of the help text.
  const std::vector<std::pair<std::string_view, void (CommandTree::*)()>> verbs = {
      {"status", &CommandTree::add_status},   {"explain", &CommandTree::add_explain},
      {"doctor", &CommandTree::add_doctor},   {"apply", &CommandTree::add_apply},
      {"assert", &CommandTree::add_assert},   {"export", &CommandTree::add_export},
      {"convert", &CommandTree::add_convert}, {"hostd", &CommandTree::add_hostd},
      {"vfio", &CommandTree::add_vfio},       {"vgpu", &CommandTree::add_vgpu},
      {"plugin", &CommandTree::add_plugin},   {"agent", &CommandTree::add_agent},
      {"dra", &CommandTree::add_dra},         {"claims", &CommandTree::add_claims},
      {"history", &CommandTree::add_history}, {"sanitize", &CommandTree::add_sanitize},
      {"cc", &CommandTree::add_cc},           {"kubevirt-cr", &CommandTree::add_kubevirt_cr},
      {"kata", &CommandTree::add_kata},       {"completion", &CommandTree::add_completion},
      {"help", &CommandTree::add_help},       {"version", &CommandTree::add_version}};
  for (const auto& [name, add] : verbs)
    if (may_be_named(name)) (this->*add)();
}

CLI::App* CommandTree::add_verb(CLI::App& parent, const std::string& name, const std::string& description,
                                Verb action) {
  CLI::App* verb = parent.add_subcommand(name, description);
  verb->fallthrough();  // global options may follow the verb
  verb->callback([this, action = std::move(action)] { chosen = action; });
  return verb;
}

CLI::App* CommandTree::add_changing_verb(CLI::App& parent, const std::string& name,
                                         const std::string& description, Verb action) {
  CLI::App* verb = add_verb(parent, name, description, std::move(action));
  verb->add_flag("--dry-run", globals.dry_run, "print the writes and make none");
  verb->add_flag("--explain", globals.explain, "print the reason of each write");
  return verb;
}

CLI::App* CommandTree::add_plan_verb(CLI::App& parent, const std::string& description, Verb action) {
  CLI::App* plan = add_verb(parent, "plan", description, nullptr);
  plan->add_flag("--explain", globals.explain, "print the reason of each write");
  plan->callback([this, action = std::move(action)] {
    globals.dry_run = true;
    chosen = action;
  });
  return plan;
}

CLI::App* CommandTree::add_group(const std::string& name, const std::string& description) {
  CLI::App* group = app.add_subcommand(name, description);
  group->require_subcommand(1);
  group->fallthrough();
  return group;
}

void CommandTree::add_release(CLI::App* verb, std::vector<std::string>& names) {
  add_value(*verb, "--release NAME ...", names,
            "a service of the host that may be stopped during the change, or nvidia_drm, which has GPUs "
            "open for screens; nvidia-persistenced needs no entry; none stops no service; may be repeated");
}

void CommandTree::add_yes(CLI::App* verb, bool& yes) {
  verb->add_flag("-y,--yes", yes, "ask no question; without it --all asks one on a terminal");
}

void CommandTree::add_foreign(CLI::App* verb) {
  verb->add_flag("--foreign", profile_.foreign,
                 "also remove mediated devices that Ferry did not make, if they are not asked for");
}

}  // namespace ferry::cli
