// SPDX-License-Identifier: Apache-2.0
// The tree of verbs with their options. The chosen verb leaves its action behind.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "agent/agent_options.h"
#include "cli/verbs/verbs.h"
#include "common/log.h"
#include "dra/dra_options.h"

namespace ferry::cli {

/// The options of every command.
struct Globals {
  std::string host_root = "/";
  OutputFormat output = OutputFormat::table;
  ColourChoice colours = ColourChoice::terminal;
  std::string log_level = "warn";
  LogFormat log_format = LogFormat::text;
  bool dry_run = false;
  bool explain = false;
};

using Verb = std::function<ExitStatus(const Session&)>;

/// Calls `verb` with the values that `options` has after the parsing.
template <typename Options>
Verb call_with(ExitStatus (*verb)(const Session&, const Options&), const Options& options) {
  return [verb, &options](const Session& session) { return verb(session, options); };
}

/// False: no word of the command line is this verb, so it is not built.
using MayBeNamed = std::function<bool(std::string_view verb)>;

/// A command line's parser, and the values that it fills.
class CommandTree {
 public:
  explicit CommandTree(const MayBeNamed& may_be_named);

  CLI::App app{"Gives the GPUs of a Kubernetes node to virtual machines", "ferry"};
  Globals globals;
  Verb chosen;  ///< the action of the verb that was parsed

 private:
  CLI::App* add_verb(CLI::App& parent, const std::string& name, const std::string& description, Verb action);
  CLI::App* add_changing_verb(CLI::App& parent, const std::string& name, const std::string& description,
                              Verb action);
  /// A verb that prints what a changing one would do.
  CLI::App* add_plan_verb(CLI::App& parent, const std::string& description, Verb action);
  CLI::App* add_group(const std::string& name, const std::string& description);
  static void add_release(CLI::App* verb, std::vector<std::string>& names);
  void add_foreign(CLI::App* verb);
  std::vector<std::string> words_for_a_program() const;
  static void add_yes(CLI::App* verb, bool& yes);

  // looking_commands.cpp
  void add_status();
  void add_explain();
  void add_doctor();
  void add_completion();
  void add_help();
  void add_version();

  // node_commands.cpp
  void add_policy(CLI::App* verb, const std::string& name_is);
  void add_apply();
  void add_assert();
  void add_export();
  void add_convert();
  void add_hostd();
  void add_agent();
  void add_dra();
  void add_claims();
  void add_history();
  void add_sanitize();
  void add_cc();
  void add_plugin();
  void add_kubevirt_cr();

  // gpu_commands.cpp
  void add_selection(CLI::App* verb);
  void add_vfio();
  void add_profile(CLI::App* verb);
  void add_profile_of_node(CLI::App* verb);
  void add_vgpu();
  void add_vgpu_choose(CLI::App& vgpu);

  // kata_commands.cpp
  CLI::App* with_class_file(CLI::App* verb);
  CLI::App* with_runtime(CLI::App* verb);
  CLI::App* with_node(CLI::App* verb);
  void with_edited_files(CLI::App* verb);
  void add_installation(CLI::App* verb);
  void add_kata();

  bool watches_ = false;
  std::string word_;
  std::vector<std::string> help_for_;
  DoctorOptions doctor_;
  SelectionOptions selection_;
  ProfileOptions profile_;
  HostdOptions hostd_;
  bool on_host_ = false;
  std::string export_name_ = "current";
  VgpuChooseOptions vgpu_choose_;
  VgpuDeleteOptions vgpu_delete_;
  KataOptions kata_;
  PluginVerbOptions plugin_;
  AgentOptions agent_;
  std::optional<agent::AgentOptionList> agent_list_;
  dra::DraProgramOptions dra_;
  KubevirtCrOptions permits_;
  std::string claim_;
  SanitizeOptions sanitize_;
  CcOptions cc_;
  std::string shell_;
};

}  // namespace ferry::cli
