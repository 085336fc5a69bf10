// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/found_runtime.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/processes.h"
#include "kata-manager/runtimes/containerd_place.h"
#include "kata-manager/runtimes/containerd_start.h"
#include "kata-manager/runtimes/crio.h"
#include "kata-manager/runtimes/k0s_plan.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {
namespace {

void add_to(std::string& list, const std::string& what) {
  list += (list.empty() ? "" : "; ") + what;
}

/// Sets CRI-O's program, or why there is none.
void find_crio(const HostFs& host, FoundRuntime& out) {
  for (const auto& path : out.place.programs) {
    if (host.exists(path.relative_path())) {
      out.program = path;
      out.no_program.clear();
      return;
    }
    add_to(out.no_program, "there is no " + path.string());
  }
}

/// The release of the program that a restart starts. Sets the program and the source of its release, or why
/// there is none. `by_itself`: the running daemon's answer.
std::optional<ContainerdRelease> ask_its_program(const HostFs& host, HostWriter& writer,
                                                 const Result<ContainerdRelease>& by_itself,
                                                 FoundRuntime& out) {
  struct Candidate {
    std::filesystem::path path;
    std::string what;        // its origin, for people
    bool is_certain = true;  // false: may be another installation's
  };
  const RuntimePlace& place = out.place;
  std::vector<Candidate> candidates;
  if (place.started) candidates.push_back({.path = *place.started, .what = "which its unit starts"});
  if (const auto running = running_containerd(host, place); running && !place.started)
    candidates.push_back({.path = *running, .what = "which runs"});
  // Distributions of Kubernetes ship their own containerd.
  const bool is_usual = place.name == "containerd";
  for (const auto& path : place.programs) {
    if (std::ranges::find(candidates, path, &Candidate::path) != candidates.end()) continue;
    candidates.push_back({.path = path,
                          .what = is_usual ? "where containerd usually is" : "of " + place.name,
                          .is_certain = !is_usual});
  }

  for (const Candidate& candidate : candidates) {
    const std::string path = candidate.path.string();
    if (!host.exists(candidate.path.relative_path())) {
      add_to(out.no_program, "there is no " + path);
      continue;
    }
    auto release = containerd_release(writer, candidate.path);
    if (!release) {
      add_to(out.no_program, release.error().message);
      continue;
    }
    if (!candidate.is_certain && by_itself && *by_itself != *release) {
      const std::string strays = fmt::format(
          "{} is containerd {}, and containerd {} runs by its own word: that program is not the one that "
          "runs",
          path, release->text(), by_itself->text());
      add_to(out.no_program, strays);
      continue;
    }
    out.program = candidate.path;
    out.release_by = fmt::format("{}, {}", path, candidate.what);
    out.no_program.clear();
    return *release;
  }
  return std::nullopt;
}

}  // namespace

std::string FoundRuntime::text() const {
  const std::string release_text = place.kind == RuntimeKind::crio ? "" : " " + release.text();
  if (place.name == "containerd" || place.kind == RuntimeKind::crio) return place.name + release_text;
  return "containerd" + release_text + " of " + place.name;
}

Result<FoundRuntime> found_runtime(const HostFs& host, HostWriter& writer, ContainerRuntime& running,
                                   RuntimePlace place, const std::optional<std::string>& said) {
  FoundRuntime out;
  out.notes = std::move(place.notes);
  out.place = std::move(place);
  out.version_of = version_by(writer);
  if (out.place.kind == RuntimeKind::crio) {
    find_crio(host, out);
    return out;
  }

  const auto state = running.state();
  const auto by_itself =
      state ? ContainerdRelease::parse(state->version) : Result<ContainerdRelease>(fail(state.error()));
  const auto by_program = ask_its_program(host, writer, by_itself, out);
  if (said) {
    auto release = ContainerdRelease::parse(*said);
    if (!release) {
      Error error = std::move(release).error();
      error.code = Errc::usage;
      return fail(std::move(error));
    }
    out.release = *release;
    out.release_by = "--containerd-version";
  } else if (by_program) {
    out.release = *by_program;
  } else if (by_itself) {
    out.release = *by_itself;
    out.release_by = "the running containerd itself";
  } else {
    std::string why = out.no_program;
    add_to(why, by_itself.error().message);
    return fail(Errc::failed, "containerd was not found, or does not report its version: " + why,
                "install or start containerd, or name its version: --containerd-version 1.7.24");
  }
  if (by_itself && *by_itself != out.release) {
    out.notes.push_back(fmt::format("containerd {} runs, and {} starts with its next restart (by {})",
                                    by_itself->text(), out.release.text(), out.release_by));
  }
  return out;
}

Result<RuntimePlan> plan_runtime(const HostFs& host, const FoundRuntime& runtime,
                                 std::span<const RuntimeHandler> handlers) {
  const ConfigFiles files(host);
  const RuntimePlace& place = runtime.place;
  auto plan = place.kind == RuntimeKind::crio ? plan_crio(place.configuration, files, handlers)
              : place.kind == RuntimeKind::k0s
                  ? plan_k0s(runtime.release, place.configuration, files, handlers)
                  : plan_containerd(runtime.release, place, files, handlers);
  // k0s writes containerd's file only later, so no program can check it.
  if (plan && !plan->changes.empty() && place.kind == RuntimeKind::k0s) {
    plan->notes.push_back(
        "nothing proves this before containerd reads it: k0s takes its drop-ins in by itself, at once");
  } else if (plan && !plan->changes.empty() && !runtime.program) {
    plan->notes.push_back(fmt::format(
        "not tried: only Ferry's model of {} has judged this, since its own program could not be asked what "
        "it makes of the files ({})",
        place.kind == RuntimeKind::crio ? "CRI-O" : "containerd " + runtime.release.text(),
        runtime.no_program.empty() ? "it is not known" : runtime.no_program));
  }
  return plan;
}

Result<std::vector<ConfiguredRuntime>> configured_runtimes(const HostFs& host, const FoundRuntime& runtime) {
  const ConfigFiles files(host);
  if (runtime.place.kind == RuntimeKind::crio) return configured_in_crio(runtime.place.configuration, files);
  if (runtime.place.kind == RuntimeKind::k0s) return configured_in_k0s(runtime.place.configuration, files);
  return configured_in_containerd(runtime.release, runtime.place, files);
}

std::function<Result<std::optional<std::string>>()> config_dump_check(
    HostWriter& writer, const FoundRuntime& runtime, const RuntimePlan& plan,
    std::span<const RuntimeHandler> handlers) {
  // k0s writes containerd's file only later, so there is nothing to compare.
  if (!runtime.program || runtime.place.kind == RuntimeKind::k0s) return {};
  const bool is_crio = runtime.place.kind == RuntimeKind::crio;
  const auto read = [&writer, &runtime, is_crio] {
    const std::filesystem::path& files = runtime.place.configuration;
    return is_crio ? crio_configuration(writer, *runtime.program, files)
                   : containerd_plugins(writer, *runtime.program, files);
  };
  auto before = read();
  if (!before) return {};  // it gives its release, but cannot read the files
  // A program that cannot read CRI-O's present files proves nothing: it may lack parts in its own root.
  if (is_crio && !*before) return {};
  return
      [read, is_crio, before = *before, &runtime, &plan, handlers]() -> Result<std::optional<std::string>> {
        const auto after = read();
        if (!after) return fail(after.error());
        return is_crio ? unplanned(before, *after, plan.leaving, handlers)
                       : unplanned(before, *after, plan, handlers, runtime.release);
      };
}

namespace {

constexpr const char* kUsualFile = "/etc/containerd/config.toml";

}  // namespace

std::optional<std::filesystem::path> running_containerd(const HostFs& host, const RuntimePlace& place) {
  const auto names = host.list("proc");
  if (!names) return std::nullopt;
  std::optional<std::filesystem::path> out;
  for (const std::string& name : *names) {
    const auto pid = whole_number<int>(name);
    if (!pid) continue;
    auto link = host.link_target("proc/" + name + "/exe");
    if (!link) continue;
    // ABI: proc(5), /proc/PID/exe: a deleted file has this suffix.
    constexpr std::string_view kGone = " (deleted)";
    if (link->ends_with(kGone)) link->resize(link->size() - kGone.size());
    const std::filesystem::path program = *link;
    if (program.filename() != "containerd" || runs_below_another_root(host, *pid, {"."})) continue;
    auto words = words_between(command_line(host, *pid), '\0');
    if (words.empty()) continue;
    words.front() = program;  // replaces argv[0]
    const ContainerdStart start = containerd_start({.words = words});
    bool serves = false;
    if (start.socket)
      serves = *start.socket == place.socket;
    else if (start.configuration)
      serves = *start.configuration == place.configuration;
    else if (place.configuration == kUsualFile)
      serves = place.socket == socket_in_files(ConfigFiles(host), kUsualFile).value_or(kContainerdSocket);
    if (!serves) continue;

    if (out && *out != program) return std::nullopt;
    out = program;
  }
  return out;
}

namespace {

constexpr std::chrono::seconds kPatience{10};

// The program adds keys that are built in, so only the predicted keys are compared.
std::optional<std::string> missing_or_other(const TomlTable& predicted, const TomlTable& said,
                                            const std::string& where) {
  for (const auto& [key, value] : predicted) {
    const auto there = said.find(key);
    const std::string path = fmt::format("{}.{}", where, key);
    if (const TomlTable* table = value.table(); table != nullptr && there != said.end()) {
      const TomlTable* other = there->second.table();
      if (other == nullptr) return path + " is no table";
      if (auto found = missing_or_other(*table, *other, path)) return found;
      continue;
    }
    if (there == said.end()) return path + " is not there";
    if (!(there->second == value)) return path + " has another value";
  }
  return std::nullopt;
}

void forget(TomlTable& plugins, const std::string& section, const std::string& name) {
  if (!plugins.contains(section)) return;
  table_at(plugins, {section, "containerd", "runtimes"}).erase(name);
  if (section == kCriRuntime) table_at(plugins, {kCriImages, "runtime_platforms"}).erase(name);
}

}  // namespace

Result<ContainerdRelease> containerd_release(HostWriter& writer, const std::filesystem::path& program) {
  auto text = writer.output({.words = {program.string(), "--version"}}, kPatience);
  if (!text) return fail(std::move(text).error());
  // Example: "containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+deb13u1"
  std::istringstream words(*text);
  std::string name;
  std::string repository;
  std::string version;
  if (!(words >> name >> repository >> version) || name != "containerd") {
    return fail(Errc::malformed_host,
                fmt::format("{} --version says \"{}\"", program.string(), text->substr(0, text->find('\n'))));
  }
  return ContainerdRelease::parse(version);
}

Result<std::optional<TomlTable>> containerd_plugins(HostWriter& writer, const std::filesystem::path& program,
                                                    const std::filesystem::path& main) {
  const auto cannot = std::optional<TomlTable>();
  auto text =
      writer.output({.words = {program.string(), "--config", main.string(), "config", "dump"}}, kPatience);
  if (!text && text.error().code == Errc::failed) return cannot;
  if (!text) return fail(std::move(text).error());
  const auto said = parse_toml(*text, program.string() + " config dump");
  if (!said) return fail(said.error());
  const TomlTable* plugins = find_table(*said, {"plugins"});
  if (plugins == nullptr) return cannot;
  return std::optional(*plugins);
}

std::optional<std::string> unplanned(const std::optional<TomlTable>& before,
                                     const std::optional<TomlTable>& after, const RuntimePlan& plan,
                                     std::span<const RuntimeHandler> handlers,
                                     const ContainerdRelease& release) {
  if (!after) return "it cannot read them";
  const std::string& section = plan.after.runtime_section;
  for (const RuntimeHandler& handler : handlers) {
    const TomlTable* said = find_table(*after, {section, "containerd", "runtimes", handler.name});
    const std::string name = "runtime " + handler.name;
    if (said == nullptr) return name + " is not there";
    const TomlTable expected = entry_of(configured_as_in(said, handler), release);
    if (auto found = missing_or_other(expected, *said, name)) return found;
  }
  for (const std::string& name : plan.leaving) {
    if (find(*after, {section, "containerd", "runtimes", name}) != nullptr)
      return "runtime " + name + " is still there";
  }
  if (!before) return std::nullopt;
  TomlTable was = *before;
  TomlTable is = *after;
  for (TomlTable* const plugins : {&was, &is}) {
    for (const RuntimeHandler& handler : handlers) forget(*plugins, section, handler.name);
    for (const std::string& name : plan.leaving) forget(*plugins, section, name);
  }
  return first_difference(was, is, "plugins");
}

}  // namespace ferry::kata
