// SPDX-License-Identifier: Apache-2.0
#include "cli/kata_inputs.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/runtime_control.h"
#include "kata-manager/cri_client.h"
#include "kata-manager/file_change.h"
#include "policy/accelerators.h"
#include "vfio/inventory.h"

namespace ferry {
namespace {

constexpr const char* kInstalled = "var/lib/ferry/kata/installed.json";
constexpr std::chrono::seconds kTellAfter{2};

RuntimeChoice choice_of(const KataOptions& options, const ClassFile* file) {
  RuntimeChoice out = file == nullptr ? RuntimeChoice{} : file->runtime;
  // A place that is named here is not the one that the file has paths for, unless it names the same.
  if (options.runtime && options.runtime != out.name) out = {.name = options.runtime};
  if (options.configuration) out.configuration = options.configuration;
  if (options.socket) out.socket = options.socket;
  return out;
}

void add_control(const Session& session, const KataOptions& options, const ClassFile* file,
                 KataRuntime& runtime) {
  if (options.no_restart) return;
  if (file != nullptr && file->restart.how == RuntimeRestart::How::none) return;
  if (file != nullptr && file->restart.how == RuntimeRestart::How::command) {
    runtime.control = run_of_command(*session.writer, file->restart.command);
    return;
  }
  const RuntimePlace& place = runtime.at_hand.place;
  const auto unit = unit_of(*session.host, place);
  if (!unit) {
    runtime.no_control = {
        .code = Errc::unsupported,
        .message = fmt::format("{} runs, but has no systemd unit that could be restarted", place.name),
        .hint =
            "say `restart: {command: [...]}` in the class file, or write the files alone with --no-restart"};
  } else if (place.kind == RuntimeKind::crio) {
    runtime.control = reload_of_unit(*session.host, *unit);
  } else {
    runtime.control = restart_of_unit(*session.host, *session.writer, *unit);
  }
}

/// Says how far a fetch is, from the third second on.
class Progress {
 public:
  explicit Progress(std::string name) : name_(std::move(name)) {}
  void operator()(const FetchProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (now - told_ < kTellAfter) return;
    told_ = now;
    constexpr double kMib = 1024.0 * 1024.0;
    fmt::print(stderr, "{}: {:.0f} of {:.0f} MiB\n", name_, static_cast<double>(progress.done) / kMib,
               static_cast<double>(progress.total) / kMib);
  }

 private:
  std::string name_;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};

Result<std::string> text_of(const Session& session, const std::optional<std::filesystem::path>& path) {
  if (!path) return std::string();
  return session.host->read_file(path->relative_path());
}

std::vector<RegistryEndpoints> endpoints_of(const PullSettings& pull) {
  std::vector<RegistryEndpoints> out;
  for (const auto& [registry, mirrors] : pull.mirrors)
    out.push_back({.registry = registry, .endpoints = mirrors});
  return out;
}

// What a fetch from file:// would give, as far as a dry run needs it: no file's content is looked at.
Result<std::optional<Artifact>> local_artifact(const Session& session, const ClassFile& file,
                                               const KataClass& kata, const std::filesystem::path& folder) {
  const auto names = session.host->list(folder.relative_path());
  if (!names) return fail(Error(names.error()).during(kata.artifacts.url));
  Artifact out{.name = kata.name,
               .url = kata.artifacts.url,
               .digest = {},
               .folder = file.artifacts_dir / kata.name,
               .version = folder,
               .configuration = {},
               .files = {},
               .notes = {}};
  std::vector<std::string> configurations;
  for (const std::string& name : *names) {
    out.files.push_back({.path = name, .size = 0, .sha256 = {}, .link = {}});
    if (name.ends_with(".toml")) configurations.push_back(name);
  }
  if (!kata.artifacts.configuration && configurations.size() != 1) {
    return fail(
        Errc::refused,
        fmt::format("{}: {} has {} files *.toml, and which of them is Kata's configuration is not said",
                    kata.name, folder.string(), configurations.size()),
        "name it: `artifacts: {url: ..., configuration: FILE}`");
  }
  out.configuration = folder / (kata.artifacts.configuration ? *kata.artifacts.configuration
                                                             : std::filesystem::path(configurations.front()));
  return std::optional(std::move(out));
}

}  // namespace

Result<ClassFile> read_classes_for(const KataOptions& options) {
  auto file = read_class_file(options.file, options.lenient ? Reading::lenient : Reading::strict);
  if (!file) return file;
  for (const std::string& warning : file->warnings) fmt::print(stderr, "warning: {}\n", warning);
  return file;
}

Result<KataRuntime> kata_runtime(const Session& session, const KataOptions& options, const ClassFile* file) {
  auto place = find_runtime(*session.host, choice_of(options, file));
  if (!place) return fail(std::move(place).error());
  KataRuntime out;
  out.asked = std::make_unique<CriClient>(*session.host, place->socket);
  auto at_hand =
      runtime_at_hand(*session.host, *session.writer, *out.asked, *place, options.containerd_version);
  if (!at_hand) return fail(std::move(at_hand).error());
  out.at_hand = std::move(*at_hand);
  add_control(session, options, file, out);
  return out;
}

Result<KataDevices> kata_devices(const Session& session) {
  const auto inventory = scan(*session.host);
  // A tree without GPUs, or without sysfs, can be prepared all the same.
  if (!inventory && is_gone(inventory.error())) return KataDevices{.gpus = 1};
  if (!inventory) return fail(Error(inventory.error()));
  const AcceleratorRules all = session.rules.asking_for_all();
  KataDevices out;
  for (const auto& [address, function] : inventory->functions) {
    if (session.rules.match(function) ||
        (is_accelerators_vf(*inventory, session.rules, function) && on_vfio_driver(function))) {
      ++out.gpus;
    } else if (all.match(function)) {
      ++out.switches;
    }
  }
  out.gpus = std::max(out.gpus, 1U);  // one that comes later finds a port
  return out;
}

Result<Artifact> fetch_class(const Session& session, const KataOptions& options, const ClassFile& file,
                             const KataClass& kata) {
  const auto docker =
      text_of(session, options.docker_config ? options.docker_config : file.pull.docker_configuration);
  if (!docker) return fail(Error(docker.error()));
  const auto authorities = text_of(session, file.pull.certificates);
  if (!authorities) return fail(Error(authorities.error()));
  const FetchRequest request{.name = kata.name,
                             .url = kata.artifacts.url,
                             .artifacts_dir = file.artifacts_dir,
                             .configuration = kata.artifacts.configuration.value_or(std::filesystem::path()),
                             .docker_config = *docker,
                             .authorities = *authorities,
                             .registries = endpoints_of(file.pull),
                             .proxy = file.pull.proxy,
                             .no_proxy = file.pull.no_proxy};
  auto artifact = fetch(*session.host, request, Progress(kata.name));
  if (!artifact) {
    Error error = std::move(artifact).error().during(kata.place + ": " + kata.name);
    if (!kata.artifacts.pull_secret.empty() && docker->empty())
      error.hint = fmt::format(
          "the Secret {} is not read here: put its .dockerconfigjson on the host and name it with "
          "--docker-config, or `pull: {{dockerConfig: ...}}` in the class file",
          kata.artifacts.pull_secret);
    return fail(std::move(error));
  }
  return artifact;
}

Result<std::optional<Artifact>> known_artifact(const Session& session, const ClassFile& file,
                                               const KataClass& kata) {
  if (const auto folder = kata.artifacts.folder()) return local_artifact(session, file, kata, *folder);
  auto known = current_artifact(*session.host, file.artifacts_dir, kata.name);
  if (!known) return known;
  const auto& artifact = *known;
  if (artifact && artifact->url == kata.artifacts.url) return known;
  return std::optional<Artifact>();
}

Result<> remember_artifacts_dir(const Session& session, const std::filesystem::path& folder) {
  return session.host->write_file(kInstalled,
                                  nlohmann::json{{"artifacts_dir", folder.string()}}.dump() + "\n");
}

Result<std::optional<std::filesystem::path>> remembered_artifacts_dir(const Session& session) {
  const auto text = content_of(*session.host, std::filesystem::path("/") / kInstalled);
  if (!text) return fail(Error(text.error()));
  const auto& there = *text;
  if (!there) return std::optional<std::filesystem::path>();
  const auto document = nlohmann::json::parse(*there, nullptr, false);
  if (!document.is_object() || !document.contains("artifacts_dir") || !document["artifacts_dir"].is_string())
    return fail(Errc::malformed_host, fmt::format("/{} cannot be read", kInstalled),
                "name the class file with -f");
  return std::optional<std::filesystem::path>(document["artifacts_dir"].get<std::string>());
}

Result<> forget_artifacts_dir(const Session& session) {
  return session.host->remove_file(kInstalled);
}

}  // namespace ferry
