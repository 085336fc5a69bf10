// SPDX-License-Identifier: Apache-2.0
#include "cli/compat/replaced_programs.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/output/help_text.h"
#include "cli/verbs/verbs.h"
#include "common/log.h"
#include "common/process/standard_streams.h"
#include "common/version.h"

namespace ferry::cli {
namespace {

/// The option of that name, of `app` or of a command below it; nullptr: there is none.
const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  if (const CLI::Option* const option = app.get_option_no_throw(name)) return option;
  for (const CLI::App* command : app.get_subcommands({}))
    if (const CLI::Option* const option = find_option(*command, name)) return option;
  return nullptr;
}

// The libraries of the replaced programs accept -name for --name, and -n=VALUE for --name=VALUE.
std::string with_two_dashes(const CLI::App& app, const std::string& word) {
  constexpr std::size_t kShort = 2;  // -n
  if (word.size() <= kShort || word[0] != '-' || word[1] == '-') return word;
  const std::string name = word.substr(0, word.find('='));
  const bool is_short = name.size() == kShort;
  const CLI::Option* const option = find_option(app, is_short ? name : "-" + name);
  if (option == nullptr) return word;
  return is_short ? "--" + option->get_lnames().front() + word.substr(kShort) : "-" + word;
}

}  // namespace

std::optional<ExitStatus> parse_replaced(CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words;
  for (int at = argc - 1; at > 0; --at) words.push_back(with_two_dashes(app, argv[at]));
  try {
    app.parse(std::move(words));  // CLI11 takes the last word first
  } catch (const CLI::Success& help_or_version) {
    print_help(app, help_or_version);
    return ExitStatus::done;
  } catch (const CLI::ParseError& error) {
    print_to_stderr("{0}: {1}\nhint: `{0} --help` lists what there is\n", app.get_name(), error.what());
    return ExitStatus::failed;
  }
  return std::nullopt;
}

Result<> check_host_root(std::string_view option, const std::string& root) {
  std::error_code failure;
  if (std::filesystem::is_directory(root, failure)) return {};
  return fail(Errc::usage, fmt::format("{} {}: there is no such folder", option, root),
              fmt::format("name the folder where the host's / is mounted: {} DIR", option));
}

sigset_t block_signals(std::initializer_list<int> signals) {
  sigset_t out{};
  sigemptyset(&out);
  for (const int signal : signals) sigaddset(&out, signal);
  ::pthread_sigmask(SIG_BLOCK, &out, nullptr);
  return out;
}

namespace {

/// `vfio-manage` of NVIDIA's k8s-driver-manager v0.12.0, with its flags and environment.
class VfioManage {
 public:
  explicit VfioManage(CLI::App& app) {
    app.require_subcommand(1);
    add(app, "bind", "bind GPUs to vfio, each with its whole IOMMU group", vfio::Direction::to_vfio,
        "--bind-nvswitches");
    add(app, "unbind", "give GPUs back to the drivers they had", vfio::Direction::back,
        "--unbind-nvswitches");
  }

  ExitStatus run() const {
    if (all_ == !device_.empty()) {
      return complain({.code = make_error_code(Errc::usage),
                       .message = all_ ? "--all and --device-id exclude each other" : "no device is named",
                       .hint = "give either --all or --device-id ADDRESS"});
    }
    if (const auto there = check_host_root("--host-root", host_root_); !there) return complain(there.error());
    Session session = open_session(host_root_);
    if (all_ && switches_) session.rules = session.rules.asking_for(vfio::PciClass::bridge_other);
    SelectionOptions options;
    options.all = all_;
    options.yes = true;  // the replaced program asks nothing
    if (!device_.empty()) options.devices = {device_};
    return bind_verb(session, options, direction_);
  }

 private:
  void add(CLI::App& app, const std::string& name, const std::string& description, vfio::Direction direction,
           const std::string& switches) {
    CLI::App* command = app.add_subcommand(name, description);
    command->add_flag("-a,--all", all_, "every GPU");
    command->add_option("-d,--device-id", device_, "one GPU, as 0000:3b:00.0");
    command->add_option("--host-root", host_root_, "where the host's / is mounted")
        ->envname("HOST_ROOT")
        ->capture_default_str();
    command->add_flag(switches, switches_, "NVSwitches too")->envname("BIND_NVSWITCHES");
    // The environment fills the options of a command without such a callback, too, if another is given.
    command->parse_complete_callback([this, direction] { direction_ = direction; });
  }

  bool all_ = false;
  bool switches_ = false;
  std::string device_;
  std::string host_root_ = "/";
  vfio::Direction direction_ = vfio::Direction::to_vfio;
};

ExitStatus vfio_manage(int argc, char** argv) {
  CLI::App app("Binds GPUs to vfio and unbinds them: ferry, under the name of the program it replaces.",
               "vfio-manage");
  app.set_version_flag("--version", std::string("ferry ") + kVersion);
  const VfioManage program(app);
  if (const auto status = parse_replaced(app, argc, argv)) return *status;
  return program.run();
}

// The flags and the environment of driver-manager control the drain and the unloading of a driver. Ferry
// needs neither, so any are accepted. In NVIDIA's program the flags stand before the command.
ExitStatus driver_manager(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  const auto first_of = [&words](std::initializer_list<std::string_view> wanted) {
    return std::ranges::find_first_of(words, wanted);
  };
  if (const auto command = first_of({"uninstall_driver", "preflight_check"}); command != words.end()) {
    fmt::print(stderr,
               "driver-manager: {} is not needed: ferry binds or unbinds a GPU that is not in use, whether "
               "or not a driver is installed, and refuses one that is in use, naming who uses it\n",
               *command);
    return ExitStatus::done;
  }
  if (first_of({"--version", "-v"}) != words.end()) {
    fmt::print("ferry {}\n", kVersion);
    return ExitStatus::done;
  }
  if (first_of({"--help", "-h"}) != words.end()) {
    fmt::print("driver-manager [FLAG...] uninstall_driver|preflight_check\nNeither changes anything.\n");
    return ExitStatus::done;
  }
  // A word may be the value of a flag or a command of another version, so the message names all words.
  print_to_stderr("driver-manager: there is no command in '{}'\nhint: uninstall_driver, preflight_check\n",
                  fmt::join(words, " "));
  return ExitStatus::failed;
}

}  // namespace

std::optional<int> run_replaced_program(std::string_view name, int argc, char** argv) {
  static const std::map<std::string, ExitStatus (*)(int, char**)> kPrograms = {
      {"vfio-manage", vfio_manage},           {"driver-manager", driver_manager},
      {"nvidia-vgpu-dm", nvidia_vgpu_dm},     {"nvidia-k8s-vgpu-dm", nvidia_k8s_vgpu_dm},
      {"k8s-kata-manager", k8s_kata_manager},
  };
  const auto found = kPrograms.find(std::filesystem::path(name).filename().string());
  if (found == kPrograms.end()) return std::nullopt;
  if (auto log = set_up_log("warn", LogFormat::text); !log) return static_cast<int>(complain(log.error()));
  return found->second(argc, argv) == ExitStatus::done ? 0 : 1;
}

}  // namespace ferry::cli
