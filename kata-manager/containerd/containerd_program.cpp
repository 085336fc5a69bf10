// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/containerd/containerd_program.h"

#include <array>
#include <sstream>

#include <fmt/format.h>

#include "kata-manager/containerd/containerd_place.h"
#include "kata-manager/toml/toml_difference.h"

namespace ferry::kata {
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

Result<ContainerdRelease> ContainerdProgram::release() const {
  auto text =
      writer_->output({.root = {}, .words = {program_.string(), "--version"}, .device = {}}, kPatience);
  if (!text) return fail(std::move(text).error());
  // Example: "containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+deb13u1"
  std::istringstream words(*text);
  std::string name;
  std::string repository;
  std::string version;
  if (!(words >> name >> repository >> version) || name != "containerd") {
    return fail(Errc::malformed_host, fmt::format("{} --version says \"{}\"", program_.string(),
                                                  text->substr(0, text->find('\n'))));
  }
  return ContainerdRelease::parse(version);
}

Result<std::optional<TomlTable>> ContainerdProgram::plugins(const std::filesystem::path& main) const {
  const auto cannot = std::optional<TomlTable>();
  auto text = writer_->output(
      {.root = {}, .words = {program_.string(), "--config", main.string(), "config", "dump"}, .device = {}},
      kPatience);
  if (!text && text.error().code == make_error_code(Errc::failed)) return cannot;
  if (!text) return fail(std::move(text).error());
  const auto said = parse_toml(*text, program_.string() + " config dump");
  if (!said) return fail(Error(said.error()));
  const TomlValue* plugins = find(*said, {"plugins"});
  if (plugins == nullptr || plugins->table() == nullptr) return cannot;
  return std::optional(*plugins->table());
}

std::optional<std::string> unplanned(const std::optional<TomlTable>& before,
                                     const std::optional<TomlTable>& after, const RuntimePlan& plan,
                                     std::span<const RuntimeHandler> handlers,
                                     const ContainerdRelease& release) {
  if (!after) return "it cannot read them";
  const std::string& section = plan.after.runtime_section;
  for (const RuntimeHandler& handler : handlers) {
    const TomlValue* said = find(*after, {section, "containerd", "runtimes", handler.name});
    const std::string name = "runtime " + handler.name;
    if (said == nullptr || said->table() == nullptr) return name + " is not there";
    const TomlTable wanted = entry_of(told_as_in(said, handler), release);
    if (auto found = missing_or_other(wanted, *said->table(), name)) return found;
  }
  for (const std::string& name : plan.leaving) {
    if (find(*after, {section, "containerd", "runtimes", name}) != nullptr)
      return "runtime " + name + " is still there";
  }
  if (!before) return std::nullopt;
  TomlTable was = *before;
  TomlTable is = *after;
  for (const RuntimeHandler& handler : handlers) {
    forget(was, section, handler.name);
    forget(is, section, handler.name);
  }
  for (const std::string& name : plan.leaving) {
    forget(was, section, name);
    forget(is, section, name);
  }
  return first_difference(was, is, "plugins");
}

}  // namespace ferry::kata
