// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <string>

#include <CLI/CLI.hpp>
#include <spdlog/spdlog.h>

#include "cli/compat/replaced_programs.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/log.h"
#include "common/version.h"
#include "vgpu-dm/profile/profile_yaml.h"

namespace ferry::cli {
namespace {

class NvidiaVgpuDm {
 public:
  explicit NvidiaVgpuDm(CLI::App& app) {
    app.require_subcommand(1);
    app.add_flag("-d,--debug", debug_, "say why each vGPU is made or removed, and log more")
        ->envname("VGPU_DM_DEBUG");
    app.set_version_flag("-v,--version", std::string("ferry ") + kVersion);
    add(app, "apply", "make the GPUs carry what a configuration says", [this] { return apply(); });
    add(app, "assert", "are the GPUs what a configuration says?", [this] { return assert_applied(); })
        ->add_flag("-a,--valid-config", only_valid_, "look at the file alone, at no GPU")
        ->envname("VGPU_DM_VALID_CONFIG");
  }

  ExitStatus run() const {
    if (auto log = set_up_log(debug_ ? "debug" : "info", LogFormat::text); !log) return complain(log.error());
    return action_();
  }

 private:
  CLI::App* add(CLI::App& app, const std::string& name, const std::string& description,
                std::function<ExitStatus()> action) {
    CLI::App* command = app.add_subcommand(name, description);
    command->add_option("-f,--config-file", options_.file, "file with configurations; - is standard input")
        ->envname("VGPU_DM_CONFIG_FILE")
        ->required();
    command
        ->add_option("-c,--selected-config", options_.name,
                     "which of them; not needed where there is only one")
        ->envname("VGPU_DM_SELECTED_CONFIG");
    command
        ->add_flag("--lenient", options_.lenient,
                   "let pass what the program of this name lets pass, such as a key that stands twice, with "
                   "a warning")
        ->envname("VGPU_DM_LENIENT");
    command->add_option("--host-root", host_root_, "where the host's / is mounted")
        ->envname("HOST_ROOT")
        ->capture_default_str();
    // The environment fills the options of a command without such a callback, too, if another is given.
    command->parse_complete_callback([this, action = std::move(action)] { action_ = action; });
    return command;
  }

  /// The output goes to stderr, as that of NVIDIA's program does.
  Session session() const {
    Session session = open_session(host_root_);
    session.out = stderr;
    session.explain = debug_;
    return session;
  }

  ExitStatus apply() const {
    if (const auto there = check_host_root("--host-root", host_root_); !there) return complain(there.error());
    // NVIDIA's program removes vGPUs of any maker where the file asks for others, and so does this one.
    ProfileOptions options = options_;
    options.foreign = true;
    const ExitStatus status = vgpu_apply_verb(session(), options);
    if (status == ExitStatus::done) {
      spdlog::info("the selected configuration is applied");
    } else {
      spdlog::error("the selected configuration was not applied");
    }
    return status;
  }

  ExitStatus assert_applied() const {
    if (only_valid_) {
      auto file = read_profiles_for(options_);
      if (!file) return complain(file.error());
      auto profile = vgpu::select_profile(*file, options_.name);
      if (!profile) return complain(profile.error());
      spdlog::info("{}: configuration {} is valid", profile->place, profile->name);
      return ExitStatus::done;
    }

    if (const auto there = check_host_root("--host-root", host_root_); !there) return complain(there.error());
    const ExitStatus status = vgpu_assert_verb(session(), options_);
    if (status == ExitStatus::done) spdlog::info("the selected configuration is currently applied");
    if (status == ExitStatus::differs) spdlog::error("the selected configuration is not currently applied");
    return status;
  }

  bool debug_ = false;
  bool only_valid_ = false;
  ProfileOptions options_;
  std::string host_root_ = "/";
  std::function<ExitStatus()> action_;
};

}  // namespace

ExitStatus nvidia_vgpu_dm(int argc, char** argv) {
  CLI::App app("Makes GPUs carry the vGPUs of a file: ferry, under the name of the program it replaces.",
               "nvidia-vgpu-dm");
  const NvidiaVgpuDm program(app);
  if (const auto status = parse_replaced(app, argc, argv)) return *status;
  return program.run();
}

}  // namespace ferry::cli
